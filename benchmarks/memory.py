"""How much memory the service has: with 1,000 leases after 10 minutes, and a hub beside a stock one with eight people.

    python -m benchmarks.memory service [--leases 1000] [--waiting 200] [--minutes 10] [--database URL]
    python -m benchmarks.memory hub [--people 8]
    python -m benchmarks.memory imports

`service`: the real one over simulated cards, as the hub starts it. Everybody joins, starts and is ready by the hub's
routes, and from then on each server reports every 30 s with its token, as its extension does; the rest wait, and are
given forecasts from a history of 20,000 uses. Printed are RSS and PSS of the service, of its tiny parent and of the
worker process that computes the forecasts, and what all three have together: judged is that figure, which counts a
file's page once, and does not depend on other programs that have the same files in memory.
`hub`: a stock hub and one with ours, each with its proxy and people's servers; printed is the hub process alone.
`imports`: which package adds how much at the service's start, in the order in which they come.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import aiohttp

from hub_extensions.adapters.linux.procfs import start_time
from hub_extensions.adapters.service.gpu_service import GpuServiceClient, ServiceAway, ServiceRefused
from hub_extensions.adapters.store import Changes, Store
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.messages import Ask, Started, UsageRecord
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.hub_service.setup.settings import Settings
from tests.fakes.hub import FakeHub, FakeServer, FakeUser
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
SECRET, TOKEN = "hub-secret-" * 4, "service-token"
CARD = "  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n"
GPU = OfferId("gpu")
HISTORY, PAST_USERS = 20_000, 900
REPORT_EVERY = 30.0
AT_ONCE = 8
MOST_MIB = 130
COMPILED = """
import hub_extensions.hub_service.__main__ as program
program.import_hub_client()
import hub_extensions.hub_service.engine.forecasts.calculator, hub_extensions.hub_service.serve
"""


def sizes(pid: int) -> tuple[float, float, float]:
    """RSS, PSS and the highest RSS of a process, in MiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    highest = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    rss, pss = (int(re.search(rf"^{name}:\s+(\d+)", rollup, re.M).group(1)) / 1024 for name in ("Rss", "Pss"))  # type: ignore[union-attr]
    return rss, pss, int(highest.group(1)) / 1024 if highest else 0.0


