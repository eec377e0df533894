"""The admin's limits, checked, and in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.reasons import Reason, explain
from hub_extensions.core.settings import setting
from hub_extensions.core.wording import duration


@dataclass(frozen=True)
class CullPolicy:
    """When servers are stopped to give their GPU to the next in line.

    All times are running time of hub and service: an outage moves every deadline.
    """

    section: ClassVar[str] = "GpuCulling"

    enabled: bool = setting(
        False,
        "True stops servers by the limits below. False only writes into the service's log what would have been "
        "stopped: no server stops, no countdown is shown, and no wait for a GPU in use is said to be at most so long.",
    )
    idle: timedelta = setting(
        timedelta(minutes=30), "A server whose GPU was idle for this long is stopped.", name="idle_minutes", least=0
    )
    idle_by_offer: Mapping[str, timedelta] = setting(
        {},
        'Another idle limit for single offers, by the offer\'s id: {"gpu": 15}.',
        name="idle_minutes_by_offer",
        least=0,
    )
    idle_below_percent: float = setting(
        5.0, "A GPU used less than this is idle. Unit: percent, 0 to 100.", least=0, most=100
    )
    warn: timedelta = setting(
        timedelta(minutes=10), "Users are warned this long before their server stops.", name="warn_minutes", least=0
    )
    keep: timedelta = setting(
        timedelta(minutes=30), "How much time one press of Keep adds.", name="keep_minutes", least=0
    )
    keeps_per_day: int = setting(2, "How often a user may press Keep in 24 hours, whatever server it is for.", least=0)
    lifetime: timedelta | None = setting(
        timedelta(hours=12),
        "A server with a GPU ends after this, busy or not; Keep does not move it. None: no such limit.",
        name="lifetime_hours",
        least=0,
    )
    grace: timedelta = setting(
        timedelta(minutes=10),
        "No idle time is counted this long after a server's start.",
        name="grace_minutes",
        least=0,
    )
    unopened: timedelta | None = setting(
        timedelta(minutes=15),
        "A server with a GPU that nobody has opened this long after its start, and whose GPU nothing has used, is "
        "stopped, and its user is told. None: never.",
        name="unopened_minutes",
        least=0,
    )
    cpu_idle: timedelta | None = setting(
        timedelta(hours=12),
        "A server without a GPU is stopped when its user was away for this long and no kernel is busy. None: never.",
        name="cpu_idle_minutes",
        least=0,
    )
    stops_at_once: int = setting(10, "So many servers are being stopped at the same time at most.", least=1)
    stops_per_minute: int = setting(
        30, "So many stops begin within a minute at most; those whose GPU is wanted most come first.", least=1
    )


class PolicyError(ValueError):
    """A limit that cannot be followed.

    Attributes:
        field: the field of `CullPolicy`.
        text: what is wrong and what would be right.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


def ends_at(started: datetime, policy: CullPolicy) -> datetime | None:
    """When the lifetime ends a GPU server that was ready at `started`; None: no limit is enforced (a dry run, too)."""
    return started + policy.lifetime if policy.enabled and policy.lifetime is not None else None


def culling_rule(policy: CullPolicy) -> Reason | None:
    """When a GPU server stops; None in a dry run."""
    if not policy.enabled:
        return None
    limits = (policy.idle, *policy.idle_by_offer.values())
    code, lengths = "rule", dict[str, Any](idle=min(limits), warn=policy.warn)
    if min(limits) != max(limits):
        code, lengths["longest"] = f"{code}-by-offer", max(limits)
    if policy.lifetime is not None:
        code, lengths["limit"] = f"{code}-at-most", policy.lifetime
    return explain(code, **lengths)


def culling_sentence(policy: CullPolicy) -> str:
    """When a GPU server stops, for the spawn form; empty in a dry run."""
    rule = culling_rule(policy)
    return "" if rule is None else rule.message


def check_policy(policy: CullPolicy) -> None:
    """Refuse limits that cannot be followed.

    Raises:
        PolicyError: the first field that is wrong.
    """
    for offer in policy.idle_by_offer:
        _check_offer(offer)
    if not 0 < policy.idle_below_percent <= 100:
        text = f"it has to be above 0 and at most 100, not {policy.idle_below_percent:g}"
        raise PolicyError("idle_below_percent", text)
    if policy.keeps_per_day < 0:
        raise PolicyError("keeps_per_day", f"it has to be 0 or more, not {policy.keeps_per_day}")
    for name, number in (("stops_at_once", policy.stops_at_once), ("stops_per_minute", policy.stops_per_minute)):
        if number < 1:
            raise PolicyError(name, f"it has to be 1 or more, not {number}")
    if policy.grace < timedelta(0):
        raise PolicyError("grace", "it has to be 0 or more")
    for name, value in (("warn", policy.warn), ("keep", policy.keep)):
        if value <= timedelta(0):
            raise PolicyError(name, "it has to be longer than 0")
    limits = {
        "idle": policy.idle,
        **{f"idle_by_offer[{offer!r}]": limit for offer, limit in policy.idle_by_offer.items()},
        "lifetime": policy.lifetime,
        "unopened": policy.unopened,
        "cpu_idle": policy.cpu_idle,
    }
    for name, limit in limits.items():
        if limit is not None and limit <= timedelta(0):
            raise PolicyError(name, "it has to be longer than 0")
        if limit is not None and limit < policy.warn:
            raise PolicyError(name, f"it has to be as long as the warning at least ({duration(policy.warn)})")


def _check_offer(offer: str) -> None:
    try:
        OfferId(offer)
    except OfferIdError as error:
        raise PolicyError(f"idle_by_offer[{offer!r}]", str(error)) from error
    if offer == CPU:
        raise PolicyError(f"idle_by_offer[{offer!r}]", "CPU-only servers have a limit of their own: cpu_idle")
