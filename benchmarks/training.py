"""How good is the time left of a training, beside four simple rules, on recorded and on made-up step times?

    python -m benchmarks.training FOLDER_PROGRESS FOLDER_TRAINING [--constants]

The first folder has JSON files with `runs`, each of an `id` and `steps` (seconds), and lists of runs with early
stopping (`epochs`, `steps_per_epoch`, `patience`, `steps`). The second has the Alibaba cluster's mini-batch times
(`minibatch_job_*_norm.csv.gz`), of which each worker is a run. Each group is a pool. The steps pass through the groups
of the progress file, so the forecast sees no more than a user's server does.

Coverage is the share of the runs that ended within the 80 % interval: before the correction (`before`), and corrected
by the runs before it from the ninth on, as the mean over random orders of the runs (`after`) and in the order of the
file (`once`); `orders` is the share of the orders in which it is 0.75 to 0.88. A look is every 5 s of run time; the
displayed number jumps if the end moved by more than 15 % of the time left since the look before.

With `--constants` two constants are chosen on all groups but one, and the figures of that group are printed with them.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import mean, median
from typing import Any

from hub_extensions.core.forecast import training
from hub_extensions.core.forecast.training import (
    AT_LEAST,
    AT_MOST,
    COVERED,
    FEWEST,
    PastForecast,
    TimeLeft,
    TrainingRun,
    time_left,
)
from tests.fakes.training_report import reported

SHARES = (0.1, 0.25, 0.5)
ORDERS, SEED = 50, 20261129
WITHIN = (0.75, 0.88)
LOOK, JUMP = 5.0, 0.15


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of one kind, which correct each other.

    Attributes:
        name: what the steps are like.
        runs: step times of each run.
        seconds: whether the step times are seconds, so that looks can be counted.
    """

    name: str
    runs: Sequence[Sequence[float]]
    seconds: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """A run at a share of its steps.

    Attributes:
        run: what its progress file holds.
        steps: its step times so far.
        actual: the time that was left in seconds.
        raw: the forecast without a correction.
    """

    run: TrainingRun
    steps: Sequence[float]
    actual: float
    raw: TimeLeft

    @property
    def past(self) -> PastForecast:
        assert self.run.progress is not None
        return PastForecast(self.run.progress, self.raw.seconds, self.raw.spread, self.actual)


def moving_average(steps: Sequence[float], smoothing: float = 0.3) -> float:
    """The time of a step by tqdm's rule (`tqdm.std.EMA`)."""
    last = 0.0
    for step in steps:
        last = smoothing * step + (1 - smoothing) * last
    return float(last / (1 - (1 - smoothing) ** len(steps)))


RULES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean w/o 1st": lambda steps: mean(steps[1:]),
    "elapsed/done": mean,
    "median": median,
    "tqdm 0.3": moving_average,
}


def cases(runs: Sequence[Sequence[float]], share: float) -> list[Case]:
    found = []
    for steps in runs:
        done = int(len(steps) * share)
        run = reported(steps[:done], len(steps))
        raw = time_left(run)
        if raw is not None:
            found.append(Case(run, steps[:done], sum(steps[done:]), raw))
    return found


def error(seconds: float, case: Case) -> float:
    return abs(seconds / case.actual - 1)


def covered(found: TimeLeft, case: Case) -> bool:
    return found.low_seconds <= case.actual <= found.high_seconds


def in_order(order: Sequence[Case]) -> list[TimeLeft]:
    """The forecasts from the ninth run on, each corrected by those before it."""
    found = [time_left(order[at].run, [each.past for each in order[:at]]) for at in range(FEWEST, len(order))]
    return [each for each in found if each is not None]


@dataclass(frozen=True, slots=True)
class Corrected:
    """How corrected intervals came out.

    Attributes:
        after: share of the runs within them, mean over random orders of the runs.
        once: the same in the order of the file.
        orders: share of the orders in which it is 0.75 to 0.88.
        off: mean distance of it from 0.8.
        width: median of the upper end divided by the likely time, less 1.
    """

    after: float
    once: float
    orders: float
    off: float
    width: float


def corrected(found: Sequence[Case], rng: random.Random) -> Corrected | None:
    """Correct by earlier runs, in the order of the file and in random orders; None for fewer than nine runs."""
    if len(found) <= FEWEST:
        return None
    shares, widths = list[float](), list[float]()
    for order in (found, *(rng.sample(found, len(found)) for _ in range(ORDERS))):
        told = in_order(order)
        shares.append(mean(covered(each, case) for each, case in zip(told, order[FEWEST:], strict=True)))
        widths += [each.high_seconds / each.seconds - 1 for each in told]
    once, *others = shares
    within = mean(WITHIN[0] <= each <= WITHIN[1] for each in others)
    return Corrected(mean(others), once, within, mean(abs(each - COVERED) for each in others), median(widths))


