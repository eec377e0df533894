"""Measure the wait forecast on logs that its constants were not chosen on: leave one log out, four cuts of each.

    python -m benchmarks.forecast_protocol DIR [--cache FOLDER] [--derived N] [--seed SEED] [--thin [LOG=]N]

Each log of DIR is played once, which takes long; what was simulated is kept in FOLDER. Then constants are chosen from
`GRID`: for each log by all the others (*left out*), and by all (*tuned*). *Shipped* are those of the product. With
`--derived`, N logs are made from those of DIR (other pool sizes, thinned users, shuffled weeks, reversed time), and one
of each synthetic regime; the seed is another one in each run unless it is given. Hours, and shares.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import random
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.boosting import boosting_points, line_state
from hub_extensions.core.forecast.episodes import FEWEST_EPISODES, RULES, Rules
from hub_extensions.tools.backtest.baselines import PAST_MEAN, TSAFRIR
from hub_extensions.tools.backtest.bootstrap import geometric_mean, spread
from hub_extensions.tools.backtest.log import Log, ReplayPool, read_logs
from hub_extensions.tools.backtest.recorder import RecordedWait, Recorder
from hub_extensions.tools.backtest.replay import PROTOCOL, Cut, other_forecasts, our_forecasts
from hub_extensions.tools.backtest.scores import Score, pinball, score_of
from hub_extensions.tools.backtest.world import LogSession

CUTS = (PROTOCOL, Cut(0.6, 0.3), Cut(0.5, 0.1), Cut(0.7, 0.1))
SINCE = min(cut.first - cut.warm_up for cut in CUTS)
"""From this share of a log on forecasts are made."""
MIDDLES = tuple(replace(RULES, batches=batches) for batches in (1, 2, 3, 1000))
"""Candidates for the median; with 1000 batches the first in line never counts."""
P90S = tuple(
    replace(RULES, shift=shift, shift_counts=counts, limit_after=limit)
    for shift, counts, limit in (
        *((shift, counts, 8) for shift in (0.1, 0.2, 0.3) for counts in (10, 20, 40)),
        (0.2, 20, 5),
        (0.2, 20, 12),
    )
)
"""Candidates for P90; the median does not depend on these constants, nor P90 on those of the median."""
REDRAWN = 200
COVERS = 0.8
"""Of the candidates for P90 those come first that cover so much in each pool of the logs in hand."""
DAY, WEEK = 86400.0, 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Played:
    """One log on one pool, after the simulation. `source`: the log that it is of, or was made from."""

    source: str
    log: Log
    pool: ReplayPool
    waits: Sequence[RecordedWait]


@dataclass(frozen=True, slots=True)
class Figures:
    """One cut of one log on one pool.

    Attributes:
        in_effect: busy episodes in effect: the inverse of the chance that two waits are of one.
        simple: the fixed simple method: the user's last two with users, the past mean without.
        best_mae, best_loss: the best of all simple methods, chosen afterwards.
        best_errors, best_losses: busy episode -> the sum of the errors, or losses, of these methods.
        last_two_errors: the same for the user's last two.
    """

    waits: int
    episodes: int
    in_effect: float
    has_users: bool
    raw: Score
    last_two: Score
    simple: Score
    best_mae: float
    best_loss: float
    best_errors: Mapping[int, float]
    best_losses: Mapping[int, float]
    last_two_errors: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Our error by that of others, and our coverage; `errors`, `losses`: the sum of each busy episode."""

    last_two: float
    best: float
    simple: float
    loss: float
    covers: float
    errors: Mapping[int, float]
    losses: Mapping[int, float]


Key = tuple[str, Cut]
"""A pool and a cut of its log."""


# ------------------------------------------------------------------ the simulation, once


def played(log: Log, pool: ReplayPool, source: str, cache: Path | None, every: int = 1) -> Played:
    """Replay the log with a forecast for each `every`-th wait, or read the result of the same code from the cache."""
    name = _digest(log, pool) if every == 1 else f"{_digest(log, pool)}-{every}"
    file = None if cache is None else cache / f"{name}.pickle"
    if file is not None and file.exists():
        return Played(source, log, pool, pickle.loads(file.read_bytes()))
    waits = Recorder(log, pool, (1,), int(SINCE * len(log.sessions)), every=every, describe=line_state).run()
    if file is not None:
        file.write_bytes(pickle.dumps(waits))
    return Played(source, log, pool, waits)


