"""What the state knows of likely waits: what is shown of the last computation, and what came true."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.results import Given, KnownEnd, Likely, LikelyWaits, PoolView
from hub_extensions.core.messages import Progress
from hub_extensions.core.messages.usage import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Answer, Availability, Ticket, TicketEnd, TicketState, Verdict, WantedOffer
from hub_extensions.core.queue.wait_bound import WaitForecast, starts_now
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.forecasts.forecast_state import ForecastState
from hub_extensions.hub_service.engine.forecasts.outcomes import lost_forecasts, with_outcomes
from hub_extensions.hub_service.engine.state.clock import RunningClock
from tests.core.queue.test_admission import CPU, LARGE, SMALL
from tests.fakes.machine import small
from tests.hub_service.engine.room import Hands, room

NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
PLAYED = Interval(600.0, 1800.0, 3600.0, (0.2, 0.9, 1.0))
LIKELY = Likely(PLAYED, PLAYED)
VIEW = PoolView(finished=20, held=5, people=3, ending=2)
BOUND = WaitForecast(False, None, None, None, 2 * HOUR, explain("limits-ahead"))
IN_USE = explain("in-use", total=5, title="MIG 1g.5gb", ahead=1, log_message="all are taken")


class Seen:
    """A forecasts, and the machine's clocks in a test's hands."""

    def __init__(self) -> None:
        self.hands = Hands()
        self.clock = RunningClock(NOON, monotonic=lambda: self.hands.seconds, utc_now=lambda: self.hands.wall)
        self.forecasts = ForecastState()

    def computed(self, **changes: object) -> None:
        waits = LikelyWaits(
            self.clock.now(), self.clock.elapsed(), {"t": LIKELY}, {SMALL.id: LIKELY}, {SMALL.pool: VIEW}
        )
        self.forecasts.take(replace(waits, **changes))  # type: ignore[arg-type]

    def verdict(self, *offers: OfferId, forecast: WaitForecast | None = BOUND) -> Verdict:
        wanted = tuple(WantedOffer(each, 1) for each in offers or (SMALL.id,))
        offer = {SMALL.id: SMALL, LARGE.id: LARGE}[wanted[0].offer]
        ticket = Ticket("t", "ada", "", wanted, NOON)
        return self.forecasts.of_ticket(
            ticket, Verdict(Answer.WAIT, IN_USE, offer.id, None, 2, 1, forecast), offer, self.clock
        )

    def offer(self, **changes: object) -> WaitForecast:
        stands = replace(Availability(SMALL, 0, 5, 5, 0, 0, 1, BOUND), **changes)  # type: ignore[arg-type]
        return self.forecasts.of_offer(stands, self.clock).wait


def given(name: str = "g", ticket: str = "t", **changes: object) -> Given:
    made = Given(name, ticket, SMALL.pool, SMALL.id, 0, NOON, NOON, 1, PLAYED, PLAYED)
    return replace(made, **changes)  # type: ignore[arg-type]


def came_true(name: str = "g", ticket: str = "t", waited: float = 900.0, **changes: object) -> Given:
    return given(name, ticket, end="started", waited=waited, **changes)


# ------------------------------------------------------------------ what is told


@pytest.mark.parametrize(("seconds", "known"), [(0, True), (120, True), (121, False)])
def test_an_answer_is_shown_for_two_minutes(seconds: int, known: bool) -> None:
    seen = Seen()
    assert seen.forecasts.fresh(0.0) is None and seen.verdict().forecast == BOUND and seen.offer() == BOUND
    seen.computed()
    seen.hands.pass_time(seconds * SECOND)
    assert (seen.forecasts.fresh(seen.clock.elapsed()) is not None) is known
    for shown in (seen.verdict().forecast, seen.offer()):
        assert shown is not None
        assert shown.p90 == (HOUR - seconds * SECOND if known else None)
        assert shown.as_of == (seen.hands.wall - seconds * SECOND if known else None)


def test_an_outage_takes_nothing_off_a_wait_and_its_moment_is_that_of_the_wall_clock() -> None:
    seen = Seen()
    seen.computed()
    seen.clock.pause()
    seen.hands.pass_time(MINUTE)
    seen.clock.resume()
    shown = seen.offer()
    assert (shown.p90, shown.as_of) == (HOUR, seen.hands.wall - MINUTE)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (VIEW, "in-use-usually-end"),
        (replace(VIEW, people=2), "in-use"),
        (replace(VIEW, finished=19), "in-use"),
        (None, "in-use"),
    ],
)
def test_a_place_in_line_says_how_soon_others_usually_end_where_a_wait_is_likely(
    view: PoolView | None, reason: str
) -> None:
    seen = Seen()
    seen.computed(pools={} if view is None else {SMALL.pool: view})
    found = seen.verdict()
    assert found.reason.reason == reason and found.reason.log_message == "all are taken"
    assert seen.verdict(forecast=None) == Verdict(Answer.WAIT, IN_USE, SMALL.id, None, 2, 1, None)


def test_another_reason_than_that_all_are_in_use_stays() -> None:
    seen = Seen()
    seen.computed()
    behind = Verdict(Answer.WAIT, explain("behind", ahead=1), SMALL.id, None, 2, 1, BOUND)
    ticket = Ticket("t", "ada", "", (WantedOffer(SMALL.id, 1),), NOON)
    assert seen.forecasts.of_ticket(ticket, behind, SMALL, seen.clock).reason == behind.reason


def test_of_several_lines_the_habits_of_the_first_that_is_known_are_said_and_of_another_no_count() -> None:
    seen = Seen()
    few = replace(VIEW, finished=19)
    for pools in ({SMALL.pool: VIEW}, {LARGE.pool: few, SMALL.pool: VIEW}):
        seen.computed(pools=pools)
        found = seen.verdict(LARGE.id, SMALL.id)
        assert found.forecast is not None and found.forecast.p90 == HOUR
        assert found.reason.reason == "in-use" and found.forecast.reason == BOUND.reason
    seen.computed(pools={LARGE.pool: VIEW, SMALL.pool: VIEW})
    assert seen.verdict(LARGE.id, SMALL.id).reason.reason == "in-use-usually-end"
    seen.computed(tickets={}, pools={SMALL.pool: VIEW})
    assert seen.verdict(LARGE.id, SMALL.id).forecast == BOUND, "nothing was played for it"
    waits = seen.forecasts.waits
    assert waits is not None
    ticket = Ticket("t", "ada", "", (WantedOffer(LARGE.id, 1), WantedOffer(SMALL.id, 1)), NOON)
    assert seen.forecasts.pool_of(waits, ticket, LARGE) == LARGE.pool
    seen.computed(pools={SMALL.pool: VIEW})
    assert seen.forecasts.waits is not None
    assert seen.forecasts.pool_of(seen.forecasts.waits, ticket, LARGE) == SMALL.pool


def test_an_offer_that_is_free_or_without_a_gpu_has_no_likely_wait() -> None:
    seen = Seen()
    seen.computed(offers={SMALL.id: LIKELY, CPU.id: LIKELY}, pools={SMALL.pool: VIEW, "": VIEW})
    free = starts_now(explain("one-free"))
    assert seen.offer(wait=free) == free and seen.offer(offer=CPU) == BOUND
    assert seen.offer().reason == explain("usually-end", ending=2, total=5, title="MIG 1g.5gb")
    assert seen.offer(offer=LARGE) == BOUND


# ------------------------------------------------------------------ its own record


def test_the_forecast_reports_of_every_pool_that_it_knows_or_was_judged_by() -> None:
    seen = Seen()
    assert seen.forecasts.report(seen.clock).pools == () and seen.forecasts.report(seen.clock).age_seconds is None
    seen.forecasts.remember(Changes(forecasts=(came_true(waited=2400.0), came_true("h", pool="older", waited=60.0))))
    found = {
        each.pool: (each.evaluated, each.finished_uses, each.rough) for each in seen.forecasts.report(seen.clock).pools
    }
    assert found == {SMALL.pool: (1, 0, True), "older": (1, 0, True)}
    seen.computed(pools={SMALL.pool: VIEW, "z": VIEW}, took=0.25)
    seen.hands.pass_time(MINUTE)
    report = seen.forecasts.report(seen.clock)
    assert [(each.pool, each.evaluated, each.finished_uses) for each in report.pools] == [
        (SMALL.pool, 1, 20), ("older", 1, 0), ("z", 0, 20),
    ]  # fmt: skip
    assert (report.age_seconds, report.cpu_seconds) == (60.0, 0.25)
    assert report.as_of == seen.hands.wall - MINUTE
    ours = report.pools[0]
    assert (ours.coverage_p90, ours.coverage_p10_p90, ours.median_error_seconds) == (1.0, 1.0, 600.0)


def test_a_forecast_that_came_true_is_judged_at_once_and_learned_from_where_it_was_given_at_the_join() -> None:
    seen = Seen()
    forecasts = seen.forecasts
    forecasts.remember(Changes(forecasts=(given("a"), given("b", hour=1))))
    assert forecasts.given == {"t": (given("a"), given("b", hour=1))} and forecasts.accuracy(SMALL.pool).matured == 0
    forecasts.remember(Changes(forecasts=(came_true("a", at_most=7200.0), came_true("b", hour=1))))
    assert forecasts.given == {} and forecasts.accuracy(SMALL.pool).matured == 2
    assert [each.id for each in forecasts.matured] == ["a"]
    assert [each.id for each in forecasts.joins[SMALL.pool]] == ["a"]
    forecasts.remember(Changes(forecasts=(given("c", end="left"), given("d", end="started"))))
    assert forecasts.accuracy(SMALL.pool).matured == 2 and forecasts.given == {}


def test_after_a_restart_what_came_true_before_comes_before_what_did_since() -> None:
    seen = Seen()
    forecasts = seen.forecasts
    forecasts.restore([given("open")])
    forecasts.remember(Changes(forecasts=(came_true("since"),)))
    forecasts.came_true([came_true("old"), came_true("older hour", hour=2), came_true("since")])
    assert [each.id for each in forecasts.records[SMALL.pool]] == ["old", "older hour", "since"]
    assert [each.id for each in forecasts.joins[SMALL.pool]] == ["old", "since"]
    assert forecasts.accuracy(SMALL.pool).matured == 3 and [each.id for each in forecasts.given["t"]] == ["open"]


# ------------------------------------------------------------------ what happens


def record(**changes: object) -> UsageRecord:
    made = UsageRecord("k", "ada", "", SMALL.id, SMALL.pool, 1000, NOON, "user", ready=NOON, held_seconds=60.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_a_wait_follows_from_begins_a_computation_and_nothing_else_does() -> None:
    seen = Seen()
    forecasts = seen.forecasts
    ticket = TicketRow(Ticket("t", "ada", "", (WantedOffer(SMALL.id, 1),), NOON))
    before = forecasts.revision
    forecasts.remember(Changes(usage=(record(), record(devices=0)), forecasts=(given(),)))
    assert forecasts.revision == before and [stay.key for stay in forecasts.stays] == ["k"]
    forecasts.remember(Changes(tickets=(ticket,)))
    assert forecasts.revision > before
    before = forecasts.revision
    forecasts.note_change()
    assert forecasts.revision > before


@pytest.mark.parametrize(("ago", "left", "ends"), [(0, 600.0, 600), (120, 600.0, 480), (-30, 600.0, 600)])
def test_an_end_that_a_server_names_is_kept_in_running_time(ago: int, left: float, ends: int) -> None:
    seen = Seen()
    report = Progress(seen.hands.wall - ago * SECOND, left)
    before = seen.forecasts.revision
    assert seen.forecasts.record_progress(("ada", ""), report, seen.clock.now() - HOUR, seen.clock)
    assert seen.forecasts.revision > before
    now, end = seen.clock.now(), seen.clock.now() + ends * SECOND
    assert seen.forecasts.ends_of(("ada", ""), now) == (report, end)
    assert seen.forecasts.ends_of(("ada", ""), end + 10 * MINUTE) == (report, end)
    assert seen.forecasts.ends_of(("ada", ""), end + 10 * MINUTE + SECOND) is None
    assert seen.forecasts.ends_of(("ben", ""), now) is None
    before = seen.forecasts.revision
    assert not seen.forecasts.record_progress(
        ("ada", ""), replace(report, at=report.at - MINUTE), NOON - HOUR, seen.clock
    )
    assert seen.forecasts.revision == before
    seen.forecasts.remember(Changes(gone_facts=(("ben", ""),)))
    assert seen.forecasts.ends_of(("ada", ""), now) is not None
    seen.forecasts.remember(Changes(gone_facts=(("ada", ""),)))
    assert seen.forecasts.ends_of(("ada", ""), now) is None


# ------------------------------------------------------------------ what comes true in which commit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "end", "waited"),
    [
        ({}, "", None),
        ({"state": TicketState.ADMITTED}, "started", 600.0),
        ({"wanted_offers": (WantedOffer(LARGE.id, 9),)}, "changed", None),
        ({"row_end": TicketEnd.LEFT}, "left", None),
        ({"row_end": TicketEnd.MAX_WAIT, "state": TicketState.ADMITTED}, "left", None),
        ({"id": "another", "state": TicketState.ADMITTED}, "", None),
    ],
)
async def test_a_forecast_comes_true_with_the_change_of_its_ticket(
    tmp_path: Path, changes: dict[str, object], end: str, waited: float | None
) -> None:
    async with room(tmp_path, small(0)) as r:
        state = r.engine.state
        ticket = Ticket("t", "ada", "", (WantedOffer(SMALL.id, 1),), state.clock.now())
        state.tickets["t"] = ticket
        open_ones = (given("a", running=state.clock.now()), given("b", running=state.clock.now() + 20 * MINUTE))
        state.forecasts.given["t"] = open_ones
        r.hands.pass_time(10 * MINUTE)
        row_end = changes.pop("row_end", None)
        row = TicketRow(replace(ticket, **changes), row_end)  # type: ignore[arg-type]
        before = Changes(tickets=(row,), forecasts=(given("new", "other"),))
        found = with_outcomes(state, before)
        if not end:
            assert found is before
            return
        first, one, two = found.forecasts
        assert first.id == "new" and (one.end, two.end) == (end, end)
        assert (one.waited, two.waited) == (waited, None if waited is None else 0.0)
        assert one.over == r.hands.wall


async def test_of_what_waits_no_more_after_a_restart_nothing_came_true(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = r.engine.state
        waits = Ticket("waits", "ada", "", (WantedOffer(SMALL.id, 1),), NOON)
        state.tickets = {"waits": waits, "starts": replace(waits, id="starts", state=TicketState.ADMITTED)}
        state.forecasts.given = {name: (given(name, name),) for name in ("waits", "starts", "gone")}
        assert [(each.id, each.end, each.waited) for each in lost_forecasts(state)] == [
            ("starts", "changed", None), ("gone", "changed", None),
        ]  # fmt: skip


# ------------------------------------------------------------------ what a computation begins with


async def test_a_computation_begins_with_what_is_known_of_everybody(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        state, asker = r.engine.state, r.engine.forecaster
        for user in ("ada", "ben"):
            await r.ask(user, str(SMALL.id))
        waiting = await r.ask("cid", str(SMALL.id))
        wall = r.hands.wall
        r.hands.pass_time(10 * MINUTE)
        leases = {lease.user: lease for lease in state.leases.values()}
        ada, ben = leases["ada"], leases["ben"]
        del state.uses[ben.id]
        question = asker.question()
        assert question.asked == dict.fromkeys((ada.id, ben.id, waiting.ticket), wall.timestamp())
        assert question.ends == {}
        state.uses[ada.id] = replace(state.uses[ada.id], asked=None, admitted=wall - HOUR)
        state.tickets[waiting.ticket] = replace(state.tickets[waiting.ticket], asked=None)
        assert asker.question().asked[ada.id] == (wall - HOUR).timestamp()
        assert asker.question().asked[waiting.ticket] == wall.timestamp()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("warned", "promised", "reported", "end"),
    [
        (True, 300, None, KnownEnd(300.0)),
        (True, -5, None, KnownEnd(0.0)),
        (False, 300, None, None),
        (True, None, None, None),
        (False, None, 900.0, KnownEnd(900.0, 0.2)),
        (False, None, 0.0, None),
        (True, 300, 0.0, KnownEnd(300.0)),
        (True, 300, 900.0, KnownEnd(300.0)),
        (True, 300, 120.0, KnownEnd(120.0, 0.2)),
    ],
)
async def test_the_sooner_of_a_countdown_and_a_report_is_the_end_that_is_known(
    tmp_path: Path, warned: bool, promised: int | None, reported: float | None, end: KnownEnd | None
) -> None:
    async with room(tmp_path, small(0)) as r:
        state = r.engine.state
        await r.ask("ada", str(SMALL.id))
        (lease,) = state.leases.values()
        now = state.clock.now()
        facts = ServerFacts("ada", "", SMALL.id, now, lease=lease.id, warned=now if warned else None,
                            promised=None if promised is None else now + promised * SECOND)  # fmt: skip
        state.facts["ada", ""] = facts
        if reported is not None:
            state.forecasts.record_progress(("ada", ""), Progress(r.hands.wall, reported, 0.2), now, state.clock)
        assert r.engine.forecaster.question().ends == ({} if end is None else {lease.id: end})
        state.facts["ada", ""] = replace(facts, lease="of before")
        if reported is None:
            assert r.engine.forecaster.question().ends == {}
