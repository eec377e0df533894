"""Past GPU use of pods, minute by minute, from series of dcgm-exporter that Prometheus has kept.

A past pod is known only by its namespace and name; its uid, node and share are not known any more. A card that several
pods share is measured as a whole, so a busy neighbour can make a pod look busy, but never idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from hub_extensions.core.gpu.dcgm import FIELDS, MOST_PERCENT, Field, is_ratio_for_percent, owner_of

STEP = timedelta(minutes=1)
ANOTHER_POD = timedelta(minutes=10)
"""After a gap of this length, a pod of the same name counts as another pod."""


@dataclass(frozen=True, slots=True)
class PodHistory:
    """The past GPU use of a pod.

    Attributes:
        profile: MIG profile; "" for a whole card.
        used: start of the minute -> highest use in percent. Minutes without a measurement are missing.
    """

    namespace: str
    pod: str
    profile: str
    used: Mapping[datetime, float]


def past_use(name: str, labels: Mapping[str, str], samples: Mapping[float, float | None]) -> PodHistory | None:
    """Return the past GPU use of the pod that a series names.

    Args:
        name: name of the metric.
        labels: labels of the series.
        samples: Unix time -> value, None if it is not a number.

    Returns:
        None if the series names no pod, or has no usable sample.
    """
    owner, (meant, factor) = owner_of(labels), FIELDS[name]
    profile = labels.get("GPU_I_PROFILE", "")
    if owner is None or (meant is Field.CARD and profile):
        return None  # the value of the whole card is always 0 for a MIG device
    used = {
        minute: min(100.0, value * factor)
        for at, value in samples.items()
        if value is not None
        and not is_ratio_for_percent(name, value)
        and 0 <= value * factor <= MOST_PERCENT
        and (minute := _minute(at)) is not None
    }
    return PodHistory(*owner, profile, used) if used else None


def past_pods(parts: Iterable[PodHistory]) -> Iterator[PodHistory]:
    """Merge the histories of each pod, with the highest use of each minute.

    If the measurements of a name are interrupted for longer than `ANOTHER_POD`, the measurements after the interruption
    count as those of another pod with the same name.

    Args:
        parts: the history of a pod from each single series.
    """
    together: dict[tuple[str, str, str], dict[datetime, float]] = {}
    for part in parts:
        used = together.setdefault((part.namespace, part.pod, part.profile), {})
        for at, percent in part.used.items():
            used[at] = max(percent, used.get(at, 0.0))
    for key, used in sorted(together.items()):
        run: dict[datetime, float] = {}
        before: datetime | None = None
        for at in sorted(used):
            if before is not None and at - before > ANOTHER_POD:
                yield PodHistory(*key, run)
                run = {}
            run[at] = used[at]
            before = at
        yield PodHistory(*key, run)


def _minute(at: float) -> datetime | None:
    """Return the start of the minute that ends at this Unix time, or None if it is not a valid time."""
    if not math.isfinite(at):
        return None
    try:
        return (datetime.fromtimestamp(at, timezone.utc) - STEP).replace(second=0, microsecond=0)
    except (OverflowError, ValueError, OSError):
        return None
