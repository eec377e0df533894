"""Every limit of culling at its edge, every sentence as it stands, and the wait of a line worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.core.culling import (
    Action,
    Cause,
    CullPolicy,
    Evidence,
    PolicyError,
    check_policy,
    culling_sentence,
    decide,
    keeps_left,
    observe,
    settle,
    why_not_kept,
)
from hub_extensions.core.culling.policy import without_effect
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.wait_bound import RELEASE_ALLOWANCE, Holding, StartBrake, forecast_queue
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import duration
from tests.core.culling.test_decision import CPU, DEMO, FACTS, GPU, ON, START, kept_by, message, minute

LENGTHS = ("idle", "lifetime", "unopened", "cpu_idle", "cpu_lifetime")
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("seconds", "action"),
    [(59, None), (60, Action.KEEP), (1199, Action.KEEP), (1200, Action.WARN), (1799, Action.WARN), (1800, Action.STOP)],
)
def test_an_idle_gpu_is_shown_warned_about_and_stopped_at_these_seconds(seconds: int, action: Action | None) -> None:
    now = minute(60) + seconds * SECOND
    found = decide(GPU, replace(ON, lifetime=None), now, warned=minute(80))
    assert (found.action if found.cause else None) == action
    assert message(found) == ("Its GPU was used just now." if action is None else f"Idle for {seconds // 60} min.")
    assert (found.stops_at, found.can_keep) == ((None, False) if action is None else (minute(90), True))


@pytest.mark.parametrize(
    ("seconds", "length"), [(45, "45 s"), (47.9, "47 s"), (59.9, "59 s"), (60, "1 min"), (119, "1 min"), (120, "2 min")]
)
def test_how_long_it_is_idle_is_told_in_whole_seconds_and_from_a_minute_on_in_minutes(
    seconds: float, length: str
) -> None:
    policy = replace(ON, idle=3 * MINUTE, warn=SECOND, lifetime=None)
    assert message(decide(GPU, policy, minute(60) + seconds * SECOND)) == f"Idle for {length}."


@pytest.mark.parametrize(("seconds", "shown"), [(44, False), (45, True)])
def test_of_a_short_limit_a_quarter_is_enough_to_be_shown(seconds: int, shown: bool) -> None:
    policy = replace(ON, idle=3 * MINUTE, warn=SECOND, lifetime=None)
    assert (decide(GPU, policy, minute(60) + seconds * SECOND).cause is not None) is shown


@pytest.mark.parametrize(
    ("seconds", "action"), [(42599, None), (42600, Action.WARN), (43199, Action.WARN), (43200, Action.STOP)]
)
def test_the_lifetime_is_told_when_its_warning_begins_and_stops_at_its_end(seconds: int, action: Action | None) -> None:
    busy, now = replace(GPU, idle_since=None), START + seconds * SECOND
    found = decide(busy, ON, now, warned=START + 42600 * SECOND)
    assert (found.action if found.cause else None) == action
    assert message(found) == ("Its GPU is in use." if action is None else "The time limit of 12 h ends.")
    assert (found.ends_at, found.can_keep) == (START + 12 * HOUR, False)


@pytest.mark.parametrize(
    ("seconds", "action"), [(299, Action.KEEP), (300, Action.WARN), (899, Action.WARN), (900, Action.STOP)]
)
def test_a_server_nobody_opened_is_told_from_its_start_on(seconds: int, action: Action) -> None:
    unopened = replace(GPU, opened=None, idle_since=None)
    found = decide(unopened, ON, START + seconds * SECOND, warned=minute(5))
    ago = duration(timedelta(minutes=seconds // 60))
    assert (found.action, found.cause, found.stops_at) == (action, Cause.UNOPENED, minute(15))
    assert message(found) == f"Nobody has opened it since it started {ago} ago."


@pytest.mark.parametrize(
    ("minutes", "action"), [(709, None), (710, Action.WARN), (719, Action.WARN), (720, Action.STOP)]
)
def test_a_cpu_only_server_is_stopped_when_its_user_was_away_for_the_limit(minutes: int, action: Action | None) -> None:
    found = decide(CPU, ON, minute(60 + minutes), warned=minute(60 + 710))
    assert (found.action if found.cause else None) == action
    assert message(found) == (
        "It was used lately." if action is None else f"No activity for {duration(minutes * MINUTE)}."
    )
    assert (found.can_keep, found.ends_at) == (False, None)


DAY_LONG = replace(ON, cpu_lifetime=24 * HOUR)
AT_WORK = replace(CPU, busy_kernels=1)


@pytest.mark.parametrize(
    ("seconds", "action"), [(85799, None), (85800, Action.WARN), (86399, Action.WARN), (86400, Action.STOP)]
)
def test_the_lifetime_of_a_cpu_only_server_ends_it_at_work_with_the_same_warning(
    seconds: int, action: Action | None
) -> None:
    found = decide(AT_WORK, DAY_LONG, START + seconds * SECOND, warned=START + 85800 * SECOND)
    assert (found.action if found.cause else None) == action
    assert message(found) == ("A cell is running." if action is None else "The time limit of 24 h ends.")
    assert (found.ends_at, found.can_keep) == (START + 24 * HOUR, False)


@pytest.mark.parametrize(
    ("evidence", "changes", "cause", "ends_at"),
    [
        (CPU, {}, Cause.CPU_IDLE, None),
        (CPU, {"cpu_lifetime": 24 * HOUR}, Cause.CPU_IDLE, 24),
        (
            CPU,
            {"cpu_lifetime": 12 * HOUR},
            Cause.LIFETIME,
            12,
        ),  # idle at 13 h
        (AT_WORK, {}, None, None),
        (AT_WORK, {"cpu_lifetime": 12 * HOUR}, Cause.LIFETIME, 12),
        (replace(CPU, last_activity=None), {"cpu_lifetime": 12 * HOUR}, Cause.LIFETIME, 12),
        (CPU, {"cpu_idle": None, "cpu_lifetime": 12 * HOUR}, Cause.LIFETIME, 12),
        (CPU, {"cpu_lifetime": 12 * HOUR, "never": True}, None, None),
        (replace(CPU, ends_at=START + 20 * HOUR), {"cpu_lifetime": 12 * HOUR}, Cause.CPU_IDLE, 20),
        (replace(GPU, idle_since=None), {"lifetime": None, "cpu_lifetime": 12 * HOUR}, None, None),
    ],
)
def test_of_a_cpu_only_servers_two_limits_the_sooner_ends_it(
    evidence: Evidence, changes: dict[str, object], cause: Cause | None, ends_at: float | None
) -> None:
    policy = replace(ON, **changes)  # type: ignore[arg-type]
    now = minute(13 * 60) - SECOND
    found = decide(evidence, policy, now, warned=minute(60))
    assert (found.cause, found.ends_at) == (cause, None if ends_at is None else START + ends_at * HOUR)
    dry = decide(evidence, replace(policy, enabled=False), now)
    assert dry.cause is None and dry.would is not None and dry.would.cause is cause


@pytest.mark.parametrize("extensions", [0, 1])
def test_no_keep_moves_the_lifetime_of_a_cpu_only_server(extensions: int) -> None:
    """Its user is not offered to put it off either, as there is no GPU that could work."""
    policy = replace(DAY_LONG, max_lifetime_extensions=extensions)
    now = START + 86000 * SECOND
    facts = replace(FACTS, offer=OfferId("cpu"), lease=None)
    decision = decide(AT_WORK, policy, now)
    assert decision.cause is Cause.LIFETIME and not decision.can_keep
    assert why_not_kept(facts, policy, decision) is None
    refused = kept_by(facts, policy, now)
    assert isinstance(refused, Reason) and refused.message == "The time limit of 24 h ends. That end cannot be moved."


@pytest.mark.parametrize(
    ("evidence", "changes", "reason"),
    [
        (CPU, {"cpu_idle": None}, "CPU-only servers are not stopped."),
        (
            CPU,
            {"cpu_idle": None, "cpu_lifetime": 24 * HOUR},
            "CPU-only servers are stopped by their time limit alone.",
        ),
        (replace(CPU, busy_kernels=1), {}, "A cell is running."),
        (replace(CPU, busy_kernels=None), {}, "It was used lately."),
        (replace(CPU, last_activity=None), {}, "Its activity is not known."),
        (
            replace(GPU, use_known=False, idle_since=None),
            {},
            "The use of its GPU is not known, so it is not stopped for idleness.",
        ),
        (replace(GPU, idle_since=None), {}, "Its GPU is in use."),
        (replace(CPU, busy_terminals=1), {}, "A program runs in a terminal."),
        (replace(GPU, idle_since=None), {"never": True}, "A rule of the admins keeps it running."),
        (GPU, {"contended_idle": 15 * MINUTE}, "Its GPU is idle, and nobody waits for one."),
    ],
)
def test_why_a_server_is_kept_is_said(evidence: object, changes: dict[str, object], reason: str) -> None:
    found = decide(evidence, replace(ON, **changes), minute(61))  # type: ignore[arg-type]
    assert (found.action, message(found), found.cause, found.can_keep) == (Action.KEEP, reason, None, False)


def test_a_cpu_only_servers_activity_is_neither_before_its_start_nor_after_now() -> None:
    early = replace(CPU, last_activity=START - 5 * HOUR)
    assert decide(early, ON, START + 12 * HOUR, warned=START).action is Action.STOP
    assert decide(early, ON, START + 12 * HOUR - SECOND, warned=START).action is Action.WARN
    forged = replace(CPU, last_activity=minute(9999))
    assert decide(forged, replace(ON, cpu_idle=5 * MINUTE, warn=10 * MINUTE), minute(60)).stops_at == minute(70)


@pytest.mark.parametrize(
    ("warned_for", "warned", "stops"),
    [
        (None, 81, 91),
        (Cause.IDLE, 81, 91),
        (Cause.LIFETIME, 80, 90),
        (Cause.LIFETIME, 80.1, 95),
        (Cause.UNOPENED, 84, 95),
        (Cause.IDLE, 70, 90),
        (Cause.IDLE, 200, 95),
    ],
)
def test_a_stop_comes_when_its_own_warning_stood_for_its_time(
    warned_for: Cause | None, warned: float, stops: float
) -> None:
    found = decide(GPU, replace(ON, lifetime=None), minute(85), minute(warned), warned_for)
    assert found.stops_at == minute(stops)
    assert found.warned == (minute(warned) if stops < 95 else minute(85))


def test_of_two_ends_at_the_same_time_the_one_that_no_keep_moves_is_told() -> None:
    found = decide(GPU, replace(ON, lifetime=90 * MINUTE), minute(85), minute(80))
    assert (found.cause, found.can_keep, found.stops_at) == (Cause.LIFETIME, False, minute(90))


@pytest.mark.parametrize(("percent", "idle"), [(4.9, True), (5.0, False), (5.1, False)])
def test_a_use_at_the_limit_is_no_idleness(percent: float, idle: bool) -> None:
    fresh = replace(FACTS, idle_since=None)
    assert observe(fresh, percent, ON, minute(5)).idle_since == (minute(5) if idle else None)
    assert observe(replace(FACTS, idle_since=minute(3)), percent, ON, minute(5)).idle_since == (
        minute(3) if idle else None
    )


def test_what_a_decision_leaves_in_the_facts() -> None:
    idle = replace(FACTS, idle_since=minute(60))
    warn = decide(GPU, replace(ON, lifetime=None), minute(81))
    after = settle(idle, warn)
    assert (after.warned, after.cause) == (minute(81), Cause.IDLE)
    stop = decide(GPU, replace(ON, lifetime=None), minute(91), minute(81), Cause.IDLE)
    ended = settle(after, stop)
    assert (ended.warned, ended.cause) == (minute(81), Cause.IDLE)
    kept = settle(after, decide(replace(GPU, idle_since=None), ON, minute(82)))
    assert (kept.warned, kept.cause) == (None, Cause.IDLE)
    assert kept.promised == warn.stops_at


@pytest.mark.parametrize(
    ("now", "promised", "stops", "told"),
    [
        (2, 15, 15, "Idle for 1 min. This server was given more time before, and keeps it."),
        (5, 15, 15, "Idle for 4 min. This server was given more time before, and keeps it."),
        (14.5, 15, 15.5, "Idle for 13 min."),  # nothing is to be explained any more
        (2, None, 4, "Idle for 1 min."),
        (2, 4.5, 4.5, "Idle for 1 min."),
        (15, 15, 16, "Idle for 14 min."),
    ],
)
def test_an_end_that_is_later_than_its_limit_because_it_was_shown_so_says_that(
    now: float, promised: float | None, stops: float, told: str
) -> None:
    """A server that nobody has opened yet may run for 15 min, which its user may have read."""
    just_opened = replace(GPU, idle_since=minute(1))
    shown = None if promised is None else minute(promised)
    found = decide(just_opened, DEMO, minute(now), promised=shown)
    assert (found.stops_at, found.cause, message(found)) == (minute(stops), Cause.IDLE, told)
    wanted = decide(
        replace(just_opened, wanted=True), replace(DEMO, contended_idle=2 * MINUTE), minute(now), promised=shown
    )
    assert message(wanted).endswith(", and somebody waits for such a GPU."), "that somebody waits is said first"


@pytest.mark.parametrize(("ago", "left"), [(24 * HOUR - SECOND, 1), (24 * HOUR, 2)])
def test_a_keep_counts_for_24_hours(ago: timedelta, left: int) -> None:
    now = START + 48 * HOUR
    pressed = replace(FACTS, keeps=(now - ago,), idle_since=now - 25 * MINUTE, opened=START)
    policy = replace(ON, lifetime=None)
    assert keeps_left(policy, now, pressed.keeps) == left
    kept = kept_by(pressed, policy, now)
    assert not isinstance(kept, Reason)
    assert kept.keeps == ((now - ago, now) if left == 1 else (now,))
    assert kept.kept_until == max(now + 10 * MINUTE, now + 5 * MINUTE) + 30 * MINUTE
    assert (kept.warned, kept.cause) == (None, None)


def test_who_has_no_keep_left_is_told_when_there_is_one_again() -> None:
    now = START + 48 * HOUR
    pressed = replace(FACTS, keeps=(now - 20 * HOUR, now - 3 * HOUR, now - HOUR), idle_since=now - 25 * MINUTE)
    found = kept_by(pressed, replace(ON, lifetime=None), now)
    assert found == explain("keep-none-left", times=2, day=timedelta(hours=24), wait=timedelta(hours=21))
    assert found.message == "You have pressed Keep 2 times in 24 h, which is all; again in 21 h."
    assert keeps_left(ON, now, pressed.keeps) == 0


BAD = "it has to be longer than 0"
SHORT = "it has to be as long as the warning at least (10 min)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"idle_below_percent": 0}, "idle_below_percent: it has to be above 0 and at most 100, not 0"),
        ({"idle_below_percent": 0.1}, None),
        ({"idle_below_percent": 100}, None),
        ({"idle_below_percent": 100.5}, "idle_below_percent: it has to be above 0 and at most 100, not 100.5"),
        ({"keeps_per_day": -1}, "keeps_per_day: it has to be 0 or more, not -1"),
        ({"keeps_per_day": 0}, None),
        ({"grace": -SECOND}, "grace: it has to be 0 or more"),
        ({"grace": 0 * SECOND}, None),
        ({"warn": 0 * SECOND}, f"warn: {BAD}"),
        ({"keep": 0 * SECOND}, f"keep: {BAD}"),
        ({"keep": SECOND}, None),
        *(({name: 0 * SECOND}, f"{name}: {BAD}") for name in LENGTHS),
        *(({name: 10 * MINUTE - SECOND}, f"{name}: {SHORT}") for name in LENGTHS),
        *(({name: 10 * MINUTE}, None) for name in LENGTHS),
        *(({name: None}, None) for name in LENGTHS[1:]),
        ({"idle_by_offer": {"gpu": 9 * MINUTE}}, f"idle_by_offer['gpu']: {SHORT}"),
        ({"idle_by_offer": {"gpu": 10 * MINUTE}}, None),
        (
            {"idle_by_offer": {"cpu": HOUR}},
            "idle_by_offer['cpu']: CPU-only servers have a limit of their own: cpu_idle",
        ),
    ],
)
def test_a_limit_is_refused_at_its_edge_and_not_beside_it(changes: dict[str, object], said: str | None) -> None:
    policy = replace(CullPolicy(enabled=True), **changes)  # type: ignore[arg-type]
    if said is None:
        check_policy(policy)
        return
    with pytest.raises(PolicyError) as refused:
        check_policy(policy)
    assert str(refused.value) == said


def test_the_forms_sentence_spans_the_limits_of_all_offers() -> None:
    warned = "(you are warned 10 min before)"
    same = replace(ON, idle_by_offer={"gpu": 30 * MINUTE})
    assert culling_sentence(same) == f"Stops when its GPU is idle for 30 min {warned}; it runs at most 12 h."
    more = replace(ON, idle_by_offer={"gpu": 20 * MINUTE, "mig-1g.5gb": 2 * HOUR}, lifetime=None)
    assert culling_sentence(more) == f"Stops when its GPU is idle for 20 min to 2 h, depending on the offer {warned}."


@pytest.mark.parametrize(
    ("held", "shares", "minutes"),
    [
        ([("a", 1000, 5), ("b", 1000, 9)], [1000] * 4, [5, 9, 75, 79]),
        ([("a", 1000, 5)], [1000] * 3, [0, 5, 70]),
        ([("a", 1000, -5), ("b", 1000, None)], [1000] * 3, [0, 70, 140]),
        ([("a", 1000, None), ("b", 1000, None)], [1000], [None]),
        ([("a", 500, 5), ("a", 500, 7), ("b", 500, 9)], [500] * 4, [0, 5, 7, 9]),
        ([("a", 500, 5)], [1000, 500, 500, 500, 500], [5, 5, 75, 75, 145]),
        ([("a", 500, None)], [1000, 500], [0, 70]),
        ([("a", 500, None), ("b", 500, None)], [1000, 500], [None, None]),
        ([("gone", 1000, None), ("a", 1000, 3), ("b", 1000, 4)], [1000] * 2, [3, 4]),
        ([], [500, 1000, 500], [0, 0, 70]),
    ],
)
def test_the_wait_of_each_place_is_what_the_ends_ahead_add_up_to(
    held: list[tuple[str, int, int | None]], shares: list[int], minutes: list[int | None]
) -> None:
    """A turn is 5 min for the start brake, 5 to start and 60 to live; the own wait for the brake is taken off here."""
    taken = [Holding(device, share, None if end is None else minute(end)) for device, share, end in held]
    found = forecast_queue(
        devices=["a", "b"],
        holdings=taken,
        shares=set(shares),
        places=len(shares),
        lifetime=HOUR,
        brake=StartBrake(64, 5 * MINUTE),
        now=START,
    )
    limits = [found(place, place).at_most for place in range(len(shares))]
    waits = [None if limit is None else limit - 5 * MINUTE for limit in limits]
    assert len(waits) == len(minutes)
    for wait, expected in zip(waits, minutes, strict=True):
        assert (wait is None) is (expected is None)
        if wait is not None and expected is not None:
            assert timedelta(0) <= wait - expected * MINUTE <= 3 * RELEASE_ALLOWANCE


@pytest.mark.parametrize(("before", "starts"), [(0, [1, 1, 2, 2, 3]), (1, [1, 2, 2, 3, 3]), (4, [3, 3, 4, 4, 5])])
def test_the_start_brake_costs_one_start_and_one_more_for_two_who_came_before_where_two_may_start(
    before: int, starts: list[int]
) -> None:
    found = forecast_queue(
        devices=[str(n) for n in range(5)],
        holdings=[],
        shares={1000},
        places=5,
        lifetime=HOUR,
        brake=StartBrake(2, 5 * MINUTE),
        now=START,
    )
    waits = [found(place, before + place) for place in range(5)]
    assert [each.at_most for each in waits] == [5 * count * MINUTE for count in starts]
    assert not any(each.now for each in waits)


MORE = frozenset({"extend_lifetime_hours"})


@pytest.mark.parametrize(
    ("policy", "named", "fields"),
    [
        (CullPolicy(), frozenset(), []),
        (CullPolicy(enabled=True), MORE, ["extend_lifetime_hours"]),
        (CullPolicy(enabled=True, max_lifetime_extensions=2), MORE, []),
        (CullPolicy(enabled=True, max_lifetime_extensions=2, lifetime=None), MORE, ["max_lifetime_extensions"]),
        (CullPolicy(count_progress=True), frozenset(), ["count_progress"]),
        (CullPolicy(enabled=True, count_progress=True), frozenset(), []),
        (CullPolicy(count_progress=True, policy_file="rules.yaml"), MORE, ["count_progress"]),
        (CullPolicy(enabled=True, lifetime=None, max_lifetime_extensions=2, policy_file="rules.yaml"), MORE, []),
    ],
)
def test_a_setting_that_another_one_makes_useless_is_named(
    policy: CullPolicy, named: frozenset[str], fields: list[str]
) -> None:
    assert [name for name, _, _ in without_effect(policy, named)] == fields
