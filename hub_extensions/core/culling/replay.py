"""A use that is over, played again under other limits: when it would have been warned and stopped, and what for.

The very functions that the service decides by, minute by minute over what was measured. Pure. Not here: where the
minutes come from, and nobody's *Keep*: a use that was kept is stopped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import Action, decide, settle
from hub_extensions.core.culling.evidence import Cause, ServerFacts, evidence_of, observe
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.offers.offer_id import OfferId

MINUTE = timedelta(minutes=1)
CAME_BACK = timedelta(minutes=10)
"""Work so soon after a stop says that it hit somebody."""


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """A use of a GPU that is over.

    Attributes:
        ready, ended: when its server was, aware. share: of a device, in thousandths. adopted: it ran before.
        used: minute (its begin) -> the highest use that was measured in it, percent; what is not there is not known.
    """

    user: str
    server: str
    offer: OfferId
    share: int
    ready: datetime
    ended: datetime
    adopted: bool
    used: Mapping[datetime, float]


@dataclass(frozen=True, slots=True)
class PlayedUse:
    """What would have become of it.

    Attributes:
        warnings: countdowns that began. stopped: None: it would have run to its own end.
        came_back: its GPU was at work within 10 minutes after the stop. freed: device time that others would have had.
    """

    use: MeasuredUse
    warnings: int
    stopped: datetime | None = None
    cause: Cause | None = None
    came_back: bool = False
    freed: timedelta = timedelta(0)


def play(use: MeasuredUse, policy: CullPolicy) -> PlayedUse:
    """One use under these limits. Whether a page was opened is not in the records: work on the GPU counts as that."""
    policy = replace(policy, enabled=True)
    facts = ServerFacts(use.user, use.server, use.offer, use.ready, adopted=use.adopted)
    now, worked, warnings = use.ready, False, 0
    while now < use.ended:
        percent = use.used.get(_minute(now))
        worked = worked or (percent is not None and percent >= policy.idle_below_percent)
        facts = observe(facts, percent, policy, now)
        evidence = evidence_of(facts, use_known=percent is not None, used=worked)
        decision = decide(evidence, policy, now, facts.warned, facts.cause, facts.promised)
        warnings += decision.warned is not None and facts.warned is None
        facts = settle(facts, decision, now)
        if decision.action is Action.STOP:
            back = any(now < at <= now + CAME_BACK and _works(use, at, policy) for at in use.used)
            return PlayedUse(use, warnings, now, decision.cause, back, (use.ended - now) * use.share / 1000)
        now += MINUTE
    return PlayedUse(use, warnings)


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """Over all uses. `held`, `freed`: device time. Counts are of uses, but for `warnings`."""

    uses: int
    people: int
    unmeasured: int
    held: timedelta
    freed: Mapping[Cause, timedelta]
    people_warned: int
    warnings: int
    stopped: Mapping[Cause, int]
    came_back: Sequence[PlayedUse]


def summarized(played: Iterable[PlayedUse]) -> ReplaySummary:
    """What the limits would have done. Keeps of each use no more than it says of those whose user came back."""
    uses = warnings = unmeasured = 0
    held = timedelta(0)
    people, warned = set[str](), set[str]()
    freed, stopped = dict.fromkeys(Cause, timedelta(0)), dict.fromkeys(Cause, 0)
    back: list[PlayedUse] = []
    for each in played:
        uses += 1
        unmeasured += not each.use.used
        held += (each.use.ended - each.use.ready) * each.use.share / 1000
        people.add(each.use.user)
        warnings += each.warnings
        if each.warnings:
            warned.add(each.use.user)
        if each.cause is not None:
            freed[each.cause] += each.freed
            stopped[each.cause] += 1
        if each.came_back:
            back.append(replace(each, use=replace(each.use, used={})))
    return ReplaySummary(uses, len(people), unmeasured, held, freed, len(warned), warnings, stopped, tuple(back))


def _works(use: MeasuredUse, at: datetime, policy: CullPolicy) -> bool:
    return use.used[at] >= policy.idle_below_percent


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
