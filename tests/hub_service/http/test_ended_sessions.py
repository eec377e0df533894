"""After a sign-out the service takes nothing that it remembers of the person's logins, and no order rests on any."""

from __future__ import annotations

import asyncio

import pytest
from tornado.httpclient import HTTPResponse
from tornado.web import create_signed_value

from hub_extensions.hub_service.http.auth import cookie_secret
from tests.hub_service.conftest import SECRET, Running
from tests.patience import soon

pytestmark = pytest.mark.slow

COOKIE = create_signed_value(cookie_secret(SECRET), "service-gpu", "ada-token").decode()
TOKEN = {"Authorization": "token ada-token"}
ORDERS = [
    ("POST", "api/tickets", b'{"offers": ["cpu"]}'),
    ("DELETE", "api/tickets/t1", None),
    ("DELETE", "api/leases/l1", None),
    ("POST", "leave", b"ticket=t1"),
    ("POST", "keep", b"server="),
    ("POST", "admin/stop", b"lease=l1&minutes=0&why=x"),
]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def page(service: Running, how: dict[str, str]) -> HTTPResponse:
    return await service.ask("GET", "api/servers", headers={**how, "Sec-Fetch-Mode": "navigate"})


async def caller(service: Running, how: str) -> dict[str, str]:
    """The headers of somebody who is signed in, with the proof of the page's forms where it is by a cookie."""
    if how == "token":
        return TOKEN
    login = f"service-gpu={COOKIE}"
    shown = await service.ask("GET", "", headers={"Cookie": login, "Sec-Fetch-Mode": "navigate"})
    proof = next(cookie for cookie in shown.headers.get_list("Set-Cookie") if cookie.startswith("_xsrf="))
    proof = proof.partition(";")[0]
    return {"Cookie": f"{login}; {proof}", "X-XSRFToken": proof.removeprefix("_xsrf=")}


@pytest.mark.parametrize("by", ["cookie", "token"])
async def test_a_login_ends_at_once_when_the_hub_reports_it(service: Running, by: str) -> None:
    how = await caller(service, by)
    assert (await page(service, how)).code == 200
    del service.hub.tokens["ada-token"]
    assert (await page(service, how)).code == 200, "what is remembered, until the report comes"
    report = {"user": "ada", "sessions": ["of no use here"]}
    assert (await service.ask("POST", "hub/sessions-ended", SECRET, report)).code == 204
    assert (await page(service, how)).code in (302, 403)


@pytest.mark.parametrize("by", ["cookie", "token"])
@pytest.mark.parametrize(("method", "path", "body"), ORDERS)
async def test_an_order_never_rests_on_a_remembered_login(
    service: Running, by: str, method: str, path: str, body: bytes | None
) -> None:
    how = await caller(service, by)
    more = {} if path.startswith("api/") else FORM
    assert (await page(service, how)).code == 200
    assert (await service.ask("POST", "leave", body=b"ticket=t1", headers={**how, **FORM})).code != 403, "it may"
    del service.hub.tokens["ada-token"]
    before = list(service.engine.told)
    assert (await service.ask(method, path, body=body, headers={**how, **more})).code == 403
    assert service.engine.told == before


async def test_an_order_never_rests_on_remembered_rights(service: Running) -> None:
    admin = {"Authorization": "token admin-token"}
    assert (await service.ask("GET", "api/leases", headers=admin)).code == 200
    service.hub.users["root"]["admin"] = False
    service.hub.tokens["admin-token"]["scopes"] = service.hub.tokens["ada-token"]["scopes"]
    assert (await service.ask("DELETE", "api/leases/l1", headers=admin)).code == 403


async def test_an_answer_that_was_under_way_when_the_report_came_is_not_remembered(service: Running) -> None:
    service.hub.holds = asyncio.Event()
    asked = asyncio.ensure_future(page(service, TOKEN))
    await soon(lambda: "/hub/api/user" in service.hub.asked)
    assert (await service.ask("POST", "hub/sessions-ended", SECRET, {"user": "ada"})).code == 204
    service.hub.holds.set()
    await asked
    del service.hub.tokens["ada-token"]
    assert (await page(service, TOKEN)).code == 403


@pytest.mark.parametrize("token", [None, "ada-token", "admin-token", "ada-default"])
async def test_only_the_hub_reports_ends(service: Running, token: str | None) -> None:
    assert (await service.ask("POST", "hub/sessions-ended", token, {"user": "ada"})).code == 403
