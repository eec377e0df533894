"""Present the result of a backtest: as a table, as JSON, and as a picture.

The picture shows forecasts against real waits, and the coverage: how often the wait was within the shown P90.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from hub_extensions.core.forecast.episodes import FEWEST_EPISODES
from hub_extensions.tools.backtest.baselines import TSAFRIR
from hub_extensions.tools.backtest.bootstrap import Ratios, geometric_mean, geometric_means, spread
from hub_extensions.tools.backtest.replay import ScoredForecast
from hub_extensions.tools.backtest.scores import HOUR, Run

REDRAWN = ("last_two", "best_other", "best_loss")
"""Fields of `Run` with a ratio for each resampled log, of which the reports show only the 90 % interval."""


def table(runs: Sequence[Run]) -> Table:
    """Return a table with one row for each run (the replay of a log on a pool). Times are hours.

    The ratios compare our error with that of another method, and have a 90 % interval in brackets.
    """
    found = Table(
        "pool", "waits", "busy episodes", "mean wait", "MAE", "last two", "ratio (90 %)", "best other", "ratio (90 %)",
        "P90 loss", "best other", "ratio (90 %)", "P90 covers", "raw", "P10-P90", "near", "P(<1 h) off",
        "at most / real", "p95 ms",
        box=None, pad_edge=False,
    )  # fmt: skip
    for run in runs:
        last_two = run.others[TSAFRIR].mae if TSAFRIR in run.others else math.nan
        found.add_row(
            run.pool,
            str(run.forecasts),
            str(run.episodes),
            *(f"{value:.2f}" for value in (run.mean_wait, run.ours.mae, last_two)),
            _with_spread(run.ours.mae / last_two, spread(run.last_two)),
            f"{run.best_mae:.2f}",
            _with_spread(run.ours.mae / run.best_mae, spread(run.best_other)),
            *(f"{value:.3f}" for value in (run.ours.pinball_90, run.best_pinball)),
            _with_spread(run.ours.pinball_90 / run.best_pinball, spread(run.best_loss)),
            *(f"{value:.2f}" for value in (run.ours.coverage_90, run.raw.coverage_90, run.ours.coverage_80)),
            f"{run.ours.near:.0%}",
            f"{run.soon_error:.2f}",
            "-" if run.bound_ratio is None else f"{run.bound_ratio:.1f}",
            f"{1000 * run.slowest:.0f}",
        )
    return found


def _with_spread(value: float, sure: tuple[float, float] | None) -> str:
    return f"{value:.2f}" if sure is None else f"{value:.2f} ({sure[0]:.2f}-{sure[1]:.2f})"


@dataclass(frozen=True, slots=True)
class Summary:
    """A figure over all runs (logs on pools), for the report.

    Attributes:
        name: what the figure is.
        value: the figure.
        sure: its 90 % interval over the resampled logs; None if it was not computed for them.
    """

    name: str
    value: float
    sure: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.name}: {_with_spread(self.value, self.sure)}"


def few_episodes(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that are left out of the means, because they have fewer than `FEWEST_EPISODES` busy episodes.

    Empty if all runs have so few, because then all are used.
    """
    few = [run for run in runs if run.episodes < FEWEST_EPISODES]
    return few if len(few) < len(runs) else []


def summary(runs: Sequence[Run]) -> list[Summary]:
    """Return the figures over all runs (replays of a log on a pool) with enough busy episodes (see `few_episodes`).

    The figures are geometric means and worst values of our error divided by that of other methods, and the coverage
    (how often the real wait was within the forecast).
    """
    few = few_episodes(runs)
    runs = [run for run in runs if run not in few]
    found: list[Summary] = []
    users, none = [run for run in runs if run.has_users], [run for run in runs if not run.has_users]
    played = [run for run in users if TSAFRIR in run.others]
    if played:
        ratios = [run.ours.mae / run.others[TSAFRIR].mae for run in played]
        found.append(_mean_ratio("MAE / user's last two played, with users", ratios, [r.last_two for r in played]))
    for name, some in (("with users", users), ("without users", none)):
        if some:
            errors = [run.ours.mae / run.best_mae for run in some]
            found.append(_mean_ratio(f"MAE / best other, {name}", errors, [run.best_other for run in some]))
            found.append(Summary(f"MAE / best other, {name}, worst pool", max(errors)))
            fixed = [run.ours.mae / run.simple.mae for run in some if run.simple.mae]
            found.append(Summary(f"MAE / one fixed simple method, {name}", geometric_mean(fixed)))
            losses = [run.ours.pinball_90 / run.best_pinball for run in some]
            found.append(_mean_ratio(f"P90 loss / best other, {name}", losses, [run.best_loss for run in some]))
            found.append(Summary(f"P90 loss / best other, {name}, worst pool", max(losses)))
    found.append(Summary("P90 covers, all", _by_forecast([(run.ours.coverage_90, run.forecasts) for run in runs])))
    found.append(Summary("P90 covers, worst run", min(run.ours.coverage_90 for run in runs)))
    reported = [run.ours.mae / run.without_reports for run in runs if run.without_reports]
    if reported:
        found.append(Summary("MAE with reports of the end / without", geometric_mean(reported)))
    bounds = [run.bound_ratio for run in runs if run.bound_ratio is not None]
    if bounds:
        found.append(Summary("at most / real wait, worst pool", max(bounds)))
    if users:
        near = _by_forecast([(run.ours.near, run.forecasts) for run in users])
        found.append(Summary("within 10 min or 30 %, with users", near))
    return found


