"""``jupyterhub-gpu forecast backtest``: the replay is what happened, it looks at no future, and bad input is named."""

from __future__ import annotations

import asyncio
import json
import math
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hub_extensions.adapters.store import Changes, Store
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.backtest.log import Log, ReplayPool, read_logs
from hub_extensions.tools.backtest.replay import Replay
from hub_extensions.tools.backtest.world import NEVER, LogSession, Running, World
from hub_extensions.tools.cli import main

pytestmark = pytest.mark.slow

HEAD = "submit,duration,num_gpu,slices,user,limit\n"


def made(sessions: int = 260, users: int = 25) -> str:
    """A log that nobody measured: people with habits, on one GPU of seven slices; the same at each call."""
    rng = random.Random(16)
    usual = [rng.uniform(600, 6000) for _ in range(users)]
    rows, now = [], 0.0
    for _ in range(sessions):
        now += rng.expovariate(1 / 900)
        user = rng.randrange(users)
        lasted = min(12 * 3600, usual[user] * rng.lognormvariate(0, 0.3))
        rows.append(f"{now:.0f},{lasted:.0f},1,{rng.choice((1, 1, 3))},u{user:04},43200\n")
    return HEAD + "".join(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab.csv").write_text(made())
    (tmp_path / "lab.json").write_text(json.dumps({"slices_per_gpu": 7, "pools": [{"gpus": 1}, {"gpus": 2}]}))
    return tmp_path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["forecast", "backtest", *map(str, words)], catch_exceptions=False)


@pytest.mark.slow
def test_a_log_becomes_a_table_json_and_a_picture(folder: Path, tmp_path: Path) -> None:
    found = run(folder, "--pool", "lab:1", "--json", tmp_path / "out.json", "--picture", tmp_path / "out.svg")
    assert found.exit_code == 0, found.output
    assert "lab:1" in found.output and "lab:2" not in found.output and "P90 covers, all: " in found.output
    (figures,) = json.loads((tmp_path / "out.json").read_text())["runs"]
    assert figures["forecasts"] > 20 and figures["ours"]["mae"] > 0
    assert {"limits, played", "user's last two, played", "head of line"} <= set(figures["others"])
    best = min(other["mae"] for other in figures["others"].values())
    low, high = figures["best_other"]
    assert low < figures["ours"]["mae"] / best < high and len(figures["best_loss"]) == 2
    assert (tmp_path / "out.svg").read_text().startswith("<svg")
    assert run(folder, "--pool", "lab:1", "--json", tmp_path / "again.json").exit_code == 0
    again = json.loads((tmp_path / "again.json").read_text())["runs"][0]
    assert {**figures, "slowest": 0} == {**again, "slowest": 0}


@pytest.mark.whole
@pytest.mark.slow
def test_what_happens_after_a_forecast_does_not_change_it(folder: Path) -> None:
    """Whoever asks later, and how long they who ask later stay, is the future."""
    (log,) = read_logs(folder)
    cut = int(0.9 * len(log.sessions))
    other = Log(log.name, tuple(s if s.number <= cut else changed(s) for s in log.sessions), log.pools)
    before, after = ({each.number: each.ours for each in played(one) if each.number <= cut} for one in (log, other))
    assert len(before) > 10 and before == after


def test_a_replay_from_a_given_session_on_has_nothing_of_before_to_correct_by(folder: Path) -> None:
    (log,) = read_logs(folder)
    first = len(log.sessions) - 60
    found = sorted(Replay(log, log.pools[0], (1,), first=first).run(), key=lambda each: each.number)
    assert len(found) > 10 and found[0].number >= first
    shown, raw = found[0].ours[0], found[0].raw[0]
    assert shown.p50 == raw.p50 and shown.p90 + 60 == pytest.approx(math.exp(0.2) * (raw.p90 + 60))


def changed(session: LogSession) -> LogSession:
    return LogSession(
        session.number, session.submit + 1, 43200.0, session.devices, session.slices, session.user, session.limit
    )


def played(log: Log) -> list:  # type: ignore[type-arg]
    return Replay(log, ReplayPool(log.name, 1, 7, "strict"), (1,)).run()


@pytest.mark.slow
def test_who_says_when_it_ends_makes_better_forecasts(folder: Path) -> None:
    (log,) = read_logs(folder)

    def error(progress: float) -> float:
        told = Replay(log, log.pools[0], (1,), progress).run()
        return sum(abs(each.ours[0].p50 - each.real) for each in told) / len(told)

    assert error(1.0) < 0.8 * error(0.0)


def test_a_line_with_the_true_lives_is_foretold_to_the_second() -> None:
    rng = random.Random(3)
    sessions = [
        LogSession(n, 60.0 * n, rng.uniform(100, 9000), rng.choice((1, 1, 2)), rng.choice((1, 2, 4)), "", None)
        for n in range(150)
    ]
    world, told = World(2, 4), {}

    def until(moment: float) -> None:
        while world.next_end() <= min(moment, 1e9):
            now = world.next_end()
            world.end()
            start(now)

    def start(now: float) -> None:
        for started in world.start(now, lambda s: s.duration):
            assert told.pop(started.number, now) == pytest.approx(now)

    def left(running: Running) -> float:
        return running.since + running.session.duration - now

    for session in sessions:
        now = session.submit
        until(now)
        world.waiting.append(session)
        told[session.number] = now + world.planned(now, left, lambda s: s.duration, session.number)
        start(now)
    until(NEVER)
    assert not told and not world.waiting


