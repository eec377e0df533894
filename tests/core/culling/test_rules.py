"""Rules: which one fits, when its windows hold, and what is surely not meant."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.culling import (
    CullPolicy,
    CullRule,
    RuledServer,
    RuleWindow,
    check_rules,
    doubts,
    longest_for,
    longest_of_all,
    policy_for,
)
from tests.core.culling.test_decision import ON, START

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
HELSINKI = ZoneInfo("Europe/Helsinki")
ADA = RuledServer("ada", frozenset({"course-a", "staff"}), "mig-1g.5gb", "mig-1g.5gb")


def rule(name: str = "r", idle: int = 20, **more: Any) -> CullRule:
    for kind in ("groups", "users", "offers", "pools"):
        more[kind] = frozenset(more.get(kind, ()))
    return CullRule(name, limits={"idle": idle * MINUTE}, **more)


@pytest.mark.parametrize(
    ("rules", "server", "idle", "name"),
    [
        ([], ADA, 30, ""),
        ([rule(groups=["course-a"])], ADA, 20, "r"),
        ([rule(groups=["course-b", "staff"])], ADA, 20, "r"),
        ([rule(groups=["course-b"])], ADA, 30, ""),
        ([rule(users=["ada"])], ADA, 20, "r"),
        ([rule(users=["ben"])], ADA, 30, ""),
        ([rule(offers=["mig-1g.5gb"])], ADA, 20, "r"),
        ([rule(offers=["gpu"])], ADA, 30, ""),
        ([rule(pools=["mig-1g.5gb"], groups=["staff"])], ADA, 20, "r"),
        ([rule(pools=["mig-1g.5gb"], groups=["course-b"])], ADA, 30, ""),  # all conditions of a rule
        ([rule("first", 21, users=["ada"]), rule("second", 22)], ADA, 21, "first"),
        ([rule("first", 21, users=["ben"]), rule("second", 22)], ADA, 22, "second"),
        ([rule(users=["ben"])], replace(ADA, offer="gpu"), 15, ""),  # idle_minutes_by_offer
        ([rule(groups=["staff"])], replace(ADA, offer="gpu"), 20, "r"),
    ],
)
def test_the_first_rule_that_fits_sets_the_limits(
    rules: list[CullRule], server: RuledServer, idle: int, name: str
) -> None:
    base = replace(ON, idle_by_offer={"gpu": 15 * MINUTE})
    policy, by = policy_for(server, rules, base, START)
    assert (policy.idle, policy.idle_by_offer, by) == (idle * MINUTE, {}, name)
    assert policy.lifetime == base.lifetime, "what a rule does not name is as it is"


def test_while_a_users_groups_are_not_known_nothing_is_stopped_that_a_rule_might_keep() -> None:
    unknown = replace(ADA, groups=None)
    assert policy_for(unknown, [rule(groups=["staff"])], ON, START)[0].never
    assert longest_for(unknown, [rule(groups=["staff"])], ON) is None
    assert policy_for(unknown, [rule(groups=["staff"], offers=["gpu"])], ON, START) == (ON, "")
    assert policy_for(unknown, [rule("first", users=["ada"]), rule(groups=["staff"])], ON, START)[1] == "first"


CLASS = RuleWindow(10 * 60, 12 * 60, frozenset({0, 2}), HELSINKI, date(2026, 9, 1), date(2026, 12, 15))
NIGHT = RuleWindow(2 * 60 + 30, 3 * 60, zone=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("window", "at", "holds"),
    [
        (CLASS, "2026-09-07T09:59:59+03:00", False),
        (CLASS, "2026-09-07T10:00:00+03:00", True),
        (CLASS, "2026-09-07T11:59:59+03:00", True),
        (CLASS, "2026-09-07T12:00:00+03:00", False),
        (CLASS, "2026-09-08T10:30:00+03:00", False),  # a Tuesday
        (CLASS, "2026-08-31T10:30:00+03:00", False),  # before the term
        (CLASS, "2026-12-14T10:30:00+02:00", True),
        (CLASS, "2026-12-16T10:30:00+02:00", False),
        (CLASS, "2026-10-21T07:00:00+00:00", True),  # summer time: 10:00 there
        (CLASS, "2026-10-26T07:00:00+00:00", False),  # the clock has changed on the 25th: 09:00
        (CLASS, "2026-10-26T08:00:00+00:00", True),
        (NIGHT, "2026-03-28T01:30:00+00:00", True),  # 02:30
        (NIGHT, "2026-03-29T00:59:00+00:00", False),  # 01:59, and the next minute is 03:00
        (NIGHT, "2026-03-29T01:00:00+00:00", False),
        (NIGHT, "2026-10-25T00:30:00+00:00", True),  # 02:30, summer time
        (NIGHT, "2026-10-25T01:00:00+00:00", False),  # 02:00 once more
        (NIGHT, "2026-10-25T01:30:00+00:00", True),  # 02:30 once more
        (RuleWindow(22 * 60), "2026-03-02T23:59:59+00:00", True),  # to 24:00
        (RuleWindow(22 * 60), "2026-03-03T00:00:00+00:00", False),
    ],
)
def test_a_window_is_on_the_clock_of_its_zone(window: RuleWindow, at: str, holds: bool) -> None:
    now = datetime.fromisoformat(at)
    assert window.holds(now) is holds
    policy, by = policy_for(ADA, [CullRule("class", windows=(window,), never=True)], ON, now)
    assert (policy.never, by) == (holds, "class" if holds else "")


@pytest.mark.parametrize(
    ("rules", "hours"),
    [
        ([], 12),
        ([CullRule("r", limits={"lifetime": 2 * HOUR})], 2),
        ([CullRule("r", windows=(CLASS,), limits={"lifetime": 20 * HOUR})], 20),  # by day it may be the longer one
        ([CullRule("r", windows=(CLASS,), limits={"lifetime": 2 * HOUR})], 12),
        ([CullRule("r", windows=(CLASS,), never=True)], None),
        ([CullRule("r", limits={"lifetime": None})], None),
        ([CullRule("r", users=frozenset({"ben"}), never=True)], 12),
        ([CullRule("r", limits={"max_lifetime_extensions": 2, "extend_lifetime": 3 * HOUR})], 18),
    ],
)
def test_others_count_with_the_longest_that_a_server_may_come_to_run(rules: list[CullRule], hours: int | None) -> None:
    assert longest_for(ADA, rules, ON) == (None if hours is None else hours * HOUR)


def test_what_any_server_runs_at_most_has_every_rule_in_it() -> None:
    ben = CullRule("ben", users=frozenset({"ben"}), limits={"lifetime": 20 * HOUR})
    assert longest_of_all([ben], ON) == 20 * HOUR
    assert longest_of_all([ben, CullRule("never", users=frozenset({"eve"}), never=True)], ON) is None
    assert longest_of_all([], replace(ON, enabled=False)) is None


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([rule(idle=5)], "line 3: rule 'r', idle: it has to be as long as the warning at least (10 min)"),
        (
            [CullRule("r", limits={"warn": 20 * MINUTE}, lines={"": 2, "warn": 4})],
            "line 4: rule 'r', warn: with it unopened cannot be followed: it has to be as long as the warning at least "
            "(20 min)",
        ),
        ([CullRule("r", limits={"warn": 12 * MINUTE}, lines={"warn": 4})], ""),
        ([CullRule("r", offers=frozenset({"gpu"}), limits={"warn": 14 * MINUTE}, lines={"warn": 4})], "13 min"),
    ],
)
def test_a_limit_of_a_rule_has_to_fit_the_others(rules: list[CullRule], said: str) -> None:
    rules = [replace(each, lines=each.lines or {"": 2, "idle": 3}) for each in rules]
    base = replace(ON, idle_by_offer={"gpu": 13 * MINUTE})
    found = [str(each) for each in check_rules(rules, base)]
    if said == "13 min":
        assert len(found) == 1 and found[0].startswith("line 4: rule 'r', warn: with it idle cannot be followed")
    else:
        assert found == ([said] if said else [])


@pytest.mark.parametrize(
    ("rules", "count", "part"),
    [
        ([rule(groups=["curse-a"])], 1, "'curse-a' is none of the groups here now (course-a, staff)"),
        ([rule(offers=["mig-1g"])], 1, "'mig-1g' is none of the offers here now (gpu, mig-1g.5gb)"),
        ([rule(pools=["x"])], 1, "'x' is none of the pools"),
        ([rule(groups=["staff"], offers=["gpu"])], 0, ""),
        ([rule("all"), rule("late", users=["ada"])], 1, "rule 'late': it never has its turn: rule 'all' before it"),
        ([rule("a", groups=["staff", "course-a"]), rule("b", groups=["staff"])], 1, "rule 'b'"),
        ([rule("a", groups=["staff"]), rule("b", groups=["staff", "course-a"])], 0, ""),
        ([rule("a", groups=["staff"]), rule("b")], 0, ""),
        ([rule("a", windows=(CLASS,)), rule("b")], 0, ""),
        ([rule("a", windows=(CLASS, NIGHT)), rule("b", windows=(NIGHT,))], 1, "rule 'b'"),
    ],
)
def test_what_is_surely_not_meant_is_warned_of(rules: list[CullRule], count: int, part: str) -> None:
    found = [str(each) for each in doubts(rules, ["staff", "course-a"], ["gpu", "mig-1g.5gb"], ["gpu"])]
    assert len(found) == count and all(part in each for each in found)


def test_of_names_that_are_not_known_yet_nothing_is_said() -> None:
    assert list(doubts([rule(groups=["x"], offers=["y"], pools=["z"])], None, [], [])) == []


names = st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=2)
windows = st.lists(
    st.builds(RuleWindow, st.integers(0, 700), st.integers(701, 1440), st.frozensets(st.integers(0, 6), min_size=1)),
    max_size=2,
).map(tuple)
rules_drawn = st.lists(
    st.builds(
        CullRule,
        name=st.uuids().map(str),
        groups=names,
        users=names,
        offers=names,
        pools=names,
        windows=windows,
        never=st.booleans(),
        limits=st.fixed_dictionaries({"idle": st.integers(10, 99).map(lambda each: each * MINUTE)}),
    ),
    max_size=4,
)
servers = st.builds(RuledServer, st.sampled_from("abcd"), names, st.sampled_from("abcd"), st.sampled_from("abcd"))


@pytest.mark.slow
@given(rules_drawn, servers, st.integers(0, 10_000).map(lambda each: START + each * MINUTE))
def test_a_rule_that_counts_fits_and_none_before_it_does(
    rules: list[CullRule], server: RuledServer, now: datetime
) -> None:
    def fits(each: CullRule) -> bool:
        conditions = [(each.users, {server.user}), (each.offers, {server.offer}), (each.pools, {server.pool})]
        named = all(not some or some & own for some, own in [*conditions, (each.groups, server.groups or frozenset())])
        return bool(named) and (not each.windows or any(window.holds(now) for window in each.windows))

    policy, name = policy_for(server, rules, ON, now)
    first = next((each for each in rules if fits(each)), None)
    assert name == ("" if first is None else first.name)
    assert policy == (ON if first is None else replace(ON, idle=first.limits["idle"], never=first.never))
    longest, limit = longest_for(server, rules, ON), None if policy.never else policy.lifetime
    assert longest is None or (limit is not None and longest >= limit)


@given(rules_drawn, servers, st.integers(0, 10_000).map(lambda each: START + each * MINUTE))
def test_a_rule_that_is_said_never_to_have_its_turn_has_none(
    rules: list[CullRule], server: RuledServer, now: datetime
) -> None:
    said = {each.field for each in doubts(rules, None, (), ())}
    assert f"rule {policy_for(server, rules, CullPolicy(), now)[1]!r}" not in said
