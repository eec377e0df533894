"""A gate in this process before a fake hub, and what browsers and proxies send it, byte for byte."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.testing import bind_unused_port

from hub_extensions.adapters.hub.hub_sign_in import HubAddresses, HubSignIn
from hub_extensions.adapters.provider.assertions import AssertionSigner
from hub_extensions.adapters.store.gate import GateStore
from hub_extensions.core.sign_on.apps import App
from hub_extensions.gate.gate import SECURE_COOKIE, Gate, session_limits
from hub_extensions.gate.keys import keys_of
from hub_extensions.gate.server import make_server
from hub_extensions.gate.sessions import GateSessions
from hub_extensions.gate.settings import GateSettings
from tests.fakes.gate_hub import CLIENT_SECRET, GateHub
from tests.patience import patient

ORIGIN, BOARD_ORIGIN = "https://apps.example.org", "https://board.example.org"
MLFLOW = App("mlflow", "MLflow", f"{ORIGIN}/mlflow/", "http://10.0.0.7:5000", groups=("lab",))
DASK = App("dask", "Dask", f"{ORIGIN}/dask/", "http://10.0.0.7:8787", groups=("lab",), servers=True)
BOARD = App("board", "TensorBoard", f"{BOARD_ORIGIN}/", "http://10.0.0.7:6006", groups=("lab",))
PROXY_SECRET, ENDED_SECRET = "proxy-secret-proxy-secret", "ended-secret-ended-secret"
PAGE = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept": "text/html"}
FETCH = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Accept": "*/*"}


def settings_for(folder: Path, hub: GateHub, **more: Any) -> GateSettings:
    about: dict[str, Any] = {
        "url": ORIGIN,
        "state_dir": str(folder),
        "hub_api_url": f"{hub.url}/hub/api",
        "hub_url": "https://hub.example.org/hub/",
        "client_secret": CLIENT_SECRET,
        "proxy_secret": PROXY_SECRET,
        "ended_secret": ENDED_SECRET,
        "catalogue": (MLFLOW, DASK, BOARD),
        "contact": "the GPU team",
        **more,
    }
    return GateSettings(**about)


@dataclass
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: str

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join((str(self.status), *(f"{key}: {value}" for key, value in self.headers), self.body))


async def send(port: int, raw: bytes) -> Reply:
    """What comes back for these bytes, until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    found = await asyncio.wait_for(reader.read(), patient(30))
    writer.close()
    head, _, body = found.decode("latin-1").partition("\r\n\r\n")
    lines = head.split("\r\n")
    status = int(lines[0].split(" ")[1]) if head else 0
    return Reply(status, [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines[1:])], body)


def request(method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> bytes:
    more = [("Content-Length", str(len(body)))] if body or method == "POST" else []
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in (*headers, *more)), "Connection: close"]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


@dataclass
class GateBrowser:
    """One browser; its cookies are by host, as a browser has them."""

    port: int
    hub: GateHub
    jars: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: list[Reply] = field(default_factory=list)

    @property
    def cookie(self) -> str:
        """Of its session, at the apps' host."""
        return self.jars.get("apps.example.org", {}).get(SECURE_COOKIE, "")

    async def get(self, address: str, method: str = "GET", body: bytes = b"", **more: str) -> Reply:
        """A page of the gate's own."""
        place = urlsplit(address)
        jar = self.jars.setdefault(place.netloc, {})
        sent = {
            "Host": place.netloc,
            "Cookie": "; ".join(f"{key}={value}" for key, value in jar.items()),
            **PAGE,
            **more,
        }
        path = f"{place.path}?{place.query}" if place.query else place.path
        reply = await send(self.port, request(method, path, sent.items(), body))
        for key, value in reply.headers:
            if key.lower() == "set-cookie":
                name, _, rest = value.partition("=")
                jar[name] = rest.partition(";")[0]
        self.seen.append(reply)
        return reply

    async def check(self, app: str = "mlflow", kind: str = "check", **more: str) -> Reply:
        """What a proxy gets for this browser's request; ``_`` in a name is ``-``."""
        host = "board.example.org" if app == "board" else "apps.example.org"
        jar = self.jars.get(host, {})
        sent = {
            "X-Gate-Proxy": PROXY_SECRET,
            "X-Gate-Method": "GET",
            "X-Gate-Uri": "/" if app == "board" else f"/{app}/",
            "Cookie": "; ".join(f"{key}={value}" for key, value in jar.items()),
            **PAGE,
            **{key.replace("_", "-"): value for key, value in more.items()},
        }
        headers = [(key, value) for key, value in sent.items() if value]
        reply = await send(self.port, request("GET", f"/_gate/{kind}/{app}", headers))
        self.seen.append(reply)
        return reply

    async def at_the_hub(self, address: str) -> str:
        """Where the hub sends this browser back to."""
        place = urlsplit(address)
        assert place.netloc == "hub.example.org"
        path = f"{place.path}?{place.query}"
        back = await send(urlsplit(self.hub.url).port or 0, request("GET", path, [("Host", "hub.example.org")]))
        return back["Location"]

    async def sign_in(self, app: str = "mlflow", path: str = "") -> Reply:
        """From an app's page to the hub and back; the last answer, which leads to the app."""
        asked = await self.check(app, kind="answer", **({"X_Gate_Uri": path} if path else {}))
        assert asked.status == 302, asked.text
        out = await self.get(asked["Location"])
        back = await self.get(await self.at_the_hub(out["Location"]))
        if "/_gate/callback" in back["Location"]:
            back = await self.get(back["Location"])
        return back


@dataclass
class Standing:
    """A gate that answers. `ahead`: of the clock, by which its sessions are judged."""

    gate: Gate
    hub: GateHub
    port: int
    ahead: timedelta = timedelta(0)

    def browser(self) -> GateBrowser:
        return GateBrowser(self.port, self.hub)

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + self.ahead


def ready(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


@asynccontextmanager
async def a_gate(folder: Path, hub: GateHub, **more: Any) -> AsyncIterator[Standing]:
    folder = ready(folder)
    settings = settings_for(folder, hub, **more)
    socket, port = bind_unused_port()
    found: list[Standing] = []

    def now() -> datetime:
        return found[0].now() if found else datetime.now(timezone.utc)

    store = GateStore.open(settings.store_url)
    at_hub = HubSignIn(
        HubAddresses(settings.hub_api_url, settings.hub_url),
        settings.client_id,
        settings.client_secret,
        settings.callback_url,
    )
    signer = AssertionSigner(keys_of(settings, store), settings.origin, settings.assertion)
    gate = Gate(settings, GateSessions(store, session_limits(settings), now), at_hub, signer, now)
    found.append(Standing(gate, hub, port))
    server = make_server(gate)
    server.add_socket(socket)
    try:
        yield found[0]
    finally:
        server.stop()
        await server.close_all_connections()
        at_hub.close()
        gate.sessions.close()


def claims_in(header: str) -> str:
    """A signed token has three parts."""
    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", header)
    return header
