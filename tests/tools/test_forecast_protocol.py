"""The protocol by which constants are chosen: on logs that are made up, so that nothing of a real log is tuned to."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.boosting import BOOSTING, Boosted, boosting_points
from benchmarks.forecast_protocol import (
    CUTS,
    MIDDLES,
    P90S,
    REGIMES,
    Key,
    Played,
    Ratios,
    best_middle,
    best_p90,
    derived,
    figures,
    in_effect,
    played,
    ratios,
    synthetic,
)
from hub_extensions.core.forecast.episodes import FEWEST_EPISODES, RULES, Rules
from hub_extensions.tools.backtest.log import Log, read_logs
from hub_extensions.tools.backtest.replay import PROTOCOL, Replay

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def made(regime: str, sessions: int = 200, seed: int = 1) -> Played:
    name, log, pool = synthetic(regime, random.Random(seed), sessions)
    return played(log, pool, name, None)


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("regime", REGIMES)
def test_in_no_regime_does_the_record_spoil_the_simulation(regime: str) -> None:
    """What is shown after all cuts: the middle stays near the simulation's, and P90 covers."""
    one = made(regime)
    for cut in CUTS:
        known = figures(one, cut)
        assert known is not None
        found = ratios(one, cut, known, RULES)
        shown = found.simple * known.simple.mae
        assert shown <= 1.3 * known.raw.mae + 0.02
        assert found.covers >= min(0.75, known.raw.coverage_90)


@pytest.mark.whole
@pytest.mark.slow
def test_the_protocol_scores_what_the_backtest_scores() -> None:
    one = made("new course")
    known = figures(one, PROTOCOL)
    shown = Replay(one.log, one.pool, (1,)).run()
    assert known is not None and known.waits == len(shown)
    errors = sum(abs(each.ours[0].p50 - each.real) for each in shown) / len(shown) / 3600
    assert ratios(one, PROTOCOL, known, RULES).simple * known.simple.mae == pytest.approx(errors)


@pytest.mark.whole
@pytest.mark.slow
def test_boosting_learns_from_the_state_of_the_line_at_the_joins_before_the_test() -> None:
    one = made("stationary", sessions=500)
    first, since = PROTOCOL.of(one.log)
    found = boosting_points(one.log, one.waits, first, since)
    assert found.keys() == {wait.number for wait in one.waits}
    assert all(points.keys() == {BOOSTING} and points[BOOSTING] >= 0 for points in found.values())
    assert boosting_points(one.log, one.waits[:40], first, since) == {}


def test_boosted_trees_follow_a_step() -> None:
    rows = [[float(number), 1.0] for number in range(200)]
    model = Boosted(rows, [0.0 if number < 100 else 10.0 for number in range(200)])
    assert model.of([20.0, 1.0]) < 1 and model.of([180.0, 1.0]) > 9


def row(best: float, loss: float, covers: float) -> Ratios:
    return Ratios(1.0, best, 1.0, loss, covers, {}, {})


def test_constants_are_chosen_by_the_logs_in_hand_alone() -> None:
    """Each log likes another candidate; P90 that covers too few in one of them is not chosen."""
    keys: list[Key] = [("a", PROTOCOL), ("b", PROTOCOL)]
    likes = {"a": (MIDDLES[0], P90S[0]), "b": (MIDDLES[2], P90S[5])}
    table: dict[Rules, dict[Key, Ratios]] = {
        rules: {
            key: row(0.5 if rules == likes[key[0]][0] else 1.0, 0.5 if rules == likes[key[0]][1] else 1.0, 0.9)
            for key in keys
        }
        for rules in {*MIDDLES, *P90S}
    }
    for key in keys:
        assert (best_middle(table, [key]), best_p90(table, [key])) == likes[key[0]]
    table[P90S[0]][keys[0]] = row(1.0, 0.1, 0.79)
    assert best_p90(table, [keys[0]]) != P90S[0]


def test_derived_logs_are_the_same_sessions_otherwise() -> None:
    _, log, pool = synthetic("stationary", random.Random(2), 200)
    logs = [Log(log.name, log.sessions, (pool,))]
    size, thinned, weeks, back = (made for _, made, _ in derived(logs, 4, random.Random(3)))
    lives = Counter(each.duration for each in log.sessions)
    assert size.sessions == log.sessions and 100 < len(thinned.sessions) < 200
    assert not Counter(each.duration for each in thinned.sessions) - lives
    for other in (weeks, back):
        assert Counter(each.duration for each in other.sessions) == lives
        submits = [each.submit for each in other.sessions]
        assert submits == sorted(submits) and [each.number for each in other.sessions] == list(range(200))
    assert [each.duration for each in back.sessions] == [each.duration for each in log.sessions][::-1]
    again = [made.sessions for _, made, _ in derived(logs, 4, random.Random(4))]
    assert again[1] != thinned.sessions


@pytest.mark.parametrize(
    ("waits", "episodes"), [([7], 1.0), ([1, 1, 1, 1], 4.0), ([5, 5], 2.0), ([757, 97, 49], 1.4), ([100, 1, 1], 1.0)]
)
def test_many_waits_of_one_busy_episode_are_little_more_than_one(waits: list[int], episodes: float) -> None:
    named = [episode for episode, count in enumerate(waits) for _ in range(count)]
    assert in_effect(named) == pytest.approx(episodes, abs=0.05)


@pytest.mark.whole
@pytest.mark.slow
def test_on_a_measured_log_the_middle_is_the_simulations_and_p90_covers() -> None:
    """The simulated P90 alone covers 0.79 where the second half is the test."""
    (log,) = read_logs(FIXTURES / "measured")
    one = played(log, log.pools[0], log.name, None)
    for cut in CUTS:
        known = figures(one, cut)
        assert known is not None
        found = ratios(one, cut, known, RULES)
        assert found.simple * known.simple.mae == pytest.approx(known.raw.mae, rel=0.05)
        assert found.covers >= (0.87 if known.episodes >= FEWEST_EPISODES else known.raw.coverage_90)
