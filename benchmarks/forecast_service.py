"""Does the running service forecast the same as ``forecast backtest``? A day of a log, played 200 times faster.

    python -m benchmarks.forecast_service DIR [--log gaia_int] [--rate 200]

The service is the real one, in a process of its own, with both its clocks turned; the GPUs are simulated. It begins
with an import of all that ended before. Then each session asks, starts, is ready and stops by the hub's routes, as a
spawner does, and has a process with the lease's mark. What those who wait are told comes from the hub's stream of
changes. Beside it stands the backtest of the same sessions. The day is the one with the most waits among those that
begin with every GPU free, in the last 40 % of the log. Limits that users asked for are left out: offers have none.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import TypeAdapter

from hub_extensions.adapters.linux.procfs import describe
from hub_extensions.adapters.service.gpu_service import GpuServiceClient
from hub_extensions.adapters.store import Store
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.results import Given
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import Ask, ForecastReport, Started, Stopped, TicketStatus
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.hub_service.engine.forecasts.forecaster import SEED
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.backtest.log import Log, ReplayPool, read_logs
from hub_extensions.tools.backtest.replay import PROTOCOL, Replay, ScoredForecast
from hub_extensions.tools.backtest.scores import Score, score_of
from hub_extensions.tools.backtest.world import NEVER, LogSession, World
from tests.fakes.hub import FakeHub, FakeServer, FakeUser
from tests.fakes.hub_of_tokens import ACCESS
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
DAY = 86400.0
SEEDS = (SEED, 2, 3, 4, 5)
"""Seeds of the backtest: the first is also the service's, the others show the variation by chance."""
APART = 0.05
"""Maximum relative difference between a figure of the service and of the backtest."""
LEAD_SECONDS = 60.0
"""From the service's start to the day's first moment."""
Process = subprocess.Popen[bytes]
SECRET, TOKEN, ADMIN = "hub-secret-" * 4, "service-token", "admins-token"
CARD = "  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n"
BEGIN, RATE = "FORECAST_SERVICE_BEGIN", "FORECAST_SERVICE_RATE"


# ------------------------------------------------------------------ the day


@dataclass(frozen=True)
class Day:
    """The sessions of the day and those before it. `starts`: session -> its start according to the log."""

    history: tuple[LogSession, ...]
    sessions: tuple[LogSession, ...]
    starts: Mapping[int, float]
    gpus: int

    @property
    def begin(self) -> float:
        return self.sessions[0].submit


