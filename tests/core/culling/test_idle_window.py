"""The window in which a GPU was idle: its gaps, what it was used for before, and how long it may be idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hub_extensions.core.culling import (
    Action,
    Cause,
    CullPolicy,
    Evidence,
    ServerFacts,
    check_policy,
    culling_sentence,
    decide,
    evidence_of,
    extend,
    extensions_left,
    keep,
    longest_use,
    observe,
    settle,
)
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.stops import StopCause
from hub_extensions.core.text.reasons import Reason, explain
from tests.core.culling.test_decision import FACTS, GPU, ON, minute

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
IDLE = replace(FACTS, idle_since=minute(60))
BUSY = replace(GPU, idle_since=None)


def watched(facts: ServerFacts, *samples: tuple[float, float | None], policy: CullPolicy = ON) -> ServerFacts:
    """The facts after samples: (minute, percent)."""
    for at, percent in samples:
        facts = observe(facts, percent, policy, minute(at))
    return facts


@pytest.mark.parametrize(
    ("samples", "idle_since", "missed"),
    [
        ([(61, None), (62, 0.0)], 60, 1),  # a missed scrape is no work
        ([(61, float("nan")), (62, 0.0)], 60, 1),
        ([(61, None), (64, 0.0)], 60, 3),  # a tenth of the limit
        ([(61, None), (64.1, 0.0)], 64.1, 0),  # more than that: what was done in it is not known
        ([(61, None), (63, 0.0), (65, None), (67, 0.0)], 67, 0),  # two gaps that are too much together
        ([(61, None), (63, 0.0), (100, None), (102, 0.0)], 60, 4),  # of a longer window they are less
        ([(61, None), (62, 60.0), (63, 0.0)], 63, 0),
        ([(61, None), (64.1, None), (64.2, 0.0)], 64.2, 0),
    ],
)
def test_idle_before_and_after_a_short_gap_is_one_window(
    samples: list[tuple[float, float | None]], idle_since: float, missed: float
) -> None:
    after = watched(IDLE, *samples)
    assert (after.idle_since, after.missed, after.unknown_since) == (minute(idle_since), missed * MINUTE, None)


def test_with_one_scrape_in_twelve_missed_an_idle_server_is_stopped() -> None:
    """Each 30 s one, and 60 s without now and then: it used to be idle for ever since just now."""
    facts, now, stopped = IDLE, minute(60), None
    for turn in range(1, 100):
        now += 30 * timedelta(seconds=1)
        percent = None if turn % 12 == 0 else 0.0
        facts = observe(facts, percent, ON, now)
        decision = decide(evidence_of(facts, use_known=percent is not None), ON, now, facts.warned, facts.cause)
        facts = settle(facts, decision)
        if decision.action is Action.STOP:
            stopped = now
            break
    assert stopped == minute(90.5), "at minute 90 it is not known"


def test_in_a_gap_the_countdown_goes_on_and_nothing_is_stopped() -> None:
    gap = watched(IDLE, (89, None))
    decision = decide(evidence_of(gap, use_known=False), ON, minute(91), minute(80), Cause.IDLE)
    assert (decision.action, decision.cause, decision.stops_at) == (Action.WARN, Cause.IDLE, minute(90))


def test_of_a_shorter_limit_nine_tenths_are_known_too() -> None:
    facts = watched(IDLE, (61, None), (63, 0.0))
    wanted = replace(ON, contended_idle=12 * MINUTE)
    decision = decide(evidence_of(facts, use_known=True, wanted=True), wanted, minute(70), minute(60))
    assert decision.stops_at == minute(80), "2 min of 20 are not known; of 12 it were too many"


@pytest.mark.parametrize(
    ("samples", "run_ended"),
    [
        ([(20, 90.0), (29, 90.0), (30, 0.0)], 30),
        ([(20, 90.0), (29, 90.0), (29.9, 0.0)], None),  # too short
        ([(20, 90.0), (25, 0.0), (25.9, 90.0), (30, 0.0)], 30),  # a moment between two epochs
        ([(20, 90.0), (25, 0.0), (26.1, 90.0), (30, 0.0)], None),
        ([(20, 90.0), (30, 0.0), (40, 90.0), (41, 0.0)], 30),  # a short look at the results
    ],
)
def test_a_run_is_work_of_ten_minutes(samples: list[tuple[float, float]], run_ended: float | None) -> None:
    assert watched(FACTS, *samples).run_ended == (None if run_ended is None else minute(run_ended))


@pytest.mark.parametrize(
    ("limits", "changes", "stops", "code"),
    [
        ({}, {}, 90, "idle"),
        ({"holds_memory": HOUR}, {"memory_held": True}, 120, "idle-memory"),
        ({"holds_memory": HOUR}, {"memory_held": False}, 90, "idle"),
        ({"holds_memory": HOUR}, {}, 120, "idle"),  # in doubt about work the longer limit
        ({"holds_memory": 10 * MINUTE}, {"memory_held": True}, 90, "idle"),
        ({"never_used": 15 * MINUTE}, {"idle_since": minute(0), "memory_held": False}, 25, "idle-never-used"),
        (
            {"never_used": 15 * MINUTE},
            {"idle_since": minute(0)},
            40,
            "idle-at-first",
        ),  # perhaps a program holds its memory
        ({"never_used": 15 * MINUTE}, {"idle_since": minute(0), "used": True}, 40, "idle-at-first"),
        ({"never_used": 15 * MINUTE}, {"idle_since": minute(0), "memory_held": True}, 40, "idle-at-first"),
        ({"never_used": 15 * MINUTE}, {"idle_since": minute(0), "adopted": True}, 40, "idle-at-first"),
        ({"never_used": 15 * MINUTE}, {}, 90, "idle"),  # before that it is not known
        ({"after_run": 20 * MINUTE}, {"run_ended": minute(60)}, 110, "idle"),
        ({"after_run": 20 * MINUTE}, {"run_ended": minute(30)}, 90, "idle"),
        ({"contended_idle": 15 * MINUTE}, {"wanted": True}, 75, "idle-wanted"),
        ({"contended_idle": 15 * MINUTE}, {}, 90, "idle"),
        ({"contended_idle": 45 * MINUTE}, {"wanted": True}, 90, "idle"),
        (
            {"contended_idle": 15 * MINUTE, "holds_memory": HOUR},
            {"wanted": True, "memory_held": True},
            75,
            "idle-wanted",
        ),
    ],
)
def test_how_long_a_gpu_may_be_idle(
    limits: Mapping[str, Any], changes: Mapping[str, Any], stops: float, code: str
) -> None:
    policy, evidence = replace(ON, **limits), replace(GPU, **changes)
    decision = decide(evidence, policy, minute(stops - 1), minute(stops - 11), Cause.IDLE)
    assert (decision.cause, decision.stops_at) == (Cause.IDLE, minute(stops))
    assert decision.reason is not None and decision.reason.reason == code


WANTED = replace(ON, contended_idle=15 * MINUTE)


@pytest.mark.parametrize(
    ("at", "waits", "shown"),
    [(62, False, None), (79, False, None), (80, False, 90), (62, True, 75), (79, True, 89), (85, True, 95)],
)
def test_a_shorter_limit_while_somebody_waits_is_shown_with_the_wait(at: int, waits: bool, shown: int | None) -> None:
    """A time that was shown before would be a promise, and whoever came then would wait for it."""
    decision = decide(replace(GPU, wanted=waits), WANTED, minute(at))
    assert decision.stops_at == (None if shown is None else minute(shown))


def test_the_shorter_limit_ends_with_the_wait_and_takes_no_promise_back() -> None:
    wanted = decide(replace(GPU, wanted=True), WANTED, minute(66))
    facts = settle(IDLE, wanted)
    assert (facts.warned, facts.promised) == (minute(66), minute(76))
    alone = decide(evidence_of(facts, use_known=True), WANTED, minute(70), facts.warned, facts.cause, facts.promised)
    assert (alone.action, alone.stops_at) == (Action.KEEP, None)
    last = settle(facts, decide(GPU, WANTED, minute(81)))
    again = decide(replace(GPU, wanted=True), WANTED, minute(82), last.warned, last.cause, last.promised)
    assert again.stops_at == minute(91), "the promise of the longer limit"


EXTENDS = replace(ON, max_lifetime_extensions=2, extend_lifetime=3 * HOUR)
LAST_MINUTES = replace(FACTS, warned=minute(710), cause=Cause.LIFETIME, promised=minute(720), ends_at=minute(720))


def extended(facts: ServerFacts, policy: CullPolicy, **changes: Any) -> ServerFacts | Reason:
    evidence = replace(evidence_of(facts, use_known=True), **changes)
    return keep(evidence, facts, policy, minute(715), ())


def test_a_lifetime_is_put_off_while_the_gpu_works_and_so_often() -> None:
    once = extended(LAST_MINUTES, EXTENDS)
    assert isinstance(once, ServerFacts)
    assert (once.ends_at, once.extensions, once.warned, once.keeps) == (minute(900), 1, None, ())
    then = decide(evidence_of(once, use_known=True), EXTENDS, minute(716), once.warned, once.cause, once.promised)
    assert (then.action, then.stops_at, then.ends_at) == (Action.KEEP, None, minute(900))
    assert longest_use(EXTENDS) == 18 * HOUR, "what others wait at most has it all"


@pytest.mark.parametrize(
    ("facts", "policy", "changes", "reason"),
    [
        (LAST_MINUTES, ON, {}, explain("keep-lifetime", limit=12 * HOUR)),
        (LAST_MINUTES, EXTENDS, {"idle_since": minute(700)}, explain("extend-idle")),
        (LAST_MINUTES, EXTENDS, {"use_known": False}, explain("extend-idle")),
        (replace(LAST_MINUTES, extensions=2), EXTENDS, {}, explain("extend-none-left")),
    ],
)
def test_an_extension_that_is_not_to_be_had_says_why(
    facts: ServerFacts, policy: CullPolicy, changes: dict[str, Any], reason: Reason
) -> None:
    assert extended(facts, policy, **changes) == reason
    evidence = replace(evidence_of(facts, use_known=True), **changes)
    assert not decide(evidence, policy, minute(715), minute(710), Cause.LIFETIME).can_keep


def more_time(facts: ServerFacts, policy: CullPolicy, **changes: Any) -> ServerFacts | Reason:
    return extend(replace(evidence_of(facts, use_known=True), **changes), facts, policy, minute(60))


def test_more_time_is_to_be_had_long_before_the_end_and_so_often() -> None:
    once = more_time(FACTS, EXTENDS)
    assert isinstance(once, ServerFacts)
    assert (once.ends_at, once.extensions, once.keeps) == (minute(900), 1, ())
    twice = more_time(once, EXTENDS)
    assert isinstance(twice, ServerFacts) and (twice.ends_at, twice.extensions) == (minute(1080), 2)
    assert more_time(twice, EXTENDS) == explain("extend-none-left")
    assert [extensions_left(each, EXTENDS) for each in (FACTS, once, twice)] == [2, 1, 0]
    assert extended(LAST_MINUTES, EXTENDS) == extend(
        evidence_of(LAST_MINUTES, use_known=True), LAST_MINUTES, EXTENDS, minute(715)
    ), "at the end it is what Keep does"


def order(cause: Cause, at: float) -> StopCause:
    return StopCause(cause, minute(at), True, "stopped-by-admin", stands=True)


@pytest.mark.parametrize(
    ("policy", "changes", "reason", "left"),
    [
        (ON, {}, explain("keep-lifetime", limit=12 * HOUR), None),
        (replace(EXTENDS, enabled=False), {}, explain("keep-dry-run"), None),
        (replace(EXTENDS, never=True), {}, explain("extend-no-limit"), None),
        (replace(EXTENDS, lifetime=None), {}, explain("extend-no-limit"), None),
        (EXTENDS, {"idle_since": minute(50)}, explain("extend-idle"), 2),
        (EXTENDS, {"use_known": False}, explain("extend-idle"), 2),
        (EXTENDS, {"no_session": True}, explain("keep-no-session"), 2),
        (EXTENDS, {"orders": (order(Cause.ADMIN, 90),)}, explain("stopped-by-admin"), 2),
        (EXTENDS, {"orders": (order(Cause.SIGNED_OUT, 90),)}, explain("keep-signed-out"), 2),
        (EXTENDS, {"orders": (order(Cause.GIVEN_BACK, 90),)}, explain("keep-stopping"), 2),
        (EXTENDS, {"orders": (order(Cause.ADMIN, 899),)}, explain("keep-in-vain"), 2),
    ],
)
def test_more_time_that_is_not_to_be_had_says_why(
    policy: CullPolicy, changes: dict[str, Any], reason: Reason, left: int | None
) -> None:
    assert more_time(FACTS, policy, **changes) == reason
    assert extensions_left(FACTS, policy) == left


def test_a_server_without_a_gpu_has_no_more_time_to_ask_for() -> None:
    cpu = replace(FACTS, offer=CPU, lease=None)
    for policy, reason in (
        (EXTENDS, explain("keep-cpu")), (replace(EXTENDS, cpu_lifetime=HOUR), explain("keep-lifetime", limit=HOUR)),
    ):  # fmt: skip
        assert more_time(cpu, policy) == reason and extensions_left(cpu, policy) is None


def test_an_order_after_the_extended_end_hinders_no_extension() -> None:
    late = more_time(FACTS, EXTENDS, orders=(order(Cause.ADMIN, 901),))
    assert isinstance(late, ServerFacts) and late.ends_at == minute(900)


def test_the_end_of_the_lifetime_that_was_shown_does_not_come_sooner() -> None:
    facts = settle(FACTS, decide(BUSY, ON, minute(5)))
    assert facts.ends_at == minute(720)
    shorter = replace(ON, lifetime=HOUR)
    decision = decide(replace(BUSY, ends_at=facts.ends_at), shorter, minute(100), promised=facts.promised)
    assert (decision.stops_at, decision.ends_at) == (None, minute(720))
    longer = settle(facts, decide(replace(BUSY, ends_at=facts.ends_at), replace(ON, lifetime=20 * HOUR), minute(9)))
    assert longer.ends_at == minute(1200)


def test_a_rule_that_says_never_stops_nobody() -> None:
    never = replace(ON, never=True)
    for evidence in (GPU, replace(GPU, opened=None), Evidence("cpu", minute(0), False, None, True, None, False)):
        assert decide(evidence, never, minute(5000), minute(10)).stops_at is None
    assert longest_use(never) is None


def test_the_form_says_that_a_wait_shortens_the_limit() -> None:
    assert culling_sentence(WANTED) == (
        "Stops when its GPU is idle for 30 min, or for 15 min while somebody waits for one (you are warned 10 min "
        "before); it runs at most 12 h."
    )
    never = replace(ON, never=True)
    assert culling_sentence(ON, never) == "Stops when its GPU is idle for 30 min (you are warned 10 min before)."
    assert culling_sentence(never) == ""


@pytest.mark.parametrize("field", ["holds_memory", "never_used", "contended_idle"])
def test_each_limit_is_as_long_as_its_warning(field: str) -> None:
    check_policy(replace(ON, **{field: 10 * MINUTE}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{field}: it has to be as long as the warning at least"):
        check_policy(replace(ON, **{field: 9 * MINUTE}))  # type: ignore[arg-type]
