"""Since when nobody has used a server without a GPU, corrected for restarts of the proxy.

The hub's `last_activity` is not enough: a restarted proxy reports every server as active while it gets its routes, and
the hub takes that as activity. So the service remembers since when a server is quiet (not active). It recognises a
restart of the proxy because all quiet servers become active at the same moment:

| a server that was quiet                                      | counts as quiet since               |
| ------------------------------------------------------------ | ----------------------------------- |
| has not been active since then                               | then                                |
| became active in the same moment as all other quiet ones     | that moment, for `SETTLED`          |
| … and was not active again after `SETTLED`                   | then, as if it had not been active  |
| became active later, or while others stayed quiet            | its last activity                   |

With fewer than `WITNESSES` quiet servers, activity always counts as a user's. Times are on the running clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.evidence import ServerFacts

ServerKey = tuple[str, str]
"""Name of the user and of the server."""

QUIET = timedelta(minutes=10)  # a server without activity for this long is quiet
WITNESSES = 3  # quiet servers that have to become active together to prove a restart of the proxy
AT_ONCE = timedelta(seconds=5)
"""Time within which the hub gives a restarted proxy the routes of a few servers, without `A_ROUTE` for each of them."""
A_ROUTE = timedelta(milliseconds=20)
"""Longest time that each route takes in addition."""
SETTLED = timedelta(minutes=15)
"""Time within which a user who is really at work is reported as active again; the hub is informed every 5 minutes."""
SAME = timedelta(seconds=1)  # largest difference between the same moment read from two clocks


@dataclass(frozen=True, slots=True)
class RoutesRenewed:
    """A restart of the proxy.

    Attributes:
        first, last: times between which the proxy received the routes of all servers again.
    """

    first: datetime
    last: datetime


def routes_renewed(quiet: Mapping[ServerKey, datetime], activity: Mapping[ServerKey, datetime]) -> RoutesRenewed | None:
    """Return when the proxy was restarted; `None` if no restart is recognised.

    It is recognised if all quiet servers became active at the same moment, and there are at least `WITNESSES` of them.

    Args:
        quiet: server -> since when it is quiet (not active), as the service remembers.
        activity: server -> the hub's present `last_activity`.
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
    """Return when a server was last used by its user, by the table in the module's docstring.

    Args:
        activity: the hub's `last_activity`.
        quiet_since: since when the service remembers the server as quiet (not active); `None` if it does not.
        renewed: when the proxy was last restarted; `None` if no restart was recognised.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    if quiet_since is None:
        return activity
    if activity <= quiet_since + SAME:
        return quiet_since
    by_proxy = _is_the_proxys(activity, quiet_since, renewed)
    return quiet_since if by_proxy and renewed is not None and now - renewed.last >= SETTLED else activity


def remember_quiet(
    facts: ServerFacts, activity: datetime | None, renewed: RoutesRenewed | None, now: datetime
) -> ServerFacts:
    """Return the facts of a server without a GPU, with `idle_since` as the time since which it is quiet (not active).

    Args:
        facts: what the service remembers of the server.
        activity: the hub's `last_activity`; `None` if not known, which changes nothing.
        renewed: when the proxy was last restarted; `None` if no restart was recognised.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    if activity is None:
        return facts
    if facts.idle_since is not None:
        if activity <= facts.idle_since + SAME or _is_the_proxys(activity, facts.idle_since, renewed):
            return facts
        return replace(facts, idle_since=activity if now - activity >= QUIET else None)
    return replace(facts, idle_since=activity) if now - activity >= QUIET else facts


def _is_the_proxys(activity: datetime, quiet_since: datetime, renewed: RoutesRenewed | None) -> bool:
    """Return whether a restart of the proxy, and no user, caused the last activity of a server.

    Args:
        activity: the last activity of the server.
        quiet_since: since when the service remembers the server as not active.
        renewed: when a restarted proxy got its routes again; `None` if no restart was seen.
    """
    return renewed is not None and quiet_since < renewed.first and activity <= renewed.last + SAME
