"""What dcgm-exporter said of pods in the past, minute by minute, as Prometheus keeps it.

Here a pod is known by its names alone: nobody can ask any more what its uid, node and shares were. A card that several
pods share is measured as a whole, so a busy neighbour makes a pod look busy, never idle. Pure. Not here: the present
(``dcgm.py``), and how Prometheus is asked (``adapters/prometheus.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from hub_extensions.core.gpu.dcgm import FIELDS, MOST_PERCENT, Field, is_ratio_for_percent, owner_of

STEP = timedelta(minutes=1)
ANOTHER_POD = timedelta(minutes=10)
"""After so long without a sample a pod of the same name is another one."""


@dataclass(frozen=True, slots=True)
class PodHistory:
    """A pod, its MIG profile ("": a whole card), and the use in percent by the minute's begin."""

    namespace: str
    pod: str
    profile: str
    used: Mapping[datetime, float]


def past_use(name: str, labels: Mapping[str, str], samples: Mapping[float, float | None]) -> PodHistory | None:
    """What one series says; None: nothing of a pod. `samples`: Unix time -> value, None where it is no number."""
    owner, (meant, factor) = owner_of(labels), FIELDS[name]
    profile = labels.get("GPU_I_PROFILE", "")
    if owner is None or (meant is Field.CARD and profile):
        return None  # of a MIG device the card's figure is always 0
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
    """Each pod once, with the highest use of all that is said of a minute; a long gap makes two of one name."""
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
    """The minute that ends then."""
    if not math.isfinite(at):
        return None
    try:
        return (datetime.fromtimestamp(at, timezone.utc) - STEP).replace(second=0, microsecond=0)
    except (OverflowError, ValueError, OSError):
        return None
