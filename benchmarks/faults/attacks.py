"""Strangers who want the service's files, memory and time: ``python -m benchmarks.faults.attacks``.

A real service over simulated GPUs, a hub that knows some tokens, attackers in processes of their own, and one process
that asks the hub's and a server's routes all the while, as these do: a new connection for each question. Printed are
their p95 quiet and under each attack, in one run, the service's memory at its highest, and the lines in its log.
Bounded, and on the loopback only. With `--through-proxy` the strangers come by a real configurable-http-proxy, and a
server's route is asked by it too, as pods do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import latency_row, quantile
from hub_extensions.adapters.service.signer import ATTEMPTS, Signer
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.signing import ANSWER_HEADER
from hub_extensions.hub_service.setup.settings import Settings
from tests.fakes.hub_of_tokens import ACCESS, SERVICE_TOKEN, HubOfTokens
from tests.fakes.proxy import Proxy
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hub-secret-" * 4
SERVER_TOKEN = "a-servers-own-token"
PREFIX = "/services/gpu/"
PAUSE_SECONDS = 0.02
PROBE_SECONDS = 10.0
FILES_BEFORE = 1024
"""The soft limit that most systems give a process."""
WORKERS = 2

Attack = Callable[[int, int, float, float], None]


# ------------------------------------------------------------------ attackers, each in a process of its own


def half_sent(port: int, count: int, rate: float, until: float) -> None:
    """Requests whose bodies never come; each is held as long as the service lets it."""
    hold(port, count, rate, until, f"POST {PREFIX}leave HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")


def half_headers(port: int, count: int, rate: float, until: float) -> None:
    """Requests whose lines never end."""
    hold(port, count, rate, until, f"GET {PREFIX} HTTP/1.1\r\nHost: x\r\n")


def websockets(port: int, count: int, rate: float, until: float) -> None:
    """WebSockets that say nothing."""
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    ask = f"GET {PREFIX} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n"
    hold(port, count, rate, until, ask)


def slow_readers(port: int, count: int, rate: float, until: float) -> None:
    """A user's token, many questions in a row, and no answer is read."""
    ask = f"GET {PREFIX}api/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada-token\r\n\r\n"
    hold(port, count, rate, until, ask * 100, receive_bytes=4096)


def large_bodies(port: int, count: int, rate: float, until: float) -> None:
    """Bodies of 1 MB but for the last byte."""
    head = f"POST {PREFIX}leave HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    hold(port, count, rate, until, head + "x" * 999_999)


def unknown_tokens(port: int, count: int, rate: float, until: float) -> None:
    """Tokens that nobody has, each another one, at the routes of users' servers and of people."""
    text = f"GET {PREFIX}api/{{}} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer made-up-{{}}-{{}}\r\n\r\n"
    hold(port, count, rate, until, "", lambda n: text.format(("server", "offers")[n % 2], os.getpid(), n))


