"""Score the forecasts of one run (a log on a pool).

The scores are errors, coverage (how often the wait was within the forecast), and how certain the comparison with other
methods is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from hub_extensions.core.forecast.interval import SOON, Interval
from hub_extensions.tools.backtest.baselines import PAST_MEAN, TSAFRIR
from hub_extensions.tools.backtest.bootstrap import Ratios, resampled
from hub_extensions.tools.backtest.replay import ScoredForecast

HOUR = 3600.0
NEAR_SECONDS, NEAR = 600.0, 0.3


@dataclass(frozen=True, slots=True)
class Score:
    """The quality of the forecasts of one method in one run. Errors are in hours, shares from 0 to 1.

    Attributes:
        mae: mean absolute error of the median.
        median_error: median of the absolute error of the median.
        pinball_50, pinball_90: mean quantile loss of the median and of P90 (see `pinball`).
        coverage_90: share of the waits that were not longer than P90.
        coverage_80: share of the waits between P10 and P90.
        width: mean of P90 - P50, in hours.
        near: share of the forecasts within 10 minutes or 30 % of the real wait.
    """

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
    """The result of one log on one pool.

    Attributes:
        pool: name of the pool, with that of the log.
        has_users: the log distinguishes users.
        forecasts: number of forecasts.
        mean_wait: mean of the real waits, in hours.
        ours: scores of our forecast, as the mean over its random seeds.
        raw: scores of our forecast before it is corrected by past errors, as the mean over its random seeds.
        others: name of a simple method -> its scores.
        soon_error: error of our probability that a session starts within an hour. The forecasts are divided into five
            bins by this probability. In each bin the mean probability is compared with the share of the sessions that
            did start within an hour. The differences are averaged, each bin with the number of its forecasts as weight.
        slowest: 95th percentile of the processor seconds of one forecast.
        last_two: our MAE divided by that of the method `TSAFRIR` (each session lasts as long as the user's last two),
            for each resampled log.
        best_other: our MAE divided by that of the simple method with the smallest MAE, for each resampled log.
        best_loss: our P90 loss divided by that of the simple method with the smallest one, for each resampled log.
        bound_ratio: median of the upper bound divided by the real wait; None if no limit is enforced.
        without_reports: our MAE of the same run if no session reports when it will end; None if no session reports
            anyway.
        episodes: number of busy episodes in the test.
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
    last_two: Ratios
    best_other: Ratios
    best_loss: Ratios
    bound_ratio: float | None = None
    without_reports: float | None = None
    episodes: int = 0

    @property
    def simple(self) -> Score:
        """The scores of a simple method that is chosen in advance, not by its results.

        It is `TSAFRIR`, which uses each user's last two sessions, or `PAST_MEAN` if the log does not distinguish users.
        """
        return self.others[TSAFRIR if self.has_users else PAST_MEAN]

    @property
    def best_mae(self) -> float:
        return min(score.mae for score in self.others.values())

    @property
    def best_pinball(self) -> float:
        return min(score.pinball_90 for score in self.others.values())


def score_run(pool: str, has_users: bool, forecasts: Sequence[ScoredForecast]) -> Run | None:
    """Return the scores of a run, or None if no session had to wait.

    Args:
        pool: name of the pool, with that of the log.
        has_users: the log distinguishes users.
        forecasts: the forecasts for the test, with the real waits.
    """
    if not forecasts:
        return None
    seeds = range(len(forecasts[0].ours))
    names = [name for name in forecasts[0].others if all(name in each.others for each in forecasts)]
    took = sorted(each.took for each in forecasts)
    others = {name: score_of([(each.others[name], each.real) for each in forecasts]) for name in names}
    return Run(
        pool,
        has_users,
        len(forecasts),
        sum(each.real for each in forecasts) / len(forecasts) / HOUR,
        mean_score([score_of([(each.ours[seed], each.real) for each in forecasts]) for seed in seeds]),
        mean_score([score_of([(each.raw[seed], each.real) for each in forecasts]) for seed in seeds]),
        others,
        _soon_error(forecasts),
        took[min(len(took) - 1, int(0.95 * len(took)))],
        resampled(forecasts, TSAFRIR, _off),
        resampled(forecasts, min(names, key=lambda name: others[name].mae), _off),
        resampled(forecasts, min(names, key=lambda name: others[name].pinball_90), _loss_90),
        _bound_ratio(forecasts),
        episodes=len({each.episode for each in forecasts}),
    )


def score_of(pairs: Sequence[tuple[Interval, float]]) -> Score:
    """Return the scores of one method.

    Args:
        pairs: each of its forecasts with the real wait, in seconds.
    """
    count = len(pairs)
    errors = sorted(abs(forecast.p50 - real) for forecast, real in pairs)
    return Score(
        sum(errors) / count / HOUR,
        errors[count // 2] / HOUR,
        sum(pinball(0.5, forecast.p50, real) for forecast, real in pairs) / count / HOUR,
        sum(pinball(0.9, forecast.p90, real) for forecast, real in pairs) / count / HOUR,
        sum(real <= forecast.p90 for forecast, real in pairs) / count,
        sum(forecast.p10 <= real <= forecast.p90 for forecast, real in pairs) / count,
        sum(forecast.p90 - forecast.p50 for forecast, _ in pairs) / count / HOUR,
        sum(abs(forecast.p50 - real) <= max(NEAR_SECONDS, NEAR * real) for forecast, real in pairs) / count,
    )


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean of several scores, field by field.

    Args:
        scores: scores of the same forecast with different random seeds.
    """
    return Score(*(sum(each) / len(scores) for each in zip(*map(astuple, scores), strict=True)))


def pinball(share: float, forecast: float, real: float) -> float:
    """Return the quantile (pinball) loss of a forecast.

    Each second by which the real wait exceeds the forecast costs `share`. Each second by which the real wait is shorter
    than the forecast costs 1 - `share`.

    Args:
        share: the quantile that is forecast, such as 0.9.
        forecast: the forecast of this quantile, in seconds.
        real: the real wait, in seconds.
    """
    return share * (real - forecast) if real >= forecast else (1 - share) * (forecast - real)


def _off(forecast: Interval, real: float) -> float:
    return abs(forecast.p50 - real)


def _loss_90(forecast: Interval, real: float) -> float:
    return pinball(0.9, forecast.p90, real)


def _bound_ratio(forecasts: Sequence[ScoredForecast]) -> float | None:
    """Return the median of upper bound divided by real wait; None if no forecast has a bound.

    Waits below a minute are left out, because any bound exceeds them by far.

    Args:
        forecasts: the forecasts with their upper bounds and the real waits.
    """
    found = sorted(each.bound / each.real for each in forecasts if each.bound is not None and each.real >= 60)
    return found[len(found) // 2] if found else None


def _soon_error(forecasts: Sequence[ScoredForecast]) -> float:
    bins: dict[int, list[tuple[float, bool]]] = {}
    for each in forecasts:
        forecast = each.ours[0].within[1]
        bins.setdefault(min(4, int(5 * forecast)), []).append((forecast, each.real <= SOON[1]))
    off = sum(abs(sum(p for p, _ in found) - sum(came for _, came in found)) for found in bins.values())
    return off / len(forecasts)
