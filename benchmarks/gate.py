"""What a check at the gate costs: ``python -m benchmarks.gate``.

The gate is a process of its own, the hub a fake one in this process; the checks come over connections that stay open,
as nginx keeps them (``gate_proxy.py`` is the way through nginx). What asks costs processor time too, on the same
machine: the gate's own is read from ``/proc``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hub_extensions.adapters.hub.sealed_token import seal
from hub_extensions.adapters.store.gate import GateStore, StoredSession
from hub_extensions.core.sign_on.apps import App
from hub_extensions.gate.sessions import hash_of_secret
from hub_extensions.gate.settings import GateSettings
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import PAGE, PROXY_SECRET, settings_for
from tests.ports import free_port

APPS = tuple(App(f"app{n}", f"App {n}", f"https://apps.example.org/app{n}/", "http://10.0.0.7") for n in range(20))
CONNECTIONS = 16
MANY = 20_000


def cookie_of(number: int) -> str:
    return f"{number:043d}"


def fill(settings: GateSettings, hub: GateHub, count: int, apps: Sequence[App] = APPS) -> None:
    """So many sessions in the store, each of another user, who may open these apps."""
    store, now = GateStore.open(settings.store_url), datetime.now(timezone.utc)
    for number in range(count):
        user, cookie = f"user{number}", cookie_of(number)
        hub.add_user(user, *(app.scope for app in apps), f"read:users:name!user={user}", groups=("lab", "students"))
        sealed = seal(hub.token_for(user), cookie)
        store.put(StoredSession(hash_of_secret(cookie), user, f"of-{user}", sealed, now, now))
    store.close()


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(each.split()[1]) for each in status if each.startswith("VmRSS")) / 1024


def question(number: int, app: str) -> bytes:
    sent = {"Host": "gate", "X-Gate-Proxy": PROXY_SECRET, "X-Gate-Method": "GET", "X-Gate-Uri": f"/{app}/", **PAGE}
    sent["Cookie"] = f"_xsrf=2|abc|def; __Host-gate={cookie_of(number)}; other=1"
    sent["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    lines = [f"GET /_gate/check/{app} HTTP/1.1", *(f"{key}: {value}" for key, value in sent.items())]
    return "\r\n".join((*lines, "", "")).encode()


async def ask(port: int, questions: list[bytes], until: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    place = 0
    while time.monotonic() < until:
        began = time.perf_counter()
        writer.write(questions[place % len(questions)])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head[:300]
        took.append(time.perf_counter() - began)
        place += 1
    writer.close()


async def measure(port: int, pid: int, sessions: int, seconds: float) -> None:
    """One row; before it each session is used once, which is the hub's time and not the gate's."""
    questions = [question(number % sessions, APPS[number % 20].name) for number in range(max(sessions, 20))]
    shares = [questions[place::CONNECTIONS] or questions for place in range(CONNECTIONS)]
    took: list[float] = []
    await asyncio.gather(*(ask(port, share, time.monotonic() + 2, took) for share in shares))
    took.clear()
    before, began = processor_seconds(pid), time.monotonic()
    await asyncio.gather(*(ask(port, share, began + seconds, took) for share in shares))
    spent, lasted = processor_seconds(pid) - before, time.monotonic() - began
    took.sort()
    p50, p99 = statistics.median(took) * 1000, took[int(len(took) * 0.99)] * 1000
    print(
        f"{sessions:>6} sessions, {len(APPS)} apps: {len(took) / lasted:.0f} checks/s with {CONNECTIONS} at once, "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms; {spent / len(took) * 1e6:.0f} us of the gate's processor time a check, "
        f"{len(took) / spent:.0f} a second on one core",
        flush=True,
    )


def launched(settings: GateSettings) -> subprocess.Popen[bytes]:
    file = settings.folder / "gate.json"
    settings.dump(file)
    return subprocess.Popen([sys.executable, "-m", "hub_extensions.gate", "--config", str(file)])


def gate_of(process: subprocess.Popen[bytes]) -> int:
    """The gate itself: its supervisor's child."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


async def started(settings: GateSettings) -> subprocess.Popen[bytes]:
    process = launched(settings)
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", settings.port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return process


async def run(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        async with GateHub() as hub:
            empty = 0.0
            for count in (0, 1, 50, 500, MANY):
                folder = Path(name) / str(count)
                os.mkdir(folder)
                settings = settings_for(folder, hub, catalogue=APPS, port=free_port(), cache=timedelta(seconds=60))
                fill(settings, hub, count)
                process = await started(settings)
                await asyncio.sleep(1)
                gate = gate_of(process)
                try:
                    if count in (0, MANY):
                        loaded = resident_mib(gate)
                        empty = empty or loaded
                        print(
                            f"{count:>6} sessions: {loaded:.0f} MiB resident, {loaded - empty:.0f} of them for sessions"
                        )
                    if count:
                        await measure(settings.port, gate, count, seconds)
                    if count == MANY:
                        used = resident_mib(gate)
                        print(f"{count:>6} sessions, many of them in use: {used - empty:.0f} MiB for sessions")
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each row (default: %(default)s)")
    asyncio.run(run(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
