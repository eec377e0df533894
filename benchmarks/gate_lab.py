"""Real apps, a real hub and its gate, behind real proxies: who opens what, and what one sign-out closes, in seconds.

Started is what is there: TensorBoard, MLflow, the Dask dashboard and Prometheus from `--programs` or the path, behind
nginx, Caddy, Envoy and Traefik with what ``gate config`` writes. The hub is one of the project's tests, whose form
takes any password, or whose people sign in at Keycloak (`--keycloak`), and then pgAdmin is there too
(``gate_lab_provider.py``); ada is of the group `lab`, ben of `ops`. The first table is the apps themselves, as
whoever reaches them directly finds them. The Dask dashboard has ``relay``, so that its open WebSockets end with the
session. With `--https` the apps' host has a certificate, so that the audit judges that and the cookies' flags, too.

    .work/venv/bin/python -m benchmarks.gate_lab --programs /tmp/apps/bin
    .work/venv/bin/python -m benchmarks.gate_lab --programs /tmp/apps/bin:/tmp/pgadmin/bin --keycloak /tmp/kc
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from benchmarks.gate_lab_apps import APPS, Door, RunningApp, pgadmin_of
from benchmarks.gate_lab_provider import Provider, provider_at
from hub_extensions.adapters.apps.audit_run import AuditRun
from hub_extensions.core.sign_on.audit import Outcome
from hub_extensions.gate.settings import SETTINGS_FILE, GateSettings
from tests.cluster.certificates import Authority
from tests.fakes.real_proxies import RealProxy
from tests.gate.apps_lab import HOST, WITH_AUDITOR, audit_of
from tests.gate.proxies.raw_requests import NAVIGATION, SOCKET, Answer
from tests.loop.place import THREE_SMALL, Place
from tests.machine_needs import proxy_program
from tests.patience import patient, until
from tests.ports import free_port, free_ports

LAB_PROXIES = ("nginx", "caddy", "envoy", "traefik")
CLOSE = 8
"""The frame by which a WebSocket is closed (RFC 6455)."""


def _shown(answer: Answer) -> str:
    where = answer.headers.get("location", "")
    return f"{answer.status} to the sign-in" if "/_gate/start" in where else str(answer.status)


def print_table(
    title: str,
    apps: Sequence[RunningApp],
    door_of: Callable[[RunningApp], Door],
    people: Mapping[str, Sequence[str]],
) -> None:
    """One row an app and person."""
    print(f"\n{title}\n{'app':<12} {'who':<11} {'page':<20} {'API':<8} {'POST':<8} WebSocket")
    for app in apps:
        for person, who in people.items():
            tried = {kind: _shown(ask()) for kind, ask in app.kinds(door_of(app), who).items()}
            page, api, post, opened = (tried.get(kind, "-") for kind in ("page", "API", "POST", "WebSocket"))
            print(f"{app.app.name:<12} {person:<11} {page:<20} {api:<8} {post:<8} {opened}", flush=True)


# ------------------------------------------------------------------ the hub, its gate, and a proxy

_GROUPS = """
c.JupyterHub.load_groups = {"lab": {"users": ["ada"]}, "ops": {"users": ["ben"]}}
"""
_CONFIG = """
c.SignOn.enabled = True
c.SignOnGate.enabled = True
c.SignOnGate.url = {origin!r}
c.SignOnGate.port = {gate_port}
c.SignOnGate.apps = {apps!r}
"""


@dataclass(frozen=True)
class Lab:
    """What runs before any proxy does. `provider` None: the hub's form takes any password. `certificate`, `key`:
    files, of the apps' host by https."""

    folder: Path
    place: Place
    door: Door
    apps: Sequence[RunningApp]
    provider: Provider | None
    certificate: str = ""
    key: str = ""


class LabProxy(RealProxy):
    """One proxy with the piece that the command writes for this hub's gate."""

    def __init__(self, word: str, folder: Path, lab: Lab) -> None:
        self.word, self.folder, self.kind = word, folder, word.removesuffix("-wheel")
        self.address, self.port, self._process = HOST, lab.door.port, None
        self.own_port, self._state_port = free_ports(2)
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "hub_extensions.tools.cli", "gate", "config", self.kind]
        options = ["--config", str(lab.place.state / SETTINGS_FILE), "--listen", HOST, "-o", str(folder / "piece")]
        options += ["--certificate", lab.certificate, "--key", lab.key] if lab.door.tls else []
        subprocess.run([*command, *options], check=True, timeout=patient(60))
        self.text = (folder / "piece").read_text()
        if lab.door.tls and self.kind == "traefik":  # whose certificates stand beside the piece
            self.text += f"tls: {{certificates: [{{certFile: {lab.certificate}, keyFile: {lab.key}}}]}}\n"


