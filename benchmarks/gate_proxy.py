"""What the gate costs behind nginx, beside nginx alone: ``python -m benchmarks.gate_proxy``.

An app of 2 kB, which nginx itself serves, in three ways in one run: without a check, with a check that nginx answers
itself (the floor: no gate can be faster), and with the gate by the configuration that ``gate config nginx`` writes.
With ``--oauth2-proxy FILE`` that program is asked as well, whose sessions are in its cookies.
What asks runs on the same cores, so the ratio to the floor is worth more than the times; the load is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import os
import resource
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import requests
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketHandler

from benchmarks.gate import cookie_of, fill, gate_of, launched, processor_seconds, resident_mib
from hub_extensions.core.sign_on.apps import App
from hub_extensions.gate.settings import GateSettings
from hub_extensions.tools.gate_config.render import ProxySettings, render
from tests.fakes.apps_host import SECRET
from tests.fakes.gate_hub import GateHub
from tests.fakes.real_proxies import NGINX
from tests.gate.gate_browser import settings_for
from tests.machine_needs import proxy_program
from tests.patience import until
from tests.ports import free_ports

APPS, CONNECTIONS, RATE, PAGE_REQUESTS, OF_A_BROWSER, SOCKETS, AT_ONCE = 20, 16, 300, 60, 6, 1000, 100
WAYS = ("without a check", "the floor", "the gate", "oauth2-proxy")
_AROUND = """
server {{
    listen 127.0.0.1:{app};
    default_type text/html;
    location / {{ return 200 "{body}"; }}
}}
server {{
    listen 127.0.0.1:{plain};
    location /plain/ {{ proxy_pass http://127.0.0.1:{app}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    location = /floor-check {{ internal; return 204; }}
    location /floor/ {{
        auth_request /floor-check;
        proxy_pass http://127.0.0.1:{app}; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
    location = /other-check {{
        internal;
        proxy_pass http://other/oauth2/auth; proxy_http_version 1.1; proxy_set_header Connection "";
        proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_set_header Host $host;
    }}
    location /other/ {{
        auth_request /other-check;
        auth_request_set $who $upstream_http_x_auth_request_user; proxy_set_header X-Auth-Request-User $who;
        proxy_pass http://127.0.0.1:{app}; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
}}
upstream other {{ server 127.0.0.1:{other}; keepalive 32; }}
"""


class IdleSocket(WebSocketHandler):
    """It says nothing."""

    def open(self) -> None:
        """See the class."""


class Behind:
    """nginx before the app, and the gate beside it. `ways`: what of `WAYS` is asked how."""

    def __init__(self, folder: Path, hub: GateHub, sessions: int, cache: timedelta, other: str) -> None:
        self.folder, self.sessions = folder, sessions
        app, self.plain, self.port, gate_port, self.socket_port, other_port = free_ports(6)
        self.other = OAuth2Proxy(other, other_port, folder, sessions) if other else None
        self.ways = WAYS if other else WAYS[:-1]
        url = f"http://127.0.0.1:{self.port}"
        names = [f"app{number}" for number in range(APPS)]
        at = dict.fromkeys(names, f"http://127.0.0.1:{app}") | {"sockets": f"http://127.0.0.1:{self.socket_port}"}
        self.apps = tuple(App(name, name, f"{url}/{name}/", upstream) for name, upstream in at.items())
        about = {"url": url, "catalogue": self.apps, "port": gate_port, "cache": cache, "proxy_secret": SECRET}
        self.settings: GateSettings = settings_for(folder, hub, **about)
        fill(self.settings, hub, sessions, self.apps)
        piece = ProxySettings(url, SECRET, gate=f"http://127.0.0.1:{gate_port}", listen="127.0.0.1")
        text = render("nginx", self.apps, piece) + _AROUND.format(
            app=app, plain=self.plain, other=other_port, body="x" * 2048
        )
        (folder / "apps.conf").write_text(text)
        main = NGINX.format(folder=folder).replace("events { }", "events { worker_connections 8192; }")
        (folder / "nginx.conf").write_text(main.replace("access_log", "keepalive_requests 1000000; access_log"))
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Behind:
        program = proxy_program("nginx")
        assert program is not None, "no nginx"
        words = [program, "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)]
        self._processes = [launched(self.settings), subprocess.Popen([*words, "-e", str(self.folder / "error.log")])]
        if self.other is not None:
            self._processes.append(self.other.start())
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
            process.wait()

    @property
    def gate(self) -> int:
        """Its process id."""
        return gate_of(self._processes[0])

    def request(self, way: str, number: int) -> tuple[int, bytes]:
        """Port and bytes of the request with this number."""
        path = {WAYS[0]: "/plain/x", WAYS[1]: "/floor/x", WAYS[3]: "/other/x"}.get(way, f"/app{number % APPS}/x")
        port, session = self.port if way == WAYS[2] else self.plain, number % self.sessions
        other = self.other.cookies[session] if self.other is not None and way == WAYS[3] else ""
        return port, asked(port, path, session, cookie=other)

    def spent(self, way: str) -> float:
        """Processor seconds of who is asked."""
        pid = self.other.process.pid if self.other is not None and way == WAYS[3] else self.gate
        return processor_seconds(pid)


class OAuth2Proxy:
    """The program, with people of a password file, so that it needs no provider; each check opens a cookie."""

    def __init__(self, program: str, port: int, folder: Path, sessions: int) -> None:
        self._port, people = port, folder / "people"
        digest = base64.b64encode(hashlib.sha1(b"pass", usedforsecurity=False).digest()).decode()
        people.write_text("".join(f"user{number}:{{SHA}}{digest}\n" for number in range(sessions)))
        self._count, self.cookies = sessions, list[str]()
        told = {
            "http-address": f"127.0.0.1:{port}",
            "provider": "github",
            "client-id": "x",
            "client-secret": "y",
            "cookie-secret": "0123456789abcdef0123456789abcdef",
            "cookie-secure": "false",
            "email-domain": "*",
            "upstream": "static://202",
            "htpasswd-file": str(people),
            "set-xauthrequest": "true",
            "reverse-proxy": "true",
            **{f"{kind}-logging": "false" for kind in ("request", "auth", "standard")},
        }
        self._words = [program, *(f"--{name}={value}" for name, value in told.items())]

    def start(self) -> subprocess.Popen[bytes]:
        """It answers, and everybody has a cookie."""
        self.process = subprocess.Popen(self._words)
        until(lambda: _listens(self._port), 30)
        address = f"http://127.0.0.1:{self._port}/oauth2/sign_in"
        for number in range(self._count):
            form = {"username": f"user{number}", "password": "pass"}
            answer = requests.post(address, data=form, allow_redirects=False, timeout=30)
            self.cookies.append(f"_oauth2_proxy={answer.cookies['_oauth2_proxy']}")
        return self.process


def asked(port: int, path: str, session: int, *more: str, cookie: str = "") -> bytes:
    """As a browser asks. `cookie`: of another kind of session."""
    cookie = cookie or f"gate-without-https={cookie_of(session)}"
    lines = [
        *(f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: text/html", "Accept-Language: en"),
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        f"Cookie: _xsrf=2|abc|def; {cookie}; other=1",
        *("Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", *more),
    ]
    return "\r\n".join((*lines, "", "")).encode()


class Caller:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, raw: bytes) -> None:
        """One request, and its answer whole."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(raw)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head[:300]
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def as_fast_as_it_goes(behind: Behind, way: str, seconds: float) -> list[float]:
    """What each request took, of `CONNECTIONS` that ask again at once."""
    took: list[float] = []
    ends = time.monotonic() + seconds

    async def one(place: int) -> None:
        number = place
        caller = Caller(behind.request(way, 0)[0])
        while time.monotonic() < ends:
            raw = behind.request(way, number)[1]
            began = time.perf_counter()
            await caller.ask(raw)
            took.append(time.perf_counter() - began)
            number += CONNECTIONS
        caller.close()

    await asyncio.gather(*map(one, range(CONNECTIONS)))
    return took


async def at_a_rate(behind: Behind, way: str, seconds: float) -> list[float]:
    """What each of `RATE` a second took, from when it was due: one that is late is not forgiven."""
    took: list[float] = []
    idle = [Caller(behind.request(way, 0)[0]) for _ in range(64)]
    room = asyncio.Semaphore(len(idle))
    began = time.perf_counter()

    async def one(number: int, due: float) -> None:
        async with room:
            caller = idle.pop()
            try:
                await caller.ask(behind.request(way, number)[1])
            finally:
                idle.append(caller)
        took.append(time.perf_counter() - due)

    tasks = []
    for number in range(int(RATE * seconds)):
        due = began + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(one(number, due)))
    await asyncio.gather(*tasks)
    for caller in idle:
        caller.close()
    return took


async def a_page(behind: Behind, way: str) -> float:
    """Milliseconds for a page of `PAGE_REQUESTS`, over as many connections as a browser opens."""
    began = time.perf_counter()

    async def some(place: int) -> None:
        caller = Caller(behind.request(way, 0)[0])
        for number in range(place, PAGE_REQUESTS, OF_A_BROWSER):
            await caller.ask(behind.request(way, number * APPS)[1])  # of one app
        caller.close()

    await asyncio.gather(*map(some, range(OF_A_BROWSER)))
    return (time.perf_counter() - began) * 1000


def p(took: Sequence[float], share: float) -> float:
    """In milliseconds."""
    return sorted(took)[int(len(took) * share)] * 1000


async def print_speed(behind: Behind, seconds: float) -> None:
    """A row a way. Before it each session is used once, which is the hub's time and not the gate's."""
    warm = Caller(behind.port)
    for number in range(max(behind.sessions, APPS)):
        await warm.ask(behind.request(WAYS[2], number)[1])
    warm.close()
    rows = {}
    for way in behind.ways:
        before, began = behind.spent(way), time.monotonic()
        took = await as_fast_as_it_goes(behind, way, seconds)
        rows[way] = took, len(took) / (time.monotonic() - began), behind.spent(way) - before
    for way, (took, rate, spent) in rows.items():
        cost = f"; {spent / len(took) * 1e6:.0f} us of its processor time a check" if way in WAYS[2:] else ""
        print(
            f"{behind.sessions:>4} sessions, {way:<15}: {rate:6.0f} requests/s, p50 {p(took, 0.5):.1f} ms, "
            f"p99 {p(took, 0.99):.1f} ms, {rate / rows[WAYS[1]][1]:.2f} of the floor's rate{cost}",
            flush=True,
        )


async def print_at_rate(behind: Behind, seconds: float) -> None:
    """p99 at `RATE` a second, the ways by turns, so that what else the machine does meets each."""
    took: dict[str, list[float]] = {way: [] for way in behind.ways}
    for _ in range(4):
        for way in behind.ways:
            took[way] += await at_a_rate(behind, way, seconds / 2)
    floor = p(took[WAYS[1]], 0.99)
    for way in behind.ways:
        p99 = p(took[way], 0.99)
        print(
            f"{RATE} a second, {way:<15}: p50 {p(took[way], 0.5):.1f} ms, p99 {p99:.1f} ms, {p99 - floor:+.1f} ms to "
            "the floor",
            flush=True,
        )
    if behind.other is not None:
        ratio = p(took[WAYS[2]], 0.99) / p(took[WAYS[3]], 0.99)
        print(f"{RATE} a second: p99 of the gate is {ratio:.2f} of oauth2-proxy's", flush=True)


async def print_pages(behind: Behind, rounds: int = 30) -> None:
    """By turns, too."""
    took: dict[str, list[float]] = {way: [] for way in behind.ways}
    for _ in range(rounds):
        for way in behind.ways:
            took[way].append(await a_page(behind, way))
    plain = statistics.median(took[WAYS[0]])
    for way in behind.ways:
        each = statistics.median(took[way])
        print(f"a page of {PAGE_REQUESTS} requests, {way:<15}: {each:.0f} ms, {each - plain:+.0f} ms", flush=True)


async def print_sockets(behind: Behind, seconds: float) -> None:
    """What WebSockets that are open and say nothing cost the gate."""
    server = HTTPServer(Application([(r"/.*", IdleSocket)], log_function=lambda handler: None))
    server.add_sockets(bind_sockets(behind.socket_port, "127.0.0.1"))
    upgrade = (
        *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
        *("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", f"Origin: http://127.0.0.1:{behind.port}"),
    )
    before, opened = resident_mib(behind.gate), []
    for number in range(SOCKETS):
        reader, writer = await asyncio.open_connection("127.0.0.1", behind.port)
        writer.write(asked(behind.port, "/sockets/", number % behind.sessions, *upgrade))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head[:300]
        opened.append(writer)
    spent = processor_seconds(behind.gate)
    await asyncio.sleep(seconds)
    spent = processor_seconds(behind.gate) - spent
    more, files = resident_mib(behind.gate) - before, len(os.listdir(f"/proc/{behind.gate}/fd"))
    print(
        f"{SOCKETS} idle WebSockets: {spent / seconds * 100:.2f} % of a core and {more:.1f} MiB of the gate, "
        f"{files} files open in it",
        flush=True,
    )
    for writer in opened:
        writer.close()
    server.stop()
    await server.close_all_connections()


async def print_hub_calls(behind: Behind, hub: GateHub) -> None:
    """So many requests of one session at once, when nothing is known of it any more."""
    before = hub.asked["user"]
    callers = [Caller(behind.port) for _ in range(AT_ONCE)]
    await asyncio.gather(*(caller.ask(behind.request(WAYS[2], 0)[1]) for caller in callers))
    print(f"{AT_ONCE} requests of one session at once: {hub.asked['user'] - before} calls of the hub", flush=True)
    for caller in callers:
        caller.close()


async def with_sessions(count: int, seconds: float, other: str, *parts: Callable[[Behind], object]) -> None:
    """Start all, with so many sessions, and print the parts."""
    with tempfile.TemporaryDirectory() as name:
        async with GateHub() as hub:
            os.chmod(name, 0o755)
            with Behind(Path(name), hub, count, timedelta(seconds=60), other) as behind:
                await asyncio.to_thread(until, lambda: _listens(behind.port) and _listens(behind.settings.port), 60)
                if not parts:
                    await print_hub_calls(behind, hub)
                await print_speed(behind, seconds)
                for part in parts:
                    await part(behind)  # type: ignore[misc]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def run(seconds: float, other: str) -> None:
    """All of it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    await with_sessions(1, seconds, other)
    await with_sessions(50, seconds, other, lambda behind: print_at_rate(behind, seconds), print_pages)
    await with_sessions(500, seconds, other, lambda behind: print_sockets(behind, seconds))
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row (default: %(default)s)")
    parser.add_argument("--oauth2-proxy", metavar="FILE", default="", help="its program, to put beside the gate")
    given = parser.parse_args()
    asyncio.run(run(given.seconds, given.oauth2_proxy))


if __name__ == "__main__":
    main()
