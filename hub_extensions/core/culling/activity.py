"""Since when nobody has used a server without a GPU, by a clock of our own beside the hub's `last_activity`. Pure.

A proxy that is started anew calls every server active while it gets its routes, and the hub believes it. So the service
remembers since when a server is quiet, and sees by what all quiet servers did at once that the proxy was restarted:

| a server that was quiet                                      | counts as quiet since               |
| ------------------------------------------------------------ | ----------------------------------- |
| has no activity since                                        | then                                |
| has some, as all quiet ones in the same moment               | that moment, for `SETTLED`          |
| … and no more of it after `SETTLED`                          | then, as if there had been none     |
| has some of its own, later, or while others stayed quiet     | its last activity                   |

Fewer than `WITNESSES` prove nothing: in doubt somebody came back. Times are on the running clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.evidence import ServerFacts

ServerKey = tuple[str, str]

QUIET = timedelta(minutes=10)
"""Without activity for so long, a server is quiet."""
WITNESSES = 3
AT_ONCE = timedelta(seconds=5)
"""The hub gives a proxy the routes of a few servers within this time, and …"""
A_ROUTE = timedelta(milliseconds=20)
"""… each one more takes this long at most."""
SETTLED = timedelta(minutes=15)
"""Whoever uses a server moves its activity again within this time: the hub hears of it every 5 minutes."""
SAME = timedelta(seconds=1)
"""Times that were read from two clocks differ by no more."""


@dataclass(frozen=True, slots=True)
class RoutesRenewed:
    """When a proxy was given the routes of all servers anew: between these two."""

    first: datetime
    last: datetime


def routes_renewed(quiet: Mapping[ServerKey, datetime], activity: Mapping[ServerKey, datetime]) -> RoutesRenewed | None:
    """Whether all quiet servers became active in one moment, as only a restarted proxy has it; None: they did not.

    Args:
        quiet: since when each is. activity: the hub's figures, as they are now.
    """
    seen = [activity[server] for server, since in quiet.items() if server in activity]
    if len(seen) < WITNESSES or any(
        activity[server] <= since + SAME for server, since in quiet.items() if server in activity
    ):
        return None
    first, last = min(seen), max(seen)
    return RoutesRenewed(first, last) if last - first <= AT_ONCE + len(activity) * A_ROUTE else None


def last_used(
    activity: datetime, quiet_since: datetime | None, renewed: RoutesRenewed | None, now: datetime
) -> datetime:
    """When a server was used last, by the hub's figure and by what is remembered: see the table above."""
    if quiet_since is None:
        return activity
    if activity <= quiet_since + SAME:
        return quiet_since
    by_proxy = _is_the_proxys(activity, quiet_since, renewed)
    return quiet_since if by_proxy and renewed is not None and now - renewed.last >= SETTLED else activity


def remember_quiet(
    facts: ServerFacts, activity: datetime | None, renewed: RoutesRenewed | None, now: datetime
) -> ServerFacts:
    """The facts of a server without a GPU, with since when it is quiet (`idle_since`); None: it is not, or not yet."""
    if activity is None:
        return facts
    if facts.idle_since is not None:
        if activity <= facts.idle_since + SAME or _is_the_proxys(activity, facts.idle_since, renewed):
            return facts
        return replace(facts, idle_since=activity if now - activity >= QUIET else None)
    return replace(facts, idle_since=activity) if now - activity >= QUIET else facts


def _is_the_proxys(activity: datetime, quiet_since: datetime, renewed: RoutesRenewed | None) -> bool:
    """It was quiet as the routes were renewed, and nothing has come after that."""
    return renewed is not None and quiet_since < renewed.first and activity <= renewed.last + SAME