class Person:
    """Somebody who signs in once, and opens what he may."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.place, self.name, self._provider = lab.place, name, lab.provider
        hub = lab.place.hub
        self.browser = hub.login(name) if lab.provider is None else lab.provider.sign_in(hub, name)
        self._origin, self.sign_out_seconds = lab.door.origin, 0.0

    def open_all(self, apps: Sequence[RunningApp]) -> int:
        """As a browser does; how many forms were filled in for it: the hub's alone, before."""
        opened = 0
        for app in apps:
            if app.app.asks_provider and self._provider is not None:
                self._provider.open_pgadmin(self.browser, f"{self._origin}{app.path}")
            address = f"{self._origin}{app.path}{app.app.page}"
            sent = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept": "text/html"}
            opened += self.browser.get(address, headers=sent, timeout=patient(60)).status_code == 200
        return opened

    @property
    def headers(self) -> tuple[str, ...]:
        """Of this browser at the apps' host."""
        pairs = self.browser.cookies.get_dict(HOST).items()
        cookies = "; ".join(f"{name}={value}" for name, value in pairs)
        return (
            f"Cookie: {cookies}",
            "Sec-Fetch-Site: same-origin",
            f"User-Agent: {self.browser.headers['User-Agent']}",
        )

    def sign_out(self) -> None:
        """At the hub."""
        began = time.monotonic()
        self.browser.get(f"{self.place.hub.url}/hub/logout", timeout=patient(60))
        self.sign_out_seconds = time.monotonic() - began