def begun(command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A process whose words go into `log`."""
    with log.open("wb") as stream:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=stream)


def family(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):  # any thread may have started one
        for child in children.read_text().split():
            yield from family(int(child))


def without_others(pids: Sequence[int]) -> float:
    """The PSS that the processes would have if no other program had the same files in memory, in MiB."""
    anonymous, files = 0, dict[tuple[str, ...], int]()
    for pid in pids:
        for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text(), flags=re.M)[1:]:
            _, _, *file = mapping.partition("\n")[0].split(maxsplit=5)
            size = {name: int(kib) for name, kib in re.findall(r"^(\w+): +(\d+) kB$", mapping, re.M)}
            if len(file) == 4:  # offset, device, inode and path
                mapped = files.get(tuple(file), 0)
                files[tuple(file)] = max(mapped, size["Rss"] - size["Anonymous"])
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        anonymous += int(re.search(r"^Pss_Anon: +(\d+)", rollup, re.M).group(1))  # type: ignore[union-attr]
    return (anonymous + sum(files.values())) / 1024


def shown(what: str, pid: int) -> float:
    """Print a line for each of the service's processes. Return the PSS of all, in MiB."""
    together, pids = 0.0, list(family(pid))
    for one in pids:
        rss, pss, highest = sizes(one)
        together += pss
        command = Path(f"/proc/{one}/cmdline").read_text()
        name = "tiny parent" if one == pid else "worker" if "forecast_worker" in command else "service"
        print(f"{what:<18} {name:<11} RSS {rss:6.1f} MiB   PSS {pss:6.1f}   highest RSS {highest:6.1f}")
    own = without_others(pids)
    print(f"{what:<18} {'together':<11} {'':<16} PSS {together:6.1f}   without others {own:6.1f}", flush=True)
    return together


# ------------------------------------------------------------------ the service


def settings_of(folder: Path, hub: FakeHub, leases: int, database: str) -> Settings:
    layout = folder / "layout.yaml"
    layout.write_text('title: "Many cards"\ngpus:\n' + CARD * leases)
    return Settings(
        state_dir=str(folder / "state"),
        hub_secret=SECRET,
        api_token=TOKEN,
        port=free_port(),
        hub_api_url=hub.url,
        database_url=database,
        offers=OfferConfig(simulate=str(layout)),
        queue=QueueLimits(max_waiting=5000, max_starting=5000),
        culling=CullPolicy(enabled=True, idle=timedelta(hours=2), lifetime=timedelta(hours=12)),
    )


async def history(url: str) -> None:
    """What was used before."""
    rng, store = random.Random(16), await asyncio.to_thread(Store.open, url)
    now = datetime.now(timezone.utc)
    for first in range(0, HISTORY, 1000):
        made = []
        for n in range(first, first + 1000):
            held = rng.lognormvariate(8, 1)
            ended = now - timedelta(minutes=HISTORY - n)
            asked = ended - timedelta(seconds=held)
            record = UsageRecord(
                f"r{n}", f"u{rng.randrange(PAST_USERS)}", "", GPU, "gpu", 1000, ended, "user", held_seconds=held
            )
            made.append(replace(record, asked=asked, admitted=asked, ready=asked))
        await store.commit(Changes(usage=tuple(made)))
    store.close()


async def joined(client: GpuServiceClient, hub: FakeHub, users: Sequence[str], pid: int) -> None:
    """All ask; who is admitted is started, and ready."""
    started, turn = start_time(pid), asyncio.Semaphore(AT_ONCE)

    async def tell(ticket: str, message: Started) -> None:
        for _ in range(10):
            with suppress(ServiceAway):
                with suppress(ServiceRefused):  # an answer came too late for us, and it is ready already
                    await client.started(ticket, message)
                return

    async def one(user: str) -> None:
        async with turn:
            hub.users[user].servers[""] = FakeServer(ready=False, pending="spawn")
            status = None
            while status is None:  # the machine may have other things to do
                with suppress(ServiceAway):
                    status = await client.ask(Ask(user, "", (GPU,), {"offers": [GPU]}), patience=30.0)
            if status.answer == "admit":
                hub.users[user].servers[""] = FakeServer(state={"pid": pid})
                await tell(status.ticket, Started(status.attempt, pid, started, ready=True))

    await asyncio.gather(*map(one, users))


async def reports(url: str, users: Sequence[str], until: float) -> int:
    """Each server reports again and again; how many were answered."""
    done = 0
    body = {"opened": True, "kernels": 1, "busy_kernels": 0, "used_percent": 40.0}
    connector, limit = aiohttp.TCPConnector(limit=AT_ONCE), aiohttp.ClientTimeout(30)
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:

        async def one(number: int, user: str) -> None:
            nonlocal done
            await asyncio.sleep(REPORT_EVERY * number / len(users))
            while time.monotonic() < until:
                began = time.monotonic()
                headers = {"Authorization": f"token t-{user}"}
                with suppress(aiohttp.ClientError, asyncio.TimeoutError):
                    async with session.post(f"{url}/api/server/report", json=body, headers=headers) as answer:
                        done += answer.status == 200
                await asyncio.sleep(max(0.0, began + REPORT_EVERY - time.monotonic()))

        await asyncio.gather(*(one(*each) for each in enumerate(users)))
    return done


async def service(leases: int, waiting: int, minutes: float, database: str) -> None:
    """The figures of the service."""
    sleeper = begun(["sleep", "infinity"], os.environ, Path(os.devnull), ROOT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "state").mkdir(mode=0o700)
        async with FakeHub(TOKEN) as hub:
            users = [f"user-{n:04}" for n in range(leases + waiting)]
            # a user whom the hub does not know would be forgotten, and the history loaded again and again
            hub.users = {user: FakeUser() for user in (*users, *(f"u{n}" for n in range(PAST_USERS)))}
            hub.tokens[TOKEN] = {"kind": "service", "name": "gpu", "scopes": []}
            for user in users:
                scope = f"access:servers!server={user}/"
                hub.tokens[f"t-{user}"] = {"kind": "user", "name": user, "groups": [], "scopes": [scope]}
            settings = settings_of(folder, hub, leases, database)
            await history(settings.store_url)
            config = settings.folder / "service.json"
            settings.dump(config)
            command = [sys.executable, "-m", "hub_extensions.hub_service", "--config", str(config)]
            # an installed package is compiled, and a compilation would leave its traces in memory
            compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
            environment = {**os.environ, **compiled, "PYTHONPATH": str(ROOT)}
            await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", COMPILED], env=environment, cwd=ROOT, check=True
            )
            process = begun(command, environment, folder / "log", ROOT)
            client = GpuServiceClient(settings.url, SECRET)
            try:
                await until_up(settings.url)
                shown("nobody here", process.pid)
                await joined(client, hub, users[:leases], sleeper.pid)
                await joined(client, hub, users[leases:], sleeper.pid)
                shown(f"{leases:,} leases", process.pid)
                began, done = time.monotonic(), 0
                for minute in sorted({1.0, minutes / 2, minutes}):
                    done += await reports(settings.url, users[:leases], began + 60 * minute)
                    pss = shown(f"after {minute:g} minutes", process.pid)
                print(f"{done:,} reports answered; {'at most' if pss <= MOST_MIB else 'MORE THAN'} {MOST_MIB} MiB")
            except BaseException:
                print((folder / "log").read_text()[-3000:], file=sys.stderr)
                raise
            finally:
                await client.close()
                process.terminate()
                process.wait(30)
                sleeper.kill()
                sleeper.wait()