def test_best_effort_lets_later_ones_pass() -> None:
    strict, best = World(1, 4), World(1, 4, "best-effort")
    for world in (strict, best):
        world.waiting = [LogSession(n, 0, 10, 1, slices, "", None) for n, slices in enumerate((3, 4, 1))]
        world.start(0, lambda s: s.duration)
    assert list(strict.running) == [0] and list(best.running) == [0, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("submit,duration,num_gpu,slices,user\n", "line 1: there is no column limit."),
        (HEAD + "0,ten,1,1,u,60\n", "line 2, column duration: 'ten' is no number."),
        (HEAD + "0,10,1,1,u,60\n0,nan,1,1,u,60\n", "line 3, column duration: 'nan' is no number."),
        (HEAD + "0,-1,1,1,u,60\n", "line 2, column duration: -1 is negative."),
        (HEAD + "0,10,1.5,1,u,60\n", "line 2, column num_gpu: '1.5' is no whole number."),
        (HEAD + "0,10,1,0.5,u,60\n", "line 2, column slices: '0.5' is no whole number."),
        (HEAD + "0,10,1,1,u,60,7\n", "line 2: it has not as many fields as the header names (6)."),
        (HEAD + "0,10,1,1\n", "line 2: it has not as many fields as the header names (6)."),
        (HEAD + "0,10,1,8,u,60\n", "a session asks for 8 slices of a GPU that has 7."),
        (HEAD, "there is no session in it."),
    ],
)
def test_what_is_wrong_in_a_log_is_named(folder: Path, text: str, says: str) -> None:
    (folder / "lab.csv").write_text(text)
    found = run(folder)
    assert found.exit_code == 2 and "lab.csv" in found.output and says in found.output


def test_what_is_wrong_beside_a_log_is_named(folder: Path, tmp_path: Path) -> None:
    assert "--pool lab:9 is not there. There are: lab:1, lab:2." in run(folder, "--pool", "lab:9").output
    assert run(folder, "--seed", "one").exit_code == 2 and run(folder, "--progress", "2").exit_code == 2
    (folder / "lab.json").write_text('{"slices_per_gpu": 7, "pools": [{"gpus": 0}]}')
    assert "a pool needs at least one GPU" in run(folder).output
    (folder / "lab.json").write_text('{"slices_per_gpu": 7, "pools": [{"gpus": 1.5}]}')
    assert "'1.5' is no whole number" in run(folder).output
    (folder / "lab.json").write_text('{"slices_per_gpu": 7, "pools": [{"gpus": 1000000000}]}')
    assert "at most 100000 can be replayed" in run(folder).output
    (folder / "lab.json").write_text('{"slices_per_gpu": 7, "pools": [{"gpus": 1, "policy": "fair"}]}')
    assert "the policy 'fair' is none of strict, best-effort" in run(folder).output
    (folder / "lab.json").unlink()
    assert "lab.json is missing" in run(folder).output
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no file *.csv" in run(empty).output and run(empty / "none").exit_code == 2


@pytest.mark.slow
def test_an_export_of_ours_is_a_log_for_each_of_its_pools(tmp_path: Path) -> None:
    """Two commands: export, backtest. A use of which nobody knows how long it was is left out."""
    state = tmp_path / "state"
    state.mkdir()
    settings = Settings(state_dir=str(state), hub_secret="s" * 64, api_token="t" * 64)
    settings.dump(state / "service.json")
    store = Store.open(settings.store_url)
    rng, noon, now = random.Random(16), datetime(2026, 11, 1, 12, tzinfo=timezone.utc), 0.0
    records = [UsageRecord("odd", "u0", "", OfferId("mig-1g.5gb"), "mig-1g.5gb", 1000, noon, "unknown")]
    ends = {"mig-1g.5gb": [0.0], "gpu": [0.0, 0.0]}
    for number in range(400):
        now += rng.expovariate(1 / 900)
        pool = rng.choice(("gpu", "gpu", "mig-1g.5gb"))
        start = max(now, min(ends[pool]))
        held = rng.uniform(600, 3000)
        ends[pool].remove(min(ends[pool]))
        ends[pool].append(start + held)
        asked, admitted, ended = (noon + timedelta(seconds=each) for each in (now, start, start + held))
        records.append(
            UsageRecord(f"l{number}", f"u{number % 25}", "", OfferId(pool), pool, 1000, ended, "user", asked=asked,
                        admitted=admitted, ready=admitted, held_seconds=held, lifetime_seconds=43200.0)
        )  # fmt: skip
    asyncio.run(store.commit(Changes(usage=tuple(records), meta={"pool-sizes": '{"gpu": 2}'})))
    store.close()
    out = tmp_path / "out"
    out.mkdir()
    done = CliRunner().invoke(main, ["usage", "export", "--state-dir", str(state), "--output", str(out / "lab.csv")])
    assert done.exit_code == 0, done.output
    assert json.loads((out / "lab.json").read_text())["pools"] == [
        {"pool": "gpu", "gpus": 2, "policy": "strict"},
        {"pool": "mig-1g.5gb", "gpus": 1, "policy": "strict"},
    ]
    assert [(log.name, [pool.name for pool in log.pools]) for log in read_logs(out)] == [
        ("lab/gpu", ["lab/gpu:2"]),
        ("lab/mig-1g.5gb", ["lab/mig-1g.5gb:1"]),
    ]
    assert sum(len(log.sessions) for log in read_logs(out)) == 400
    found = run(out, "--pool", "lab/gpu")
    assert found.exit_code == 0 and "lab/gpu:2" in found.output, found.output
    assert "lab/gpu:2, lab/mig-1g.5gb:1" in run(out, "--pool", "gpu").output
