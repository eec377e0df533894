"""The certainty of a comparison of two methods, by bootstrapping: the ratio of their errors in resampled logs.

A resampled log consists of busy episodes (from the first waiting session until the line is empty) that are drawn from
the log with replacement. Whole episodes are drawn, because the waits within one episode are not independent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from hub_extensions.core.forecast.interval import Interval
from hub_extensions.tools.backtest.replay import ScoredForecast

RESAMPLED = 200
Ratios = tuple[float, ...]
"""The mean error of our forecast divided by that of another method, for each resampled log."""
ErrorOf = Callable[[Interval, float], float]


def resampled(forecasts: Sequence[ScoredForecast], other: str, error: ErrorOf) -> Ratios:
    """Return the mean error of our forecast divided by that of another method, for each resampled log.

    Empty without forecasts of the other method.

    Args:
        forecasts: the forecasts of all methods. Our error is the mean over the seeds (our forecast is made once with
            each).
        other: name of the other method.
        error: returns the error of one forecast for a real wait.
    """
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
    """Return lower and upper end of the interval that contains 90 % of the ratios; None if `ratios` is empty."""
    ordered = sorted(ratios)
    return (ordered[int(0.05 * len(ordered))], ordered[int(0.95 * len(ordered))]) if ordered else None


def geometric_means(runs: Sequence[Ratios]) -> Ratios:
    """Return the geometric mean of the ratios of several runs, for each resampled log.

    Runs without ratios are left out.

    Args:
        runs: for each run (a log on a pool) its ratios, one for each resampled log.
    """
    return tuple(geometric_mean(ratios) for ratios in zip(*(run for run in runs if run), strict=True))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios; NaN if `values` is empty."""
    return math.exp(sum(math.log(max(value, 1e-9)) for value in values) / len(values)) if values else math.nan
