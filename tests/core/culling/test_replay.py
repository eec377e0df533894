"""Past uses under other limits: the same decisions as the service's, minute by minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling import Cause, CullPolicy, CullRule, RuleWindow
from hub_extensions.core.culling.replay import MeasuredUse, PastWaits, play, summarized
from hub_extensions.core.offers.offer_id import OfferId

NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
POLICY = CullPolicy(
    idle=20 * MINUTE, warn=5 * MINUTE, lifetime=None, grace=timedelta(0), unopened=30 * MINUTE, keep=30 * MINUTE
)


def use(minutes: str, ended: int = 0, **changes: object) -> MeasuredUse:
    """One letter a minute: ``w`` it works, ``.`` it is idle, ``?`` nobody knows."""
    known = {"w": 80.0, ".": 0.0}
    used = {NOON + at * MINUTE: known[letter] for at, letter in enumerate(minutes) if letter in known}
    made = MeasuredUse(
        "ada", "", OfferId("gpu"), 1000, NOON, NOON + (ended or len(minutes)) * MINUTE, adopted=False, used=used
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("minutes", "stopped", "cause", "came_back"),
    [
        ("w" * 60, None, None, False),
        ("w" + "." * 60, 21, Cause.IDLE, False),  # idle since minute 1
        ("w" + "." * 19 + "w" + "." * 10, None, None, False),  # a break is no end
        ("w" + "." * 25 + "w" + "." * 9, 21, Cause.IDLE, True),
        ("w" + "." * 30 + "w" + "." * 9, 21, Cause.IDLE, True),  # 10 min after it
        ("w" + "." * 31 + "w" + "." * 9, 21, Cause.IDLE, False),
        ("w" + "." * 10 + "???" + "." * 19, None, None, False),  # unknown is never idle
        ("w" + "." * 10 + "?" + "." * 19, 21, Cause.IDLE, False),  # and one look that was missed is no work
        ("?" * 90, None, None, False),
        ("." * 70, 50, Cause.IDLE, False),  # nobody came: first the time to open it, then the idle limit
    ],
)
def test_a_use_ends_when_the_service_would_have_ended_it(
    minutes: str, stopped: int | None, cause: Cause | None, came_back: bool
) -> None:
    played = play(use(minutes), POLICY)
    assert played.stopped == (None if stopped is None else NOON + stopped * MINUTE)
    assert (played.cause, played.came_back) == (cause, came_back)
    assert played.freed == (timedelta(0) if stopped is None else (len(minutes) - stopped) * MINUTE)
    if stopped:
        assert played.warnings == 1


def test_a_countdown_that_work_ended_counts_as_a_warning_and_a_dry_run_plays_as_if_limits_were_on() -> None:
    nearly = play(use("w" + "." * 18 + "w" * 5 + "." * 18), replace(POLICY, enabled=False))
    assert (nearly.stopped, nearly.warnings) == (None, 2)


def test_the_lifetime_ends_work_too_and_an_adopted_use_counts_from_its_own_ready() -> None:
    policy = replace(POLICY, lifetime=60 * MINUTE)
    played = play(use("w" * 90), policy)
    assert (played.stopped, played.cause, played.came_back) == (NOON + 60 * MINUTE, Cause.LIFETIME, True)
    assert play(use("." * 40, adopted=True), POLICY).stopped == NOON + 20 * MINUTE


def test_a_part_of_a_card_frees_its_part_and_the_summary_adds_up() -> None:
    found = summarized(
        play(each, POLICY)
        for each in (
            use("w" + "." * 80, share=250),
            use("w" + "." * 25 + "w" + "." * 9, user="ben"),
            use("w" * 30, user="cem"),
            use("", ended=30, user="dan"),
        )
    )
    assert (found.uses, found.people, found.unmeasured, found.people_warned, found.warnings) == (4, 4, 1, 2, 2)
    assert found.held == (81 * 0.25 + 36 + 30 + 30) * MINUTE
    assert found.stopped[Cause.IDLE] == 2 and found.stopped[Cause.LIFETIME] == 0
    assert found.freed[Cause.IDLE] == (60 * 0.25 + 15) * MINUTE
    assert [each.use.user for each in found.came_back] == ["ben"]


NIGHT = RuleWindow(begins=12 * 60 + 30, ends=13 * 60)
SHORT = {"idle": 10 * MINUTE, "warn": 5 * MINUTE}


@pytest.mark.parametrize(
    ("rule", "changes", "stopped", "undecided"),
    [
        (CullRule("r", limits=SHORT), {}, 11, False),
        (CullRule("r", users=frozenset({"ben"}), limits=SHORT), {}, 21, False),
        (CullRule("r", groups=frozenset({"staff"}), limits=SHORT), {"groups": frozenset({"staff"})}, 11, False),
        (CullRule("r", groups=frozenset({"staff"}), limits=SHORT), {"groups": None}, None, True),
        (CullRule("r", pools=frozenset({"gpu"}), never=True), {"pool": "gpu"}, None, False),
        (CullRule("r", windows=(NIGHT,), never=True), {}, 21, False),
        (CullRule("r", windows=(replace(NIGHT, begins=12 * 60 + 5, ends=13 * 60),), never=True), {}, None, False),
        (
            CullRule("r", limits={"contended_idle": 10 * MINUTE}),
            {"pool": "gpu"},
            15,
            False,
        ),  # somebody waits from minute 10 on
        (CullRule("r", limits={"contended_idle": 10 * MINUTE}), {"pool": "mig-1g.5gb"}, 21, False),
        (CullRule("r", limits={"holds_memory": 40 * MINUTE}), {}, 41, False),  # what is not known may be held
        (CullRule("r", limits={"holds_memory": 40 * MINUTE}), {"memory": 0}, 21, False),
        (CullRule("r", limits={"holds_memory": 40 * MINUTE}), {"memory": 2**30}, 41, False),
    ],
)
def test_the_first_rule_that_fits_is_played(
    rule: CullRule, changes: dict[str, object], stopped: int | None, undecided: bool
) -> None:
    memory = changes.pop("memory", None)
    past = use("w" + "." * 58, **changes)
    if memory is not None:
        past = replace(past, memory=dict.fromkeys(past.used, memory))  # type: ignore[arg-type]
    waits = PastWaits([("gpu", NOON + 10 * MINUTE, NOON + 50 * MINUTE)])
    played = play(past, POLICY, (rule,), waits)
    assert played.stopped == (None if stopped is None else NOON + stopped * MINUTE)
    assert played.undecided is undecided
    fits = stopped is not None and "ben" not in rule.users and rule.windows == ()
    assert played.rule == ("r" if fits else "")


def test_waits_that_meet_are_one_and_each_pool_has_its_own() -> None:
    waits = PastWaits(
        ("gpu", NOON + begin * MINUTE, NOON + end * MINUTE) for begin, end in ((20, 30), (0, 5), (3, 10), (22, 24))
    )
    known = [minute for minute in range(40) if waits.any_at("gpu", NOON + minute * MINUTE)]
    assert known == [*range(10), *range(20, 30)]
    assert not waits.any_at("mig-1g.5gb", NOON)


def test_the_summary_counts_by_rule_and_what_nobody_could_decide() -> None:
    rules = (CullRule("staff", groups=frozenset({"staff"}), limits=SHORT),)
    known = use("w" + "." * 58, groups=frozenset({"staff"}))
    found = summarized(play(each, POLICY, rules) for each in (known, replace(known, groups=None), use("w" + "." * 58)))
    assert found.by_rule == {("staff", Cause.IDLE): 1, ("", Cause.IDLE): 1} and found.undecided == 1
