"""How sure a comparison is. Waits of one busy episode are alike, so whole episodes are drawn again, not waits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from hub_extensions.core.forecast.interval import Interval
from hub_extensions.tools.backtest.replay import ScoredForecast

RESAMPLED = 200
Ratios = tuple[float, ...]
"""Of each redrawn log: our error to another's."""
ErrorOf = Callable[[Interval, float], float]


def resampled(forecasts: Sequence[ScoredForecast], other: str, error: ErrorOf) -> Ratios:
    """Our error, the mean over the seeds, to that of `other`; of every run the same draws, none where it is missing."""
    episodes: dict[int, list[float]] = {}
    for each in forecasts:
        if other in each.others:
            sums = episodes.setdefault(each.episode, [0.0, 0.0])
            sums[0] += sum(error(ours, each.real) for ours in each.ours) / len(each.ours)
            sums[1] += error(each.others[other], each.real)
    if not episodes:
        return ()
    rng, known, found = random.Random(1), list(episodes.values()), []
    for _ in range(RESAMPLED):
        drawn = rng.choices(known, k=len(known))
        found.append(sum(ours for ours, _ in drawn) / max(1e-9, sum(theirs for _, theirs in drawn)))
    return tuple(found)


def spread(ratios: Ratios) -> tuple[float, float] | None:
    """Nine of ten of them lie from here to there; None: there are none."""
    ordered = sorted(ratios)
    return (ordered[int(0.05 * len(ordered))], ordered[int(0.95 * len(ordered))]) if ordered else None


def geometric_means(runs: Sequence[Ratios]) -> Ratios:
    """Of each redraw the geometric mean over the runs, each of which was redrawn by itself."""
    return tuple(geometric_mean(ratios) for ratios in zip(*(run for run in runs if run), strict=True))


def geometric_mean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(sum(math.log(max(value, 1e-9)) for value in values) / len(values)) if values else math.nan
