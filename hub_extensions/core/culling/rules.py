"""Rules of the policy file: other limits for some servers, by user, group, offer or time.

The first rule that fits a server gives it its limits; if none fits, the limits of ``c.GpuCulling`` apply. A rule with
windows (times of the day) fits only within them, by the local time of their zone. On the day of a clock change, a
window in the skipped hour does not exist, and a window in the repeated hour exists twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any

from hub_extensions.core.culling.policy import CullPolicy, PolicyError, check_policy, longest_use
from hub_extensions.core.settings import settings_in

OF_THE_SERVICE = frozenset(
    {
        "enabled",
        "idle_by_offer",
        "concurrent_stop_limit",
        "stops_per_minute",
        "stop_deadline",
        "trust_reports",
        "count_progress",
        "policy_file",
        "warning_webhook_url",
    }
)
"""Settings of culling that no rule sets: they are the same for all servers, or a rule has another key for them."""
LIMITS = tuple(name for name in settings_in(CullPolicy) if name not in OF_THE_SERVICE)
"""The fields of `CullPolicy` that a rule may set."""
DAY_MINUTES = 24 * 60
ALL_DAYS = frozenset(range(7))
GROUPS_NOT_KNOWN = "groups not known yet"
"""Stands in place of a rule's name while the user's groups are not known, so that it is not known which rule fits. The
server is not stopped until then."""


@dataclass(frozen=True, slots=True)
class RuleWindow:
    """A time of the day on some days of the week, within which a rule applies.

    Attributes:
        begins, ends: minutes since midnight by the local time of `zone`; the minute `ends` does not belong to it.
        days: days of the week, 0 is Monday.
        zone: the time zone.
        first, last: first and last date on which the window exists, such as those of a term; `None` without such a
            limit.
    """

    begins: int = 0
    ends: int = DAY_MINUTES
    days: frozenset[int] = ALL_DAYS
    zone: tzinfo = timezone.utc
    first: date | None = None
    last: date | None = None

    def holds(self, now: datetime) -> bool:
        """Return whether a time (aware) is within the times at which the rule applies."""
        local = now.astimezone(self.zone)
        day, minute = local.date(), local.hour * 60 + local.minute
        in_term = (self.first is None or self.first <= day) and (self.last is None or day <= self.last)
        return in_term and day.weekday() in self.days and self.begins <= minute < self.ends


@dataclass(frozen=True, slots=True)
class CullRule:
    """A rule of the policy file: other limits for some servers.

    Attributes:
        name: the rule's name in the file.
        groups, users, offers, pools: a server has to match all of these conditions; an empty one matches every server.
        windows: the rule fits only within one of these times; empty means always.
        never: whether servers of the rule are never stopped.
        limits: field of `CullPolicy` -> its value in this rule.
        lines: field of the rule in the file -> number of its line, for messages about it.
    """

    name: str
    groups: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    offers: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    windows: tuple[RuleWindow, ...] = ()
    never: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuledServer:
    """The values of a server with which the conditions of rules are compared.

    Attributes:
        groups: groups of the user; `None` if they are not known.
        offer: id of its offer.
        pool: the devices of one kind that its device belongs to; "" without a GPU.
    """

    user: str
    groups: frozenset[str] | None
    offer: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Something in a rule that is wrong, or probably not intended.

    Attributes:
        line: number of the line in the file; 0 if it is not known.
        field: name of the rule and of its field.
        text: what is wrong, or what would be right.
    """

    line: int
    field: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.text}"


def policy_for(
    server: RuledServer, rules: Sequence[CullRule], base: CullPolicy, now: datetime
) -> tuple[CullPolicy, str]:
    """Return the limits of one server now, and the name of the rule that sets them.

    The name is "" if no rule fits. It is `GROUPS_NOT_KNOWN` if the rule depends on groups that are not known yet; the
    server is then not stopped.

    Args:
        server: the server.
        rules: the rules of the policy file, in their order.
        base: the limits of ``c.GpuCulling``.
        now: wall-clock time, aware.
    """
    for rule in rules:
        fits = _fits(rule, server)
        if fits is False or (rule.windows and not any(window.holds(now) for window in rule.windows)):
            continue
        if fits is None:
            return replace(_of_offer(base, server.offer), never=True), GROUPS_NOT_KNOWN
        return merged(rule, base, server.offer), rule.name
    return _of_offer(base, server.offer), ""