async def until_up(url: str) -> None:
    """It answers."""
    async with aiohttp.ClientSession() as session:
        for _ in range(300):
            with suppress(aiohttp.ClientError):
                async with session.get(f"{url}/health") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
    raise TimeoutError("the service does not answer")


# ------------------------------------------------------------------ the hub


STOCK = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.JupyterHub.spawner_class = "{spawner}"
c.Spawner.cmd = ["{python}", "-m", "jupyterhub.singleuser", "--allow-root"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers"]}}]
"""
OURS = """
from hub_extensions import configure
c.GpuOffers.simulate = "lab-a100"
c.GpuService.state_dir = "{folder}/state"
c.GpuService.port = {service_port}
configure(c)
"""


async def hub(people: int) -> None:
    """The figures of a stock hub, and of one with ours."""
    found = {}
    for what, spawner in (("stock", "simple"), ("ours", "gpu-demo")):
        with tempfile.TemporaryDirectory() as name:
            found[what] = await one_hub(Path(name), what, spawner, people)
    print(f"ours beside stock: {found['ours'] - found['stock']:+.1f} MiB")


async def one_hub(folder: Path, what: str, spawner: str, people: int) -> float:
    """One hub with so many servers; the RSS of its process."""
    port = free_port()
    values = {
        "port": port,
        "hub_port": free_port(),
        "proxy_port": free_port(),
        "service_port": free_port(),
        "folder": folder,
        "spawner": spawner,
        "python": sys.executable,
        "token": "bench-token-" * 4,
    }
    config = folder / "jupyterhub_config.py"
    config.write_text((STOCK + (OURS if what == "ours" else "")).format(**values))
    own_bin = f"{Path(sys.executable).parent}:{ROOT / 'node_modules/.bin'}:{ROOT / '.work/npm/node_modules/.bin'}"
    environment = {**os.environ, "PATH": f"{own_bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    process = begun([sys.executable, "-m", "jupyterhub", "-f", str(config)], environment, folder / "log", folder)
    try:
        headers = {"Authorization": f"token {values['token']}"}
        api = f"http://127.0.0.1:{port}/hub/api"
        async with aiohttp.ClientSession(headers=headers) as session:
            await hub_up(session, api)
            print(f"{what:<6} nobody here   RSS {sizes(process.pid)[0]:6.1f} MiB", flush=True)
            for n in range(people):
                async with session.post(f"{api}/users/person{n}") as answer:
                    assert answer.status == 201, await answer.text()
                options = {} if what == "stock" else {"offers": ["cpu"]}
                async with session.post(f"{api}/users/person{n}/server", json=options) as answer:
                    assert answer.status in (201, 202), await answer.text()
            await all_ready(session, api, people)
            for _ in range(20):  # what the pages bring into memory
                async with session.get(f"http://127.0.0.1:{port}/hub/login"):
                    pass
                async with session.get(f"{api}/users?state=active"):
                    pass
            await asyncio.sleep(30)
            rss, pss, highest = sizes(process.pid)
            print(f"{what:<6} {people} servers     RSS {rss:6.1f} MiB   PSS {pss:6.1f}   highest RSS {highest:6.1f}")
            return rss
    except BaseException:
        print((folder / "log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        everybody = list(family(process.pid))
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        for pid in everybody:
            with suppress(OSError):
                os.kill(pid, 9)


async def hub_up(session: aiohttp.ClientSession, api: str) -> None:
    """It answers through its proxy."""
    for _ in range(600):
        with suppress(aiohttp.ClientError):
            async with session.get(f"{api}/users") as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.2)
    raise TimeoutError("the hub does not answer")


async def all_ready(session: aiohttp.ClientSession, api: str, people: int) -> None:
    """So many servers run."""
    for _ in range(600):
        async with session.get(f"{api}/users?state=ready") as answer:
            if len(await answer.json()) >= people:
                return
        await asyncio.sleep(0.5)
    raise TimeoutError("the servers are not ready")


# ------------------------------------------------------------------ imports


IMPORTS = """
import importlib, os, sys
from hub_extensions.hub_service.__main__ import import_hub_client
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
print(f"{'the interpreter':<28} {rss():6.1f} MiB")
before = rss()
import_hub_client()
print(f"{'the hub client':<28} {rss() - before:+6.1f} MiB")
for name in sys.argv[1:]:
    before, modules = rss(), len(sys.modules)
    importlib.import_module(name)
    print(f"{name:<28} {rss() - before:+6.1f} MiB, {len(sys.modules) - modules} modules")
print(f"{'together':<28} {rss():6.1f} MiB")
for name in ("numpy", "jupyterhub.orm", "alembic", "aiohttp", "pydantic", "pygments", "mako", "prometheus_client"):
    print(f"{name:<28} {'imported' if name in sys.modules else 'not imported'}")
"""
PACKAGES = (
    "tornado.web",
    "jinja2",
    "yaml",
    "pydantic",
    "sqlalchemy",
    "aiohttp",
    "traitlets.config",
    "prometheus_client",
)


def imports() -> None:
    """What the service's packages add one after the other, ours last."""
    ours = ("hub_extensions.hub_service.serve", "hub_extensions.adapters.kubernetes.watch")
    command = [sys.executable, "-c", IMPORTS, *PACKAGES, *ours]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=("service", "hub", "imports"))
    arguments.add_argument("--leases", type=int, default=1000)
    arguments.add_argument("--waiting", type=int, default=200)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--database", default="", help="SQLAlchemy's address; default: an SQLite file")
    arguments.add_argument("--people", type=int, default=8)
    chosen = arguments.parse_args()
    if chosen.what == "imports":
        imports()
    elif chosen.what == "hub":
        asyncio.run(hub(chosen.people))
    else:
        asyncio.run(service(chosen.leases, chosen.waiting, chosen.minutes, chosen.database))


if __name__ == "__main__":
    main()
