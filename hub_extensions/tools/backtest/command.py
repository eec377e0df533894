"""Runs ``jupyterhub-gpu forecast backtest``: replays the logs on the chosen pools, and prints or writes the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from hub_extensions.core.forecast.episodes import FEWEST_EPISODES
from hub_extensions.tools.backtest.log import BacktestRefused, Log, ReplayPool, read_logs
from hub_extensions.tools.backtest.replay import Replay, ScoredForecast
from hub_extensions.tools.backtest.report import as_json, few_episodes, picture, summary, table
from hub_extensions.tools.backtest.scores import Run, score_run


@dataclass(frozen=True, slots=True)
class BacktestOptions:
    """The options of the command ``forecast backtest``.

    Attributes:
        folder: where the logs are.
        pools: names like ``gaia_int`` or ``gaia_int:1``. Empty to replay all pools.
        policy: the order of the line (queue policy) for all pools; None to use the policy that each log names.
        seeds: random seeds of our forecast; it is computed with each of them.
        progress: share of the sessions that report when they will end.
        every: make a forecast for every n-th wait only.
        json_file, picture_file: files to which the report is written too; None to write no such file.
    """

    folder: Path
    pools: tuple[str, ...] = ()
    policy: str | None = None
    seeds: tuple[int, ...] = (1,)
    progress: float = 0.0
    every: int = 1
    json_file: Path | None = None
    picture_file: Path | None = None


def backtest(options: BacktestOptions, console: Console) -> None:
    """Replay the logs, print the report and write the files that were asked for.

    Raises:
        BacktestRefused: a log is missing or malformed, or nobody had to wait.
    """
    runs: list[Run] = []
    shown: list[ScoredForecast] = []
    for log, pool in _chosen(read_logs(options.folder), options):
        found = Replay(log, pool, options.seeds, options.progress, options.every).run()
        run = score_run(pool.name, log.has_users, found)
        if run is None:
            console.print(f"{pool.name}: nobody had to wait in the last part.", markup=False)
            continue
        if options.progress:
            plain = score_run(pool.name, log.has_users, Replay(log, pool, options.seeds, 0.0, options.every).run())
            run = replace(run, without_reports=None if plain is None else plain.ours.mae)
        runs.append(run)
        shown += found
    if not runs:
        raise BacktestRefused("There is nothing to compare: nobody had to wait.")
    console.print(table(runs))
    few = few_episodes(runs)
    if few:
        names = ", ".join(run.pool for run in few)
        console.print(f"Fewer than {FEWEST_EPISODES} busy episodes, not in the means: {names}.", markup=False)
    for figure in summary(runs):
        console.print(str(figure), markup=False)
    if options.json_file is not None:
        _write(options.json_file, as_json(runs))
    if options.picture_file is not None:
        _write(options.picture_file, picture(shown))


def _chosen(logs: Sequence[Log], options: BacktestOptions) -> list[tuple[Log, ReplayPool]]:
    there = [(log, pool) for log in logs for pool in log.pools]
    for name in options.pools:
        if not any(name in (pool.name, pool.log) for _, pool in there):
            known = ", ".join(pool.name for _, pool in there)
            raise BacktestRefused(f"--pool {name} is not there. There are: {known}.")
    chosen = [(log, pool) for log, pool in there if not options.pools or {pool.name, pool.log} & set(options.pools)]
    return [(log, pool if options.policy is None else replace(pool, policy=options.policy)) for log, pool in chosen]


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BacktestRefused(f"{file} cannot be written: {problem.strerror}.") from None