def _digest(log: Log, pool: ReplayPool) -> str:
    """Of the sessions, the pool and the code that simulates."""
    root = Path(__file__).resolve().parents[1] / "hub_extensions"
    code = ("core/forecast/durations.py", "core/forecast/curves.py", "core/forecast/simulate.py",
            "core/forecast/interval.py",
            "core/forecast/wait_model.py", "tools/backtest/recorder.py", "tools/backtest/baselines.py",
            "../benchmarks/boosting.py")  # fmt: skip
    found = hashlib.sha256(repr((log.sessions, pool)).encode())
    for name in code:
        found.update((root / name).read_bytes())
    return found.hexdigest()[:32]


# ------------------------------------------------------------------ logs that are made from others


def derived(logs: Sequence[Log], count: int, rng: random.Random) -> Iterator[tuple[str, Log, ReplayPool]]:
    """Logs of other pool sizes, with fewer users, with their weeks shuffled, and with the time reversed."""
    made: Sequence[tuple[str, Callable[[Log, random.Random], Log]]] = (
        ("size", lambda log, rng: log),
        ("thinned", _thinned),
        ("weeks", _shuffled),
        ("reversed", _reversed),
    )
    for number in range(count):
        name, change = made[number % len(made)]
        log = rng.choice(logs)
        pool = rng.choice(log.pools)
        source, log = log.name, change(log, rng)
        share = rng.choice((0.9, 1.1)) if name == "size" else 1.0
        gpus = max(*(each.devices for each in log.sessions), round(share * pool.gpus))
        yield source, replace(log, name=f"{source} {name} {number}"), replace(pool, log=log.name, gpus=gpus)


def _renumbered(log: Log, sessions: Iterable[LogSession]) -> Log:
    ordered = sorted(sessions, key=lambda each: each.submit)
    return replace(log, sessions=tuple(replace(each, number=number) for number, each in enumerate(ordered)))


