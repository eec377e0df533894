"""From what the service knows to what it says: each message whole, each figure by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.cluster.pools import Pool, PoolSurvey
from hub_extensions.core.culling import Action, Cause, CullDecision, CullPolicy, ServerFacts
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.messages import Wait
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.queue.model import Answer as Says
from hub_extensions.core.queue.model import Availability, Ticket, TicketState, Verdict, WantedOffer
from hub_extensions.core.queue.wait_bound import WaitForecast
from hub_extensions.core.text.reasons import Reason
from hub_extensions.core.text.wording import coarse, stepped
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.views import presenters
from tests.core.queue.test_admission import CPU, GPU, HALF, LARGE, QUARTER, SMALL, lease, small
from tests.core.queue.test_counted_pools import small as small_pool
from tests.fakes.reasons import because

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
CLOCK = RunningClock(NOW, monotonic=lambda: 0.0, utc_now=lambda: NOW)
TICKET = Ticket(
    "t1", "ada", "two", (WantedOffer("gpu", 1), WantedOffer("cpu", 2)), NOW, TicketState.WAITING, 3, (), {}, "gpu", NOW
)
REASON = Reason("word", "for people", {}, "for the log")


def stands(offer: GpuOffer, now: bool = True, free: int | None = 1) -> Availability:
    wait = WaitForecast(now, None, None, None, None, "")
    return Availability(offer, free, 4, 3, 2, 1, 5, wait, "KAI")


def test_a_forecast_is_told_in_seconds_and_what_is_not_known_stays_unknown() -> None:
    known = WaitForecast(False, MINUTE, 2 * MINUTE, 3 * MINUTE, 4 * MINUTE, because("why"))
    assert presenters.wait(known) == Wait(False, 60.0, 120.0, 180.0, 240.0, because("why"))
    assert presenters.wait(WaitForecast(True, None, None, None, None, None)) == Wait(True, None, None, None, None, None)


@given(
    marks=st.lists(st.floats(0, 200_000), min_size=3, max_size=3).map(sorted),
    most=st.none() | st.floats(0, 300_000),
)
def test_a_likely_wait_is_told_in_steps_outwards_and_never_beyond_the_limit(
    marks: list[float], most: float | None
) -> None:
    p10, p50, p90 = (timedelta(seconds=min(each, most) if most is not None else each) for each in marks)
    limit = None if most is None else timedelta(seconds=most)
    told = presenters.wait(WaitForecast(False, p10, p50, p90, limit, None, (0.5,), NOW, "rough"))
    assert told.p10_seconds is not None and told.p50_seconds is not None and told.p90_seconds is not None
    assert 0 <= told.p10_seconds <= told.p50_seconds <= told.p90_seconds
    assert told.p10_seconds <= p10.total_seconds() and told.p90_seconds >= p90.total_seconds()
    assert told.at_most_seconds is None or told.p90_seconds <= told.at_most_seconds
    assert told.wide is (p90 > 3 * p10)
    step = coarse(told.p10_seconds, up=False) if told.wide else stepped(told.p10_seconds)
    assert told.p10_seconds in (step, told.at_most_seconds)
    assert (told.soon, told.as_of, told.note) == ((0.5,), NOW, "rough")


@pytest.mark.parametrize(
    ("p10", "p90", "most", "told"),
    [
        (10, 30, None, (10, 30, False)),
        (10, 31, None, (10, 45, True)),
        (10, 31, 40, (10, 40, True)),  # never beyond the limit
        (0, 4, None, (0, 5, True)),
        (0, 0, None, (0, 0, False)),
        (17, 100, None, (15, 120, True)),
        (61, 1441, None, (60, 2880, True)),
    ],
)
def test_a_wait_that_may_be_three_times_as_long_is_told_in_coarse_steps(
    p10: int, p90: int, most: int | None, told: tuple[int, int, bool]
) -> None:
    limit = None if most is None else most * MINUTE
    found = presenters.wait(WaitForecast(False, p10 * MINUTE, p10 * MINUTE, p90 * MINUTE, limit, None))
    assert (found.p10_seconds, found.p90_seconds, found.wide) == (60 * told[0], 60 * told[1], told[2])


def test_how_an_offer_stands_is_told_figure_by_figure() -> None:
    found = presenters.offer_state(stands(HALF))
    assert (found.id, found.kind, found.share, found.pool) == ("gpu-0.5", "fraction", 0.5, "gpu")
    assert (found.free, found.total, found.held, found.held_by_others, found.lost, found.waiting) == (1, 4, 3, 2, 1, 5)
    assert (found.queue, found.simulated, found.wait.now) == ("KAI", False, True)
    assert found.isolation == {
        "memory": "hardware", "fault": "hardware", "compute": "hardware", "access": HALF.isolation.access.value,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "admin", "seen"),
    [
        ((), False, ["cpu"]),
        (("a",), False, ["cpu", "gpu"]),
        (("b", "c"), False, ["cpu", "gpu"]),
        (("c",), False, ["cpu"]),
        ((), True, ["cpu", "gpu"]),
    ],
)
def test_offers_for_a_group_are_seen_by_its_people_and_by_admins(
    groups: tuple[str, ...], admin: bool, seen: list[str]
) -> None:
    offers = [stands(CPU), stands(replace(GPU, groups=("a", "b")))]
    assert [each.offer.id for each in presenters.allowed(offers, groups, admin)] == seen


def test_what_is_suggested_is_smaller_than_all_that_is_wanted_and_starts_now() -> None:
    offers = [stands(each) for each in (QUARTER, HALF, GPU)]

    def suggested(*wanted: str, among: list[Availability] = offers) -> list[str]:
        return [each.offer.id for each in presenters.smaller_and_free(wanted, among)]

    assert suggested("gpu") == ["gpu-0.25", "gpu-0.5"]
    assert suggested("gpu", "gpu-0.5") == ["gpu-0.25"]
    assert suggested("gpu-0.25") == suggested() == suggested("unknown") == []
    assert suggested("gpu", among=[stands(QUARTER, now=False), stands(HALF, free=0), stands(GPU)]) == []


@pytest.mark.parametrize("simulate", [None, "lab-a100"])
def test_a_grant_names_the_device_or_none(simulate: str | None) -> None:
    common = {"JUPYTERHUB_GPU_OFFER": "gpu", "JUPYTERHUB_GPU_SERVICE_URL": "http://here"}
    common |= {"JUPYTERHUB_GPU_SIMULATED": simulate} if simulate else {}
    held = lease(small(0), 500)
    given = presenters.grant(held, "gpu", "http://here", simulate)
    assert (given.lease, given.offer, given.uuid, given.share, given.pod) == (held.id, "gpu", held.uuid, 0.5, None)
    assert given.environment == {
        **common,
        "CUDA_VISIBLE_DEVICES": held.uuid,
        "NVIDIA_VISIBLE_DEVICES": held.uuid,
        "JUPYTERHUB_GPU_LEASE": held.id,
    }
    none = presenters.grant(None, "gpu", "http://here", simulate)
    assert (none.lease, none.uuid, none.share) == ("", None, 0.0)
    assert none.environment == {**common, "CUDA_VISIBLE_DEVICES": "void", "NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_ticket_is_told_with_its_place_its_grant_or_its_end() -> None:
    verdict = Verdict(Says.WAIT, REASON, "gpu", None, 2, 1, WaitForecast(False, None, None, None, MINUTE, None))
    waits = presenters.waiting(TICKET, verdict, [stands(QUARTER)], True, CLOCK)
    assert (waits.ticket, waits.attempt, waits.user, waits.server, waits.offers) == (
        "t1",
        3,
        "ada",
        "two",
        ("gpu", "cpu"),
    )
    assert (waits.answer, waits.offer, waits.position, waits.ahead, waits.simulated) == ("wait", "gpu", 2, 1, True)
    assert waits.reason == REASON
    assert waits.wait is not None and waits.wait.at_most_seconds == 60.0
    assert [each.id for each in waits.alternatives] == ["gpu-0.25"]
    bare = presenters.waiting(TICKET, replace(verdict, forecast=None), [], False, CLOCK)
    assert (bare.wait, bare.alternatives, bare.simulated) == (None, (), False)
    given = presenters.grant(lease(small(0)), "gpu", "", None)
    starts = presenters.admitted(TICKET, given, "Whole GPU", False, CLOCK)
    assert (starts.answer, starts.position, starts.ahead, starts.grant) == ("admit", 0, 0, given)
    assert starts.reason.message == "Your server is starting: Whole GPU."
    ended = presenters.over(TICKET, "refuse", REASON, CLOCK)
    assert (ended.answer, ended.position, ended.ahead, ended.wait, ended.grant) == ("refuse", 0, 0, None, None)
    away = presenters.not_there(TICKET, REASON, CLOCK)
    assert (away.answer, away.position) == ("wait", 0)
    assert away.wait is not None and (away.wait.now, away.wait.reason) == (False, replace(REASON, log_message=""))


@pytest.mark.parametrize(("action", "warn"), [(Action.KEEP, False), (Action.WARN, True), (Action.STOP, True)])
def test_a_countdown_warns_when_its_warning_has_begun(action: Action, warn: bool) -> None:
    decision = CullDecision(action, NOW + MINUTE, Cause.IDLE, because("Idle."), True, None)
    facts = ServerFacts("ada", "", GPU.id, None, NOW)
    found = presenters.countdown(facts, decision, CullPolicy(), CLOCK)
    assert found is not None
    assert (found.stops_at, found.cause, found.reason, found.can_keep, found.warn) == (
        NOW + MINUTE, "idle", because("Idle."), True, warn,
    )  # fmt: skip
    assert presenters.countdown(facts, replace(decision, stops_at=None), CullPolicy(), CLOCK) is None
    assert presenters.countdown(facts, replace(decision, cause=None), CullPolicy(), CLOCK) is None


def test_a_servers_memory_is_its_share_of_the_device_or_what_the_offer_says() -> None:
    held, offer = lease(small(0), 250), replace(QUARTER, memory_bytes=7)
    device = Device("GPU-0", "A100", memory_bytes=1000)
    assert presenters.memory_of(held, device, offer) == 250
    assert presenters.memory_of(held, replace(device, memory_bytes=None), offer) == 7
    assert presenters.memory_of(held, None, offer) == 7 and presenters.memory_of(held, None, None) is None


@pytest.mark.parametrize(
    ("pool", "known", "free"),
    [
        (small_pool(3, 1), True, 1),
        (small_pool(3, 0), True, 0),
        (small_pool(3, 0, unknown=1), True, None),
        (small_pool(3, 1, unknown=1), True, 1),
        (small_pool(3, 1), False, None),
    ],
)
def test_a_pool_is_explained_with_what_is_free_where_that_is_known(pool: Pool, known: bool, free: int | None) -> None:
    survey = PoolSurvey(pools={pool.id: pool}, names={}, bound=frozenset(), left_out=(), known=known, configured=False)
    (found,) = presenters.cluster_info(survey, [SMALL, LARGE, replace(SMALL, id="again")])
    assert (found.pool, found.total, found.free, found.held_by_others) == ("mig-1g.5gb", 3, free, 0)
    assert (found.resource, found.offers) == ("nvidia.com/mig-1g.5gb", ("mig-1g.5gb", "again"))
