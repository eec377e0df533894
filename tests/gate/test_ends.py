"""The end of a session: by its owner, by the hub, by a limit; and what a gate that was killed still knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.service.signer import Signer
from hub_extensions.core.sign_on.ended_sessions import session_hash
from hub_extensions.core.signing import ANSWER_HEADER
from hub_extensions.gate.gate import SECURE_COOKIE
from tests.fakes.gate_hub import GateHub
from tests.fakes.own_postgresql import own_server
from tests.gate.gate_browser import ENDED_SECRET, FETCH, MLFLOW, ORIGIN, Reply, Standing, a_gate, request, send

pytestmark = pytest.mark.slow

LONG = timedelta(seconds=60)


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.needs("postgresql"), pytest.mark.whole])]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the gate keeps its sessions."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
async def standing(tmp_path: Path, hub: GateHub, store_url: str) -> AsyncIterator[Standing]:
    async with a_gate(tmp_path / "gate", hub, database_url=store_url) as standing:
        yield standing


async def posted(standing: Standing, headers: Mapping[str, str], body: bytes) -> Reply:
    named = [("Host", "127.0.0.1"), *headers.items()]
    return await send(standing.port, request("POST", "/_gate/ended", named, body))


async def report_end(
    standing: Standing, content: object, secret: str = ENDED_SECRET
) -> tuple[int, Mapping[str, object]]:
    """As the hub does: signed, and once more where the gate says so."""
    signer, body = Signer(secret), json.dumps(content).encode()
    while True:
        outgoing = signer.sign("POST", "/_gate/ended", body)
        reply = await posted(standing, outgoing.headers, body)
        if secret != ENDED_SECRET or outgoing.verify(reply.status, reply.body.encode(), reply[ANSWER_HEADER]):
            return reply.status, json.loads(reply.body)


async def test_what_the_hub_ends_is_over_at_once_though_its_answer_is_fresh(tmp_path: Path, hub: GateHub) -> None:
    async with a_gate(tmp_path / "gate", hub, cache=LONG) as standing:
        ada, other, token = standing.browser(), standing.browser(), hub.token_for("ada")
        await ada.sign_in()
        hub.users["ada"] = {**hub.users["ada"], "session_id": "another"}
        await other.sign_in()
        assert (await ada.check()).status == (await other.check()).status == 200
        assert (await ada.check(Authorization=f"Bearer {token}")).status == 200
        hub.tokens.pop(token)
        assert await report_end(standing, {"user": "ada", "sessions": [session_hash("of-ada")]}) == (200, {"ended": 1})
        assert (await ada.check(**FETCH)).status == 401
        assert (await ada.check(Authorization=f"Bearer {token}")).status == 401, "asked about anew"
        assert (await other.check()).status == 200, "another session of the hub's"
        assert await report_end(standing, {"user": "ada", "sessions": None}) == (200, {"ended": 1})
        assert (await other.check()).status == 401


async def test_an_answer_that_was_under_way_at_an_end_opens_nothing(standing: Standing, hub: GateHub) -> None:
    ada = standing.browser()
    await ada.sign_in()
    hub.was_asked.clear()
    hub.gate_opens.clear()
    pending = asyncio.ensure_future(ada.check(**FETCH))
    await hub.was_asked.wait()
    assert (await report_end(standing, {"user": "ada", "sessions": [session_hash("of-ada")]}))[0] == 200
    hub.gate_opens.set()
    assert (await pending).status == 401


@pytest.mark.parametrize("content", [[], {}, {"user": ""}, {"user": 7}, {"user": "ada", "sessions": "of-ada"}, "ada"])
async def test_a_report_that_cannot_be_read_is_refused(standing: Standing, content: object) -> None:
    assert (await report_end(standing, content))[0] == 400


async def test_nobody_else_reports_an_end(standing: Standing, hub: GateHub) -> None:
    ada = standing.browser()
    await ada.sign_in()
    content = {"user": "ada", "sessions": None}
    assert (await report_end(standing, content, secret="another-secret-another-secret"))[0] == 404
    body = json.dumps(content).encode()
    signer = Signer(ENDED_SECRET)
    first = await posted(standing, signer.sign("POST", "/_gate/ended", b"{}").headers, body)
    assert first.status == 401, "it is another life"
    assert (await ada.check()).status == 200


async def test_a_sign_out_is_the_hubs_and_only_from_a_page_of_ours(standing: Standing, hub: GateHub) -> None:
    ada, tab = standing.browser(), standing.browser()
    await ada.sign_in()
    tab.jars = {host: dict(jar) for host, jar in ada.jars.items()}
    out = f"{ORIGIN}/_gate/sign-out"
    assert (await ada.get(out)).status == 405
    for foreign in ("cross-site", "same-site"):
        assert (await ada.get(out, "POST", **{"Sec-Fetch-Site": foreign})).status == 403
    assert (await ada.check()).status == 200
    done = await ada.get(out, "POST", **{"Sec-Fetch-Site": "same-origin"})
    assert (done.status, done["Location"]) == (303, "https://hub.example.org/hub/logout")
    assert (await tab.check(**FETCH)).status == 401
    assert len(standing.gate.sessions) == 0


@pytest.mark.parametrize("to_whom", ["nobody", "somebody else"])
async def test_a_token_that_the_hub_takes_back_ends_the_session(tmp_path: Path, hub: GateHub, to_whom: str) -> None:
    async with a_gate(tmp_path / "gate", hub, cache=timedelta(0)) as standing:
        ada = standing.browser()
        await ada.sign_in()
        assert (await ada.check()).status == 200
        if to_whom == "nobody":
            hub.revoke("ada")
        else:  # the hub says that the token is another person's now
            hub.users["ada"]["name"] = "ben"
        assert (await ada.check(kind="answer")).status == 302
        assert len(standing.gate.sessions) == 0


@pytest.mark.parametrize(("hours", "status"), [(23, 200), (24, 401), (168, 401)])
async def test_a_session_that_is_not_used_ends(standing: Standing, hours: int, status: int) -> None:
    ada = standing.browser()
    await ada.sign_in()
    standing.ahead = timedelta(hours=hours)
    assert (await ada.check()).status == status
    await standing.gate.sessions.tidy()
    assert len(standing.gate.sessions) == (1 if status == 200 else 0)


async def test_another_gate_goes_on_with_the_sessions_and_the_sign_ins_of_the_one_before(
    tmp_path: Path, hub: GateHub, store_url: str
) -> None:
    folder = tmp_path / "gate"
    async with a_gate(folder, hub, database_url=store_url) as first:
        ada, ben = first.browser(), first.browser()
        await ada.sign_in()
        out = await ben.get(f"{ORIGIN}/_gate/start?app=mlflow")
        async with a_gate(folder, hub, database_url=store_url) as second:  # the first one never stopped: it was killed
            for browser in (ada, ben):
                browser.port = second.port
            assert (await ada.check()).status == 200
            back = await ben.get(await ben.at_the_hub(out["Location"]))
            assert back["Location"] == MLFLOW.where
            token = second.gate.token_of(second.gate.sessions.find(ada.cookie))  # type: ignore[arg-type]
            kept = b"".join(each.read_bytes() for each in folder.glob("gate.sqlite*"))
            assert token.encode() not in kept and ada.cookie.encode() not in kept
            assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} <= {0o600}


async def test_an_end_that_cannot_be_written_is_repeated_and_opens_nothing_meanwhile(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, store = standing.browser(), standing.gate.sessions._store

    def fails(*_: object) -> None:
        raise OSError("disk full")

    await ada.sign_in()
    with monkeypatch.context() as broken:
        broken.setattr(store, "remove", fails)
        for _ in range(2):
            assert (await report_end(standing, {"user": "ada", "sessions": None}))[0] == 503
        broken.setattr(type(store), "is_shared", True)
        assert len(store.sessions()) == 1 and (await ada.check(**FETCH)).status == 401
    assert await report_end(standing, {"user": "ada", "sessions": None}) == (200, {"ended": 0})
    assert store.sessions() == []


async def test_a_sign_out_that_cannot_be_written_goes_on_to_the_hub(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, store = standing.browser(), standing.gate.sessions._store

    def fails(*_: object) -> None:
        raise OSError("disk full")

    await ada.sign_in()
    with monkeypatch.context() as broken:
        broken.setattr(store, "remove", fails)
        done = await ada.get(f"{ORIGIN}/_gate/sign-out", method="POST", **{"Sec-Fetch-Site": "same-origin"})
    assert (done.status, done["Location"], ada.cookie) == (303, "https://hub.example.org/hub/logout", '""')
    await standing.gate.sessions.tidy()
    assert store.sessions() == []


@pytest.mark.needs("postgresql")
@pytest.mark.whole
async def test_a_database_that_is_killed_keeps_nobody_out_who_is_in_and_lets_nobody_in(
    tmp_path: Path, hub: GateHub
) -> None:
    with own_server() as server:
        url = server.create("gate").replace("postgresql://", "postgresql+psycopg://")
        async with a_gate(tmp_path / "gate", hub, database_url=url) as standing:
            ada, eve, ben = standing.browser(), standing.browser(), standing.browser()
            hub.add_user("eve", MLFLOW.scope)
            await ada.sign_in()
            hub.signed_in = "eve"
            await eve.sign_in()
            with server.standing_still():
                assert (await ada.check()).status == 200
                assert (await ben.check(**FETCH)).status == 401
                ben.jars = {"apps.example.org": {SECURE_COOKIE: "b" * 43}}
                waits = asyncio.ensure_future(ben.check(**FETCH))  # another gate may have made it
                assert (await ada.check("board", kind="answer")).status == 302
                assert not waits.done() or waits.result().status == 503
            assert (await waits).status in (401, 503)
            ben.jars = {}
            await asyncio.to_thread(server.stop)  # immediate: as by kill -9
            assert (await ada.check()).status == 200
            assert (await ben.check(**FETCH)).status == 401
            assert (await ben.get(f"{ORIGIN}/_gate/start?app=mlflow")).status >= 500, "no sign-in begins"
            ben.jars = {"apps.example.org": {SECURE_COOKIE: "b" * 43}}
            assert (await ben.check(**FETCH)).status == 503, "another gate may have made it"
            hub.revoke("eve")
            assert (await report_end(standing, {"user": "eve", "sessions": None}))[0] == 503
            assert (await eve.check(**FETCH)).status in (401, 503)
        # that gate is killed as well: its row of eve's session is still there, and her token at the hub is not
        await asyncio.to_thread(server.start)
        async with a_gate(tmp_path / "gate", hub, database_url=url) as second:
            for browser in (ada, eve, ben):
                browser.port = second.port
            assert (await ada.check()).status == 200
            assert (await eve.check(**FETCH)).status == (await ben.check(**FETCH)).status == 401
            assert await report_end(second, {"user": "eve", "sessions": None}) == (200, {"ended": 0})
