"""The running clock, and the turned one of the tests that wait for a countdown."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.hub_service.engine.state.clock import RunningClock
from tests.fakes.turned_service import AGES, LOOKS, RATE, TurnedClock

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


class Held:
    """A machine's two clocks."""

    def __init__(self) -> None:
        self.seconds, self.wall = 0.0, NOW

    def pass_(self, time: timedelta) -> None:
        self.seconds += time.total_seconds()
        self.wall += time

    def running_clock(self) -> RunningClock:
        return RunningClock(monotonic=lambda: self.seconds, utc_now=lambda: self.wall)


def test_it_stands_still_while_paused_and_is_behind_the_wall_clock_by_the_outage() -> None:
    held = Held()
    clock = held.running_clock()
    held.pass_(MINUTE)
    assert clock.now() == clock.wall(clock.now()) == NOW + MINUTE
    clock.pause()
    held.pass_(10 * MINUTE)
    assert (clock.now(), clock.paused) == (NOW + MINUTE, True)
    clock.resume()
    held.pass_(MINUTE)
    assert (clock.now(), clock.paused) == (NOW + 2 * MINUTE, False)
    assert clock.wall(clock.now() + MINUTE) == NOW + 13 * MINUTE
    assert clock.running(NOW + 11 * MINUTE) == NOW + MINUTE


@pytest.mark.parametrize("ahead", [-90, 0, 45])
def test_what_the_wall_clock_says_of_a_moment_leads_back_to_it(ahead: float) -> None:
    held = Held()
    clock = held.running_clock()
    held.pass_(MINUTE)
    moment = clock.now() + timedelta(seconds=ahead)
    assert clock.running(clock.wall(moment)) == moment


class HeldAndTurned(TurnedClock):
    """The turned clock on a machine's clocks that are held."""

    def __init__(self, held: Held) -> None:
        RunningClock.__init__(self, monotonic=lambda: held.seconds * RATE, utc_now=lambda: held.wall)


def test_the_turned_clock_runs_six_times_as_fast_and_says_when_a_deadline_really_comes() -> None:
    held = Held()
    clock = HeldAndTurned(held)
    deadline = clock.now() + 6 * MINUTE
    assert clock.wall(deadline) == NOW + MINUTE
    held.pass_(MINUTE)
    assert (clock.now(), clock.wall(deadline), clock.elapsed()) == (deadline, NOW + MINUTE, 60.0)
    assert clock.running(NOW) == NOW, "a minute ago by the wall clock"


def test_a_turned_service_still_has_every_pause_and_age_that_is_turned() -> None:
    assert all(isinstance(getattr(module, name), float) for module, name in LOOKS)
    assert all(isinstance(getattr(module, name), timedelta) for module, name in AGES)