def longest_for(server: RuledServer, rules: Sequence[CullRule], base: CullPolicy) -> timedelta | None:
    """Return how long a server may run at most, whichever of the rules that can fit it applies at the time.

    `None` if it may run without a limit under one of them, or if its user's groups are not known.

    Args:
        rules: the rules of the policy file, in their order.
        base: the limits of ``c.GpuCulling``.
    """
    found = []
    for rule in rules:
        fits = _fits(rule, server)
        if fits is None:
            return None
        if fits:
            found.append(longest_use(merged(rule, base, server.offer)))
            if not rule.windows:
                break
    else:
        found.append(longest_use(base))
    return _longest(found)


def longest_of_all(rules: Sequence[CullRule], base: CullPolicy) -> timedelta | None:
    """Return how long any server may run at most, whichever rule applies.

    `None` if some server may run without a limit.

    Args:
        rules: the rules of the policy file.
        base: the limits of ``c.GpuCulling``.
    """
    return _longest([longest_use(base), *(longest_use(merged(rule, base, "")) for rule in rules)])


def merged(rule: CullRule, base: CullPolicy, offer: str) -> CullPolicy:
    """Return the limits of a server with this offer under a rule.

    A limit that the rule does not set is that of ``c.GpuCulling`` (`base`).
    """
    return replace(_of_offer(base, offer), never=rule.never, **rule.limits)


def check_rules(rules: Sequence[CullRule], base: CullPolicy) -> Iterator[RuleProblem]:
    """Yield a problem for each rule with a limit that contradicts another limit of the rule or of ``c.GpuCulling``."""
    for rule in rules:
        for offer in sorted(rule.offers) or ["", *base.idle_by_offer]:
            try:
                check_policy(merged(rule, base, offer))
            except PolicyError as problem:
                yield _of_limits(rule, problem)
                break


def doubts(
    rules: Sequence[CullRule], groups: Collection[str] | None, offers: Collection[str], pools: Collection[str]
) -> Iterator[RuleProblem]:
    """Yield what is valid but probably not intended: a name that does not exist, or a rule that can never apply.

    A rule can never apply if a rule before it in the file fits all of the same servers.

    Args:
        groups: the existing groups; None or empty if they are not known, so that groups are not checked.
        offers: the existing offers; empty if not known.
        pools: the existing pools; empty if not known.
    """
    for place, rule in enumerate(rules):
        for kind, named, known in (
            ("groups", rule.groups, groups),
            ("offers", rule.offers, offers),
            ("pools", rule.pools, pools),
        ):
            for name in sorted(named - set(known or named)):
                text = f"{name!r} is none of the {kind} here now ({', '.join(sorted(known or ()))})"
                yield RuleProblem(rule.lines.get(kind, 0), f"rule {rule.name!r}, {kind}", text)
        before = next((each for each in rules[:place] if _covers(each, rule)), None)
        if before is not None:
            text = f"it never has its turn: rule {before.name!r} before it fits all that this one does"
            yield RuleProblem(rule.lines.get("", 0), f"rule {rule.name!r}", text)


def _fits(rule: CullRule, server: RuledServer) -> bool | None:
    """Return whether a server meets the conditions of a rule, apart from its windows (times).

    `None` if that depends on the user's groups, and these are not known.
    """
    for named, own in ((rule.users, server.user), (rule.offers, server.offer), (rule.pools, server.pool)):
        if named and own not in named:
            return False
    if not rule.groups:
        return True
    return None if server.groups is None else not rule.groups.isdisjoint(server.groups)


def _covers(before: CullRule, rule: CullRule) -> bool:
    conditions = (
        (before.groups, rule.groups),
        (before.users, rule.users),
        (before.offers, rule.offers),
        (before.pools, rule.pools),
    )
    always = not before.windows or (rule.windows and set(rule.windows) <= set(before.windows))
    return bool(always) and all(not wide or (narrow and narrow <= wide) for wide, narrow in conditions)


def _of_offer(base: CullPolicy, offer: str) -> CullPolicy:
    """Return the limits of ``c.GpuCulling`` for one offer, with the offer's own idle limit if it has one."""
    if not base.idle_by_offer:
        return base
    return replace(base, idle=base.idle_by_offer.get(offer, base.idle), idle_by_offer={})


def _longest(found: Sequence[timedelta | None]) -> timedelta | None:
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


def _of_limits(rule: CullRule, problem: PolicyError) -> RuleProblem:
    """Return the problem of a rule whose limits contradict each other, with the line of the limit that causes it."""
    name = problem.field.partition("[")[0]
    written = name if name in rule.limits else next((each for each in ("warn", "idle") if each in rule.limits), name)
    text = problem.text if written == name else f"with it {name} cannot be followed: {problem.text}"
    return RuleProblem(rule.lines.get(written, rule.lines.get("", 0)), f"rule {rule.name!r}, {written}", text)