def open_socket(app: RunningApp, door: Door, who: Sequence[str]) -> socket.socket | None:
    """A WebSocket that stays open, as the app's own page opens it; None: it did not open.

    Bokeh closes at once what does not bring the token of a page of its own.
    """
    page = door.ask(app.path + app.app.page, (*NAVIGATION, *who)).body.decode("utf-8", "replace")
    token = re.search(r'"token":\s*"([^"]+)"', page)
    protocols = f"bokeh, {token[1]}" if token else "bokeh"
    lines = [f"GET {app.path}{app.app.socket} HTTP/1.1", f"Host: {door.address}:{door.port}", *SOCKET, *who]
    lines += [f"Sec-WebSocket-Protocol: {protocols}", f"Origin: {door.origin}", "", ""]
    connection = door.connect()
    connection.sendall("\r\n".join(lines).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n") and (letter := connection.recv(1)):
        head += letter
    return connection if b" 101 " in head else None


def frame_of(file: BinaryIO) -> int | None:
    """The kind of the next frame of a server; None: the connection is gone."""
    head = file.read(2)
    if len(head) < 2:
        return None
    length = head[1] & 127
    if length > 125:
        length = int.from_bytes(file.read(2 if length == 126 else 8), "big")
    file.read(length)
    return head[0] & 15


def print_sign_out(ada: Person, apps: Sequence[RunningApp], door: Door) -> None:
    """Seconds from the click until the last request for each thing was sent that was still let in; what an app takes to
    answer it is not the gate's. Of an open WebSocket, until it was closed."""
    who = ada.headers
    asks = {
        (app.app.name, kind): ask
        for app in apps
        for kind, ask in app.kinds(door, who).items()
        if kind != "POST" and ask().status in (101, 200)
    }
    held = [(app, open_socket(app, door, who)) for app in apps if app.app.socket]
    closed: dict[tuple[str, str], float] = {}
    began = time.monotonic()

    def wait_for_end(app: RunningApp, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as file:
            while frame_of(file) not in (CLOSE, None):
                pass
            closed[app.app.name, "an open WebSocket"] = time.monotonic() - began

    def look_until_closed(key: tuple[str, str], ask: Callable[[], Answer]) -> None:
        last = 0.0
        while time.monotonic() - began < patient(60):
            sent = time.monotonic() - began
            if ask().status not in (101, 200):
                closed[key] = last
                return
            last = sent

    threads = [Thread(target=wait_for_end, args=each) for each in held if each[1] is not None]
    threads += [Thread(target=look_until_closed, args=each) for each in asks.items()]  # one app is slower than another
    for thread in (*threads, clicks := Thread(target=ada.sign_out)):
        thread.start()
    clicks.join()
    print(f"(the hub's own answer took {ada.sign_out_seconds:.2f} s, load {os.getloadavg()[0]:.1f})")
    for thread in threads:
        thread.join(patient(10))
    for key in [*asks, *((app.app.name, "an open WebSocket") for app, found in held if found is not None)]:
        print(f"{key[0]:<12} {key[1]:<18} {f'{closed[key]:.2f} s' if key in closed else 'still open'}", flush=True)


def print_audit(lab: Lab) -> None:
    """What ``gate audit`` says of them: how many results, each that is open, and why each other was not tried."""
    settings = GateSettings.load(lab.place.state / SETTINGS_FILE)
    more = {"cookie_name": "__Host-gate"} if lab.door.tls else {}
    results = asyncio.run(AuditRun(audit_of(settings, *(app.app.name for app in lab.apps), **more)).results())
    count = Counter(result.outcome.value for result in results)
    print(f"audit: {', '.join(f'{count[each]} {each}' for each in ('open', 'safe', 'not tried'))}", flush=True)
    for result in results:
        if result.outcome is Outcome.OPEN:
            print(f"  {result.case} {result.app}: {result.tried}: {result.came_back}", flush=True)
    untried: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        if result.outcome is Outcome.NOT_TRIED:
            why = (
                result.advice if result.came_back[:1].isdigit() else result.came_back
            )  # a bare answer does not say why
            untried.setdefault((result.case, result.tried, why), []).append(result.app)
    for (case, tried, why), names in untried.items():
        print(f"  not tried: {case} {', '.join(names)}: {tried}: {why}", flush=True)


def behind(lab: Lab, word: str, audits: bool) -> None:
    """This proxy before the apps: who opens what, and a sign-out."""
    apps, door = lab.apps, lab.door
    proxy = LabProxy(word, lab.folder / word, lab)
    try:
        proxy.start()
        until(lambda: door.ask("/_gate/health").status == 200, 60, "the gate answers")
        ada, ben = (Person(lab, name) for name in ("ada", "ben"))
        opened = {"ada": ada.open_all(apps), "ben": ben.open_all(apps)}
        people: Mapping[str, Sequence[str]] = {"a stranger": (), "ada (lab)": ada.headers, "ben (ops)": ben.headers}
        title = f"Behind {word}, one login each: {', '.join(f'{who} opens {n} apps' for who, n in opened.items())}"
        print_table(title, apps, lambda _: door, people)
        for person in (ada, ben):
            print(f"\nBehind {word}, from {person.name}'s sign-out at the hub until nothing was let in any more")
            print_sign_out(person, apps, door)
            if person is ada:
                still = sum(app.kinds(door, ben.headers)["page"]().status == 200 for app in apps)
                print(f"ben still opens {still}")
        if audits:
            print_audit(lab)
    finally:
        proxy.stop()


def started(path: str, folder: Path, provider: Provider | None, stack: ExitStack) -> list[RunningApp]:
    """Those whose program is there."""
    apps = []
    port = free_port()
    for app in (*APPS, *([pgadmin_of(provider, port, folder)] if provider is not None else [])):
        if program := shutil.which(app.words[0], path=path):
            apps.append(RunningApp(app, program, folder, port if app.asks_provider else 0))
        else:
            print(f"not started: {app.name} ({app.words[0]} is not on the path)")
    for running in apps:
        stack.enter_context(running.running())
    return apps


def certificates(folder: Path) -> tuple[str, str]:
    """Certificate and key of the apps' host, and their authority, which this process takes for its machine's own."""
    authority = Authority(folder, "the lab's own")
    certificate, key = authority.issue("apps", HOST, addresses=[HOST])
    os.environ |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(authority.certificate))
    return str(certificate), str(key)


def hub_of(folder: Path, origin: str, apps: Sequence[RunningApp], provider: Provider | None) -> Place:
    """It starts the gate, and is not started yet."""
    entries = {app.app.name: app.entry(origin) for app in apps}
    config = WITH_AUDITOR + _CONFIG.format(origin=origin, gate_port=free_port(), apps=entries)
    if provider is None:
        return Place(folder / "hub", layout=THREE_SMALL, config=_GROUPS + config, lab=False)
    place = Place(folder / "hub", layout=THREE_SMALL, config=provider.hub_config() + config, lab=False)
    place.hub._env |= provider.hub_environment
    provider.make_realm(place.hub, origin)
    return place


def main(words: Sequence[str]) -> None:
    """Start what is there, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="folders with programs of apps, before those on the path")
    parser.add_argument("--keycloak", type=Path, help="an unpacked and built Keycloak, where people sign in then")
    parser.add_argument("--audit", action="store_true", help="audit each proxy, too")
    parser.add_argument("--https", action="store_true", help="the apps' host by https, of an authority made for it")
    parser.add_argument("--proxy", dest="proxies", action="append", choices=LAB_PROXIES, help="repeated; else all")
    options = parser.parse_args(words)
    path = os.pathsep.join(filter(None, (options.programs, os.environ.get("PATH"))))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate-lab-")))
        provider = stack.enter_context(provider_at(options.keycloak, folder))
        apps = started(path, folder, provider, stack)
        print(f"load {os.getloadavg()[0]:.1f}")
        print_table("The apps themselves, without a gate", apps, lambda app: app.own_door, {"a stranger": ()})
        files = certificates(folder / "tls") if options.https else ("", "")
        door = Door(HOST, free_port(HOST), ssl.create_default_context() if options.https else None)
        place = stack.enter_context(hub_of(folder, door.origin, apps, provider).open())
        for word in options.proxies or LAB_PROXIES:
            if proxy_program(word):
                behind(Lab(folder, place, door, apps, provider, *files), word, options.audit)
            else:
                print(f"\nnot started: {word}")


if __name__ == "__main__":
    main(sys.argv[1:])
