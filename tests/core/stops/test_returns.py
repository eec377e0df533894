"""A server that comes back without a GPU: whether it does, with what, and what is done next."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.culling import (
    Action,
    CullPolicy,
    ServerFacts,
    decide,
    evidence_of,
    keep,
)
from hub_extensions.core.stops import (
    Cause,
    ReturnStep,
    ServerReturn,
    StopCause,
    by_hub,
    comes_back,
    cpu_options,
    give_back,
    next_step,
    reclaim,
)
from hub_extensions.core.text.reasons import explain

NOON = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
FACTS = ServerFacts("ada", "", "gpu", NOON, lease="l1")
CPU_RUN = ServerFacts("ada", "", "cpu", NOON + 60 * SECOND)
GONE: dict[str, Any] = {"holds_gpu": False, "has_ticket": False, "listed": False, "run": None}
ORDERED = ServerReturn("ada", "", {}, stopped=NOON)
ENDED = replace(ORDERED, ended=FACTS.started)
ASKED = replace(ORDERED, asked=NOON, tries=1)
BACK = replace(ASKED, run=CPU_RUN.started)


@pytest.mark.parametrize(
    ("soft", "lease", "cause", "comes"),
    [
        (True, "l1", Cause.IDLE, True),
        (True, "l1", Cause.LIFETIME, True),
        (True, "l1", Cause.UNOPENED, True),
        (True, "l1", Cause.SIGNED_OUT, False),
        (True, None, Cause.CPU_IDLE, False),
        (False, "l1", Cause.IDLE, False),
    ],
)
def test_a_server_comes_back_where_the_policy_is_soft(soft: bool, lease: str | None, cause: Cause, comes: bool) -> None:
    signed_out = (by_hub(NOON + 1800 * SECOND, "logout"),)
    assert comes_back((), cause, soft=soft, on_gpu=lease is not None) is comes
    assert not comes_back(signed_out, cause, soft=soft, on_gpu=lease is not None), "its user was signed out"
    if cause is Cause.IDLE:
        reclaimed = reclaim(NOON, 60 * SECOND, NOON)
        assert comes_back((reclaimed,), Cause.RECLAIMED, soft=soft, on_gpu=True) is soft
        assert not comes_back((reclaimed, *signed_out), Cause.RECLAIMED, soft=soft, on_gpu=True)


@pytest.mark.parametrize("soft", [True, False])
def test_who_gives_the_gpu_back_says_whether_the_server_comes_back(soft: bool) -> None:
    policy = CullPolicy(enabled=False, restart_on_cpu=soft)
    minute_later = by_hub(NOON + 60 * SECOND, "sign-out")
    for cpu in (True, False):
        given = give_back((), NOON, on_gpu=True, cpu=cpu)
        assert isinstance(given, StopCause)
        evidence = evidence_of(FACTS, use_known=False, orders=(given,))
        decision = decide(evidence, policy, NOON)
        assert (decision.action, decision.cause, decision.can_keep) == (Action.STOP, Cause.GIVEN_BACK, False)
        assert comes_back((given,), decision.cause, soft=soft, on_gpu=True) is cpu
        assert give_back((given,), NOON, on_gpu=True, cpu=cpu) == explain("keep-stopping")
        assert keep(evidence, FACTS, replace(policy, enabled=True), NOON, ()) == explain("keep-stopping")
        signed_out = (given, minute_later)
        assert not comes_back(signed_out, Cause.SIGNED_OUT, soft=soft, on_gpu=True), "nothing starts after a sign-out"
    assert give_back((minute_later,), NOON, on_gpu=True, cpu=True) == explain("keep-stopping")
    assert give_back((), NOON, on_gpu=False, cpu=False) == explain("give-back-no-gpu")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {}),
        ({"offer": "gpu", "notify_when_ready": True}, {}),
        ({"offers": ["gpu", "mig-1g.5gb"], "profile": "torch", "image": "a"}, {"profile": "torch", "image": "a"}),
    ],
)
def test_its_options_are_those_of_before_but_for_the_gpu(options: dict[str, object], kept: dict[str, object]) -> None:
    assert cpu_options(options) == {**kept, "offer": "cpu"}


@pytest.mark.parametrize(
    ("back", "seen", "after", "step"),
    [
        (ORDERED, {**GONE, "holds_gpu": True}, 599, ReturnStep.WAIT),  # the stop is not proved yet
        (ORDERED, {**GONE, "holds_gpu": True, "listed": True}, 601, ReturnStep.GIVE_UP),
        (ORDERED, GONE, 5, ReturnStep.START),
        (ORDERED, {**GONE, "listed": True}, 5, ReturnStep.FORGET),  # its user was quicker
        (ORDERED, {**GONE, "listed": True, "stopping": True}, 5, ReturnStep.WAIT),  # by the hub, after its GPU is free
        (ORDERED, {**GONE, "listed": True, "stopping": True}, 601, ReturnStep.GIVE_UP),
        (ASKED, {**GONE, "listed": True, "stopping": True}, 60, ReturnStep.WAIT),
        (ORDERED, {**GONE, "has_ticket": True}, 5, ReturnStep.FORGET),
        (ORDERED, {**GONE, "run": FACTS.started, "on_gpu": True}, 5, ReturnStep.FORGET),
        (
            ORDERED,
            {**GONE, "run": FACTS.started, "on_gpu": True, "holds_gpu": True, "listed": True},
            5,
            ReturnStep.FORGET,
        ),
        (
            ENDED,
            {**GONE, "run": FACTS.started, "on_gpu": True, "holds_gpu": True, "listed": True, "stopping": True},
            5,
            ReturnStep.WAIT,
        ),
        (
            ENDED,
            {**GONE, "run": FACTS.started, "on_gpu": True, "holds_gpu": True},
            5,
            ReturnStep.WAIT,
        ),  # stopped, and not written down yet
        (
            ENDED,
            {**GONE, "run": FACTS.started, "on_gpu": True, "holds_gpu": True, "listed": True},
            5,
            ReturnStep.FORGET,
        ),  # not stopped
        (ENDED, {**GONE, "run": CPU_RUN.started}, 5, ReturnStep.FORGET),
        (ASKED, GONE, 29, ReturnStep.WAIT),
        (ASKED, {**GONE, "listed": True}, 300, ReturnStep.WAIT),  # it starts
        (ASKED, {**GONE, "has_ticket": True}, 300, ReturnStep.WAIT),  # other servers start first
        (ASKED, GONE, 30, ReturnStep.START),
        (replace(ASKED, tries=2), GONE, 30, ReturnStep.GIVE_UP),
        (ASKED, {**GONE, "listed": True, "run": CPU_RUN.started}, 60, ReturnStep.BACK),
        (
            ASKED,
            {**GONE, "listed": True, "holds_gpu": True, "run": FACTS.started, "on_gpu": True},
            60,
            ReturnStep.FORGET,
        ),  # asked for a GPU
        (BACK, {**GONE, "listed": True, "run": CPU_RUN.started}, 9000, ReturnStep.WAIT),
        (BACK, GONE, 9000, ReturnStep.FORGET),
        (BACK, {**GONE, "run": NOON + 90 * SECOND}, 9000, ReturnStep.FORGET),
    ],
)
def test_what_is_done_next(back: ServerReturn, seen: dict[str, Any], after: int, step: ReturnStep) -> None:
    assert next_step(back, NOON + after * SECOND, **seen) is step