def jumps(group: Group) -> tuple[int, int]:
    """Number of looks at which the end moved by more than `JUMP` of the time left, and of all looks."""
    moved = looks = 0
    for steps in group.runs:
        ends = list(accumulate(steps))
        before: float | None = None
        done, now = 0, LOOK
        while now < ends[-1]:
            while ends[done] <= now:
                done += 1
            found = time_left(reported(steps[:done], len(steps))) if done else None
            end = None if found is None else ends[done - 1] + found.seconds
            if end is not None and before is not None and before > now:
                looks += 1
                moved += abs(end - before) > JUMP * (before - now)
            before, now = end, now + LOOK
    return moved, looks


def report(group: Group, rng: random.Random) -> Iterator[str]:
    """One line for each share of the steps, and one for the looks."""
    for share in SHARES:
        found = cases(group.runs, share)
        ours = median(error(each.raw.seconds, each) for each in found)
        rules = [
            median(error(rule(each.steps) * ((each.run.total or 0) - each.run.steps), each) for each in found)
            for rule in RULES.values()
        ]
        before, after = mean(covered(each.raw, each) for each in found), corrected(found, rng)
        line = f"{group.name:<22} {share:>4.0%} {len(found):>4} {ours:>7.2%} "
        line += " ".join(f"{each:>12.2%}" for each in rules) + f" {ours / rules[0]:>6.2f} {before:>6.2f}"
        if after is not None:
            line += f" {after.after:>6.3f} {after.once:>5.2f} {after.orders:>6.2f} {after.width:>6.1%}"
        early = [each.actual >= each.raw.low_seconds for each in found if each.raw.bound == AT_LEAST]
        yield line + (f"  at least: held in {sum(early)} of {len(early)}" if early else "")
    if group.seconds:
        moved, looks = jumps(group)
        yield f"{group.name:<22} jumps of more than {JUMP:.0%}: {moved} of {looks} looks ({moved / max(1, looks):.1%})"


def interval_loss(found: TimeLeft, case: Case) -> float:
    """The width of an 80 % interval, and ten times by how much it missed, as a share of the actual time (Winkler)."""
    missed = max(found.low_seconds - case.actual, case.actual - found.high_seconds, 0.0)
    return (found.high_seconds - found.low_seconds + 10 * missed) / case.actual


def constants(groups: Sequence[Group]) -> Iterator[str]:
    """Choose `START_SPREAD` and `ADAPTATION` on all groups but one, and print the figures of that group with them.

    The first is chosen by the loss of the uncorrected interval at 25 and 50 %, the second by how far the share of the
    runs within the corrected ones is from 0.8.
    """
    shipped = training.START_SPREAD, training.ADAPTATION
    loss, first = dict[tuple[str, float], float](), dict[tuple[str, float], float]()
    off, second = dict[tuple[str, float], float](), dict[tuple[str, float], float]()
    for group in groups:
        for value in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
            training.START_SPREAD = value
            found = [case for share in SHARES[1:] for case in cases(group.runs, share)]
            loss[group.name, value] = mean(interval_loss(each.raw, each) for each in found)
            first[group.name, value] = mean(covered(each.raw, each) for each in found)
        training.START_SPREAD = shipped[0]
        at_shares = [cases(group.runs, share) for share in SHARES]
        for value in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4):
            training.ADAPTATION = value
            after = [each for some in at_shares if (each := corrected(some, random.Random(SEED))) is not None]
            off[group.name, value] = mean(each.off for each in after)
            second[group.name, value] = mean(each.after for each in after)
        training.ADAPTATION = shipped[1]
    for name, scores, kind, figures in (("START_SPREAD", loss, "before", first), ("ADAPTATION", off, "after", second)):
        values = sorted({value for _, value in scores})
        for value in values:
            cells = "; ".join(f"{g.name} {scores[g.name, value]:.3f}, {figures[g.name, value]:.3f}" for g in groups)
            yield f"{name} {value:<5} score, and covered {kind}: {cells}"
        for out in groups:
            best = min(values, key=lambda value: sum(scores[g.name, value] for g in groups if g is not out))
            yield f"{name} without {out.name}: {best}; {out.name} is then covered {figures[out.name, best]:.3f} {kind}"


