"""Every pair of *state × event* of a stop, what withdraws it until when, and that its docstring is the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from pydantic import TypeAdapter

from hub_extensions.core.stops import Cause, ServerReturn, StopPause, StopRecord, StopState, lifecycle
from hub_extensions.core.stops.lifecycle import NO_RECORD, STOPS, StopEvent
from hub_extensions.core.text.reasons import explain

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
LATER = NOW + timedelta(minutes=1)
PAUSE = StopPause(1, LATER, NOW, "500: locked")
BACK = ServerReturn("ada", "", {"offer": "cpu"}, NOW, ended=NOW)
IDLE = explain("idle", idle=timedelta(minutes=31))
BEGUN = lifecycle.begin(None, ("ada", "", "l1"), NOW, Cause.IDLE, IDLE, NOW)


def a_stop(state: StopState) -> StopRecord:
    return replace(BEGUN, state=state, since=NOW if state is StopState.ENDING else None)


def documented() -> dict[tuple[StopState, StopEvent], StopState]:
    found: dict[tuple[StopState, StopEvent], StopState] = {}
    events: list[StopEvent] = []
    for line in (lifecycle.__doc__ or "").splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [""]
        if first == "state":
            events = [StopEvent[cell] for cell in cells]
        elif first and not first.startswith("-"):
            steps = zip(events, cells, strict=True)
            found |= {(StopState(first), event): StopState(cell) for event, cell in steps if cell}
    return found


def test_the_docstring_says_what_the_table_says() -> None:
    assert documented() == dict(STOPS)


def test_every_state_can_be_left_and_only_gone_is_the_end() -> None:
    assert {state for state, _ in STOPS} == set(StopState) - {StopState.GONE}
    assert set(STOPS.values()) | {StopState.RUNNING} == set(StopState)
    assert {event for _, event in STOPS} == set(StopEvent)


@pytest.mark.parametrize("state", [each for each in StopState if each not in NO_RECORD])
@pytest.mark.parametrize("interrupted", [None, NOW])
def test_a_cause_is_withdrawn_until_the_first_interrupt_and_not_after_it(
    state: StopState, interrupted: datetime | None
) -> None:
    refused = lifecycle.refuse_withdrawal(replace(a_stop(state), interrupted=interrupted))
    takes = state in (StopState.DRAINING, StopState.WAITING) and interrupted is None
    assert refused == (None if takes else explain("keep-stopping"))
    assert ((state, StopEvent.WITHDRAWN) in STOPS) >= takes
    assert lifecycle.refuse_withdrawal(None) is None, "its stop has not begun"


@pytest.mark.parametrize("state", [each for each in StopState if each not in NO_RECORD])
def test_a_step_that_is_not_in_the_table_is_none(state: StopState) -> None:
    stop = a_stop(state)
    steps = {
        StopEvent.BEGUN: lambda: lifecycle.begin(stop, stop.key, NOW, Cause.IDLE, IDLE, LATER),
        StopEvent.INTERRUPTED: lambda: lifecycle.interrupt(stop, LATER),
        StopEvent.ASKED: lambda: lifecycle.ask(stop, Cause.IDLE, IDLE, (), BACK, LATER),
        StopEvent.SILENT: lambda: lifecycle.fall_silent(stop, PAUSE),
        StopEvent.PUT_OFF: lambda: lifecycle.put_off(stop, PAUSE),
        StopEvent.STOPPED: lambda: lifecycle.stop(stop, LATER),
        StopEvent.RELEASED: lambda: lifecycle.release(replace(stop, back=BACK)),
        StopEvent.OVER: lambda: lifecycle.release(stop),
    }
    for event, step in steps.items():
        if (state, event) not in STOPS:
            with pytest.raises(KeyError):
                step()
        elif STOPS[state, event] is StopState.GONE:
            assert step() is None
        else:
            after = step()
            assert after is not None and after.state is STOPS[state, event]


def test_what_an_interrupt_took_away_no_later_try_gives_back() -> None:
    told = lifecycle.interrupt(BEGUN, NOW)
    assert lifecycle.interrupt(told, LATER).interrupted == NOW, "the first one counts"
    waiting = lifecycle.put_off(told, PAUSE)
    assert (waiting.began, waiting.pause, waiting.interrupted) == (None, PAUSE, NOW)
    again = lifecycle.begin(waiting, waiting.key, NOW, Cause.LIFETIME, IDLE, LATER)
    assert (again.state, again.began, again.cause) == (StopState.DRAINING, LATER, Cause.LIFETIME)
    for stop in (told, waiting, again):
        assert lifecycle.refuse_withdrawal(stop) is not None


def test_a_hub_that_gave_no_answer_may_have_stopped_the_server() -> None:
    asked = lifecycle.ask(BEGUN, Cause.IDLE, IDLE, (IDLE,), BACK, NOW)
    silent = lifecycle.fall_silent(asked, PAUSE)
    assert silent.begun and silent.began is None and (silent.asked, silent.back) == (NOW, BACK)
    again = lifecycle.begin(silent, silent.key, NOW, Cause.IDLE, IDLE, LATER)
    assert (again.state, again.asked, again.grounds) == (StopState.ASKED, NOW, (IDLE,))
    refused = lifecycle.put_off(again, PAUSE)
    assert (refused.asked, refused.back, refused.begun) == (None, None, False)


def test_a_stop_without_a_gpu_is_over_with_its_server() -> None:
    cpu = lifecycle.begin(None, ("ada", "", ""), NOW, Cause.CPU_IDLE, IDLE, NOW)
    assert lifecycle.stop(cpu, LATER) is None


def test_a_server_that_comes_back_is_followed_until_that_run_is_over() -> None:
    asked = lifecycle.ask(BEGUN, Cause.IDLE, IDLE, (), BACK, NOW)
    ending = lifecycle.stop(asked, LATER)
    assert ending is not None and (ending.state, ending.since) == (StopState.ENDING, LATER)
    assert lifecycle.return_as(ending, None) == replace(ending, back=None), "its lease is still to be proved over"
    returning = lifecycle.release(ending)
    assert returning is not None and returning.state is StopState.RETURNING
    started = replace(BACK, asked=LATER, tries=1)
    assert lifecycle.return_as(returning, started) == replace(returning, back=started)
    returned = lifecycle.return_as(returning, replace(started, run=LATER))
    assert returned is not None and returned.state is StopState.RETURNED
    assert lifecycle.return_as(returned, None) is lifecycle.return_as(returning, None) is None


@pytest.mark.parametrize("state", [each for each in StopState if each not in NO_RECORD])
def test_a_stop_is_read_back_as_it_was_written(state: StopState) -> None:
    whole = replace(a_stop(state), grounds=(IDLE,), interrupted=NOW, asked=LATER, pause=PAUSE, alarmed=True, back=BACK)
    kept = TypeAdapter(StopRecord)
    assert kept.validate_json(kept.dump_json(whole)) == whole
