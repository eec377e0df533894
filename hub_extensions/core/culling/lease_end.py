"""When a lease (a server's right to its device) ends at the latest: by the limits, and as promised to its user.

The wait forecast and its upper bound, which users see as "at most ...", are computed from these times.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import lifetime_end
from hub_extensions.core.culling.evidence import ServerFacts
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.stops import Cause, StopCause, latest_end


def limit_end(lease: Lease, longest: timedelta | None, start_allowance: timedelta) -> datetime | None:
    """Return when the lifetime ends a lease at the latest; `None` if no end is enforced.

    Args:
        longest: how long the server may run at most, whichever rule applies; `None` if it may run without a limit.
        start_allowance: how long a start may take, for a server that is not ready yet.
    """
    if longest is None:
        return None
    begins = lease.since + start_allowance if lease.ready_at is None else lease.ready_at
    return begins + longest


def shown_end(ends_at: datetime | None, facts: ServerFacts | None) -> datetime | None:
    """Return the end of a lease by the present limits, but not before an end that the server's user was shown.

    Args:
        ends_at: the end by the present limits; `None` if they enforce none.
        facts: facts about the lease's server; `None` if the server is not ready.
    """
    if ends_at is None or facts is None:
        return ends_at
    return max(ends_at, facts.ends_at or ends_at, facts.promised or ends_at)


def enforced_end(
    ends_at: datetime | None, facts: ServerFacts, orders: tuple[StopCause, ...], policy: CullPolicy, now: datetime
) -> datetime | None:
    """Return when a server really ends at the latest; `None` if nothing enforces an end.

    The lifetime does not end the server before its user was warned for long enough, nor before a time that a countdown
    has shown. An order may end the server sooner.

    Args:
        ends_at: the end of the server's lease by the present limits; `None` if they enforce none.
        facts: what the service remembers of the server.
        orders: the orders to stop the server.
        policy: the limits for this server.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    causes = [*orders]
    if ends_at is not None:
        known = max(ends_at, facts.ends_at or ends_at)
        if facts.promised is not None or known <= now + policy.warn:  # further away, a warning changes nothing
            known = max(known, lifetime_end(facts, policy, now) or known)
        causes.append(StopCause(Cause.LIFETIME, known, False, "lifetime"))
    return latest_end(causes)
