"""Whatever HTTP client a hub has configured for its process, as the zero-to-jupyterhub chart does: ours are our own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timezone

import pytest
from tornado.httpclient import HTTPClientError
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from hub_extensions.adapters.apps.audit_accounts import AuditGate, AuditHub
from hub_extensions.adapters.http_client import http_client
from hub_extensions.adapters.hub.hub_sign_in import HubAddresses, HubSignIn
from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.adapters.hub.person_sources import PersonSources
from hub_extensions.adapters.notices.webhook import Webhook
from hub_extensions.adapters.prometheus import Prometheus
from hub_extensions.adapters.provider.oidc import Provider
from hub_extensions.adapters.service.gpu_service import GpuServiceClient
from hub_extensions.authenticator.gate_caller import GateCaller
from hub_extensions.core.messages import Report
from hub_extensions.core.sign_on.ended_sessions import EndedSessions
from hub_extensions.core.sign_on.gate_config import GateAddress
from hub_extensions.server_extension.service_client import ServiceAddress, ServiceLink
from tests.fakes.curl_client import curl_configured
from tests.patience import patient

SECRET = "s" * 64
NOW = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)


class Counting(RequestHandler):
    """Answers everything with ``{}``, and with as many bytes as it is asked for."""

    def initialize(self, asked: list[str]) -> None:
        self.asked = asked

    def prepare(self) -> None:
        self.asked.append(self.request.path)
        self.finish("{}" + " " * int(self.get_query_argument("more", "0")))


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, list[str]]]:
    """Its address, and the paths that it was asked for."""
    asked: list[str] = []
    http = HTTPServer(Application([(".*", Counting, {"asked": asked})]))
    sockets = bind_sockets(0, "127.0.0.1")
    http.add_sockets(sockets)
    yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}", asked
    http.stop()
    await http.close_all_connections()


@pytest.fixture(autouse=True)
def curl() -> Iterator[None]:
    with curl_configured():
        yield


async def _link(url: str) -> None:
    async def never(_: float) -> Report:
        return await asyncio.Future()

    link = ServiceLink(ServiceAddress(url, "token"), never)
    link.start()
    try:
        await link.keep()
    finally:
        link.stop()


async def _caller(url: str) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        told = GateCaller(GateAddress(url, SECRET), _Silent()).report(EndedSessions("ada"))
        await asyncio.wait_for(told, patient(0.2))


class _Silent:
    def warning(self, *words: object) -> None: ...

    info = debug = error = warning


ASKING: dict[str, Callable[[str], Awaitable[object]]] = {
    "Prometheus": lambda url: Prometheus(url).query([], [], NOW),
    "a webhook": lambda url: Webhook(url).send("n-1", b"{}"),
    "the hub, by the service": lambda url: HubApi(f"{url}/hub/api", "token").user("ada"),
    "the service, by the hub": lambda url: GpuServiceClient(url, SECRET).overview("ada"),
    "the hub, by the gate": lambda url: HubSignIn(
        HubAddresses(f"{url}/hub/api", f"{url}/hub/"), "service-gate", SECRET, f"{url}/_gate/callback"
    ).owner("token"),
    "hub and service, by the gate's portal": lambda url: PersonSources(f"{url}/hub/api", f"{url}/gpu").of("token"),
    "the hub, by an audit": lambda url: AuditHub(f"{url}/hub/api", "token").services(),
    "the gate, by an audit": lambda url: AuditGate(url, SECRET).session_for("token"),
    "the gate, by the hub": _caller,
    "the service, by a server": _link,
    "a provider": lambda url: Provider(url, "client", [SECRET]).metadata(),
}


@pytest.mark.parametrize("who", ASKING)
async def test_every_client_reaches_whom_it_asks_after_curls_was_configured(
    who: str, server: tuple[str, list[str]]
) -> None:
    url, asked = server
    with contextlib.suppress(Exception):  # what the answer is worth is not looked at here
        await ASKING[who](url)
    assert asked


async def test_the_limits_of_a_client_are_kept_and_it_is_nobody_elses(server: tuple[str, list[str]]) -> None:
    url, _ = server
    bounded, other = http_client(max_bytes=100, at_once=1), http_client()
    assert (await bounded.fetch(f"{url}/?more=98")).code == 200
    with pytest.raises((HTTPClientError, OSError)):
        await bounded.fetch(f"{url}/?more=99")
    parts: list[bytes] = []
    both = [bounded.fetch(f"{url}/one", streaming_callback=parts.append), bounded.fetch(f"{url}/two")]
    assert [each.code for each in await asyncio.gather(*both)] == [200, 200]
    assert parts == [b"{}"]
    bounded.close()
    assert (await other.fetch(url)).code == 200
    other.close()