def busiest_day(log: Log, pool: ReplayPool) -> Day:
    """Slices become thousandths of a GPU, as offers have them."""
    fitting = (each for each in log.sessions if each.slices <= pool.slices and each.devices == 1)
    sessions = tuple(
        replace(each, number=number, slices=WHOLE * each.slices // pool.slices, limit=None)
        for number, each in enumerate(fitting)
    )
    starts, empty = starts_of(sessions, pool.gpus)
    found = []
    for first in empty:
        if first >= PROTOCOL.first * len(sessions):
            begin = sessions[first].submit
            day = [each for each in sessions[first:] if each.submit < begin + DAY]
            waits = sum(starts[each.number] > each.submit for each in day)
            found.append((waits, -first, day))
    _, at, day = max(found, key=lambda each: each[:2])
    return Day(sessions[:-at], tuple(day), starts, pool.gpus)


def starts_of(sessions: Sequence[LogSession], gpus: int) -> tuple[dict[int, float], list[int]]:
    """When each starts, and the places in the log at which every GPU was free."""
    world, starts, empty = World(gpus, WHOLE), dict[int, float](), list[int]()

    def end_until(moment: float) -> None:
        while world.next_end() <= moment and world.next_end() < NEVER:
            now = world.next_end()
            while world.next_end() <= now:
                world.end()
            starts.update((each.number, now) for each in world.start(now, lambda one: one.duration))

    for place, session in enumerate(sessions):
        end_until(session.submit)
        if not world.running:
            empty.append(place)
        world.waiting.append(session)
        starts.update((each.number, session.submit) for each in world.start(session.submit, lambda one: one.duration))
    end_until(NEVER)
    return starts, empty


def write_history(day: Day, file: Path, begin: float) -> None:
    """As a CSV that ``usage import`` takes; `begin`: the wall-clock time of the day's first moment."""

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(begin + seconds - day.begin, timezone.utc).isoformat()

    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        names = ("submit", "duration", "num_gpu", "slices", "user", "limit", "asked", "admitted", "ended")
        writer.writerow(names)
        for each in day.history:
            start = day.starts[each.number]
            moments = (moment(each.submit), moment(start), moment(start + each.duration))
            writer.writerow((each.submit, each.duration, 1, each.slices, each.user, "", *moments))


# ------------------------------------------------------------------ the service


def serve(arguments: list[str]) -> int:
    """The real service; from the day's beginning on its clocks run faster."""
    from hub_extensions.hub_service.__main__ import main
    from hub_extensions.hub_service.engine.forecasts import forecaster
    from hub_extensions.hub_service.engine.state import state
    from hub_extensions.hub_service.engine.state.clock import RunningClock
    from tests.fakes.turned_service import AGES

    begin, rate = float(os.environ[BEGIN]), float(os.environ[RATE])

    def now() -> float:
        real = time.time()
        return real + (rate - 1) * max(0.0, real - begin)

    class FastClock(RunningClock):
        def __init__(self, at: datetime | None = None) -> None:
            utc_now = lambda: datetime.fromtimestamp(now(), timezone.utc)  # noqa: E731
            super().__init__(at, monotonic=now, utc_now=utc_now)

        def elapsed(self) -> float:
            return time.monotonic()

    setattr(state, "RunningClock", FastClock)  # noqa: B010
    for module, name in AGES:
        setattr(module, name, getattr(module, name) * rate)
    forecaster.PAUSE /= rate
    forecaster.EVERY /= rate
    return main(arguments)


def settings_of(folder: Path, day: Day, hub: FakeHub) -> Settings:
    layout = folder / "layout.yaml"
    layout.write_text('title: "The cards of the log"\ngpus:\n' + CARD * day.gpus)
    shares = sorted({each.slices for each in (*day.history, *day.sessions)})
    long = timedelta(days=365)
    return Settings(
        state_dir=str(folder / "state"),
        hub_secret=SECRET,
        api_token=TOKEN,
        port=free_port(),
        hub_api_url=hub.url,
        offers=OfferConfig(fractions={"gpu": tuple(s / WHOLE for s in shares if s < WHOLE)}, simulate=str(layout)),
        queue=QueueLimits(max_wait=long, abandon_after=long, gpu_leases_per_user=100, tickets_per_user=100),
    )


def import_history(day: Day, folder: Path, begin: float) -> None:
    write_history(day, folder / "history.csv", begin)
    words = ("usage", "import", str(folder / "history.csv"), "--state-dir", str(folder / "state"), "--pool", "gpu")
    command = (sys.executable, "-m", "hub_extensions.tools.cli", *words, "--slices-per-gpu", str(WHOLE))
    subprocess.run(command, cwd=ROOT, check=True)


def started_process(command: list[str], environment: Mapping[str, str], log: Path = Path(os.devnull)) -> Process:
    """A process from this checkout; what it complains of goes into `log`."""
    with log.open("wb") as stream:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stream)


# ------------------------------------------------------------------ who plays


