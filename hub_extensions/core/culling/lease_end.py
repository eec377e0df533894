"""The end of a lease: by the present limits, as its user was shown, and as its server will really end."""

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
        longest: how long the server runs at most under any rule; `None` if no rule ends it for certain.
        start_allowance: how long a start may take.
    """
    if longest is None:
        return None
    begins = lease.since + start_allowance if lease.ready_at is None else lease.ready_at
    return begins + longest


def shown_end(ends_at: datetime | None, facts: ServerFacts | None) -> datetime | None:
    """Return the end that the present limits give, but not before the end that its user was shown.

    Args:
        facts: of the server under the lease; `None` if the server is not ready.
    """
    if ends_at is None or facts is None:
        return ends_at
    return max(ends_at, facts.ends_at or ends_at, facts.promised or ends_at)


def enforced_end(
    ends_at: datetime | None, facts: ServerFacts, orders: tuple[StopCause, ...], policy: CullPolicy, now: datetime
) -> datetime | None:
    """Return the real end of the server: not before a warning or a promised time, unless an order comes first."""
    causes = [*orders]
    if ends_at is not None:
        known = max(ends_at, facts.ends_at or ends_at)
        if facts.promised is not None or known <= now + policy.warn:  # further away, a warning changes nothing
            known = max(known, lifetime_end(facts, policy, now) or known)
        causes.append(StopCause(Cause.LIFETIME, known, False, "lifetime"))
    return latest_end(causes)
