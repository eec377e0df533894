"""The protocol's figures of one run: errors, coverage, and how sure the comparison is, by busy episode."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from hub_extensions.core.queue.interval import SOON, Interval
from hub_extensions.tools.backtest.baselines import TSAFRIR
from hub_extensions.tools.backtest.replay import ScoredForecast

HOUR = 3600.0
RESAMPLED = 200
NEAR_SECONDS, NEAR = 600.0, 0.3


@dataclass(frozen=True, slots=True)
class Score:
    """Hours, and shares from 0 to 1."""

    mae: float
    median_error: float
    pinball_50: float
    pinball_90: float
    coverage_90: float
    coverage_80: float
    width: float
    near: float


@dataclass(frozen=True, slots=True)
class Run:
    """One log on one pool.

    Attributes:
        ours: the mean over the seeds. raw: before the correction. others: by name.
        soon_error: how far P(start within an hour) is off, on average over five bins of it.
        ratio_low, ratio_high: 90 % of the resampled ratios of MAE to the user's last two, played.
        bound_ratio: "at most" of the limits to the real wait, the median; None: nothing is enforced.
        without_reports: our MAE of the same run where nobody reports his end; None: nobody does.
    """

    pool: str
    has_users: bool
    forecasts: int
    mean_wait: float
    ours: Score
    raw: Score
    others: Mapping[str, Score]
    soon_error: float
    slowest: float
    ratio_low: float
    ratio_high: float
    bound_ratio: float | None = None
    without_reports: float | None = None

    @property
    def best_mae(self) -> float:
        return min(score.mae for score in self.others.values())

    @property
    def best_pinball(self) -> float:
        return min(score.pinball_90 for score in self.others.values())


def score_run(pool: str, has_users: bool, forecasts: Sequence[ScoredForecast]) -> Run | None:
    """None: nobody had to wait."""
    if not forecasts:
        return None
    seeds = range(len(forecasts[0].ours))
    names = [name for name in forecasts[0].others if all(name in each.others for each in forecasts)]
    took = sorted(each.took for each in forecasts)
    low, high = _resampled(forecasts)
    return Run(
        pool,
        has_users,
        len(forecasts),
        sum(each.real for each in forecasts) / len(forecasts) / HOUR,
        _mean([_score([(each.ours[seed], each.real) for each in forecasts]) for seed in seeds]),
        _mean([_score([(each.raw[seed], each.real) for each in forecasts]) for seed in seeds]),
        {name: _score([(each.others[name], each.real) for each in forecasts]) for name in names},
        _soon_error(forecasts),
        took[min(len(took) - 1, int(0.95 * len(took)))],
        low,
        high,
        _bound_ratio(forecasts),
    )


def _score(pairs: Sequence[tuple[Interval, float]]) -> Score:
    count = len(pairs)
    errors = sorted(abs(forecast.p50 - real) for forecast, real in pairs)
    return Score(
        sum(errors) / count / HOUR,
        errors[count // 2] / HOUR,
        sum(_pinball(0.5, forecast.p50, real) for forecast, real in pairs) / count / HOUR,
        sum(_pinball(0.9, forecast.p90, real) for forecast, real in pairs) / count / HOUR,
        sum(real <= forecast.p90 for forecast, real in pairs) / count,
        sum(forecast.p10 <= real <= forecast.p90 for forecast, real in pairs) / count,
        sum(forecast.p90 - forecast.p50 for forecast, _ in pairs) / count / HOUR,
        sum(abs(forecast.p50 - real) <= max(NEAR_SECONDS, NEAR * real) for forecast, real in pairs) / count,
    )


def _mean(scores: Sequence[Score]) -> Score:
    return Score(*(sum(each) / len(scores) for each in zip(*map(astuple, scores), strict=True)))


def _pinball(share: float, forecast: float, real: float) -> float:
    return share * (real - forecast) if real >= forecast else (1 - share) * (forecast - real)


def _bound_ratio(forecasts: Sequence[ScoredForecast]) -> float | None:
    """Of those who waited a minute at least: a bound is many times a wait of seconds."""
    found = sorted(each.bound / each.real for each in forecasts if each.bound is not None and each.real >= 60)
    return found[len(found) // 2] if found else None


def _soon_error(forecasts: Sequence[ScoredForecast]) -> float:
    bins: dict[int, list[tuple[float, bool]]] = {}
    for each in forecasts:
        forecast = each.ours[0].within[1]
        bins.setdefault(min(4, int(5 * forecast)), []).append((forecast, each.real <= SOON[1]))
    off = sum(abs(sum(p for p, _ in found) - sum(came for _, came in found)) for found in bins.values())
    return off / len(forecasts)


def _resampled(forecasts: Sequence[ScoredForecast]) -> tuple[float, float]:
    """Waits of one busy episode are alike, so whole episodes are drawn."""
    episodes: dict[int, list[float]] = {}
    for each in forecasts:
        if TSAFRIR in each.others:
            sums = episodes.setdefault(each.episode, [0.0, 0.0])
            sums[0] += abs(each.ours[0].p50 - each.real)
            sums[1] += abs(each.others[TSAFRIR].p50 - each.real)
    if not episodes:
        return math.nan, math.nan
    rng, found, known = random.Random(1), [], list(episodes.values())
    for _ in range(RESAMPLED):
        drawn = rng.choices(known, k=len(known))
        found.append(sum(a for a, _ in drawn) / max(1e-9, sum(b for _, b in drawn)))
    found.sort()
    return found[int(0.05 * RESAMPLED)], found[int(0.95 * RESAMPLED)]


def geometric_mean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(sum(math.log(max(value, 1e-9)) for value in values) / len(values)) if values else math.nan
