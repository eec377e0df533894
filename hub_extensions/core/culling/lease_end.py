"""When a lease ends: by the limits of today, as its user was shown, and as its server really will.

Not here: which limits a server is under (``rules.py``), and when a server is warned and stopped (``decision.py``).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import lifetime_end
from hub_extensions.core.culling.evidence import ServerFacts
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.stops import Cause, StopCause, latest_end


def limit_end(lease: Lease, longest: timedelta | None, start_allowance: timedelta) -> datetime | None:
    """When the lifetime ends a lease at the latest; None: nothing enforces an end.

    Args:
        longest: how long its server runs at most, by any rule; None: nothing ends it surely.
        start_allowance: how long a start may take.
    """
    if longest is None:
        return None
    begins = lease.since + start_allowance if lease.ready_at is None else lease.ready_at
    return begins + longest


def shown_end(ends_at: datetime | None, facts: ServerFacts | None) -> datetime | None:
    """The end that the limits of today give, and no earlier one than its user was shown.

    Args:
        facts: of the server under the lease; None: it is not ready.
    """
    if ends_at is None or facts is None:
        return ends_at
    return max(ends_at, facts.ends_at or ends_at, facts.promised or ends_at)


def enforced_end(ends_at: datetime | None, facts: ServerFacts, policy: CullPolicy, now: datetime) -> datetime | None:
    """The end that the server really has: none comes before its warning, or before a promised one; an order may."""
    causes = [each.as_cause(now) for each in facts.orders]
    if ends_at is not None:
        known = max(ends_at, facts.ends_at or ends_at)
        if facts.promised is not None or known <= now + policy.warn:  # else it is as far away as it looks
            known = max(known, lifetime_end(facts, policy, now) or known)
        causes.append(StopCause(Cause.LIFETIME, known, False, "lifetime"))
    return latest_end(causes)