@dataclass
class Player:
    """The hub's part: it asks, starts, and stops, at the log's times."""

    day: Day
    client: GpuServiceClient
    hub: FakeHub
    begin: float
    rate: float
    told: dict[int, Interval] = field(default_factory=dict)
    kept: list[Given] = field(default_factory=list)
    waits: dict[int, float] = field(default_factory=dict)

    async def play(self) -> None:
        """Until everybody of the day has started."""
        started = [asyncio.get_running_loop().create_future() for _ in self.day.sessions]
        lives = [asyncio.ensure_future(self._life(*each)) for each in zip(self.day.sessions, started, strict=True)]
        try:
            await asyncio.gather(*started)
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _life(self, session: LogSession, started: asyncio.Future[None]) -> None:
        try:
            await self._server(session, started)
        except Exception as problem:
            if started.done():
                raise
            started.set_exception(problem)

    async def _server(self, session: LogSession, started: asyncio.Future[None]) -> None:
        name, user = f"s{session.number}", session.user
        await self._sleep_until(session.submit)
        servers = self.hub.users[user].servers
        servers[name] = FakeServer(ready=False, pending="spawn")
        status, joined = await self._admitted(session, name)
        self.waits[session.number] = self.rate * (time.time() - joined)
        grant = status.grant
        assert grant is not None
        process = started_process(["sleep", "infinity"], {"PATH": os.environ["PATH"], **grant.environment})
        try:
            seen = describe(process.pid)
            assert seen is not None
            await self.client.started(status.ticket, Started(status.attempt, process.pid, seen.started))
            servers[name] = FakeServer()
            await self.client.started(status.ticket, Started(status.attempt, process.pid, seen.started, ready=True))
            started.set_result(None)
            await self._sleep_until(self.day.starts[session.number] + session.duration)
        finally:
            process.kill()
            process.wait()
        servers.pop(name, None)
        await self.client.stopped(Stopped(user, name, asked=True))

    async def _admitted(self, session: LogSession, name: str) -> tuple[TicketStatus, float]:
        offer = OfferId("gpu" if session.slices == WHOLE else f"gpu-{session.slices / WHOLE:g}")
        with self.client.waiting(session.user, name) as changes:
            joined = time.time()
            status = await self.client.ask(Ask(session.user, name, (offer,), {"offer": offer}), patience=10.0)
            while status.answer == "wait":
                self._hear(session.number, status, self.rate * (time.time() - joined))
                update = await changes.get()
                status = update if isinstance(update, TicketStatus) else status
        if status.answer != "admit":
            raise AssertionError(f"session {session.number}: {status.answer}, {status.reason.message}")
        return status, joined

    def _hear(self, number: int, status: TicketStatus, waited: float) -> None:
        """Keep the first forecast of a session, with the time that it has already waited added."""
        wait = status.wait
        if wait and wait.p10_seconds is not None and wait.p50_seconds is not None and wait.p90_seconds is not None:
            told = (waited + each for each in (wait.p10_seconds, wait.p50_seconds, wait.p90_seconds))
            self.told.setdefault(number, Interval(*told))

    async def _sleep_until(self, submit: float) -> None:
        await asyncio.sleep(max(0.0, self.begin + (submit - self.day.begin) / self.rate - time.time()))


async def played(day: Day, rate: float) -> tuple[Player, ForecastReport]:
    """Play the day through the service; return the player, and what the service reports of its own forecasts."""
    with tempfile.TemporaryDirectory() as name:
        async with FakeHub(TOKEN) as hub:
            folder = Path(name)
            (folder / "state").mkdir(mode=0o700)
            hub.users = {each.user: FakeUser() for each in (*day.history, *day.sessions)}
            scopes = [ACCESS, "list:users", "admin:servers", "read:metrics", "read:hub"]
            hub.users["root"] = FakeUser(admin=True)
            hub.tokens[ADMIN] = {"kind": "user", "name": "root", "groups": [], "scopes": scopes}
            hub.tokens[TOKEN] = {"kind": "service", "name": "gpu", "scopes": []}
            settings, begin = settings_of(folder, day, hub), time.time() + LEAD_SECONDS
            config = settings.folder / "service.json"
            settings.dump(config)
            environment = os.environ | {"PYTHONPATH": str(ROOT), BEGIN: str(begin), RATE: str(rate)}
            command = [sys.executable, "-m", "benchmarks.forecast_service", "serve", str(config)]
            process = started_process(command, environment, folder / "service.log")
            client = GpuServiceClient(settings.url, SECRET)
            try:
                await until_known(settings, 0, begin)
                await asyncio.to_thread(import_history, day, folder, begin)
                await until_known(settings, len(day.history), begin)
                player = Player(day, client, hub, begin, rate)
                await player.play()
                player.kept = await kept_forecasts(settings)
                return player, await asyncio.to_thread(own_report, settings)
            except BaseException:
                print((folder / "service.log").read_text()[-3000:], file=sys.stderr)
                raise
            finally:
                await client.close()
                process.terminate()
                process.wait(30)


async def kept_forecasts(settings: Settings) -> list[Given]:
    """The forecasts that the service kept at the day's joins, to the second, in the order of joining."""
    store = Store.open(settings.store_url)
    try:
        given = await store.matured_forecasts()
    finally:
        store.close()
    return sorted((each for each in given if not each.hour), key=lambda each: each.at)


