"""Strangers' requests to our routes of the hub: refusals keep or announce their connections, and bodies have limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import requests

from tests.authenticator.signed_hub import sessions
from tests.hubs import Hub
from tests.kept_connections import SentRequest, ends_unannounced, failures_beside
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.programs]

HANDLERS = """
from hub_extensions.spawner.pages.page_frame import PageFrame
from hub_extensions.spawner.server_list import ServerList
c.JupyterHub.extra_handlers = [(PageFrame.route, PageFrame, {"service": "gpu"}), (ServerList.route, ServerList)]
"""
TWO = ("Content-Length: 2", "Content-Type: application/json")
FORM = "Content-Type: application/x-www-form-urlencoded"
PATHS = (
    "api/sso/users/ada/sessions",
    "api/sso/users/ada/sessions/one",
    "api/sso/events",
    "api/gpu/frame",
    "api/gpu/servers",
    "sso/sessions",
    "sso/admin",
)
REFUSED = [
    *(SentRequest(method, f"/hub/{path}") for path in PATHS for method in ("GET", "HEAD", "NONSENSE")),
    *(
        SentRequest(method, f"/hub/{path}", TWO, b"{}")
        for path in PATHS
        for method in ("POST", "PUT", "PATCH", "DELETE", "GET")
    ),
    *(SentRequest("POST", f"/hub/{path}", ("Content-Length: 1000000",)) for path in PATHS),
    SentRequest("POST", "/hub/sso/sessions", ("Transfer-Encoding: chunked", FORM), b"4\r\nid=1\r\n0\r\n\r\n"),
    SentRequest("POST", "/hub/sso/sessions", (FORM, "Content-Length: 9", "Origin: https://evil.example"), b"_xsrf=abc"),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    config = HANDLERS + sessions('c.JupyterHub.authenticator_class = "dummy"')
    with Hub(tmp_path_factory.mktemp("hub"), config) as hub:
        yield hub


@pytest.mark.whole
def test_a_connection_goes_on_after_any_refusal_or_its_end_is_announced(hub: Hub) -> None:
    async def found() -> list[tuple[SentRequest, str]]:
        return [(request, await ends_unannounced(hub.hub_port, request)) for request in REFUSED]

    assert [each for each in asyncio.run(found()) if each[1]] == []


@pytest.mark.whole
def test_pages_go_on_through_a_real_proxy_while_strangers_are_refused(hub: Hub) -> None:
    asked = [each for each in REFUSED if each.method != "NONSENSE" and "Content-Length: 1000000" not in each.headers]
    page = SentRequest("GET", "/hub/api/", ())
    statuses = failures_beside(hub.url, asked, 200, page)
    assert set(statuses) == {200}, statuses


@pytest.mark.whole
def test_a_form_is_read_with_its_proof_and_refused_without(hub: Hub) -> None:
    browser = hub.login("ada")
    proof = browser.headers.pop("X-XSRFToken")
    page = f"{hub.url}/hub/sso/sessions"

    def sent(**form: str) -> requests.Response:
        return browser.post(page, data=form, allow_redirects=False, timeout=patient(20))

    assert [sent(others="1").status_code, sent(others="1", _xsrf="made-up").status_code] == [403, 403]
    answer = sent(others="1", _xsrf=str(proof))
    assert (answer.status_code, answer.headers["Location"]) == (303, "/hub/sso/sessions?ended=0")
    assert sent(others="1", _xsrf=str(proof), more="x" * 20_000).status_code == 413


@pytest.mark.whole
@pytest.mark.slow
def test_half_a_body_is_waited_for_only_so_long(hub: Hub) -> None:
    async def ends(path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.hub_port)
        writer.write(SentRequest("POST", f"/hub/{path}", (FORM, "Content-Length: 10"), b"1").written("x"))
        try:
            return await asyncio.wait_for(reader.read(), patient(30))
        finally:
            writer.close()

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(ends(path) for path in PATHS))

    for answer in asyncio.run(all_of_them()):
        assert not answer or answer.split()[1][:1] == b"4", "closed without an answer, or refused"
