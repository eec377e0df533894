"""The likely wait of a running service: from its own records and from imports, and what came true of it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store import Changes, StoreUnavailable
from hub_extensions.adapters.store.archive import Archive
from hub_extensions.core.forecast.results import ForecastInputs, Given, Stay, WaitForecasts
from hub_extensions.core.messages import Progress, Stopped, TicketStatus, UsageRecord, Wait
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.engine.forecasts import forecaster as forecasting
from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator
from hub_extensions.hub_service.engine.state.errors import CalculationEnded
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.usage.file_import import import_file
from hub_extensions.tools.usage.rows import How
from tests.fakes.machine import small
from tests.hub_service.engine.pod_room import PodRoom, pod_room
from tests.hub_service.engine.room import Room, room
from tests.patience import patient, soon

pytestmark = pytest.mark.slow

SMALL = "mig-1g.5gb"
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
Process = subprocess.Popen[bytes]


def record(r: Room | PodRoom, number: int, lasted: timedelta = HOUR, **changes: object) -> UsageRecord:
    ended = r.hands.wall - number * HOUR
    made = UsageRecord(
        key=f"past-{number:03}",
        user=f"u{number % 6}",
        server="",
        offer=OfferId(SMALL),
        pool=SMALL,
        share=1000,
        ended=ended,
        end="user",
        asked=ended - lasted,
        admitted=ended - lasted,
        ready=ended - lasted + timedelta(seconds=20),
        held_seconds=lasted.total_seconds() * (1 + 0.02 * (number % 5)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


async def with_past(r: Room | PodRoom, uses: int = 24, lasted: timedelta = HOUR) -> None:
    """Uses that ended before this service was started."""
    await r.engine.store.commit(Changes(usage=tuple(record(r, number, lasted) for number in range(uses))))


@pytest.fixture
async def r(tmp_path: Path) -> AsyncIterator[Room]:
    """A room with one small GPU."""
    async with room(tmp_path, small(0)) as r:
        yield r


@pytest.fixture
async def ada(r: Room) -> Process:
    """Her server's process: she holds the GPU, of a pool with a past."""
    await r.engine.reconciler.reconcile()
    await with_past(r)
    _, process = await r.run("ada", SMALL)
    return process


@pytest.fixture
async def ben(r: Room, ada: Process) -> TicketStatus:
    """He waits behind her."""
    return await r.ask("ben", SMALL)


async def computed(r: Room | PodRoom) -> None:
    await r.engine.forecaster.refresh()
    await r.engine.forecaster.compute()


def shown(r: Room, user: str) -> Wait:
    (ticket,) = (each for each in r.engine.state.tickets.values() if each.user == user)
    (status,) = r.engine.queue.states_of([ticket])
    assert status.wait is not None
    return status.wait


def offered(r: Room) -> Wait:
    return next(offer.wait for offer in r.engine.form("zoe", "", (), False).offers if offer.id == SMALL)


def note(r: Room) -> str:
    return next(each.wait.note for each in r.engine.state.availability() if each.offer.id == SMALL)


def forecasts(r: Room) -> list[tuple[str, int, str, float | None, str]]:
    """Of the store, in the order in which they were given."""
    with sqlite3.connect(r.path / "gpu.sqlite") as database:
        rows = database.execute('SELECT offer, hour, "end", waited, ticket FROM gpu_forecasts ORDER BY at, id')
        return list(rows.fetchall())


@pytest.mark.programs
@pytest.mark.usefixtures("ada")
async def test_a_form_says_a_likely_wait_from_the_records_there_are(r: Room) -> None:
    assert offered(r).p90_seconds is None and offered(r).at_most_seconds is not None
    await computed(r)
    wait = offered(r)
    assert wait.p10_seconds is not None and wait.p50_seconds is not None and wait.p90_seconds is not None
    assert 0 < wait.p10_seconds <= wait.p50_seconds <= wait.p90_seconds <= (wait.at_most_seconds or 0)
    assert note(r) == "rough"


@pytest.mark.programs
async def test_few_data_become_a_likely_wait_with_an_import(tmp_path: Path, r: Room) -> None:
    await r.run("ada", SMALL)
    await computed(r)
    assert (note(r), offered(r).p90_seconds) == ("few-data", None)
    log = tmp_path / "slurm.csv"
    rows = (f"{3600 * n},{1500 + 10 * n},1,1000,u{n % 5}," for n in range(20))
    log.write_text("submit,duration,num_gpu,slices,user,limit\n" + "\n".join(rows) + "\n")
    with Archive.open(settings(r).store_url, reading=False) as archive:
        how = How(str(log), "made up", OfferId(SMALL), r.hands.wall - timedelta(days=30), slices_per_gpu=1000)
        import_file(archive, log, how, "csv")
    await computed(r)
    assert note(r) == "rough" and offered(r).p90_seconds is not None


