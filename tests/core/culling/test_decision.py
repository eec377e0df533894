"""Culling: what is never stopped, what always is, and that nothing stops without its warning."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.culling import (
    Action,
    Cause,
    CullDecision,
    CullPolicy,
    Evidence,
    PolicyError,
    ServerFacts,
    check_policy,
    culling_sentence,
    decide,
    evidence_of,
    keep,
    keep_by_admin,
    keeps_left,
    longest_use,
    observe,
    opened,
    reported,
    settle,
    undo,
)
from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.stops import StopCause, Withdrawal, added, by_admin, by_hub, earliest, reclaim, without
from hub_extensions.core.text.reasons import Reason, explain

START = datetime(2026, 3, 2, 8, 0, tzinfo=timezone.utc)
ON = CullPolicy(enabled=True)
DEMO = CullPolicy(
    enabled=True,
    idle=timedelta(minutes=3),
    warn=timedelta(minutes=1),
    keep=timedelta(minutes=3),
    lifetime=timedelta(minutes=30),
    grace=timedelta(0),
)


def minute(value: float) -> datetime:
    return START + timedelta(minutes=value)


def message(decision: CullDecision) -> str:
    return "" if decision.reason is None else decision.reason.message


GPU = Evidence("mig-1g.5gb", START, False, minute(1), True, idle_since=minute(60), use_known=True)
CPU = Evidence("cpu", START, False, None, False, None, False, last_activity=minute(60), busy_kernels=0)
FACTS = ServerFacts("ada", "", "mig-1g.5gb", START, lease="l1", opened=minute(1), opened_known=True)


def told(decision: CullDecision) -> tuple[Action, Cause | None, datetime | None]:
    return decision.action, decision.cause, decision.stops_at


def kept_by(
    facts: ServerFacts, policy: CullPolicy, now: datetime, orders: tuple[StopCause, ...] = ()
) -> ServerFacts | Reason:
    """What *keep* gives to a user who has pressed it for this server alone."""
    return keep(evidence_of(facts, use_known=True, orders=orders), facts, policy, now, facts.keeps)


def test_an_idle_server_counts_down_is_warned_and_stops() -> None:
    shown = decide(GPU, ON, minute(75))
    assert told(shown) == (Action.KEEP, Cause.IDLE, minute(90))
    assert (message(shown), shown.can_keep, shown.ends_at) == ("Idle for 15 min.", True, minute(720))
    warned = decide(GPU, ON, minute(80))
    assert told(warned) == (Action.WARN, Cause.IDLE, minute(90))
    assert warned.warned == minute(80)
    assert decide(GPU, ON, minute(89.9), minute(80), Cause.IDLE).action is Action.WARN
    assert told(decide(GPU, ON, minute(90), minute(80), Cause.IDLE)) == (Action.STOP, Cause.IDLE, minute(90))


def test_the_countdown_is_shown_only_after_a_minute_of_idleness() -> None:
    assert told(decide(GPU, ON, minute(60.5))) == (Action.KEEP, None, None)
    assert decide(GPU, ON, minute(61)).stops_at == minute(90)
    assert decide(replace(GPU, idle_since=minute(10)), DEMO, minute(10.75)).stops_at == minute(13)


SHORTER = replace(
    ON,
    warn=timedelta(minutes=5),
    idle=timedelta(minutes=12),
    lifetime=timedelta(minutes=100),
    unopened=timedelta(minutes=11),
    cpu_idle=timedelta(minutes=20),
)
BUSY = replace(GPU, idle_since=None)
UNOPENED = replace(GPU, opened=None)
JUST_IDLE = replace(GPU, idle_since=minute(75))


def would_stop_at(decision: CullDecision) -> datetime | None:
    return decision.stops_at if decision.would is None else decision.would.stops_at


@pytest.mark.parametrize(
    ("evidence", "at", "promised", "then", "at_then", "without", "end"),
    [
        (GPU, 75, (Cause.IDLE, 90), GPU, 75, 80, (Cause.IDLE, 90)),
        (GPU, 75, (Cause.IDLE, 90), replace(GPU, idle_since=minute(76)), 78, 88, (Cause.IDLE, 90)),  # not known between
        (GPU, 75, (Cause.IDLE, 90), replace(GPU, idle_since=minute(87)), 91, 99, (Cause.IDLE, 99)),  # it is over
        (JUST_IDLE, 77, (Cause.IDLE, 105), JUST_IDLE, 77, 87, (Cause.LIFETIME, 105)),
        (BUSY, 710, (Cause.LIFETIME, 720), BUSY, 711, 715, (Cause.LIFETIME, 720)),
        (BUSY, 710, (Cause.LIFETIME, 720), GPU, 711, 715, (Cause.LIFETIME, 720)),
        (UNOPENED, 4, (Cause.UNOPENED, 15), UNOPENED, 5, 11, (Cause.UNOPENED, 15)),
        (CPU, 770, (Cause.CPU_IDLE, 780), CPU, 771, 775, (Cause.CPU_IDLE, 780)),
    ],
)
def test_an_end_that_a_countdown_showed_does_not_come_sooner_by_other_limits(
    evidence: Evidence,
    at: float,
    promised: tuple[Cause, float],
    then: Evidence,
    at_then: float,
    without: float,
    end: tuple[Cause, float],
) -> None:
    shown = decide(evidence, ON, minute(at))
    assert (shown.cause, shown.stops_at) == (promised[0], minute(promised[1]))
    facts = settle(replace(FACTS, offer=evidence.offer), shown)
    forgotten = decide(then, SHORTER, minute(at_then), facts.warned, facts.cause)
    assert forgotten.stops_at == minute(without)
    kept = decide(then, SHORTER, minute(at_then), facts.warned, facts.cause, facts.promised)
    assert (kept.cause, kept.stops_at) == (end[0], minute(end[1]))


def test_a_busy_gpu_keeps_its_server() -> None:
    decision = decide(replace(GPU, idle_since=None), ON, minute(300))
    assert told(decision) == (Action.KEEP, None, None)
    assert message(decision) == "Its GPU is in use."


def test_a_gpu_whose_use_is_not_known_keeps_its_server() -> None:
    decision = decide(replace(GPU, use_known=False, idle_since=None), ON, minute(300))
    assert told(decision) == (Action.KEEP, None, None)
    assert "not known" in message(decision)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"idle_since": START, "opened": minute(1)}, 10 + 30),  # grace after the start
        ({"idle_since": START, "opened": minute(12)}, 12 + 30),  # the first opening
        ({"idle_since": START, "opened": None, "opened_known": False}, 15 + 30),  # nobody would have told us
        ({"idle_since": START, "opened": None, "opened_known": False, "adopted": True}, 10 + 30),
        ({"kept_until": minute(120)}, 120),
        ({"kept_until": minute(70)}, 90),
        ({"offer": "gpu"}, 60 + 120),  # its own limit
    ],
)
def test_idleness_counts_from_the_latest_of_its_beginnings(changed: dict[str, object], expected: float) -> None:
    policy = replace(ON, idle_by_offer={"gpu": timedelta(hours=2)})
    evidence = replace(GPU, **changed)  # type: ignore[arg-type]
    assert decide(evidence, policy, evidence.idle_since or START).stops_at is None
    assert would_stop_at(decide(evidence, policy, minute(62))) is not None
    far = decide(evidence, policy, minute(1000), minute(1), Cause.IDLE)
    assert (far.cause, far.stops_at) == (Cause.IDLE, minute(expected))


def test_an_adopted_server_is_not_stopped_before_a_full_idle_limit() -> None:
    adopted = replace(GPU, started=minute(200), adopted=True, opened=None, opened_known=True, idle_since=minute(60))
    decision = decide(adopted, replace(ON, grace=timedelta(0)), minute(205))
    assert told(decision) == (Action.KEEP, Cause.IDLE, minute(230))


def test_a_gpu_server_that_nobody_opened_is_stopped() -> None:
    lonely = replace(GPU, opened=None, idle_since=None)
    warned = decide(lonely, ON, minute(6), minute(5), Cause.UNOPENED)
    assert told(warned) == (Action.WARN, Cause.UNOPENED, minute(15))
    assert message(warned) == "Nobody has opened it since it started 6 min ago."
    assert warned.can_keep
    assert decide(lonely, ON, minute(15), minute(5), Cause.UNOPENED).action is Action.STOP


@pytest.mark.parametrize(
    "changed", [{"opened_known": False}, {"opened": minute(14)}, {"adopted": True}, {"used": True}]
)
def test_a_server_that_may_have_been_opened_is_not_stopped_as_unopened(changed: dict[str, object]) -> None:
    lonely = replace(GPU, **{"opened": None, "idle_since": None, **changed})  # type: ignore[arg-type]
    assert decide(lonely, ON, minute(100), minute(1)).cause is None
    assert decide(replace(GPU, opened=None, idle_since=None), replace(ON, unopened=None), minute(100)).cause is None


@pytest.mark.parametrize(("idle_since", "ends"), [(None, None), (2, 40), (20, 50)])
def test_a_gpu_that_was_in_use_counts_as_opened_and_its_idleness_counts_from_then(
    idle_since: int | None, ends: int | None
) -> None:
    """A script that the API started, or a program in a pod without a page, is work."""
    since = None if idle_since is None else minute(idle_since)
    decision = decide(replace(GPU, opened=None, used=True, idle_since=since), ON, minute(21))
    assert (decision.cause, decision.stops_at) == ((None, None) if ends is None else (Cause.IDLE, minute(ends)))


def test_a_server_that_works_unopened_can_be_kept_from_being_stopped_as_idle() -> None:
    worked = replace(FACTS, opened=None, started=minute(40), idle_since=minute(60))
    kept = keep(evidence_of(worked, use_known=True, used=True), worked, ON, minute(61), ())
    assert isinstance(kept, ServerFacts) and kept.kept_until == minute(120)


def test_a_cpu_only_server_is_never_stopped_as_unopened_nor_by_the_lifetime() -> None:
    fresh = replace(CPU, opened_known=True, last_activity=minute(1000))
    decision = decide(fresh, ON, minute(1001))
    assert told(decision) == (Action.KEEP, None, None)
    assert decision.ends_at is None


def test_the_lifetime_ends_a_busy_server_too_with_the_same_warning() -> None:
    busy = replace(GPU, idle_since=None)
    assert told(decide(busy, ON, minute(709))) == (Action.KEEP, None, None)
    warned = decide(busy, ON, minute(710))
    assert told(warned) == (Action.WARN, Cause.LIFETIME, minute(720))
    assert (message(warned), warned.can_keep) == ("The time limit of 12 h ends.", False)
    assert decide(busy, ON, minute(720), minute(710), Cause.LIFETIME).action is Action.STOP


def test_no_keep_moves_the_lifetime() -> None:
    kept = replace(GPU, kept_until=minute(2000), idle_since=minute(690))
    assert told(decide(kept, ON, minute(715))) == (Action.WARN, Cause.LIFETIME, minute(725))
    assert told(decide(kept, ON, minute(715), minute(710))) == (Action.WARN, Cause.LIFETIME, minute(720))
    assert isinstance(kept_by(replace(FACTS, warned=minute(710), cause=Cause.LIFETIME), ON, minute(715)), Reason)


def test_the_earliest_end_wins() -> None:
    idle = replace(GPU, idle_since=minute(700))
    assert told(decide(idle, ON, minute(705))) == (Action.KEEP, Cause.LIFETIME, minute(720))
    assert decide(replace(idle, idle_since=minute(680)), ON, minute(690)).cause is Cause.IDLE


def test_the_lifetime_is_not_put_off_because_the_warning_was_for_idleness() -> None:
    """Both ends were in sight when the warning came; the cell that runs now ends only one of them."""
    busy_again = replace(GPU, idle_since=None)
    decision = decide(busy_again, ON, minute(719), minute(709.5), Cause.IDLE)
    assert told(decision) == (Action.WARN, Cause.LIFETIME, minute(720))


def test_an_end_that_an_admin_moved_into_a_countdown_gets_a_warning_of_its_own() -> None:
    lowered = replace(ON, lifetime=timedelta(minutes=30))
    decision = decide(replace(GPU, idle_since=None), lowered, minute(89), minute(80), Cause.IDLE)
    assert told(decision) == (Action.WARN, Cause.LIFETIME, minute(99))
    assert decision.warned == minute(89)


def test_a_lowered_limit_warns_before_it_stops() -> None:
    lowered = replace(ON, idle=timedelta(minutes=11))
    decision = decide(GPU, lowered, minute(85))
    assert told(decision) == (Action.WARN, Cause.IDLE, minute(95))
    assert decide(GPU, lowered, minute(94), minute(85), Cause.IDLE).action is Action.WARN
    assert decide(GPU, lowered, minute(95), minute(85), Cause.IDLE).action is Action.STOP


def test_a_cpu_only_server_stops_by_its_own_limit() -> None:
    assert told(decide(CPU, ON, minute(60 + 700))) == (Action.KEEP, None, None)
    decision = decide(CPU, ON, minute(60 + 715))
    assert told(decision) == (Action.WARN, Cause.CPU_IDLE, minute(60 + 725))
    assert message(decision) == "No activity for 11 h 55 min."
    assert decide(CPU, ON, minute(60 + 720), minute(60 + 710)).action is Action.STOP


@pytest.mark.parametrize(
    "changed", [{"busy_kernels": 1}, {"busy_terminals": 1}, {"last_activity": None}, {"last_activity": minute(9999)}]
)
def test_a_cpu_only_server_with_a_running_cell_or_unknown_activity_stays(changed: dict[str, object]) -> None:
    assert decide(replace(CPU, **changed), ON, minute(5000), minute(60)).cause is None  # type: ignore[arg-type]


def test_a_dry_run_stops_nothing_and_says_nothing_but_logs_what_it_would_do() -> None:
    dry = replace(ON, enabled=False)
    decision = decide(GPU, dry, minute(95), minute(70))
    assert told(decision) == (Action.KEEP, None, None)
    assert (decision.reason, decision.can_keep, decision.ends_at) == (None, False, None)
    assert decision.would is not None
    assert told(decision.would) == (Action.STOP, Cause.IDLE, minute(90))
    assert would_stop_at(decision) == minute(90)
    assert would_stop_at(decide(replace(GPU, idle_since=None), dry, minute(95))) is None
    assert longest_use(dry) is None
    assert culling_sentence(dry) == ""
    assert isinstance(kept_by(replace(FACTS, idle_since=minute(60)), dry, minute(80)), Reason)


def test_switching_culling_on_warns_everybody_first() -> None:
    facts = settle(replace(FACTS, idle_since=minute(60)), decide(GPU, CullPolicy(), minute(300)))
    decision = decide(GPU, ON, minute(301), facts.warned, facts.cause)
    assert told(decision) == (Action.WARN, Cause.IDLE, minute(311))


def test_samples_fold_into_idle_since() -> None:
    idle = observe(FACTS, 4.9, ON, minute(20))
    assert idle.idle_since == minute(20)
    assert observe(idle, 0.0, ON, minute(21)).idle_since == minute(20)
    assert observe(idle, 5.0, ON, minute(21)).idle_since is None
    assert observe(FACTS, None, ON, minute(21)).idle_since is None


def test_a_clock_set_back_makes_nobody_more_idle() -> None:
    idle = observe(replace(FACTS, idle_since=minute(60)), 0.0, ON, minute(5))
    assert idle.idle_since == minute(5)
    assert decide(GPU, ON, minute(-60)).action is Action.KEEP


def test_only_the_first_opening_counts() -> None:
    fresh = replace(FACTS, opened=None, opened_known=False)
    silent = reported(fresh, ServerReport(minute(2), opened=False, kernels=0, busy_kernels=0), minute(2))
    assert (silent.opened, silent.opened_known) == (None, True)
    seen = reported(silent, ServerReport(minute(3), opened=True, kernels=1, busy_kernels=0), minute(3))
    assert seen.opened == minute(3)
    assert opened(seen, minute(9)).opened == minute(3)


def test_a_keep_moves_the_stop_by_its_length_twice_a_day() -> None:
    facts = replace(FACTS, idle_since=minute(60), warned=minute(80), cause=Cause.IDLE)
    kept = kept_by(facts, ON, minute(81))
    assert isinstance(kept, ServerFacts)
    assert (kept.kept_until, kept.warned, kept.cause, keeps_left(ON, minute(81), kept.keeps)) == (
        minute(120),
        None,
        None,
        1,
    )
    assert decide(evidence_of(kept, use_known=True), ON, minute(82)).stops_at == minute(120)
    again = kept_by(replace(kept, warned=minute(110), cause=Cause.IDLE), ON, minute(112))
    assert isinstance(again, ServerFacts)
    assert again.kept_until == minute(150)
    refused = kept_by(again, ON, minute(141))
    assert refused == explain("keep-none-left", times=2, day=timedelta(hours=24), wait=timedelta(hours=23))
    assert keeps_left(ON, minute(81 + 24 * 60), again.keeps) == 1


@pytest.mark.parametrize(("seconds", "left"), [(0, 1), (24 * 3600 - 1, 1), (24 * 3600, 2)])
def test_a_keep_counts_for_24_h(seconds: int, left: int) -> None:
    facts = replace(FACTS, keeps=(START,))
    now = START + timedelta(seconds=seconds)
    assert keeps_left(ON, now, facts.keeps) == left
    assert keeps_left(replace(ON, keeps_per_day=0), now, facts.keeps) == 0
    idle = replace(facts, started=now - timedelta(hours=1), opened=now - timedelta(hours=1))
    kept = kept_by(replace(idle, idle_since=now - timedelta(minutes=25)), replace(ON, keeps_per_day=1), now)
    assert isinstance(kept, ServerFacts) is (left == 2)


def test_a_keep_holds_off_idleness_after_work_in_between() -> None:
    kept = kept_by(replace(FACTS, idle_since=minute(60)), ON, minute(79))
    assert isinstance(kept, ServerFacts)
    worked = observe(observe(kept, 90.0, ON, minute(83)), 0.0, ON, minute(84))
    assert decide(evidence_of(worked, use_known=True), ON, minute(86)).stops_at == minute(120)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"offer": "cpu", "lease": None}, "keep-cpu"),
        ({"idle_since": None}, "keep-no-countdown"),
        ({"idle_since": minute(80.5)}, "keep-no-countdown"),
        ({"orders": (by_admin(minute(100), ""),)}, "keep-in-vain"),
        ({"orders": (by_hub(minute(85), "sign-out"),)}, "keep-signed-out"),
        ({"orders": (reclaim(minute(85), timedelta(0), minute(80)),)}, "reclaimed"),
        ({"started": minute(100 - 720), "opened": minute(0)}, "keep-in-vain"),
        ({"started": minute(81 - 720), "opened": minute(0)}, "keep-lifetime"),
    ],
)
def test_a_keep_that_would_move_nothing_is_refused_in_words(changed: dict[str, object], word: str) -> None:
    orders = changed.pop("orders", ())
    facts = replace(replace(FACTS, idle_since=minute(60)), **changed)  # type: ignore[arg-type]
    refused = kept_by(facts, ON, minute(81), orders)  # type: ignore[arg-type]
    assert isinstance(refused, Reason)
    assert refused.reason == word
    assert refused.message.endswith(".")


def test_without_keeps_keeping_is_not_offered() -> None:
    refused = kept_by(replace(FACTS, idle_since=minute(60)), replace(ON, keeps_per_day=0), minute(81))
    assert refused == explain("keep-not-offered")


def test_the_form_says_when_a_server_stops() -> None:
    assert (
        culling_sentence(ON)
        == "Stops when its GPU is idle for 30 min (you are warned 10 min before); it runs at most 12 h."
    )
    assert culling_sentence(replace(ON, lifetime=None)).endswith("10 min before).")
    by_offer = replace(ON, idle_by_offer={"gpu": timedelta(hours=2)})
    assert "30 min to 2 h, depending on the offer" in culling_sentence(by_offer)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"idle": timedelta(0)}, "idle"),
        ({"idle": timedelta(minutes=-1)}, "idle"),
        ({"warn": timedelta(0)}, "warn"),
        ({"warn": timedelta(minutes=31), "unopened": None}, "idle"),
        ({"keep": timedelta(minutes=-30)}, "keep"),
        ({"keeps_per_day": -1}, "keeps_per_day"),
        ({"lifetime": timedelta(hours=-12)}, "lifetime"),
        ({"lifetime": timedelta(minutes=9)}, "lifetime"),
        ({"grace": timedelta(minutes=-1)}, "grace"),
        ({"unopened": timedelta(0)}, "unopened"),
        ({"cpu_idle": timedelta(minutes=5)}, "cpu_idle"),
        ({"idle_below_percent": 0.0}, "idle_below_percent"),
        ({"idle_below_percent": 101.0}, "idle_below_percent"),
        ({"idle_below_percent": float("nan")}, "idle_below_percent"),
        ({"idle_by_offer": {"gpu": timedelta(0)}}, "idle_by_offer['gpu']"),
        ({"idle_by_offer": {"big": timedelta(hours=1)}}, "idle_by_offer['big']"),
        ({"idle_by_offer": {"cpu": timedelta(hours=1)}}, "idle_by_offer['cpu']"),
    ],
)
def test_a_limit_that_cannot_be_followed_names_its_field(changed: dict[str, object], field: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check_policy(replace(ON, **changed))  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.text


def test_the_default_and_the_demos_limits_can_be_followed() -> None:
    assert [check_policy(policy) for policy in (CullPolicy(), ON, DEMO)] == [None, None, None]


times = st.integers(-100, 2000).map(minute)
evidences = st.builds(
    Evidence,
    offer=st.sampled_from(["mig-1g.5gb", "gpu", "cpu"]),
    started=times,
    adopted=st.booleans(),
    opened=st.none() | times,
    opened_known=st.booleans(),
    idle_since=st.none() | times,
    use_known=st.booleans(),
    kept_until=st.none() | times,
    last_activity=st.none() | times,
    busy_kernels=st.none() | st.integers(0, 2),
)
policies = st.sampled_from([ON, DEMO, replace(ON, lifetime=None, unopened=None), replace(ON, enabled=False)])
warnings = st.none() | times


@given(evidences, policies, times, warnings)
def test_a_busy_or_unknown_gpu_is_never_stopped_for_idleness(
    evidence: Evidence, policy: CullPolicy, now: datetime, warned: datetime | None
) -> None:
    busy = replace(evidence, idle_since=None)
    unknown = replace(evidence, use_known=False)
    assert decide(busy, policy, now, warned).cause is not Cause.IDLE
    decision = decide(unknown, policy, now, warned)
    assert decision.cause is not Cause.IDLE or decision.action is not Action.STOP


@given(evidences, policies, times, warnings, st.sampled_from([None, *Cause]))
def test_a_stop_needs_a_warning_of_full_length_and_a_decision_is_of_one_piece(
    evidence: Evidence, policy: CullPolicy, now: datetime, warned: datetime | None, cause: Cause | None
) -> None:
    decision = decide(evidence, policy, now, warned, cause)
    assert (decision.stops_at is None) == (decision.cause is None)
    if decision.action is Action.STOP:
        assert warned is not None
        assert now >= warned + policy.warn
    if decision.action is not Action.KEEP:
        assert policy.enabled
        assert decision.warned is not None
    if decision.stops_at is not None and decision.ends_at is not None:
        assert decision.stops_at <= decision.ends_at


@given(evidences, policies, times, st.integers(0, 500))
def test_being_idle_for_longer_never_postpones_the_stop(
    evidence: Evidence, policy: CullPolicy, now: datetime, longer: int
) -> None:
    if evidence.idle_since is None:
        evidence = replace(evidence, idle_since=now)
    later = would_stop_at(decide(evidence, policy, now))
    idle_since = (evidence.idle_since or now) - timedelta(minutes=longer)
    earlier = would_stop_at(decide(replace(evidence, idle_since=idle_since), policy, now))
    assert later is None or (earlier is not None and earlier <= later)


@given(times, times, times, st.lists(times, max_size=3))
def test_a_keep_never_shortens(started: datetime, idle_since: datetime, now: datetime, keeps: list[datetime]) -> None:
    facts = replace(FACTS, started=started, idle_since=idle_since, keeps=tuple(keeps))
    kept = kept_by(facts, ON, now)
    if isinstance(kept, Reason):
        return
    before = decide(evidence_of(facts, use_known=True), ON, now)
    after = decide(evidence_of(kept, use_known=True), ON, now)
    assert before.stops_at is not None
    assert after.stops_at is not None
    assert after.stops_at > before.stops_at
    assert after.stops_at == min(before.stops_at + ON.keep, after.ends_at or before.stops_at + ON.keep)


@pytest.mark.parametrize("shown", [None, Cause.IDLE])
def test_a_countdown_that_is_not_warned_of_takes_the_warning_back_and_stays_promised(shown: Cause | None) -> None:
    warned = replace(FACTS, warned=minute(5), cause=Cause.IDLE, promised=minute(30))
    ahead = CullDecision(Action.KEEP, minute(40) if shown else None, shown, "", can_keep=True, ends_at=None)
    promised = minute(40) if shown else minute(30)
    assert settle(warned, ahead) == replace(FACTS, cause=Cause.IDLE, promised=promised)


@pytest.mark.parametrize("action", [Action.WARN, Action.STOP])
def test_a_warning_and_a_stop_are_remembered_with_their_cause(action: Action) -> None:
    decided = CullDecision(action, minute(6), Cause.LIFETIME, "", can_keep=False, ends_at=minute(6), warned=minute(3))
    after = settle(FACTS, decided)
    assert (after.warned, after.cause) == (minute(3), Cause.LIFETIME)


DRAINED = by_hub(minute(85), "disabled")


@pytest.mark.parametrize("policy", [ON, CullPolicy(enabled=False)], ids=["culling", "dry run"])
@pytest.mark.parametrize(
    ("evidence", "at", "expected"),
    [
        (BUSY, 75, (Action.WARN, Cause.SIGNED_OUT, minute(85))),
        (BUSY, 84.9, (Action.WARN, Cause.SIGNED_OUT, minute(85))),
        (BUSY, 85, (Action.STOP, Cause.SIGNED_OUT, minute(85))),
        (CPU, 85, (Action.STOP, Cause.SIGNED_OUT, minute(85))),
        (replace(GPU, use_known=False), 85, (Action.STOP, Cause.SIGNED_OUT, minute(85))),
        (replace(GPU, kept_until=minute(300)), 85, (Action.STOP, Cause.SIGNED_OUT, minute(85))),
    ],
)
def test_who_was_signed_out_loses_the_server_at_the_time_that_was_said_and_nothing_moves_it(
    evidence: Evidence, policy: CullPolicy, at: float, expected: tuple[Action, Cause, datetime]
) -> None:
    decision = decide(replace(evidence, orders=(DRAINED,)), policy, minute(at))
    assert told(decision) == expected
    assert (message(decision), decision.can_keep) == ("Your account is disabled.", False)


@pytest.mark.parametrize(
    ("saves_for", "at", "action", "cause"),
    [
        (13, 84.7, Action.WARN, Cause.SIGNED_OUT),
        (13, 84.8, Action.STOP, Cause.SIGNED_OUT),
        (0, 84.99, Action.WARN, Cause.SIGNED_OUT),
        (60, 84, Action.STOP, Cause.SIGNED_OUT),
        (1200, 75, Action.STOP, Cause.SIGNED_OUT),
    ],
)
def test_a_drain_begins_to_save_before_its_time_and_still_says_that_time(
    saves_for: float, at: float, action: Action, cause: Cause
) -> None:
    evidence = replace(BUSY, orders=(DRAINED,), saves_for=timedelta(seconds=saves_for))
    decision = decide(evidence, ON, minute(at))
    assert told(decision) == (action, cause, minute(85))
    assert decision.begins_at == minute(85) - timedelta(seconds=saves_for)


def test_no_other_end_begins_before_its_time() -> None:
    idle = replace(GPU, idle_since=minute(50), saves_for=timedelta(minutes=5))
    decision = decide(idle, ON, minute(79.9), minute(65), Cause.IDLE)
    assert told(decision) == (Action.WARN, Cause.IDLE, minute(80)) and decision.begins_at == minute(80)


def test_an_earlier_end_still_comes_first_and_no_keep_is_spent_on_the_minutes_before_the_order() -> None:
    facts, orders = replace(FACTS, idle_since=minute(50)), (DRAINED,)
    decision = decide(evidence_of(facts, use_known=True, orders=orders), ON, minute(75))
    assert told(decision) == (Action.WARN, Cause.SIGNED_OUT, minute(85)), "the idle end has a warning to give first"
    earlier = decide(evidence_of(facts, use_known=True, orders=orders), ON, minute(75), minute(65), Cause.IDLE)
    assert told(earlier) == (Action.WARN, Cause.IDLE, minute(80))
    assert (earlier.can_keep, earlier.in_vain, earlier.latest) == (False, True, minute(85))
    kept = kept_by(replace(facts, warned=minute(65), cause=Cause.IDLE, promised=minute(80)), ON, minute(75), orders)
    assert kept == explain("keep-in-vain")


@pytest.mark.parametrize(
    ("left", "cause", "moves"),
    [
        (0.0, "disabled", False),  # the same order again, after an outage: what was promised stands
        (5.0, "disabled", False),
        (60.0, "disabled", False),
        (60.0, "by-admin", False),
        (9.0, "by-admin", False),
        (5.0, "by-admin", True),  # another right is lost, and that says sooner
        (0.0, "by-admin", True),
    ],
)
def test_the_same_order_moves_nothing_and_another_moves_the_end_to_the_front_only(
    left: float, cause: str, moves: bool
) -> None:
    again = by_hub(minute(76 + left), cause)
    assert added((DRAINED,), again) == ((again,) if moves else (DRAINED,))
    if moves:
        assert again.code == "access-ended"


@pytest.mark.parametrize(
    ("first", "second", "at", "why"),
    [
        # an admin's order and a lost right: both stand, and the sooner is named
        (("admin", 5), ("disabled", 10), 5, "stopped-by-admin"),
        (("admin", 15), ("disabled", 10), 10, "account-disabled"),
        (("disabled", 10), ("admin", 5), 5, "stopped-by-admin"),
        (("disabled", 10), ("admin", 15), 10, "account-disabled"),
        # two admins: the sooner
        (("admin", 60), ("admin", 0), 0, "stopped-by-admin"),
        (("admin", 5), ("admin", 60), 5, "stopped-by-admin"),
    ],
)
def test_of_two_orders_the_sooner_time_counts_and_a_lost_right_stays(
    first: tuple[str, int], second: tuple[str, int], at: int, why: str
) -> None:
    orders: tuple[StopCause, ...] = ()
    for cause, left in (first, second):
        ends = minute(75 + left)
        orders = added(orders, by_admin(ends, "") if cause == "admin" else by_hub(ends, cause))
    counts = earliest(orders)
    assert counts is not None and (counts.at, counts.code) == (minute(75 + at), why)
    lost, kept = "disabled" in (first[0], second[0]), keep_by_admin(FACTS, orders, minute(300))
    assert isinstance(kept, Reason) if lost else isinstance(kept, ServerFacts)
    left_over = [each.code for each in without(orders, Withdrawal.UNDO)]
    assert left_over == ["account-disabled"] * lost, "only the admin's own is taken back"


def test_an_undo_takes_back_what_the_admins_order_promised_and_no_other_promise() -> None:
    taken, shown = (by_admin(minute(90), ""),), replace(FACTS, warned=minute(80), cause=Cause.ADMIN)
    assert undo(replace(shown, promised=minute(90)), taken) == replace(FACTS, promised=None)
    assert undo(replace(shown, promised=minute(95)), taken) == replace(FACTS, promised=minute(95))


def test_an_idle_end_in_a_gap_of_the_samples_holds_up_no_other_end() -> None:
    """It was due a minute ago, and nobody knows the use just now."""
    facts = replace(FACTS, idle_since=minute(0), opened=minute(0))
    decision = decide(
        evidence_of(facts, use_known=False, orders=(DRAINED,)), ON, minute(86), minute(75), Cause.IDLE, None
    )
    assert (decision.action, decision.cause) == (Action.STOP, Cause.SIGNED_OUT)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("sign-out", "signed-out"),
        ("by-owner", "signed-out"),
        ("by-admin", "access-ended"),
        ("provider", "sign-in-ended"),
        ("disabled", "account-disabled"),
        ("deleted", "sign-in-ended"),
        ("not-allowed", "account-not-allowed"),
        ("of a later version", "access-ended"),
    ],
)
def test_the_cause_is_said_to_the_servers_user(cause: str, reason: str) -> None:
    ordered = by_hub(minute(75), cause)
    assert (ordered.cause, ordered.code) == (Cause.SIGNED_OUT, reason)
    assert ordered.reason.message.endswith(".")


@pytest.mark.parametrize("policy", [ON, CullPolicy(enabled=False), CullPolicy(enabled=True, never=True)])
@pytest.mark.parametrize(
    ("changed", "stops_at"),
    [
        ({}, 500),
        ({"idle_since": minute(480)}, 510),  # idle, but not for as long as a server may be
        ({"idle_since": None}, None),  # its GPU works
        ({"use_known": False}, None),
        ({"busy_kernels": 1}, None),
        ({"busy_kernels": None}, None),  # nobody can tell
        ({"busy_terminals": 1}, None),
        ({"orphaned_at": None}, None),  # the site lets them run
        ({"orphaned_at": minute(2000)}, None),
    ],
)
def test_a_server_that_nobody_is_signed_in_for_is_drained_only_once_it_is_idle(
    policy: CullPolicy, changed: dict[str, object], stops_at: int | None
) -> None:
    """Here all other limits are long over or far away."""
    policy = replace(policy, idle=timedelta(minutes=30), lifetime=None, unopened=None, holds_memory=timedelta(days=9))
    facts = {"idle_since": minute(300), "busy_kernels": 0, "busy_terminals": 0, "memory_held": True}
    orphan = replace(GPU, no_session=True, **{**facts, "orphaned_at": minute(500), **changed})  # type: ignore[arg-type]
    found = decide(orphan, policy, minute(505), minute(480))
    expected = None if stops_at is None else minute(stops_at)
    assert (found.stops_at if found.cause is Cause.SIGNED_OUT else None) == expected
    assert (found.action is Action.STOP) == (stops_at == 500)
    if stops_at is not None:
        assert found.reason is not None and found.reason.reason == "no-session-idle"


def test_a_cpu_only_server_that_nobody_is_signed_in_for_is_drained_once_it_is_quiet() -> None:
    orphan = replace(CPU, no_session=True, orphaned_at=minute(500), busy_kernels=0)
    found = decide(orphan, ON, minute(501))
    assert (found.action, found.cause) == (Action.STOP, Cause.SIGNED_OUT)
    assert decide(replace(orphan, busy_kernels=1), ON, minute(501)).cause is not Cause.SIGNED_OUT
    assert decide(replace(orphan, last_activity=None), ON, minute(501)).cause is not Cause.SIGNED_OUT


@pytest.mark.parametrize("end", ["idle", "lifetime"])
def test_nobody_keeps_a_server_on_whose_account_is_in_doubt(end: str) -> None:
    policy = replace(ON, max_lifetime_extensions=3)
    evidence = replace(GPU, no_session=True)
    if end == "lifetime":
        evidence = replace(evidence, idle_since=None, started=minute(-600))
    known = replace(evidence, no_session=False)
    now = minute(115) if end == "lifetime" else minute(85)
    facts = replace(FACTS, started=evidence.started)
    assert isinstance(keep(known, facts, policy, now, ()), ServerFacts) and decide(known, policy, now).can_keep
    refused = keep(evidence, facts, policy, now, ())
    assert isinstance(refused, Reason) and refused.reason == "keep-no-session"
    found = decide(evidence, policy, now)
    assert found.stops_at == decide(known, policy, now).stops_at and not found.can_keep
