"""Replay finished uses under other limits: when each server would have been warned and stopped, and for which cause.

A use is one server's time with a GPU. The replay calls the service's own functions for each minute of the use, with the
rules of a policy file. It does not know presses of *Keep*, so it also stops servers whose users kept them.
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
"""Time after a stop. If the GPU was busy within it, the stop would have hit a user at work."""


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """A finished use (one server's time with a GPU) with its measurements, as input of the replay.

    Attributes:
        share: thousandths of a device.
        ready, ended: when the server was ready, and when it ended (aware).
        adopted: whether the service found the server already running. The server was started before this product was
            installed, or during an outage of the service.
        used: beginning of a minute -> highest GPU use in percent in that minute; a missing minute was not measured.
        pool: the devices of one kind that its device belongs to; "" if not known.
        groups: groups of the user; `None` if they are not known.
        memory: beginning of a minute -> bytes of GPU memory in use; a missing minute was not measured.
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
    """The effect that the replayed limits would have had on one past server.

    Attributes:
        use: the use (the server's time with its GPU).
        warnings: number of countdowns that would have begun.
        stopped: when it would have been stopped; `None` if it would have run to its own end.
        cause: why it would have been stopped; `None` if it would not have been.
        came_back: whether the GPU was busy within 10 minutes after that stop, so that the stop would have hit a user at
            work.
        freed: device time that others could have used after the stop.
        rule: name of the rule of the policy file that would have stopped it; "" for the limits of ``c.GpuCulling``.
        undecided: True if the rule, at some time, depended on the user's groups, and these are not known. False if the
            server would have been stopped.
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
    """When somebody was waiting in the past, for each pool (all devices of one kind).

    Args:
        waits: (pool, since, until) of each wait.
    """

    def __init__(self, waits: Iterable[tuple[str, datetime, datetime]] = ()) -> None:
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
        """Return whether somebody was waiting for a device of this pool at this time."""
        place = bisect_right(self._begins.get(pool, ()), at) - 1
        return place >= 0 and at < self._ends[pool][place]


NOBODY_WAITED = PastWaits()


def play(
    use: MeasuredUse, base: CullPolicy, rules: Sequence[CullRule] = (), waits: PastWaits = NOBODY_WAITED
) -> PlayedUse:
    """Return what would have happened to the server of one measured use under other culling limits.

    The records do not show when a user opened the server, so it counts as opened as soon as its GPU is busy.

    Args:
        use: the finished use (one server's time with a GPU) and its measurements.
        base: the limits of ``c.GpuCulling``.
        rules: the rules of a policy file, which replace limits for some servers.
        waits: when somebody was waiting, for limits that apply only while somebody waits.
    """
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
    """The outcomes of all replayed uses, counted.

    Attributes:
        uses, people: number of uses, and of their users.
        unmeasured: number of uses whose GPU was never measured.
        held: device time of all uses.
        freed: cause -> device time that others could have used after stops for that cause.
        people_warned: number of users who would have been warned.
        warnings: number of warnings.
        stopped: cause -> number of uses that would have been stopped for this cause.
        came_back: the uses whose stop would have hit a user at work.
        by_rule: (rule, cause) -> number of uses that the rule would have stopped for this cause; the rule "" is
            ``c.GpuCulling``.
        undecided: number of uses that were not stopped and for which, at some time, the rule depended on groups that
            are not known. At such times the replay stops no server.
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
    """Count the outcomes.

    The result contains single uses only if their stop would have hit a user at work. Their measurements are dropped, to
    save memory.

    Args:
        played: the outcomes.
    """
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