def settings(r: Room) -> Settings:
    return r.engine.settings


@pytest.mark.programs
async def test_what_is_told_came_true_in_the_commit_that_admits(r: Room, ada: Process, ben: TicketStatus) -> None:
    await computed(r)
    assert forecasts(r) == [(SMALL, 0, "", None, ben.ticket)]
    assert shown(r, "ben").p90_seconds is not None
    r.hands.pass_time(10 * MINUTE)
    ada.kill()
    ada.wait()
    await r.engine.stopped(Stopped("ada", "", asked=True))
    await r.engine.watcher.refresh()
    await soon(lambda: ben.ticket not in waiting(r))
    assert forecasts(r) == [(SMALL, 0, "started", 600.0, "")]
    (found,) = r.engine.forecasts().pools
    assert (found.pool, found.evaluated, found.finished_uses, found.rough) == (SMALL, 1, 24, True)
    assert found.coverage_p90 in (0.0, 1.0) and found.median_error_seconds is not None


def waiting(r: Room) -> set[str]:
    return {ticket.id for ticket in r.engine.state.tickets.values() if ticket.state.value == "waiting"}


@pytest.mark.programs
async def test_who_leaves_or_asks_for_something_else_is_no_error(r: Room, ben: TicketStatus) -> None:
    await r.ask("cid", SMALL)
    await computed(r)
    await r.left(ben)
    assert sorted(each[2] for each in forecasts(r)) == ["", "left"]
    await r.ask("cid", "cpu")
    assert sorted(each[2] for each in forecasts(r)) == ["changed", "left"]
    assert r.engine.forecasts().pools[0].evaluated == 0


@pytest.mark.programs
async def test_a_forecast_is_kept_at_the_join_and_at_each_full_hour(r: Room) -> None:
    await with_past(r, lasted=6 * HOUR)
    await r.run("ada", SMALL)
    await r.ask("ben", SMALL)
    for minutes in (0, 20, 45, 5, 50):
        r.hands.pass_time(minutes * MINUTE)
        await r.engine.watcher.refresh()
        await computed(r)
    assert [each[1] for each in forecasts(r)] == [0, 1, 2]


@pytest.mark.programs
@pytest.mark.usefixtures("ada")
async def test_an_old_answer_is_not_shown_and_at_most_is(r: Room) -> None:
    await computed(r)
    r.hands.pass_time(timedelta(seconds=119))
    await r.engine.watcher.refresh()
    assert offered(r).p90_seconds is not None
    r.hands.pass_time(timedelta(seconds=2))
    assert offered(r).p90_seconds is None and offered(r).at_most_seconds is not None
    assert r.engine.forecasts().age_seconds is None


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_a_hub_that_is_away_for_an_hour_worsens_nobodys_forecast(r: Room) -> None:
    await computed(r)
    before = played(r)
    r.engine.state.clock.pause()
    r.hands.pass_time(HOUR)
    await computed(r)
    assert played(r) == before
    r.engine.state.clock.resume()
    await computed(r)
    assert played(r) == before


def played(r: Room) -> object:
    waits = r.engine.state.forecasts.waits
    assert waits is not None
    return waits.tickets, waits.offers


@pytest.mark.programs
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.usefixtures("ben")
async def test_a_wall_clock_that_is_set_changes_no_forecast(r: Room, hours: int) -> None:
    await computed(r)
    before, wait = played(r), shown(r, "ben").p90_seconds
    r.hands.wall += hours * HOUR
    assert shown(r, "ben").p90_seconds == wait
    await computed(r)
    assert played(r) == before


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_with_a_store_that_cannot_be_written_the_form_opens_and_nothing_is_kept(r: Room) -> None:
    await r.engine.forecaster.refresh()
    r.engine.store.guard = full
    await r.engine.forecaster.compute()
    assert forecasts(r) == [] and shown(r, "ben").p90_seconds is not None
    r.engine.store.guard = None
    await computed(r)
    assert [each[1] for each in forecasts(r)] == [0]


def full(connection: object) -> None:
    raise StoreUnavailable("The disk is full.")


