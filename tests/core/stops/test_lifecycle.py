"""Every pair of *state × event* of a stop, what withdraws it until when, and that its docstring is the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from pydantic import TypeAdapter

from hub_extensions.core.stops import (
    Cause,
    ServerReturn,
    StopCause,
    StopPause,
    StopRecord,
    StopState,
    Withdrawal,
    by_admin,
    by_hub,
    lifecycle,
    reclaim,
    without,
)
from hub_extensions.core.stops.lifecycle import NO_RECORD, STOPS, StopEvent
from hub_extensions.core.text.reasons import explain

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
LATER = NOW + timedelta(minutes=1)
PAUSE = StopPause(1, LATER, NOW, "500: locked")
BACK = ServerReturn("ada", "", {"offer": "cpu"}, NOW, ended=NOW)
IDLE = explain("idle", idle=timedelta(minutes=31))
IDLE_END = StopCause(Cause.IDLE, NOW, True, "idle", IDLE.params, warned=NOW)
LIFETIME = StopCause(Cause.LIFETIME, LATER, False, "lifetime", {"limit": 60.0}, warned=NOW)
QUIET = StopCause(Cause.CPU_IDLE, NOW, True, "no-activity", {"quiet": 900.0})
RUNNING = lifecycle.running(("ada", "", "l1"), NOW)
ANNOUNCED = lifecycle.announce(RUNNING, (IDLE_END,))
BEGUN = lifecycle.begin(ANNOUNCED, (IDLE_END,), NOW)


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
    takes = state in (StopState.ANNOUNCED, StopState.DRAINING, StopState.WAITING) and interrupted is None
    assert refused == (None if takes else explain("keep-stopping"))
    assert ((state, StopEvent.WITHDRAWN) in STOPS) >= takes
    assert lifecycle.refuse_withdrawal(None) is None, "no end of it is announced"


@pytest.mark.parametrize("state", [each for each in StopState if each not in NO_RECORD])
def test_a_step_that_is_not_in_the_table_is_none(state: StopState) -> None:
    stop = a_stop(state)
    steps = {
        StopEvent.WARNED: lambda: lifecycle.announce(stop, (LIFETIME,)),
        StopEvent.WITHDRAWN: lambda: lifecycle.withdraw(stop, (LIFETIME,)),
        StopEvent.CALMED: lambda: lifecycle.calm(stop),
        StopEvent.BEGUN: lambda: lifecycle.begin(stop, (IDLE_END,), LATER),
        StopEvent.INTERRUPTED: lambda: lifecycle.interrupt(stop, LATER),
        StopEvent.ASKED: lambda: lifecycle.ask(stop, (IDLE_END,), (), BACK, LATER),
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


def test_the_causes_of_an_end_are_held_from_its_announcement_on() -> None:
    assert (ANNOUNCED.state, ANNOUNCED.causes, ANNOUNCED.cause, ANNOUNCED.why) == (
        StopState.ANNOUNCED,
        (IDLE_END,),
        Cause.IDLE,
        IDLE,
    )
    near, far = replace(IDLE_END, at=NOW + timedelta(seconds=59)), replace(IDLE_END, at=LATER)
    assert lifecycle.announce(ANNOUNCED, (near,)) is ANNOUNCED, "the same end: its time does not jump"
    both = lifecycle.announce(ANNOUNCED, (replace(far, warned=LATER), LIFETIME))
    assert both.causes == (far, LIFETIME), "it is announced since before"
    begun = lifecycle.begin(both, (), LATER)
    assert begun.causes == both.causes, "after a restart the evidence is not known yet"
    assert lifecycle.begin(both, (LIFETIME,), LATER).causes == (LIFETIME,)


def test_an_order_joins_the_causes_in_any_state_until_the_server_is_gone() -> None:
    admin = by_admin(NOW, "an exam")
    for state in (RUNNING, ANNOUNCED, BEGUN, a_stop(StopState.ASKED), a_stop(StopState.WAITING)):
        ordered = lifecycle.order(state, admin, NOW)
        assert ordered.orders == (replace(admin, warned=NOW),)
        assert sorted(each.cause.value for each in ordered.causes) == sorted(
            each.cause.value for each in (*state.causes, admin)
        )
        assert lifecycle.order(ordered, admin, LATER) is ordered, "the same order again changes nothing"


def test_an_undo_leaves_the_causes_of_others_and_the_server_runs_once_none_is_left() -> None:
    sign_out, admin = by_hub(LATER, "sign-out"), by_admin(NOW, "")
    ordered = lifecycle.order(lifecycle.order(RUNNING, sign_out, NOW), admin, NOW)
    left = lifecycle.withdraw(ordered, without(ordered.causes, Withdrawal.UNDO))
    assert left is not None and (left.state, left.causes) == (StopState.ANNOUNCED, (replace(sign_out, warned=NOW),))
    alone = lifecycle.begin(lifecycle.order(RUNNING, admin, NOW), (), NOW)
    assert lifecycle.withdraw(alone, without(alone.causes, Withdrawal.UNDO)) is None


@pytest.mark.parametrize("state", [StopState.ANNOUNCED, StopState.DRAINING, StopState.WAITING])
def test_a_reclaim_is_withdrawn_by_the_line_until_the_first_interrupt(state: StopState) -> None:
    reclaimed = lifecycle.order(RUNNING, reclaim(NOW, timedelta(minutes=5), NOW), NOW)
    at_this_state = replace(reclaimed, state=state)
    assert lifecycle.refuse_withdrawal(at_this_state) is None
    for other in (Withdrawal.KEEP, Withdrawal.UNDO):
        assert without(at_this_state.causes, other) is at_this_state.causes
    assert lifecycle.withdraw(at_this_state, without(at_this_state.causes, Withdrawal.LINE)) is None
    assert lifecycle.refuse_withdrawal(replace(at_this_state, interrupted=NOW)) == explain("keep-stopping")


def test_a_stop_of_an_earlier_version_gets_the_orders_that_stood_apart() -> None:
    admin, idle = by_admin(LATER, "an exam"), replace(IDLE_END, code="was-to-end", params={})
    apart = replace(RUNNING, causes=(admin,))
    known = replace(BEGUN, causes=(idle, StopCause(Cause.ADMIN, NOW, True, "stopped-by-admin")))
    assert lifecycle.with_earlier(known, {apart.key: apart}).causes == (idle, admin)
    assert lifecycle.with_earlier(BEGUN, {apart.key: apart}).causes == (IDLE_END, admin)
    assert lifecycle.with_earlier(BEGUN, {}) is BEGUN
    assert lifecycle.with_earlier(BEGUN, {apart.key: replace(apart, run=LATER)}) is BEGUN, "of another run"


def test_what_an_interrupt_took_away_no_later_try_gives_back() -> None:
    told = lifecycle.interrupt(BEGUN, NOW)
    assert lifecycle.interrupt(told, LATER).interrupted == NOW, "the first one counts"
    waiting = lifecycle.put_off(told, PAUSE)
    assert (waiting.began, waiting.pause, waiting.interrupted) == (None, PAUSE, NOW)
    again = lifecycle.begin(waiting, (LIFETIME,), LATER)
    assert (again.state, again.began, again.cause) == (StopState.DRAINING, LATER, Cause.LIFETIME)
    for stop in (told, waiting, again):
        assert lifecycle.refuse_withdrawal(stop) is not None


def test_a_hub_that_gave_no_answer_may_have_stopped_the_server() -> None:
    asked = lifecycle.ask(BEGUN, (IDLE_END,), (IDLE,), BACK, NOW)
    silent = lifecycle.fall_silent(asked, PAUSE)
    assert silent.begun and silent.began is None and (silent.asked, silent.back) == (NOW, BACK)
    again = lifecycle.begin(silent, (IDLE_END,), LATER)
    assert (again.state, again.asked, again.grounds) == (StopState.ASKED, NOW, (IDLE,))
    refused = lifecycle.put_off(again, PAUSE)
    assert (refused.asked, refused.back, refused.begun) == (None, None, False)


def test_a_stop_without_a_gpu_is_over_with_its_server() -> None:
    cpu = lifecycle.begin(lifecycle.announce(lifecycle.running(("ada", "", ""), NOW), (QUIET,)), (), NOW)
    assert lifecycle.stop(cpu, LATER) is None


def test_a_server_that_comes_back_is_followed_until_that_run_is_over() -> None:
    asked = lifecycle.ask(BEGUN, (IDLE_END,), (), BACK, NOW)
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
    causes = lifecycle.order(ANNOUNCED, by_admin(LATER, "an exam"), NOW).causes
    whole = replace(
        a_stop(state),
        causes=causes,
        grounds=(IDLE,),
        interrupted=NOW,
        asked=LATER,
        pause=PAUSE,
        alarmed=True,
        back=BACK,
    )
    kept = TypeAdapter(StopRecord)
    assert kept.validate_json(kept.dump_json(whole)) == whole