def _mean_ratio(name: str, ratios: Sequence[float], redrawn: Sequence[Ratios]) -> Summary:
    return Summary(name, geometric_mean(ratios), spread(geometric_means(redrawn)))


def _by_forecast(shares: Sequence[tuple[float, int]]) -> float:
    return sum(share * count for share, count in shares) / sum(count for _, count in shares)


def as_json(runs: Sequence[Run]) -> str:
    """Return all runs, and the figures over them, as JSON. Times are hours, and shares are from 0 to 1.

    Of the ratios for resampled logs, only the 90 % interval is written.
    """
    listed = [asdict(run) | {name: spread(getattr(run, name)) for name in REDRAWN} for run in runs]
    figures = summary(runs)
    found = {
        "runs": listed,
        "all": {each.name: each.value for each in figures},
        "all_90": {each.name: each.sure for each in figures if each.sure is not None},
    }
    return json.dumps(_plain(found), indent=2, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


SIDE, GAP, EDGE = 300, 70, 45
DECADES = (1 / 60, 1000.0)
"""Range of both axes of the picture in hours: from a minute to six weeks."""
TICKS = ((1 / 60, "1 min"), (1.0, "1 h"), (24.0, "1 d"), (168.0, "1 w"))


def picture(shown: Sequence[ScoredForecast]) -> str:
    """Return an SVG with two diagrams of the forecasts that were shown.

    One has the medians against the real waits. The other has the coverage of P90: the share of sessions that started
    within it.

    Args:
        shown: the forecasts, with the real waits.
    """
    width, height = 2 * SIDE + GAP + 2 * EDGE, SIDE + 2 * EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11"><title>Wait forecasts against what came true</title>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        _scatter(shown),
        _coverage(shown, EDGE + SIDE + GAP),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _scatter(shown: Sequence[ScoredForecast]) -> str:
    def at(seconds: float) -> float:
        low, high = map(math.log, DECADES)
        hours = min(max(seconds / HOUR, DECADES[0]), DECADES[1])
        return SIDE * (math.log(hours) - low) / (high - low)

    step = max(1, len(shown) // 1500)
    dots = "".join(
        f'<circle cx="{EDGE + at(each.real):.1f}" cy="{EDGE + SIDE - at(each.ours[0].p50):.1f}" r="1.6"/>'
        for each in shown[::step]
    )
    ticks = "".join(
        f'<text x="{EDGE + at(hours * HOUR):.0f}" y="{EDGE + SIDE + 14}" text-anchor="middle">{word}</text>'
        f'<text x="{EDGE - 4}" y="{EDGE + SIDE + 4 - at(hours * HOUR):.0f}" text-anchor="end">{word}</text>'
        for hours, word in TICKS
    )
    return (
        _frame(EDGE, "real wait (across), likely wait (up)")
        + f'<line x1="{EDGE}" y1="{EDGE + SIDE}" x2="{EDGE + SIDE}" y2="{EDGE}" stroke="#999"/>'
        + f'<g fill="#1565c0" fill-opacity="0.45">{dots}</g>{ticks}'
    )


def _coverage(shown: Sequence[ScoredForecast], left: float) -> str:
    """Return the diagram of the coverage of P90 as a part of an SVG.

    The coverage is the share of sessions that started within P90, which should be 0.9. The forecasts are sorted by
    their median and divided into ten parts, each of which gets a bar.

    Args:
        shown: the forecasts with the real waits.
        left: horizontal position of the diagram in the picture.
    """
    ordered = sorted(shown, key=lambda each: each.ours[0].p50)
    bars = []
    for tenth in range(10):
        some = ordered[len(ordered) * tenth // 10 : len(ordered) * (tenth + 1) // 10]
        if some:
            covered = sum(each.real <= each.ours[0].p90 for each in some) / len(some)
            x = left + SIDE * tenth / 10
            bars.append(
                f'<rect x="{x + 3:.1f}" y="{EDGE + SIDE * (1 - covered):.1f}" width="{SIDE / 10 - 6:.1f}" '
                f'height="{SIDE * covered:.1f}" fill="#1565c0"/>'
                f'<text x="{x + SIDE / 20:.1f}" y="{EDGE + SIDE + 14}" text-anchor="middle">{covered:.2f}</text>'
            )
    meant = EDGE + SIDE * 0.1
    return (
        _frame(left, "started before P90, by tenth of the likely wait")
        + "".join(bars)
        + f'<line x1="{left}" y1="{meant}" x2="{left + SIDE}" y2="{meant}" stroke="#c62828"/>'
    )


def _frame(left: float, title: str) -> str:
    return (
        f'<text x="{left}" y="{EDGE - 10}">{title}</text>'
        f'<rect x="{left}" y="{EDGE}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#666"/>'
    )