@pytest.mark.programs
async def test_after_a_restart_forecasts_go_on_and_those_of_who_is_gone_are_closed(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await with_past(r)
        await r.run("ada", SMALL)
        ben = await r.ask("ben", SMALL)
        await computed(r)
        kept = r.engine.state.forecasts.given[ben.ticket][0]
        gone = replace(kept, id="gone", ticket="long-gone")
        await r.engine.store.commit(Changes(forecasts=(gone,)))
        hands, hub, children = r.hands, r.hub, r.children
        r.children = []  # they outlive the service
    async with room(tmp_path, small(0), hands=hands, hub=hub) as r:
        assert r.engine.state.forecasts.given == {ben.ticket: (kept,)}
        assert sorted(each[2] for each in forecasts(r)) == ["", "changed"]
        await computed(r)
        assert len(forecasts(r)) == 2, "the hour has its forecast already"
        r.children = children


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_its_own_commit_begins_no_computation(r: Room) -> None:
    await r.engine.forecaster.refresh()
    computed_of, revision = r.engine.state.forecasts.revision, r.engine.state.revision
    await r.engine.forecaster.compute()
    assert len(forecasts(r)) == 1
    assert (r.engine.state.forecasts.revision, r.engine.state.revision) == (computed_of, revision)


@pytest.mark.programs
async def test_what_ends_is_learned_from(r: Room) -> None:
    await r.engine.reconciler.reconcile()
    await with_past(r, uses=19)
    await computed(r)
    _, child = await r.run("ada", SMALL)
    await r.ask("ben", SMALL)
    await computed(r)
    assert note(r) == "few-data" and shown(r, "ben").p90_seconds is None
    r.hands.pass_time(20 * MINUTE)
    child.kill()
    child.wait()
    await r.engine.stopped(Stopped("ada", "", asked=True))
    await r.engine.watcher.refresh()
    await r.engine.watcher.refresh()
    await r.ask("cid", SMALL)
    await computed(r)
    assert note(r) == "rough" and shown(r, "cid").p90_seconds is not None


@pytest.mark.programs
async def test_a_deleted_users_name_is_not_known_any_more(r: Room) -> None:
    hers = (record(r, number, 25 * MINUTE, user="ada") for number in range(12))
    others = (record(r, number, 3 * MINUTE) for number in range(12, 24))
    await r.engine.store.commit(Changes(usage=(*hers, *others)))
    await r.run("ada", SMALL)
    await r.ask("ben", SMALL)
    await computed(r)
    with_habit = shown(r, "ben").p50_seconds
    await r.engine.store.forget_user("ada")
    r.engine.forecaster.reload_soon()
    await computed(r)
    without = shown(r, "ben").p50_seconds
    assert with_habit is not None and without is not None and without < with_habit
    assert r.engine.forecasts().pools[0].finished_uses == 24


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_a_report_of_progress_is_an_end_that_is_known(r: Room) -> None:
    await computed(r)
    before = shown(r, "ben").p50_seconds
    assert not await r.engine.progress("ben", "", Progress(r.hands.wall, 120.0)), "it has no GPU"
    assert await r.engine.progress("ada", "", Progress(r.hands.wall, 121.0))
    r.hands.pass_time(SECOND)
    assert not await r.engine.progress("ada", "", Progress(r.hands.wall - MINUTE, 1.0)), "it is older"
    await computed(r)
    assert before is not None and shown(r, "ben").p50_seconds == 120.0


async def waits_with(r: Room, left: float, spread: float = 0.0) -> float:
    """How long somebody in line waits likely, after a report of the server in front."""
    r.hands.pass_time(SECOND)
    assert await r.engine.progress("ada", "", Progress(r.hands.wall, left, spread))
    await computed(r)
    found = shown(r, "ben").p50_seconds
    assert found is not None
    return found


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_who_waits_hears_of_the_end_of_a_training_within_the_limits_and_of_nobodys_that_says_nothing(
    r: Room,
) -> None:
    await computed(r)
    without = shown(r, "ben").p50_seconds
    assert without is not None
    assert await waits_with(r, 300.0) == 300.0
    limit = shown(r, "ben").at_most_seconds
    assert limit is not None
    end = r.engine.state.as_enforced(next(iter(r.engine.state.leases.values()))).ends_at
    assert end is not None
    to_the_end = (end - r.engine.state.clock.now()).total_seconds()
    assert await waits_with(r, 30 * 86400.0) == pytest.approx(to_the_end, abs=2), "says 30 days left"
    assert shown(r, "ben").at_most_seconds == pytest.approx(limit, abs=2)
    assert await waits_with(r, 60.0, 1.0) == pytest.approx(without, abs=5), "as much as from nobody"
    assert await waits_with(r, 0.0) == pytest.approx(without, abs=5), "the training is over, the server goes on"


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_after_two_missed_ends_the_line_hears_as_much_as_from_nobody(r: Room) -> None:
    """It says 60 s left, every 60 s, for 3 h: a liar, or a loop of loops."""
    await computed(r)
    without = shown(r, "ben").p50_seconds
    assert without is not None and r.engine.distrusted() == 0
    known: list[int] = []
    for _ in range(10):
        r.hands.pass_time(MINUTE)
        assert await r.engine.progress("ada", "", Progress(r.hands.wall, 60.0))
        known.append(len(r.engine.forecaster.question().ends))
    assert known == [1] * 8 + [0] * 2, "two ends are missed after 4 and 8 minutes"
    await r.engine.watcher.refresh()
    await computed(r)
    assert shown(r, "ben").p50_seconds == without - 600
    assert r.engine.distrusted() == 1
    rows = [row for row in await r.engine.store.journal() if row.kind == "progress-not-trusted"]
    assert [(row.user, row.actor) for row in rows] == [("ada", "service")]
    shows = r.engine.state.forecasts.ends_of(("ada", ""), r.engine.state.clock.now())
    assert shows is not None and shows[0] == Progress(r.hands.wall, 60.0), "nothing else changes"


@pytest.mark.programs
@pytest.mark.usefixtures("ben")
async def test_who_joins_is_told_soon_and_there_is_one_thread_for_it(r: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "PAUSE", 0.01)
    task = asyncio.ensure_future(r.engine.forecaster.run())
    await soon(lambda: r.engine.state.forecasts.waits)
    for number in range(3):
        await r.ask(f"x{number}", SMALL)
    await soon(lambda: len(r.engine.state.forecasts.waits.tickets) == 4)  # type: ignore[union-attr]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [each.name for each in threading.enumerate() if "gpu-forecast" in each.name] == ["gpu-forecast_0"]


@pytest.mark.programs
async def test_an_admission_that_cannot_be_written_comes_true_with_the_one_that_can(
    r: Room, ada: Process, ben: TicketStatus
) -> None:
    """As after a kill between the release and its record: both are there, or neither is."""
    await computed(r)
    ada.kill()
    ada.wait()
    await r.engine.stopped(Stopped("ada", "", asked=True))
    r.engine.store.guard = full_for_admissions
    await r.engine.watcher.refresh()
    assert ben.ticket in waiting(r) and [each[2] for each in forecasts(r)] == [""]
    r.engine.store.guard = None
    r.hands.pass_time(MINUTE)
    await r.engine.watcher.refresh()
    async with r.engine.queue.transaction(admit=True):
        pass
    assert ben.ticket not in waiting(r) and [each[2:4] for each in forecasts(r)] == [("started", 60.0)]


def full_for_admissions(connection: Connection) -> None:
    """There is room for the release, and none for what comes after it."""
    if connection.scalar(sa.text("SELECT count(*) FROM gpu_leases")) == 0:
        raise StoreUnavailable("The disk is full.")


class EndlessCalculator(ForecastCalculator):
    """It computes until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.closed = threading.Event()

    def answer(
        self, inputs: ForecastInputs, stays: Sequence[Stay], matured: Sequence[Given], seed: int
    ) -> tuple[WaitForecasts, float]:
        self.begun.set()
        self.closed.wait(patient(30))
        raise CalculationEnded("the service stops")

    def close(self) -> None:
        super().close()
        self.closed.set()


async def test_a_long_computation_holds_up_no_stop_and_no_form(tmp_path: Path) -> None:
    endless = EndlessCalculator()
    async with room(tmp_path, small(0), calculator=endless) as r:
        task = asyncio.ensure_future(r.engine.forecaster.compute())
        await soon(endless.begun.is_set)
        assert offered(r).now and not task.done()
        await r.engine.stop()
        await asyncio.wait_for(task, patient(1))
        assert r.engine.state.forecasts.waits is None


@pytest.mark.programs
async def test_a_countdown_is_an_end_that_is_known(r: Room, ben: TicketStatus) -> None:
    facts = r.engine.state.facts["ada", ""]
    now = r.engine.state.clock.now()
    warned = replace(facts, warned=now, promised=now + 5 * MINUTE)
    await r.engine.state.commit(Changes(facts=(warned,)))
    await computed(r)
    waits = r.engine.state.forecasts.waits
    assert waits is not None and waits.tickets[ben.ticket].played.p90 == 300.0


async def test_on_a_cluster_counted_devices_have_likely_waits_too(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await with_past(r)
        await r.run("ada")
        await r.run("ben")
        await r.ask("cid")
        await computed(r)
        (ticket,) = r.engine.state.forecasts.given
        assert ticket == r.ticket("cid")
        wait = r.stands().wait
        assert wait.p50 is not None and wait.p90 is not None and 0 * MINUTE < wait.p50 <= wait.p90
        given = r.engine.forecasts().pools[0]
        assert (given.pool, given.finished_uses) == (SMALL, 24)