def _thinned(log: Log, rng: random.Random) -> Log:
    """Three quarters of the users; where there are few, of the sessions."""
    users = sorted({each.user for each in log.sessions})
    if len(users) < 20:
        return _renumbered(log, (each for each in log.sessions if rng.random() < 0.75))
    kept = set(rng.sample(users, k=3 * len(users) // 4))
    return _renumbered(log, (each for each in log.sessions if each.user in kept))


def _shuffled(log: Log, rng: random.Random) -> Log:
    first = log.sessions[0].submit
    weeks = sorted({int((each.submit - first) // WEEK) for each in log.sessions})
    place = dict(zip(weeks, rng.sample(weeks, k=len(weeks)), strict=True))
    return _renumbered(
        log,
        (
            replace(each, submit=each.submit + (place[week] - week) * WEEK)
            for each in log.sessions
            for week in (int((each.submit - first) // WEEK),)
        ),
    )


def _reversed(log: Log, rng: random.Random) -> Log:
    last = log.sessions[-1].submit
    return _renumbered(log, (replace(each, submit=last - each.submit) for each in log.sessions))


REGIMES = ("stationary", "semester", "changing users", "shrinking", "new course")


def synthetic(regime: str, rng: random.Random, sessions: int = 900) -> tuple[str, Log, ReplayPool]:
    """A log that nobody measured: forty people with habits on four GPUs.

    In a semester lives and load rise twice; users change their habits every 150 sessions; later sessions shrink; a new
    course of ten people with short lives that come together begins after half of the log.
    """
    usual = {user: rng.lognormvariate(9, 0.8) for user in range(40)}
    found: list[LogSession] = []
    now = 0.0
    for number in range(sessions):
        share = number / sessions
        busy = 1.6 if regime == "semester" and share % 0.5 > 0.3 else 1.0
        now += rng.expovariate(busy / 3200)
        user = rng.randrange(40)
        if regime == "changing users" and number % 150 == 0:
            usual = {each: rng.lognormvariate(9, 0.8) for each in usual}
        lasted = usual[user] * rng.lognormvariate(0, 0.4) * (busy if regime == "semester" else 1.0)
        if regime == "shrinking":
            lasted *= 1.3 - share
        if regime == "new course" and share > 0.5 and rng.random() < 0.5:
            user, lasted = 40 + rng.randrange(10), 5400 * rng.lognormvariate(0, 0.2)
        life = min(12 * 3600.0, max(60.0, lasted))
        found.append(LogSession(number, now, life, 1, 1, f"u{user}", 12 * 3600.0))
    pool = ReplayPool(regime, 4, 1, "strict")
    return regime, Log(regime, tuple(found), (pool,)), pool


# ------------------------------------------------------------------ figures


def figures(each: Played, cut: Cut) -> Figures | None:
    """Return the figures that do not depend on the constants, or None if nobody had to wait."""
    first, since = cut.of(each.log)
    counted = [wait for wait in each.waits if wait.number >= first and wait.simulated]
    if not counted:
        return None
    others = other_forecasts(each.waits, first, since, boosting_points(each.log, each.waits, first, since))
    names = [name for name in others[counted[0].number] if all(name in others[wait.number] for wait in counted)]
    scores = {name: score_of([(others[wait.number][name], wait.real) for wait in counted]) for name in names}
    best = min(names, key=lambda name: scores[name].mae)
    best_90 = min(names, key=lambda name: scores[name].pinball_90)
    return Figures(
        len(counted),
        len({wait.episode for wait in counted}),
        in_effect(wait.episode for wait in counted),
        each.log.has_users,
        score_of([(wait.simulated[0], wait.real) for wait in counted]),
        scores[TSAFRIR],
        scores[TSAFRIR if each.log.has_users else PAST_MEAN],
        scores[best].mae,
        scores[best_90].pinball_90,
        by_episode([(wait, abs(others[wait.number][best].p50 - wait.real)) for wait in counted]),
        by_episode([(wait, pinball(0.9, others[wait.number][best_90].p90, wait.real)) for wait in counted]),
        by_episode([(wait, abs(others[wait.number][TSAFRIR].p50 - wait.real)) for wait in counted]),
    )


def in_effect(episodes: Iterable[int]) -> float:
    """Return the effective number of episodes (inverse Simpson index); an episode is listed once for each wait."""
    sizes = Counter(episodes).values()
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def by_episode(values: Iterable[tuple[RecordedWait, float]]) -> dict[int, float]:
    """Add up what each busy episode has."""
    found: dict[int, float] = {}
    for wait, value in values:
        found[wait.episode] = found.get(wait.episode, 0.0) + value
    return found


def ratios(each: Played, cut: Cut, known: Figures, rules: Rules) -> Ratios:
    """Score the intervals that would have been shown with these constants."""
    first, since = cut.of(each.log)
    ours = our_forecasts(each.waits, since, rules)
    counted = [wait for wait in each.waits if wait.number >= first and wait.simulated]
    score = score_of([(ours[wait.number][0], wait.real) for wait in counted])
    return Ratios(
        score.mae / known.last_two.mae,
        score.mae / known.best_mae,
        score.mae / known.simple.mae,
        score.pinball_90 / known.best_loss,
        score.coverage_90,
        by_episode([(wait, abs(ours[wait.number][0].p50 - wait.real)) for wait in counted]),
        by_episode([(wait, pinball(0.9, ours[wait.number][0].p90, wait.real)) for wait in counted]),
    )


Table = Mapping[Rules, Mapping[Key, Ratios]]


def best_middle(table: Table, keys: Sequence[Key]) -> Rules:
    """The candidate with the smallest error over these pools and cuts; of equal ones the shipped."""
    return min(MIDDLES, key=lambda rules: (geometric_mean([table[rules][key].best for key in keys]), rules != RULES))


def best_p90(table: Table, keys: Sequence[Key]) -> Rules:
    """The candidate with the smallest loss, of those that cover enough in each pool, all cuts together."""

    def cost(rules: Rules) -> tuple[bool, float, bool]:
        covers = min(table[rules][key].covers for key in keys)
        return covers < COVERS, geometric_mean([table[rules][key].loss for key in keys]), rules != RULES

    return min(P90S, key=cost)


def merged(middle: Ratios, p90: Ratios) -> Ratios:
    """The median of one candidate, P90 of another."""
    return replace(middle, loss=p90.loss, covers=p90.covers, losses=p90.losses)


def redrawn(known: Mapping[Key, Figures], found: Mapping[Key, Ratios], keys: Sequence[Key]) -> dict[str, str]:
    """Return the range of nine of ten geometric means of each ratio when whole busy episodes are drawn again."""
    rng = random.Random(1)
    means: dict[str, list[float]] = {"MAE / user's last two": [], "MAE / best simple": [], "P90 loss / best simple": []}
    for _ in range(REDRAWN):
        drawn = {key: rng.choices(list(known[key].best_errors), k=known[key].episodes) for key in keys}
        for values, ours, theirs in zip(
            means.values(),
            ("errors", "errors", "losses"),
            ("last_two_errors", "best_errors", "best_losses"),
            strict=True,
        ):
            pairs = ((getattr(found[key], ours), getattr(known[key], theirs), drawn[key]) for key in keys)
            values.append(geometric_mean([_ratio(*pair) for pair in pairs]))
    ranges = ((name, spread(tuple(values))) for name, values in means.items())
    return {name: "" if ends is None else f"{ends[0]:.2f}-{ends[1]:.2f}" for name, ends in ranges}


def _ratio(ours: Mapping[int, float], theirs: Mapping[int, float], drawn: Sequence[int]) -> float:
    return sum(ours[episode] for episode in drawn) / max(1e-9, sum(theirs[episode] for episode in drawn))


def summary(known: Mapping[Key, Figures], found: Mapping[Key, Ratios]) -> dict[str, float]:
    """The figures of the protocol over these pools and cuts: geometric means, and the worst beside them."""
    rows: dict[str, float] = {}
    enough = [key for key in found if known[key].episodes >= FEWEST_EPISODES]
    users, none = ([key for key in enough if known[key].has_users is wanted] for wanted in (True, False))
    if users:
        rows["MAE / user's last two, with users"] = geometric_mean([found[key].last_two for key in users])
    for name, keys in (("with users", users), ("without", none)):
        if keys:
            rows[f"MAE / best simple, {name}"] = geometric_mean([found[key].best for key in keys])
            rows[f"  worst pool, {name}"] = max(found[key].best for key in keys)
            rows[f"MAE / one fixed simple method, {name}"] = geometric_mean([found[key].simple for key in keys])
            rows[f"P90 loss / best simple, {name}"] = geometric_mean([found[key].loss for key in keys])
            rows[f"  worst P90 loss, {name}"] = max(found[key].loss for key in keys)
    if enough:
        count = sum(known[key].waits for key in enough)
        rows["P90 covers, all waits"] = sum(known[key].waits * found[key].covers for key in enough) / count
        rows["  worst pool"] = min(found[key].covers for key in enough)
    return rows


# ------------------------------------------------------------------ what is printed


def compare(pools: Sequence[Played]) -> None:
    """The table of all pools and cuts, then tuned, left out and shipped side by side."""
    by_name = {each.pool.name if each.pool.log == each.log.name else each.log.name: each for each in pools}
    known: dict[Key, Figures] = {}
    for name, each in by_name.items():
        for cut in CUTS:
            found = figures(each, cut)
            if found is not None:
                known[name, cut] = found
    table: dict[Rules, dict[Key, Ratios]] = {}
    for rules in {*MIDDLES, *P90S, RULES}:
        table[rules] = {key: ratios(by_name[key[0]], key[1], known[key], rules) for key in known}
        print(".", end="", flush=True, file=sys.stderr)
    counted = [key for key in known if known[key].episodes >= FEWEST_EPISODES] or list(known)
    shipped = dict(table[RULES])
    tuned = {
        key: merged(table[best_middle(table, counted)][key], table[best_p90(table, counted)][key]) for key in known
    }
    left_out: dict[Key, Ratios] = {}
    chosen: dict[str, tuple[Rules, Rules]] = {}
    for source in dict.fromkeys(each.source for each in pools):
        rest = [key for key in counted if by_name[key[0]].source != source] or counted
        middle, p90 = chosen[source] = best_middle(table, rest), best_p90(table, rest)
        for key in known:
            if by_name[key[0]].source == source:
                left_out[key] = merged(table[middle][key], table[p90][key])
    _print_pools(known, left_out, tuned)
    for part in (*CUTS, None):
        print(f"\n{'all four cuts' if part is None else part.name:<44} {'left out':>9} {'tuned':>9} {'shipped':>9}")
        columns = [
            summary(known, {key: one for key, one in every.items() if part in (None, key[1])})
            for every in (left_out, tuned, shipped)
        ]
        for name in columns[0]:
            print(f"{name:<44} " + " ".join(f"{column[name]:>9.3f}" for column in columns))
        for users in (True, False):
            keys = [key for key in counted if part in (None, key[1]) and known[key].has_users is users]
            if keys:
                ranges = redrawn(known, left_out, keys)
                words = ", ".join(f"{name} {ends}" for name, ends in ranges.items())
                print(f"nine of ten, {'with users' if users else 'without'}: {words}")
    gaps = {
        name: geometric_mean([getattr(left_out[key], name) / getattr(tuned[key], name) for key in counted]) - 1
        for name in ("best", "loss")
    }
    print(f"\nleft out beside tuned: the middle {gaps['best']:+.1%}, P90 loss {gaps['loss']:+.1%}")
    _print_candidates(table, counted)
    print("constants that the other logs choose:")
    for source, (middle, p90) in chosen.items():
        print(
            f"  without {source}: batches {middle.batches}, shift {p90.shift}, which counts as {p90.shift_counts} "
            f"episodes, limit after {p90.limit_after}"
        )


def _print_candidates(table: Table, keys: Sequence[Key]) -> None:
    """Print what each candidate reaches on all logs, so that the choice of each constant can be followed."""
    print("\nbatches, by the smallest MAE / best simple over all logs and cuts:")
    for rules in MIDDLES:
        print(f"  {rules.batches:>4} {geometric_mean([table[rules][key].best for key in keys]):.3f}")
    print(f"shift, its episodes, limit after; by the smallest P90 loss of those that cover {COVERS:.0%} of each pool:")
    for rules in P90S:
        loss, covers = (
            geometric_mean([table[rules][key].loss for key in keys]),
            [table[rules][key].covers for key in keys],
        )
        print(
            f"  {rules.shift} {rules.shift_counts:>3} {rules.limit_after:>3} {loss:.3f}, worst pool {min(covers):.2f}"
        )


def _print_pools(known: Mapping[Key, Figures], found: Mapping[Key, Ratios], tuned: Mapping[Key, Ratios]) -> None:
    """Print one row for each pool and cut. Pools with few episodes come last because their ratios mean little."""
    head = f"{'left out (tuned)':<26} {'cut':<22} {'waits':>6} {'episodes':>8} {'in effect':>9} {'raw MAE':>8}"
    head += f" {'/last two':>11} {'/best':>11} {'/simple':>11} {'P90 loss':>11} {'covers':>11}"
    for few in (False, True):
        keys = [key for key in found if (known[key].episodes < FEWEST_EPISODES) is few]
        if keys:
            print(f"\nfewer than {FEWEST_EPISODES} busy episodes in the test:" if few else "")
            print(head)
        for name, cut in keys:
            one, made, best = known[name, cut], found[name, cut], tuned[name, cut]
            both = (
                f"{getattr(made, ratio):.2f} ({getattr(best, ratio):.2f})"
                for ratio in ("last_two", "best", "simple", "loss", "covers")
            )
            print(
                f"{name:<26} {cut.name:<22} {one.waits:>6} {one.episodes:>8} {one.in_effect:>9.1f} "
                f"{one.raw.mae:>8.2f} " + " ".join(f"{each:>11}" for each in both)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="logs, as `jupyterhub-gpu forecast backtest` takes them")
    parser.add_argument("--cache", type=Path, help="an existing folder for what was simulated")
    parser.add_argument("--derived", type=int, default=0, help="how many logs are made from these (default: none)")
    parser.add_argument("--seed", type=int, default=None, help="of the derived logs (default: another one in each run)")
    parser.add_argument(
        "--thin",
        action="append",
        default=[],
        metavar="[LOG=]N",
        help="of this log, pool or regime, or of all, forecast each Nth wait",
    )
    options = parser.parse_args()
    every = {log: int(number) for log, _, number in (each.rpartition("=") for each in options.thin)}
    logs = read_logs(options.folder)
    plan = [(log.name, log, pool) for log in logs for pool in log.pools]
    if options.derived:
        seed = secrets.randbelow(10**6) if options.seed is None else options.seed
        print(f"derived logs with --seed {seed}")
        rng = random.Random(seed)
        plan = [*derived(logs, options.derived, rng), *(synthetic(regime, rng) for regime in REGIMES)]
    found = []
    for source, log, pool in plan:
        thin = next((every[name] for name in (pool.name, source, "") if name in every), 1)
        found.append(played(log, pool, source, options.cache, thin))
        print(f"{log.name}, {pool.gpus} GPUs: {len(found[-1].waits)} waits", flush=True, file=sys.stderr)
    compare(found)


if __name__ == "__main__":
    main()