def early_stopping(runs: Sequence[dict[str, Any]]) -> str:
    """How often "at most" held, and never was "about", at 10, 25 and 50 % of the steps that were done in the end."""
    held = asked = 0
    for each in runs:
        steps, epoch, epochs, patience = (each[key] for key in ("steps", "steps_per_epoch", "epochs", "patience"))
        for share in SHARES:
            done = max(2, int(len(steps) * share))
            run = reported(steps[:done], epoch * epochs, epochs=epochs, epoch_steps=epoch, patience=patience)
            found, left = time_left(run), sum(steps[done:])
            asked += 1
            held += found is not None and found.bound == AT_MOST and found.low_seconds <= left <= found.seconds
    return f"early stopping: at most held in {held} of {asked}"


def recorded(progress: Path, times: Path) -> tuple[list[Group], list[dict[str, Any]]]:
    """The groups of both folders, and the runs with early stopping."""
    groups, stopped = list[Group](), list[dict[str, Any]]()
    workers: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    for file in sorted(times.glob("minibatch_job_*_norm.csv.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                workers[file.name, row["gpu"], row["worker"]].append((int(row["time"]), float(row["batch_time_norm"])))
    if workers:
        groups.append(Group("Alibaba", [[step for _, step in sorted(run)] for run in workers.values()], seconds=False))
    for file in sorted(progress.glob("*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, dict) and "runs" in found:
            groups.append(Group(file.stem, [run["steps"] for run in found["runs"]]))
        elif isinstance(found, list) and found and "patience" in found[0]:
            stopped += found
    return groups, stopped


def made_up(rng: random.Random) -> Iterator[Group]:
    """Runs of other shapes, with 2 % noise and a first step of 30 s: 30 of each, of the long ones 20."""

    def pool(step: Callable[[int], float], steps: int = 400, runs: int = 30) -> list[list[float]]:
        return [[30.0, *(step(n) * rng.gauss(1, 0.02) for n in range(1, steps))] for _ in range(runs)]

    def levels() -> Iterator[float]:
        at, choice = 0, [1.0, rng.uniform(1.5, 2), rng.uniform(2.2, 3.2)]
        while True:
            at = rng.choice([n for n in range(3) if n != at])
            yield from [choice[at]] * (1 + int(rng.expovariate(1 / 60)))

    yield Group("drift to 1.5 times", pool(lambda n: 1 + n / 800))
    yield Group("heavy tail", pool(lambda n: 0.5 + 0.2 * rng.paretovariate(1.5)))
    three = []
    for _ in range(30):
        level = levels()
        three.append([30.0, *(next(level) * rng.gauss(1, 0.02) for _ in range(399))])
    yield Group("three levels", three)
    yield Group("20 steps", pool(lambda n: rng.uniform(50, 70), steps=20))
    yield Group("100,000 steps", pool(lambda n: 0.05, steps=100_000, runs=20), seconds=False)
    yield Group("validation each 500", pool(lambda n: 80.0 if n % 500 == 499 else 0.5, steps=5000, runs=20))
    yield Group("fast and slow by turns", pool(lambda n: 1.0 + n % 2))
    yield Group("warm-up of 20 steps", pool(lambda n: 3.0 if n < 20 else 1.0))
    yield Group("half as fast later", pool(lambda n: 1.0 if n < 200 else 2.0))


def main() -> int:
    """Print the table; 2: a folder is missing."""
    folders = [word for word in sys.argv[1:] if word != "--constants"]
    if len(folders) != 2:
        print("FOLDER_PROGRESS FOLDER_TRAINING, please.", file=sys.stderr)
        return 2
    rng = random.Random(SEED)
    groups, stopped = recorded(Path(folders[0]), Path(folders[1]))
    if "--constants" in sys.argv:
        for line in constants(groups):
            print(line, flush=True)
        return 0
    print(f"median error of the time left; 80 % interval; seed {SEED}, {ORDERS} orders of the runs")
    titles = f"{'group':<22} {'done':>4} {'runs':>4} {'ours':>7} " + " ".join(f"{name:>12}" for name in RULES)
    print(titles + f" {'/mean':>6} {'before':>6} {'after':>6} {'once':>5} {'orders':>6} {'width':>6}")
    for group in (*groups, *made_up(rng)):
        for line in report(group, rng):
            print(line, flush=True)
    if stopped:
        print(early_stopping(stopped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
