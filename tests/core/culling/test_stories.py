"""Random stories of one server against an oracle: settings, rules, waits and samples change in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given
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
from hub_extensions.core.reasons import Reason
from tests.core.culling.test_decision import DEMO, FACTS, ON, START
from tests.examples import many

MINUTE = timedelta(minutes=1)
SETTINGS = {
    "on": ON,
    "demo": DEMO,
    "short": replace(ON, lifetime=40 * MINUTE, idle=10 * MINUTE, warn=2 * MINUTE),
    "extend": replace(ON, lifetime=60 * MINUTE, extend_lifetime=30 * MINUTE, extend_lifetime_times=2),
    "dry": CullPolicy(),
}
RULES = {
    "no-rule": (),
    "never": (CullRule("kept", never=True),),
    "tight": (
        CullRule(
            "tight",
            users=frozenset({"ada"}),
            limits={"idle": 12 * MINUTE, "wanted": 6 * MINUTE, "warn": 5 * MINUTE, "never_used": 8 * MINUTE},
        ),
    ),
    "wide": (CullRule("wide", limits={"holds_memory": 90 * MINUTE, "after_run": 15 * MINUTE, "lifetime": None}),),
    "by-night": (CullRule("morning", windows=(RuleWindow(8 * 60, 9 * 60),), limits={"lifetime": 30 * MINUTE}),),
}
WORK = {"idle": 0.0, "busy": 80.0, "unknown": None}
EVENTS = [*["idle"] * 6, *WORK, "keep", "open", "waits", "alone", "memory", *SETTINGS, *RULES]
steps = st.lists(st.tuples(st.integers(1, 900), st.sampled_from(EVENTS)), max_size=80)


@dataclass
class Story:
    """A server and what happens to it; what its user has seen is noted apart, for the oracle."""

    facts: ServerFacts = field(default_factory=lambda: replace(FACTS, opened=None, opened_known=True))
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
        self.facts = settle(facts, decision, self.now)
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

    def idle_long_enough(self) -> bool:
        """By the samples alone: none busy in the shortest limit there is, and 90 % of it known.

        A sample says what was from then until the next one; so it is counted where it is known.
        """
        limit = min(each for each in (self.policy.idle, self.policy.wanted, self.policy.never_used) if each is not None)
        known = timedelta(0)
        spans = list(zip(self.samples, [*self.samples[1:], (self.now, None)], strict=True))
        for (at, percent), (until, _) in reversed(spans):
            if percent is not None and percent >= 5:
                return False
            known += until - at if percent is not None else timedelta(0)
            if self.now - at >= limit:
                return known >= (self.now - at) * 0.9 or known >= limit * 0.9
        return False


@many(200)
@given(steps)
def test_no_stop_of_a_story_breaks_a_promise_or_hits_work(story: list[tuple[int, str]]) -> None:
    told = Story()
    for seconds, event in story:
        decision = told.step(seconds, event)
        if decision.action is Action.STOP:
            assert told.policy.enabled and not told.policy.never
            assert told.warned is not None and told.now - told.warned >= told.policy.warn, "it was warned in full"
            assert told.now >= max(told.ends), "nobody was shown a later time"
            if decision.cause is Cause.LIFETIME:
                return
            assert told.use != 80.0, "it works"
            if decision.cause is Cause.IDLE:
                assert told.use is not None and told.idle_long_enough()
            return
        told.note(decision)


@many(100)
@given(steps)
def test_no_lifetime_of_a_story_is_exceeded(story: list[tuple[int, str]]) -> None:
    """What the wait forecast of others counts with: the longest that any rule gave, and the warning."""
    told = Story()
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
