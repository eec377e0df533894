"""Replay a finished use under other limits: when it would have been warned and stopped, and for which cause. Pure.

The replay uses the service's own functions minute by minute over the measured use, with the rules of a policy file. It
knows no *Keep*: a use that was kept is stopped in the replay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import Action, decide, settle
from hub_extensions.core.culling.evidence import A_CONTEXT, ServerFacts, evidence_of, observe
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.culling.rules import GROUPS_NOT_KNOWN, CullRule, RuledServer, policy_for
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.stops import Cause

MINUTE = timedelta(minutes=1)
CAME_BACK = timedelta(minutes=10)
"""Work within this time after a stop shows that the stop hit a user at work."""


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """A use of a GPU that is over.

    Attributes:
        ready, ended: when its server was, aware. share: of a device, in thousandths. adopted: it ran before.
        used: minute (its begin) -> the highest use that was measured in it, percent; what is not there is not known.
        groups: of its user; `None` if they are not known. memory: minute -> bytes that were held.
    """

    user: str
    server: str
    offer: OfferId
    share: int
    ready: datetime
    ended: datetime
    adopted: bool
    used: Mapping[datetime, float]
    pool: str = ""
    groups: frozenset[str] | None = frozenset()
    memory: Mapping[datetime, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlayedUse:
    """The outcome of one replayed use.

    Attributes:
        warnings: countdowns that began. stopped: `None` if the use would have run to its own end.
        came_back: its GPU was at work within 10 minutes after the stop. freed: device time that others would have had.
        rule: of the policy file, by which it was stopped. undecided: its groups decide, and are not known.
    """

    use: MeasuredUse
    warnings: int
    stopped: datetime | None = None
    cause: Cause | None = None
    came_back: bool = False
    freed: timedelta = timedelta(0)
    rule: str = ""
    undecided: bool = False


class PastWaits:
    """When somebody waited for a device of a pool."""

    def __init__(self, waits: Iterable[tuple[str, datetime, datetime]] = ()) -> None:
        """`waits`: pool, since, until."""
        self._begins: dict[str, list[datetime]] = {}
        self._ends: dict[str, list[datetime]] = {}
        for pool, since, until in sorted(waits, key=lambda wait: wait[1]):
            begins, ends = self._begins.setdefault(pool, []), self._ends.setdefault(pool, [])
            if ends and since <= ends[-1]:
                ends[-1] = max(ends[-1], until)
            else:
                begins.append(since)
                ends.append(until)

    def any_at(self, pool: str, at: datetime) -> bool:
        """Whether somebody waited then."""
        place = bisect_right(self._begins.get(pool, ()), at) - 1
        return place >= 0 and at < self._ends[pool][place]


NOBODY_WAITED = PastWaits()


def play(
    use: MeasuredUse, base: CullPolicy, rules: Sequence[CullRule] = (), waits: PastWaits = NOBODY_WAITED
) -> PlayedUse:
    """One use under these limits. Whether a page was opened is not in the records: work on the GPU counts as that."""
    base, server = replace(base, enabled=True), RuledServer(use.user, use.groups, use.offer, use.pool)
    facts = ServerFacts(use.user, use.server, use.offer, use.ready, adopted=use.adopted)
    now, worked, warnings, undecided = use.ready, False, 0, False
    while now < use.ended:
        policy, rule = policy_for(server, rules, base, now)
        undecided = undecided or rule == GROUPS_NOT_KNOWN
        percent, held = use.used.get(_minute(now)), use.memory.get(_minute(now))
        worked = worked or (percent is not None and percent >= policy.idle_below_percent)
        facts = observe(facts, percent, policy, now)
        evidence = evidence_of(
            facts,
            use_known=percent is not None,
            used=worked,
            memory_held=None if held is None else held >= A_CONTEXT,
            wanted=waits.any_at(use.pool, now),
        )
        decision = decide(evidence, policy, now, facts.warned, facts.cause, facts.promised)
        warnings += decision.warned is not None and facts.warned is None
        facts = settle(facts, decision)
        if decision.action is Action.STOP:
            back = any(now < at <= now + CAME_BACK and use.used[at] >= policy.idle_below_percent for at in use.used)
            freed = (use.ended - now) * use.share / 1000
            return PlayedUse(use, warnings, now, decision.cause, back, freed, rule)
        now += MINUTE
    return PlayedUse(use, warnings, undecided=undecided)


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """Over all uses. `held`, `freed`: device time. Counts are of uses, but for `warnings`.

    Attributes:
        by_rule: (rule, cause) -> uses that it stopped; the rule "" is c.GpuCulling. undecided: uses whose user's
            groups decide and are not known, so that nothing stopped them.
    """

    uses: int
    people: int
    unmeasured: int
    held: timedelta
    freed: Mapping[Cause, timedelta]
    people_warned: int
    warnings: int
    stopped: Mapping[Cause, int]
    came_back: Sequence[PlayedUse]
    by_rule: Mapping[tuple[str, Cause], int] = field(default_factory=dict)
    undecided: int = 0


def summarized(played: Iterable[PlayedUse]) -> ReplaySummary:
    """Sum up the outcomes. Of the single uses only those whose user came back are kept, without their samples."""
    uses = warnings = unmeasured = undecided = 0
    held = timedelta(0)
    people, warned = set[str](), set[str]()
    freed, stopped = dict.fromkeys(Cause, timedelta(0)), dict.fromkeys(Cause, 0)
    by_rule = Counter[tuple[str, Cause]]()
    back: list[PlayedUse] = []
    for each in played:
        uses += 1
        unmeasured += not each.use.used
        undecided += each.undecided
        held += (each.use.ended - each.use.ready) * each.use.share / 1000
        people.add(each.use.user)
        warnings += each.warnings
        if each.warnings:
            warned.add(each.use.user)
        if each.cause is not None:
            freed[each.cause] += each.freed
            stopped[each.cause] += 1
            by_rule[each.rule, each.cause] += 1
        if each.came_back:
            back.append(replace(each, use=replace(each.use, used={}, memory={})))
    return ReplaySummary(
        uses, len(people), unmeasured, held, freed, len(warned), warnings, stopped, tuple(back), by_rule, undecided
    )


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