def hold(
    port: int,
    count: int,
    rate: float,
    until: float,
    text: str,
    text_of: Callable[[int], str] | None = None,
    receive_bytes: int = 0,
) -> None:
    """Open so many connections, so many a second, send the text, read nothing, and hold all until then."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[socket.socket] = []
    sent = text.encode()
    began = time.time()
    for number in range(count):
        if time.time() > until:
            break
        if (ahead := began + number / rate - time.time()) > 0:
            time.sleep(ahead)
        one = socket.socket()
        if receive_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        one.settimeout(0.2)
        with contextlib.suppress(OSError):
            one.connect(("127.0.0.1", port))
            one.setblocking(False)
            held.append(one)
            one.send(text_of(number).encode() if text_of else sent)
    time.sleep(max(0.0, until - time.time()))


@dataclass(frozen=True)
class Plan:
    """One attack: how many connections in all, and how many of them a second."""

    name: str
    attack: Attack
    count: int
    rate: float


# ------------------------------------------------------------------ who asks meanwhile


@dataclass
class Asked:
    """What the hub and a server had to wait for, in seconds; `lost` got no answer, or another one.

    `processor`: of the service, 1 is one that it had all the time.
    """

    waited: dict[str, list[float]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    processor: float = 0.0


def ask_all_the_while(service_port: int, proxy_port: int | None, until: float, answers: Any) -> None:
    """The hub's form and a server's state, in turn, each by a connection of its own."""
    ways: dict[str, tuple[int, str, Signer | str]] = {
        "hub": (service_port, "hub/form?user=ada", Signer(SECRET)),
        "server": (service_port, "api/server", SERVER_TOKEN),
    }
    if proxy_port is not None:
        ways["server by the proxy"] = (proxy_port, "api/server", SERVER_TOKEN)
    asked = Asked({name: [] for name in ways}, dict.fromkeys(ways, 0))
    while time.time() < until:
        for name, (port, path, token) in ways.items():
            began = time.perf_counter()
            if answered(port, path, token):
                asked.waited[name].append(time.perf_counter() - began)
            else:
                asked.lost[name] += 1
            time.sleep(PAUSE_SECONDS)
    answers.put(asked)


def answered(port: int, path: str, token: Signer | str) -> bool:
    """It was answered by the route itself: the service knows no server "ada", and says so."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_SECONDS)
    try:
        if isinstance(token, str):
            connection.request("GET", PREFIX + path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            return answer.status in (200, 404)
        for _ in range(ATTEMPTS):
            outgoing = token.sign("GET", PREFIX + path)
            connection.request("GET", PREFIX + path, headers=outgoing.headers)
            answer = connection.getresponse()
            if outgoing.verify(answer.status, answer.read(), answer.getheader(ANSWER_HEADER)):
                return answer.status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return False


# ------------------------------------------------------------------ the service and its hub


def run_hub(told: Any) -> None:
    """A hub that knows the tokens of a server and a user; ends with its starter."""

    async def serve() -> None:
        hub = HubOfTokens()
        hub.add_user("ada")
        hub.add_token("ada-token", "ada", ACCESS)
        hub.add_token(SERVER_TOKEN, "ada", "access:servers!server=ada/", ACCESS)
        hub.start()
        told.put((hub.url, SERVICE_TOKEN))
        await asyncio.Event().wait()

    asyncio.run(serve())


class Service:
    """The real one, in a process of its own with the usual limit of open files."""

    def __init__(self, folder: Path, hub_url: str, token: str) -> None:
        self.settings = Settings(
            state_dir=str(folder),
            hub_secret=SECRET,
            api_token=token,
            port=free_port(),
            offers=OfferConfig(simulate="lab-a100"),
            hub_api_url=hub_url,
        )
        self.settings.dump(folder / "service.json")
        self.log_file = folder / "service.log"
        command = [sys.executable, "-m", "hub_extensions.hub_service", "--config", str(folder / "service.json")]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", f'ulimit -Sn {FILES_BEFORE}; exec "$@"', "sh", *command],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stderr=log,
            )

    def wait(self) -> None:
        """Until it answers."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.settings.url}/health", timeout=5) as said:
                if json.load(said)["ready"]:
                    return
            time.sleep(0.1)
        raise TimeoutError(self.log_file.read_text()[-2000:])

    def memory_mb(self) -> float:
        """Its memory at its highest, in MB."""
        pid = (self.settings.folder / "service.lock").read_text().strip()
        status = Path(f"/proc/{pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024 / 1e6

    def processor_seconds(self) -> float:
        """How long it has had a processor."""
        pid = (self.settings.folder / "service.lock").read_text().strip()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def lines(self) -> int:
        """How many lines its log has."""
        return self.log_file.read_bytes().count(b"\n")


@contextmanager
def running_service(through_proxy: bool) -> Iterator[tuple[Service, int | None]]:
    """Hub and service, and the port of a proxy that leads to it."""
    told: Any = multiprocessing.Queue()
    hub = multiprocessing.Process(target=run_hub, args=(told,), daemon=True)
    hub.start()
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), *told.get(timeout=30))
        try:
            service.wait()
            if not through_proxy:
                yield service, None
                return
            with Proxy(Path(folder), {PREFIX.rstrip("/"): service.settings.origin}) as proxy:
                yield service, proxy.port
        finally:
            service.process.terminate()
            service.process.wait(30)
            hub.terminate()


# ------------------------------------------------------------------ one phase, and all of them


def phase(service: Service, proxy_port: int | None, plan: Plan | None, seconds: float) -> Asked:
    """Ask for so long, while the attack runs."""
    port, until, used = service.settings.port, time.time() + seconds, service.processor_seconds()
    answers: Any = multiprocessing.Queue()
    programs = [multiprocessing.Process(target=ask_all_the_while, args=(port, proxy_port, until, answers), daemon=True)]
    if plan is not None:
        share = (plan.count // WORKERS, plan.rate / WORKERS)
        attackers = [(plan.attack, (proxy_port or port, *share, until)) for _ in range(WORKERS)]
        programs += [multiprocessing.Process(target=attack, args=given, daemon=True) for attack, given in attackers]
    for program in programs:
        program.start()
    asked: Asked = answers.get(timeout=seconds + 60)
    for program in programs:
        program.join(30)
    asked.processor = (service.processor_seconds() - used) / seconds
    return asked


def main() -> None:
    """Quiet, then each attack, then quiet again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0, help="each phase (default: %(default)s)")
    parser.add_argument("--share", type=float, default=1.0, help="of every attack's size (default: all)")
    parser.add_argument("--only", help="attacks whose name has this word")
    parser.add_argument("--through-proxy", action="store_true", help="strangers come by a configurable-http-proxy")
    options = parser.parse_args()
    plans = [
        Plan("20,000 requests without their bodies", half_sent, 20_000, 1000.0),
        Plan("20,000 requests without an end", half_headers, 20_000, 1000.0),
        Plan("500 slow readers", slow_readers, 500, 100.0),
        Plan("300 bodies of 1 MB", large_bodies, 300, 100.0),
        Plan("5,000 idle WebSockets", websockets, 5_000, 500.0),
        Plan("10,000 unknown tokens", unknown_tokens, 10_000, 500.0),
    ]
    plans = [plan for plan in plans if not options.only or options.only in plan.name]
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; each phase {options.seconds:g} s")
    with running_service(options.through_proxy) as (service, proxy_port):
        lines = service.lines()
        quiet = phase(service, proxy_port, None, options.seconds)
        report("quiet", quiet, None, service)
        for plan in plans:
            attack = Plan(plan.name, plan.attack, int(plan.count * options.share), plan.rate)
            report(plan.name, phase(service, proxy_port, attack, options.seconds), quiet, service)
        report("quiet again", phase(service, proxy_port, None, options.seconds), quiet, service)
        print(f"memory at its highest {service.memory_mb():.0f} MB, log {service.lines() - lines} lines")


def report(name: str, asked: Asked, quiet: Asked | None, service: Service) -> None:
    """A line for each of the two who ask."""
    for who, waited in asked.waited.items():
        more = f"   lost {asked.lost[who]}" if asked.lost[who] else ""
        if not waited:
            print(f"{name}: {who}'s route: no answer at all{more}")
            continue
        if quiet is not None and quiet.waited[who]:
            more += f"   {quantile(waited, 0.95) / quantile(quiet.waited[who], 0.95):.1f} times quiet"
        print(latency_row(f"{name}: {who}'s route", waited) + more)
    print(
        f"    processor {asked.processor:.2f}, memory {service.memory_mb():.0f} MB, log {service.lines()} lines",
        flush=True,
    )


if __name__ == "__main__":
    main()