async def until_known(settings: Settings, uses: int, begin: float) -> None:
    """The service answers, and has learned from so many uses, before the day begins."""
    while time.time() < begin:
        await asyncio.sleep(0.2)
        with suppress(OSError):
            found = await asyncio.to_thread(own_report, settings)
            if any(each.finished >= uses for each in found.pools):
                return
    raise TimeoutError("the service did not learn in time: this machine is too slow for LEAD_SECONDS")


def own_report(settings: Settings) -> ForecastReport:
    """Return the service's own report on its forecasts."""
    asked = urllib.request.Request(f"{settings.url}/api/forecasts", headers={"Authorization": f"token {ADMIN}"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return TypeAdapter(ForecastReport).validate_json(answer.read())


# ------------------------------------------------------------------ both, side by side


def compare(day: Day, player: Player) -> None:
    """Print each figure of both, with their difference, then the differences wait by wait.

    Pages round outwards to coarse steps, so a second may move an end by hours. The intervals that the service stored,
    to the second, are compared.
    """
    log = Log("day", (*day.history, *day.sessions), ())
    shown = Replay(log, ReplayPool("day", day.gpus, WHOLE, "strict"), SEEDS, first=len(day.history)).run()
    both = [each for each in shown if each.number in player.told]
    print(f"{len(shown)} waited in the backtest, of whom {len(both)} were told something by the service")
    if len(player.kept) != len(both):
        raise AssertionError(f"{len(player.kept)} forecasts were kept")
    joined = sorted(both, key=lambda each: each.number)
    kept = {each.number: given for each, given in zip(joined, player.kept, strict=True)}
    ours = score_of([(given.shown, given.waited or 0.0) for given in kept.values()])
    backtest = [score_of([(each.ours[at], each.real) for each in both]) for at in range(len(SEEDS))]
    print(f"{'hours, and shares':<16} {'service':>9} {'backtest':>9} {'apart':>7}   seeds of the backtest")
    row("mean wait", waited(player, both), sum(each.real for each in both) / len(both) / 3600, ())
    for at, name in enumerate(each.name for each in fields(Score)):
        row(name, astuple(ours)[at], astuple(backtest[0])[at], [astuple(each)[at] for each in backtest])
    for name in ("p10", "p50", "p90"):
        told = sum(getattr(given.shown, name) for given in kept.values()) / len(both) / 3600
        seeds = [sum(getattr(e.ours[at], name) for e in both) / len(both) / 3600 for at in range(len(SEEDS))]
        row(f"mean {name}", told, seeds[0], seeds)
        pairs = [(getattr(kept[e.number].shown, name), getattr(e.ours[0], name)) for e in both]
        print(f"  wait by wait: {sum(abs(a - b) <= APART * b for a, b in pairs)} of {len(pairs)} within 5 %", end=", ")
        print(f"the farthest {max(abs(a - b) for a, b in pairs) / 3600:.2f} h apart")


def waited(player: Player, both: Sequence[ScoredForecast]) -> float:
    return sum(player.waits[each.number] for each in both) / len(both) / 3600


def row(name: str, ours: float, backtest: float, seeds: Sequence[float]) -> None:
    apart = abs(ours - backtest) / backtest if backtest else float(ours != backtest)
    spread = f"{min(seeds):.3f} to {max(seeds):.3f}" if seeds else ""
    print(f"{name:<16} {ours:>9.3f} {backtest:>9.3f} {apart:>7.1%}   {spread}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a log and its JSON, as `forecast backtest` takes them")
    parser.add_argument("--log", default="gaia_int", help="which one (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=200.0, help="how much faster (default: %(default)s)")
    options = parser.parse_args()
    log = next(each for each in read_logs(options.folder) if each.name == options.log)
    day = busiest_day(log, log.pools[0])
    hours = (max(day.starts[each.number] for each in day.sessions) - day.begin) / 3600
    print(f"{log.pools[0].name}: {len(day.history)} sessions before, {len(day.sessions)} of the day,", end=" ")
    print(f"{hours:.1f} h until the last has started: {3600 * hours / options.rate:.0f} s", flush=True)
    player, report = asyncio.run(played(day, options.rate))
    compare(day, player)
    print(f"the service of itself: {report.pools}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        sys.exit(serve(["--config", sys.argv[2]]))
    main()
