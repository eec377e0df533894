"""A proxy's questions: what passes, what bad ones get, and what the hub is asked meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jwt
import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from hub_extensions.adapters.apps import audit_run, raw_http
from hub_extensions.adapters.apps.audit_run import AuditRun
from hub_extensions.core.sign_on.audit import AuditResult
from hub_extensions.core.sign_on.identity_headers import ASSERTION, identity_header_names
from hub_extensions.gate import background, hub_answers
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import (
    DASK,
    FETCH,
    MLFLOW,
    PAGE,
    PROXY_SECRET,
    GateBrowser,
    Standing,
    a_gate,
    request,
    send,
)
from tests.patience import soon

pytestmark = pytest.mark.slow

STRANGER = "A" * 43
POSTED = b"POST /_gate/check/dask HTTP/1.1\r\n%b\r\nCookie: a=%b\r\n"


@pytest.fixture
async def ada(standing: Standing) -> GateBrowser:
    browser = standing.browser()
    await browser.sign_in()
    return browser


async def test_all_identity_headers_come_with_each_answer(standing: Standing, ada: GateBrowser) -> None:
    passed = await ada.check(Cookie=f"a=1; __Host-gate={ada.cookie}; b=2")
    sent = {key.lower(): value for key, value in passed.headers}
    assert {name.lower() for name in identity_header_names()} <= sent.keys()
    assert [name for name in identity_header_names() if sent[name.lower()]] == [
        *("X-Auth-Request-User", "X-Auth-Request-Groups", ASSERTION)
    ]
    assert sent["cookie"] == "a=1; b=2"


async def test_a_check_that_fails_passes_nobody_and_logs_no_value(
    standing: Standing, ada: GateBrowser, caplog: pytest.LogCaptureFixture
) -> None:
    standing.gate.signer = None  # type: ignore[assignment]
    refused = await ada.check()
    assert refused.status == 503
    assert "AttributeError" in caplog.text and ada.cookie not in caplog.text + refused.text


async def test_the_page_of_an_app_that_is_away_has_its_title_for_a_proxy_alone(ada: GateBrowser) -> None:
    for secret, is_named in ((f"X-Gate-Proxy: {PROXY_SECRET}\r\n", True), ("", False)):
        raw = f"GET /_gate/away/mlflow HTTP/1.1\r\nHost: apps\r\nConnection: close\r\n{secret}Accept: text/html\r\n\r\n"
        answer = await send(ada.port, raw.encode())
        assert (answer.status, "MLflow" in answer.text) == (502, is_named)


async def test_an_assertion_is_for_one_app_and_a_minute(standing: Standing, ada: GateBrowser) -> None:
    assertion = (await ada.check())[ASSERTION]
    assert (await ada.check())[ASSERTION] == assertion, "one signature does for some seconds"
    keys = json.loads((await ada.get("https://apps.example.org/_gate/jwks.json")).body)
    assert len(keys["keys"]) == 2 and not any("d" in key for key in keys["keys"])
    key = jwt.PyJWKSet.from_dict(keys)[jwt.get_unverified_header(assertion)["kid"]]
    claims = jwt.decode(assertion, key, ["ES256"], audience="mlflow", issuer="https://apps.example.org")
    assert (claims["sub"], claims["groups"], claims["exp"] - claims["iat"]) == ("ada", ["lab"], 60)
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(assertion, key, ["ES256"], audience="dask")


async def test_after_a_change_of_keys_the_next_one_signs_at_once(standing: Standing, ada: GateBrowser) -> None:
    from hub_extensions.adapters.provider.assertions import KeyFolder, rotate

    before = (await ada.check())[ASSERTION]
    published = [key["kid"] for key in standing.gate.signer.published()["keys"]]
    rotate(KeyFolder(standing.gate.settings.folder))
    standing.gate.refresh_keys()
    after = (await ada.check())[ASSERTION]
    assert [jwt.get_unverified_header(each)["kid"] for each in (before, after)] == published
    files = list(standing.gate.settings.folder.glob("*.pem"))
    assert (len(files), {file.stat().st_mode & 0o777 for file in files}) == (2, {0o600})


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "path", "headers", "status"),
    [
        ("no secret", "/_gate/check/mlflow", {"X-Gate-Proxy": ""}, 404),
        ("other secret", "/_gate/check/mlflow", {"X-Gate-Proxy": f"{PROXY_SECRET}x"}, 404),
        ("no secret, unknown app", "/_gate/check/x", {"X-Gate-Proxy": ""}, 404),
        ("unknown app", "/_gate/check/x", {}, 403),
        ("other case", "/_gate/check/MLflow", {}, 403),
        ("another app's right", "/_gate/check/dask", {"Sec-Fetch-Mode": "cors"}, 403),
        ("dots", "/_gate/check/dask/../mlflow", {"Sec-Fetch-Mode": "cors"}, 403),
        ("encoded slash", "/_gate/check/mlflow%2f", {}, 403),
        ("encoded name", "/_gate/check/%6dlflow", {}, 403),
        ("empty", "/_gate/check/", {}, 403),
        ("a query", "/_gate/check/mlflow?app=dask", {}, 403),
        ("4 kB", f"/_gate/check/{'m' * 4096}", {}, 403),
        ("NUL", "/_gate/check/mlflow%00", {}, 403),
        (
            "host of another app",
            "/_gate/check/dask",
            {"Host": "apps.example.org", "X-Original-URL": "/mlflow/", **FETCH},
            403,
        ),
        (
            "forwarded app",
            "/_gate/check/dask",
            {"X-Forwarded-Uri": "/mlflow/", **FETCH},
            403,
        ),
        ("foreign POST", "/_gate/check/mlflow", {"X-Gate-Method": "POST", "Sec-Fetch-Site": "same-site"}, 403),
        (
            "foreign POST, old browser",
            "/_gate/check/mlflow",
            {"X-Gate-Method": "POST", "Sec-Fetch-Site": "", "Origin": "null"},
            403,
        ),
        ("two methods", "/_gate/check/mlflow", {"X-Forwarded-Method": "POST", "Sec-Fetch-Site": "cross-site"}, 403),
        (
            "foreign socket",
            "/_gate/check/mlflow",
            {"X-Gate-Upgrade": "websocket", "Sec-Fetch-Site": "same-site"},
            403,
        ),
        (
            "foreign socket, as Traefik asks",
            "/_gate/check/mlflow",
            {
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                "Origin": "https://elsewhere.example",
                "Sec-Fetch-Site": "",
            },
            403,
        ),
        (
            "foreign socket of HTTP/2",
            "/_gate/check/mlflow",
            {"Sec-WebSocket-Version": "13", "Sec-Fetch-Site": "cross-site"},
            403,
        ),
        ("no cookie", "/_gate/check/mlflow", {"Cookie": ""}, 401),
        ("a stranger's cookie", "/_gate/check/mlflow", {"Cookie": f"__Host-gate={STRANGER}"}, 401),
        ("twice", "/_gate/check/mlflow", {"Cookie": "__Host-gate={cookie}; __Host-gate={cookie}"}, 401),
        ("twice, one false", "/_gate/check/mlflow", {"Cookie": f"__Host-gate={STRANGER}; __Host-gate={{cookie}}"}, 401),
        ("quoted", "/_gate/check/mlflow", {"Cookie": '__Host-gate="{cookie}"'}, 401),
        ("other case of the cookie", "/_gate/check/mlflow", {"Cookie": "__host-gate={cookie}"}, 401),
        ("plain http's cookie", "/_gate/check/mlflow", {"Cookie": "gate-without-https={cookie}"}, 401),
        ("in another's value", "/_gate/check/mlflow", {"Cookie": "a=__Host-gate={cookie}"}, 401),
        ("4 kB cookie", "/_gate/check/mlflow", {"Cookie": "__Host-gate={cookie}" + "A" * 4096}, 401),
        ("200 cookies, none good", "/_gate/check/mlflow", {"Cookie": "; ".join(f"c{n}=1" for n in range(200))}, 401),
        ("no token", "/_gate/check/mlflow", {"Authorization": "Bearer"}, 401),
        ("a made-up token", "/_gate/check/mlflow", {"Authorization": "Bearer x"}, 401),
        ("two tokens", "/_gate/check/mlflow", {"Authorization": "Bearer x, Bearer y"}, 401),
        ("a long token", "/_gate/check/mlflow", {"Authorization": "Bearer " + "x" * 4096}, 401),
    ],
)
async def test_a_bad_check_passes_nobody(
    ada: GateBrowser, name: str, path: str, headers: dict[str, str], status: int
) -> None:
    sent = {"X-Gate-Proxy": PROXY_SECRET, "Cookie": "__Host-gate={cookie}", **PAGE, **headers}
    pairs = [(key, value.replace("{cookie}", ada.cookie)) for key, value in sent.items() if value]
    for method in ("GET", "HEAD", "OPTIONS", "POST"):
        reply = await send(ada.port, request(method, path, pairs))
        assert reply.status == status, (method, reply.text)
        assert reply["X-Auth-Request-User"] == reply[ASSERTION] == "" and ada.cookie not in reply.text
        if status == 404:
            assert "mlflow" not in reply.body.lower()


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /_gate/check/mlflow HTTP/1.1\r\n%b\r\nCookie: __Host-gate=%b\x00\r\n\r\n",
        b"GET /_gate/check/mlflow HTTP/1.1\r\n%b\r\nCookie: __Host-gate=%b\r\n x\r\n\r\n",
        b"CONNECT /_gate/check/dask HTTP/1.1\r\n%b\r\nCookie: __Host-gate=%b\r\n\r\n",
        POSTED + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        POSTED + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POSTED + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET /_gate/check/dask HTTP/1.1\r\n%b\r\nCookie: a=%b\r\nContent-Length: -1\r\n\r\n",
        b"GET /_gate/check/mlflow HTTP/1.1\r\n%b\r\nCookie : __Host-gate=%b\r\n\r\n",
        b"GET http://dask/_gate/check/mlflow HTTP/1.1\r\n%b\r\nCookie: a=%b\r\n\r\n",
        b"GET\t/_gate/check/mlflow\tHTTP/1.1\r\n%b\r\nCookie: a=%b\r\n\r\n",
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_passes_nobody(ada: GateBrowser, raw: bytes) -> None:
    lines = f"Host: apps.example.org\r\nX-Gate-Proxy: {PROXY_SECRET}\r\nConnection: close".encode()
    reply = await send(ada.port, raw % (lines, ada.cookie.encode()))
    assert reply.status != 200, reply.text


WITH_A_WAIT = ("html", "403-html", "redirect", "groups", "deep", "late")
SLOW_FAULTS = [pytest.param(each, marks=pytest.mark.slow) for each in WITH_A_WAIT]


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500", "odd", "away", *SLOW_FAULTS])
async def test_while_the_hub_is_away_nobody_passes_and_nobody_is_signed_out(
    tmp_path: Path, hub: GateHub, fault: str
) -> None:
    async with a_gate(tmp_path / "gate", hub, cache=timedelta(seconds=0)) as standing:
        ada, port = standing.browser(), hub.url
        await ada.sign_in()
        assert (await ada.check()).status == 200
        if fault == "away":
            await hub.stop()
        elif fault == "late":
            hub.gate_opens.clear()
        else:
            hub.fault = fault
        refused = await ada.check(kind="answer")
        assert (refused.status, "since" in refused.body) == (503, True), (port, refused.text)
        found = await ada.check(**FETCH)
        assert (found.status, json.loads(found.body)["reason"], "since" in found.body) == (503, "hub-away", True)
        assert len(standing.gate.sessions) == 1
        if fault != "away":
            hub.fault = ""
            hub.gate_opens.set()
            assert await soon(lambda: passes(ada)), "without another sign-in"


async def passes(browser: GateBrowser) -> bool:
    return (await browser.check()).status == 200


@pytest.mark.slow
async def test_a_hundred_at_once_are_one_question_to_the_hub(
    standing: Standing, hub: GateHub, ada: GateBrowser
) -> None:
    hub.asked.clear()
    found = await asyncio.gather(*(ada.check() for _ in range(100)))
    assert ({each.status for each in found}, hub.asked["user"]) == ({200}, 1)


async def test_a_slow_hub_delays_nobody_whose_answer_is_fresh(
    standing: Standing, hub: GateHub, ada: GateBrowser
) -> None:
    assert (await ada.check()).status == 200
    other = standing.browser()
    await other.sign_in()
    hub.was_asked.clear()
    hub.gate_opens.clear()
    slow = asyncio.ensure_future(other.check())
    await hub.was_asked.wait()
    assert (await ada.check()).status == 200 and not slow.done()
    hub.gate_opens.set()
    assert (await slow).status == 200


async def test_a_flood_of_made_up_tokens_takes_no_good_ones_place(
    standing: Standing, hub: GateHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_answers, "MAX_TOKENS", 3)
    monkeypatch.setattr(hub_answers, "MAX_INVALID_TOKENS", 2)
    answers, token = standing.gate.answers, hub.token_for("ada")
    known = await answers.check_token(token)
    assert known is not None and known.owner is not None
    for number in range(6):
        made_up = await answers.check_token(f"made-up-{number}")
        assert made_up is not None and made_up.is_void
    monkeypatch.setattr(hub_answers, "MAX_UNKNOWN_WAITING", 0)
    assert await answers.check_token(token) is known, "it is no stranger's"
    assert [await answers.check_token(f"new-{number}") for number in range(9)] == [None] * 9
    assert await answers.check_token(token) is known


async def test_a_flood_of_made_up_tokens_locks_nobody_out(tmp_path: Path, hub: GateHub) -> None:
    async with a_gate(tmp_path / "gate", hub, trusted_proxies=("127.0.0.1",)) as standing:
        ada = standing.browser()
        await ada.sign_in()
        known, new, near = (hub.token_for("ada") for _ in range(3))
        assert (await ada.check(Authorization=f"Bearer {known}")).status == 200
        assert (await ada.check()).status == 200
        hub.asked.clear()
        hub.gate_opens.clear()
        flood = [
            asyncio.ensure_future(
                standing.browser().check(Authorization=f"Bearer made-up-{number}", X_Forwarded_For="192.0.2.7")
            )
            for number in range(80)
        ]
        await soon(lambda: hub.asked["user"] >= hub_answers.MAX_UNKNOWN_CHECKS)
        assert (await ada.check()).status == 200, "a cookie that is known"
        assert (await ada.check(Authorization=f"Bearer {known}")).status == 200, "a token that is known"
        late = [
            asyncio.ensure_future(standing.browser().check(Authorization=f"Bearer {token}", X_Forwarded_For=address))
            for token, address in ((new, "198.51.100.4"), (near, "192.0.2.7"))
        ]
        answered: list[str] = []
        for task in (*flood, *late):
            task.add_done_callback(lambda done: answered.append(str(done.result().status)))
        await asyncio.sleep(0.1)
        hub.gate_opens.set()
        assert [reply.status for reply in await asyncio.gather(*late)] == [200, 200]
        assert answered.count("401") < 40, "they waited for a few of the flood, and not for all of it"
        await asyncio.gather(*flood)


async def test_a_token_that_finds_no_place_reads_why_and_when_to_try_again(
    standing: Standing, hub: GateHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_answers, "MAX_UNKNOWN_WAITING", 0)
    reply = await standing.browser().check(Authorization="Bearer made-up", **FETCH)
    assert (reply.status, reply["Retry-After"]) == (503, "5")
    assert json.loads(reply.body)["reason"] == "many-unknown-tokens"
    assert "hub does not answer" not in reply.text
    monkeypatch.undo()
    await hub.stop()
    reply = await standing.browser().check(Authorization="Bearer made-up-too", **FETCH)
    assert (reply.status, reply["Retry-After"], json.loads(reply.body)["reason"]) == (503, "5", "hub-away")


@pytest.mark.parametrize("cache", [0, 5])
async def test_a_page_shows_the_apps_that_the_hub_has_just_named(tmp_path: Path, hub: GateHub, cache: int) -> None:
    async with a_gate(tmp_path / "gate", hub, cache=timedelta(seconds=cache)) as standing:
        ada = standing.browser()
        await ada.sign_in()
        start = RequestStartLine("GET", "/", "HTTP/1.1")
        asked = HTTPServerRequest(
            start_line=start, headers=HTTPHeaders({"Host": "x", "Cookie": f"__Host-gate={ada.cookie}"})
        )
        session = await standing.gate.session_of(asked)
        assert session is not None
        assert {app.name for app in standing.gate.apps_open_to(session)} == {"mlflow", "board"}
        session.known.forget()
        assert standing.gate.apps_open_to(session) == (), "an end came in between"
        hub.fault = "500"
        assert await standing.gate.session_of(asked) is session
        assert standing.gate.apps_open_to(session) == ()


async def test_programs_pass_with_a_token_that_has_the_apps_scope(standing: Standing, hub: GateHub) -> None:
    hub.add_user("ci", MLFLOW.scope, kind="service")
    hub.add_user("of-server", "access:servers!server=ada/", DASK.scope)
    program = standing.browser()
    wanted = {("ada", "mlflow"): 200, ("ada", "dask"): 403, ("ben", "mlflow"): 403, ("ci", "mlflow"): 401}
    wanted |= {("of-server", "mlflow"): 401, ("of-server", "dask"): 200}
    for (owner, app), status in wanted.items():
        token = hub.token_for(owner)
        reply = await program.check(app, Authorization=f"Bearer {token}", X_Gate_Method="POST", Sec_Fetch_Site="")
        assert reply.status == status, (owner, app, reply.text)
        assert token not in reply.text
    assert MLFLOW.servers is False and DASK.servers is True


async def test_what_is_public_passes_anybody_and_names_nobody(
    standing: Standing, hub: GateHub, ada: GateBrowser
) -> None:
    standing.gate.use_catalogue((replace(MLFLOW, public=("/version",)), DASK))
    await hub.stop()
    stranger = standing.browser()
    for browser, more in ((stranger, {}), (ada, {}), (stranger, {"Authorization": "Bearer made-up"})):
        reply = await browser.check(X_Gate_Uri="/mlflow/version", **more)
        assert (reply.status, reply["X-Auth-Request-User"], reply[ASSERTION]) == (200, "", ""), reply.text
        sent = {name.lower() for name, _ in reply.headers}
        assert {name.lower() for name in identity_header_names()} <= sent, (
            "what a browser sends under these names is replaced"
        )
    assert (await ada.check(X_Gate_Uri="/mlflow/version", Cookie="a=1"))["Cookie"] == "a=1"
    for app, uri, method in (
        ("mlflow", "/mlflow/x", "GET"),
        ("dask", "/mlflow/version", "GET"),
        ("mlflow", "/mlflow/version", "POST"),
    ):
        assert (await stranger.check(app, X_Gate_Uri=uri, X_Gate_Method=method, **FETCH)).status == 401


async def test_a_made_up_name_is_sent_to_no_app_as_another_one(standing: Standing, hub: GateHub) -> None:
    for odd in ("a\r\nX-Auth-Request-User: root", " ada", "ada\x7f"):
        hub.add_user(odd, MLFLOW.scope, groups=("lab", "a,admins"))
        reply = await standing.browser().check(Authorization=f"Bearer {hub.token_for(odd)}")
        sent = (reply.status, reply["X-Auth-Request-User"], reply["X-Auth-Request-Groups"])
        assert sent == (200, "", "lab"), reply.text
    hub.add_user("日本", MLFLOW.scope)
    reply = await standing.browser().check(Authorization=f"Bearer {hub.token_for('日本')}")
    assert reply["X-Auth-Request-User"].encode("latin-1").decode() == "日本"


async def test_the_gates_own_audit_stops_no_check(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_in: list[threading.Thread] = []

    def own_addresses() -> tuple[str, ...]:
        asked_in.append(threading.current_thread())
        return ()

    async def results(run: AuditRun) -> list[AuditResult]:
        return []

    for module in (background, audit_run):
        monkeypatch.setattr(module, "own_addresses", own_addresses, raising=False)
    monkeypatch.setattr(AuditRun, "results", results)
    await background._audit(standing.gate)
    assert asked_in and threading.main_thread() not in asked_in
    assert raw_http._any_certificate() is raw_http._any_certificate(), "made once, not for each probe"
