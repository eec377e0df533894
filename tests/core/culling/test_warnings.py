"""Both warnings of a stop: which end they are of, who heard of it, and what follows where nobody did."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling import (
    PAGE,
    Action,
    Cause,
    CullDecision,
    CullPolicy,
    ServerFacts,
    announced,
    begun_again,
    decide,
    evidence_of,
    last_warning,
    reached,
    settle,
)
from hub_extensions.core.text.reasons import explain

NOON = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
ON = CullPolicy(enabled=True)
FACTS = ServerFacts("ada", "", "gpu", NOON, lease="l1", opened=NOON, opened_known=True)
WARNED = replace(FACTS, warned=NOON, cause=Cause.IDLE, announced=NOON + 10 * MINUTE)


def decided(action: Action, minutes: float, cause: Cause = Cause.IDLE, ends: float | None = None) -> CullDecision:
    at = NOON + minutes * MINUTE
    end = None if ends is None else NOON + ends * MINUTE
    return CullDecision(action, at, cause, explain("left"), False, end, None if action is Action.KEEP else NOON)


def test_the_last_warning_comes_when_a_tenth_of_the_time_is_left() -> None:
    assert last_warning(NOON, ON) == NOON - MINUTE


@pytest.mark.parametrize(
    ("before", "decision", "end", "by"),
    [
        (FACTS, decided(Action.KEEP, 20), None, ()),  # a countdown without its warning
        (FACTS, decided(Action.WARN, 10), 10, ()),
        (replace(WARNED, reached=(PAGE,)), decided(Action.WARN, 10.9), 10, (PAGE,)),  # the same end
        (replace(WARNED, reached=(PAGE,)), decided(Action.WARN, 11), 11, ()),  # another: nobody has heard of it
        (replace(WARNED, reached=(PAGE,)), decided(Action.WARN, 9), 9, ()),
        (replace(WARNED, reached=(PAGE,), unheard=True), decided(Action.KEEP, 40), None, ()),  # it is over
        (replace(WARNED, reached=("mail",)), decided(Action.STOP, 10), 10, ("mail",)),
    ],
)
def test_an_end_is_announced_once(
    before: ServerFacts, decision: CullDecision, end: float | None, by: tuple[str, ...]
) -> None:
    after = announced(before, decision)
    assert (after.announced, after.reached) == (None if end is None else NOON + end * MINUTE, by)
    assert not after.unheard


def test_each_way_is_kept_once_and_none_without_a_warning() -> None:
    assert reached(FACTS, PAGE) is FACTS
    both = reached(reached(reached(WARNED, PAGE), "mail"), PAGE)
    assert both.reached == (PAGE, "mail")


@pytest.mark.parametrize(
    ("facts", "decision", "goes_on_until"),
    [
        (WARNED, decided(Action.STOP, 10), 20),
        (WARNED, decided(Action.STOP, 10, ends=200), 20),
        (WARNED, decided(Action.STOP, 10, ends=13), 13),  # no further than the lifetime
        (WARNED, decided(Action.STOP, 10, Cause.LIFETIME, ends=10), None),
        (WARNED, decided(Action.STOP, 10, Cause.UNOPENED), 20),
        (WARNED, decided(Action.STOP, 10, Cause.CPU_IDLE), 20),
        (WARNED, decided(Action.STOP, 10, Cause.SIGNED_OUT), None),  # that was ordered
        (WARNED, decided(Action.WARN, 10), None),
        (replace(WARNED, reached=(PAGE,)), decided(Action.STOP, 10), None),
        (replace(WARNED, reached=("mail",)), decided(Action.STOP, 10), None),
        (replace(WARNED, unheard=True), decided(Action.STOP, 10), None),  # once
    ],
)
def test_a_countdown_that_nobody_heard_of_begins_again_once(
    facts: ServerFacts, decision: CullDecision, goes_on_until: float | None
) -> None:
    again = begun_again(facts, decision, ON, NOON + 10 * MINUTE)
    if goes_on_until is None:
        assert again is None
        return
    assert again is not None and again.unheard and again.announced is None
    assert again.promised == NOON + goes_on_until * MINUTE


@pytest.mark.parametrize(("lifetime", "heard", "stops_after"), [(None, False, 50), (None, True, 40), (45, False, 45)])
def test_a_server_that_nobody_is_reached_for_stops_one_warning_later_and_never_beyond_its_lifetime(
    lifetime: float | None, heard: bool, stops_after: float
) -> None:
    """Minute by minute, as the service does it: idle from its start, 10 min of grace, an idle limit of 30."""
    policy = replace(ON, lifetime=None if lifetime is None else lifetime * MINUTE)
    facts, minutes, begun, stopped = replace(FACTS, idle_since=NOON), 0, 0, False
    while not stopped and minutes < 100:
        minutes += 1
        now = NOON + minutes * MINUTE
        decision = decide(evidence_of(facts, use_known=True), policy, now, facts.warned, facts.cause, facts.promised)
        again = begun_again(facts, decision, policy, now)
        if again is not None:
            facts, begun = again, begun + 1
            decision = decide(
                evidence_of(facts, use_known=True), policy, now, facts.warned, facts.cause, facts.promised
            )
        facts = announced(settle(facts, decision), decision)
        stopped = decision.action is Action.STOP
        if heard:
            facts = reached(facts, PAGE)
    assert (minutes, begun) == (stops_after, 0 if heard else 1)
