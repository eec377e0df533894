"""Random stories of one server against an oracle: settings, rules, waits and samples change in the middle.

20,000 and more: ``python -m benchmarks.culling stories``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from hub_extensions.core.culling import (
    Action,
    Cause,
    CullDecision,
    CullPolicy,
    CullRule,
    Evidence,
    RuledServer,
    RuleWindow,
    ServerFacts,
    decide,
    evidence_of,
    keep,
    longest_for,
    observe,
    opened,
    policy_for,
    settle,
)
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.text.reasons import Reason
from tests.core.culling.test_decision import DEMO, FACTS, ON, START
from tests.examples import many

MINUTE = timedelta(minutes=1)
SETTINGS = {
    "on": ON,
    "demo": DEMO,
    "short": replace(ON, lifetime=40 * MINUTE, idle=10 * MINUTE, warn=2 * MINUTE),
    "extend": replace(ON, lifetime=60 * MINUTE, extend_lifetime=30 * MINUTE, max_lifetime_extensions=2),
    "dry": CullPolicy(),
    "cpu": replace(ON, cpu_idle=15 * MINUTE, warn=5 * MINUTE),
}
RULES = {
    "no-rule": (),
    "never": (CullRule("kept", never=True),),
    "tight": (
        CullRule(
            "tight",
            users=frozenset({"ada"}),
            limits={"idle": 12 * MINUTE, "contended_idle": 6 * MINUTE, "warn": 5 * MINUTE, "never_used": 8 * MINUTE},
        ),
    ),
    "wide": (CullRule("wide", limits={"holds_memory": 90 * MINUTE, "after_run": 15 * MINUTE, "lifetime": None}),),
    "by-night": (CullRule("morning", windows=(RuleWindow(8 * 60, 9 * 60),), limits={"lifetime": 30 * MINUTE}),),
}
WORK = {"idle": 0.0, "busy": 80.0, "unknown": None}
EVENTS = [*["idle"] * 6, *WORK, "keep", "open", "waits", "alone", "memory", *SETTINGS, *RULES]
steps = st.lists(st.tuples(st.integers(1, 900), st.sampled_from(EVENTS)), max_size=80)
begins = st.sampled_from([FACTS, replace(FACTS, adopted=True, opened_known=False)])
CPU_EVENTS = [*["away"] * 6, "back", "kernel", "terminal", "at-rest", "no-report", "lost-clock", *SETTINGS]


@dataclass
class Story:
    """A server and what happens to it; what its user has seen is noted apart, for the oracle."""

    facts: ServerFacts
    now: datetime = START
    base: CullPolicy = ON
    rules: Sequence[CullRule] = ()
    waits: bool = False
    memory: bool = False
    used: bool = False
    use: float | None = 0.0
    policy: CullPolicy = ON
    samples: list[tuple[datetime, float | None]] = field(default_factory=list)
    ends: list[datetime] = field(default_factory=list)
    warned: datetime | None = None
    warnings: list[tuple[datetime, datetime, timedelta]] = field(default_factory=list)
    limit: datetime | None = START

    def step(self, seconds: int, event: str) -> CullDecision:
        """Time passes, one thing happens, and it is decided."""
        self.now += timedelta(seconds=seconds)
        self.base, self.rules = SETTINGS.get(event, self.base), RULES.get(event, self.rules)
        self.waits = event == "waits" or (self.waits and event != "alone")
        self.memory = self.memory or event == "memory"
        self.use = WORK.get(event, 0.0)
        self.used = self.used or event == "busy"
        self.samples.append((self.now, self.use))
        server = RuledServer("ada", frozenset(), FACTS.offer)
        self.policy, _ = policy_for(server, self.rules, self.base, self.now)
        longest = longest_for(server, self.rules, self.base)
        if self.limit is not None:
            self.limit = None if longest is None else max(self.limit, self.facts.started + longest)
        self.facts = opened(self.facts, self.now) if event == "open" else self.facts
        self.facts = observe(self.facts, self.use, self.policy, self.now)
        if event == "keep":
            kept = keep(self.evidence, self.facts, self.policy, self.now, self.facts.keeps)
            self.facts = self.facts if isinstance(kept, Reason) else kept
        facts = self.facts
        decision = decide(self.evidence, self.policy, self.now, facts.warned, facts.cause, facts.promised)
        self.facts = settle(facts, decision)
        return decision

    @property
    def evidence(self) -> Evidence:
        return evidence_of(
            self.facts,
            use_known=self.use is not None,
            used=self.used,
            memory_held=self.memory,
            wanted=self.waits,
        )

    def note(self, decision: CullDecision) -> None:
        """What its user sees of a decision."""
        self.ends += [decision.stops_at] if decision.stops_at is not None else []
        self.warned = None if decision.action is Action.KEEP else self.warned or self.now
        if self.warned is None:
            self.warnings.clear()
        elif decision.stops_at is not None:
            self.warnings.append((self.now, decision.stops_at, self.policy.warn))

    def check_warned_twice(self) -> None:
        """The first warning stood for its time, and the last for a tenth of it: a page shows it by its own clock."""
        assert self.warned is not None and self.now - self.warned >= self.policy.warn, "it was warned in full"
        assert self.now >= max(self.ends), "nobody was shown a later time"
        last = min(max(at, end - warn / 10) for at, end, warn in self.warnings)
        assert self.now - last >= min(warn for _, _, warn in self.warnings) / 10, "and once more, near the end"

    def idle_long_enough(self) -> bool:
        """By the samples alone: none busy for the shortest limit there is or longer, and 90 % of that time known.

        A sample says what was from then until the next one; so it is counted where it is known, and the first that
        reaches the limit may begin before it. A gap near the end is a tenth of all the idle time, not of the limit.
        """
        limit = min(
            each for each in (self.policy.idle, self.policy.contended_idle, self.policy.never_used) if each is not None
        )
        known, reached = timedelta(0), False
        spans = list(zip(self.samples, [*self.samples[1:], (self.now, None)], strict=True))
        for (at, percent), (until, _) in reversed(spans):
            if percent is not None and percent >= 5:
                return False
            known += until - at if percent is not None else timedelta(0)
            if self.now - at >= limit:
                if known >= (self.now - at) * 0.9 or (not reached and known >= limit * 0.9):
                    return True
                reached = True
        return False


A_GAP_NEAR_THE_END = (
    (1, "tight"), (898, "idle"), (85, "idle"), (36, "idle"), (91, "unknown"), (72, "idle"), (196, "idle"),
)  # fmt: skip


@many(200)
@given(begins, steps)
@example(replace(FACTS, adopted=True, opened_known=False), [*A_GAP_NEAR_THE_END])
def test_no_stop_of_a_story_breaks_a_promise_or_hits_work(begin: ServerFacts, story: list[tuple[int, str]]) -> None:
    told = Story(replace(begin, opened=None))
    for seconds, event in story:
        decision = told.step(seconds, event)
        if decision.action is Action.STOP:
            assert told.policy.enabled and not told.policy.never
            told.check_warned_twice()
            if decision.cause is Cause.LIFETIME:
                return
            assert told.use != 80.0, "it works"
            if decision.cause is Cause.IDLE:
                assert told.use is not None and told.idle_long_enough()
            return
        told.note(decision)


@many(100)
@given(begins, steps)
def test_no_lifetime_of_a_story_is_exceeded(begin: ServerFacts, story: list[tuple[int, str]]) -> None:
    """What the wait forecast of others counts with: the longest that any rule gave, and the warning."""
    told = Story(replace(begin, opened=None))
    rounds = [*story, *[(60, "busy")] * 20]
    for seconds, event in rounds:
        decision = told.step(seconds, event)
        if decision.action is Action.STOP:
            return
        told.note(decision)
    if told.limit is not None and told.policy.enabled:
        late = max(told.limit, *(each for each in (told.facts.ends_at,) if each), START)
        assert told.now < late + told.policy.warn + 20 * MINUTE
        assert told.facts.ends_at is None or told.facts.ends_at <= told.limit + told.policy.warn + 15 * MINUTE


@dataclass
class CpuStory(Story):
    """A server without a GPU: its user goes and comes, cells and programs of a terminal run, or nobody can tell."""

    active: datetime | None = START
    busy: dict[str, int | None] = field(default_factory=lambda: {"kernels": 0, "terminals": 0})

    def step(self, seconds: int, event: str) -> CullDecision:
        self.now += timedelta(seconds=seconds)
        self.policy = SETTINGS.get(event, self.policy)
        if event == "back":
            self.active = self.now
        elif event == "lost-clock":
            self.active = None  # the hub's clock is not ours: its times say nothing
        elif event == "no-report":
            self.busy = dict.fromkeys(self.busy)
        elif event in ("kernel", "terminal"):
            self.busy = {name: int(name.startswith(event)) for name in self.busy}
        elif event == "at-rest":
            self.busy = dict.fromkeys(self.busy, 0)
        facts = self.facts
        decision = decide(self.evidence, self.policy, self.now, facts.warned, facts.cause, facts.promised)
        self.facts = settle(facts, decision)
        return decision

    @property
    def evidence(self) -> Evidence:
        busy = {f"busy_{name}": count for name, count in self.busy.items()}
        return evidence_of(self.facts, use_known=False, last_activity=self.active, **busy)  # type: ignore[arg-type]


@many(100)
@given(st.lists(st.tuples(st.integers(1, 900), st.sampled_from(CPU_EVENTS)), max_size=60))
def test_no_stop_of_a_story_without_a_gpu_hits_who_is_there_or_at_work(story: list[tuple[int, str]]) -> None:
    told = CpuStory(replace(FACTS, offer=CPU, lease=None), policy=SETTINGS["cpu"])
    for seconds, event in story:
        decision = told.step(seconds, event)
        if decision.action is Action.STOP:
            told.check_warned_twice()
            assert told.policy.enabled and told.policy.cpu_idle is not None and decision.cause is Cause.CPU_IDLE
            assert not any(told.busy.values()), "a cell or a program runs"
            assert told.active is not None and told.now - told.active >= told.policy.cpu_idle
            return
        told.note(decision)
