"""The front page over HTTP: whose it is, what it never says, and what it says when somebody does not answer."""

from __future__ import annotations

import http.client
import re
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

import pytest

from hub_extensions.core.messages import FormState, TicketInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.text.reasons import Reason
from hub_extensions.gate.health import HealthWatch
from tests.fakes.panel_service import a_state
from tests.fakes.portal_lab import PortalLab, Somebody
from tests.fakes.service import an_offer
from tests.ports import free_port

pytestmark = pytest.mark.slow


def now() -> datetime:
    return datetime.now(timezone.utc)


def an_app(name: str, upstream: str = "http://127.0.0.1:1", health: str = "/") -> App:
    return App(name, name.title(), f"/app/{name}/", upstream, health=health)


def ada() -> Somebody:
    form = FormState((an_offer("gpu", free=0, total=2),), False, now(), "", ())
    ticket = TicketInfo(
        "t", "ada", "thesis", "waiting", (OfferId("gpu"),), 2, now(), Reason("full", "All are in use."), ""
    )
    server = a_state(title="MIG 1g.5gb", ends_at=now() + timedelta(days=3, minutes=30))
    return Somebody("ada", (an_app("mlflow"), an_app("dask")), (server,), form, (ticket,))


def ben() -> Somebody:
    form = FormState((an_offer("cpu", free=None, total=None),), False, now(), "", ())
    return Somebody("ben", (an_app("tensorboard"),), (), form, ())


@pytest.fixture(scope="module")
def shared() -> Iterator[PortalLab]:
    lab = PortalLab({"ada": ada(), "ben": ben()})
    yield lab
    lab.close()


@pytest.fixture
def lab(shared: PortalLab) -> Iterator[PortalLab]:
    yield shared
    shared.silent.clear()
    shared.broken.clear()
    shared.gate.away_since = None


def get(lab: PortalLab, who: str = "", path: str = "/", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(lab.url).netloc)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers={**sent, **({"Cookie": f"who={who}"} if who else {})})
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers.items()), answer.read().decode()
    connection.close()
    return found


def sections(page: str) -> dict[str, str]:
    """What stands in each part of the page, without its tags."""
    found = re.findall(r'<section id="(\w+)".*?>(.*?)</section>', page, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", " ", text).split()) for name, text in found}


def test_everybody_sees_what_is_his_and_no_word_of_others(lab: PortalLab) -> None:
    status, headers, page = get(lab, "ada")
    assert status == 200
    assert sections(page) == {
        "apps": "D Dask ? not known M Mlflow ? not known",
        "servers": "Your servers Default server · MIG 1g.5gb · stops in 3 d",
        "places": "Your place in line 2nd in line : MIG gpu (server thesis) All are in use.",
        "waits": sections(page)["waits"],
    }
    assert "tensorboard" not in page.lower() and "ben" not in page
    other = get(lab, "ben")[2]
    assert sections(other)["apps"] == "T Tensorboard ? not known"
    for name in ("mlflow", "dask", "ada", "thesis"):
        assert name not in re.sub(r"<style>.*?</style>", "", other, flags=re.DOTALL).lower()
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert "<script" not in page and "token-of" not in page


@pytest.mark.parametrize(("header", "language", "words"), [("fi", "fi-FI", "Sovellukset"), ("ja", "ja-JP", "アプリ")])
def test_the_page_speaks_its_readers_language(lab: PortalLab, header: str, language: str, words: str) -> None:
    page = get(lab, "ada", Accept_Language=header)[2]
    assert f'<html lang="{language}">' in page and f"<h1>{words}</h1>" in page


@pytest.mark.whole
@pytest.mark.parametrize("how", [pytest.param("silent", marks=pytest.mark.slow), "broken"])
@pytest.mark.parametrize(("source", "unknown"), [("offers", "waits"), ("tickets", "places")])
def test_who_does_not_answer_is_not_known_and_the_rest_is_shown(
    lab: PortalLab, how: str, source: str, unknown: str
) -> None:
    getattr(lab, how).add(source)
    status, _, page = get(lab, "ada")
    found = sections(page)
    assert status == 200
    assert found[unknown].endswith("not known")
    assert found["servers"].endswith("stops in 3 d") and "Mlflow" in found["apps"]


def test_servers_are_not_known_where_neither_hub_nor_service_says_them(lab: PortalLab) -> None:
    lab.broken |= {"servers", "user"}
    assert sections(get(lab, "ada")[2])["servers"] == "Your servers not known"


def test_a_hub_that_cannot_say_who_may_open_what_shows_no_app(lab: PortalLab) -> None:
    lab.gate.away_since = now() - timedelta(days=3, minutes=30)
    status, _, page = get(lab, "ada")
    assert status == 503
    assert "You stay signed in." in page and "It has not answered for 3 d." in page and "mlflow" not in page.lower()
    lab.gate.away_since = now() + timedelta(hours=1)  # it is less than a second, however long the test takes
    assert "has not answered for" not in get(lab, "ada")[2], "for 0 s says nothing"


def test_who_is_not_signed_in_is_led_to_it_and_a_script_is_not(lab: PortalLab) -> None:
    status, headers, _ = get(lab)
    assert (status, headers["Location"]) == (302, "/_gate/start?next=%2F")
    status, _, page = get(lab, Sec_Fetch_Mode="cors")
    assert status == 401 and "You are not signed in." in page and 'href="/_gate/start?next=%2F"' in page


def test_two_hundred_apps_are_one_page_with_each_of_them() -> None:
    lab = PortalLab({"ada": Somebody("ada", [an_app(f"app-{number}") for number in range(200)])}, gpu_service=False)
    try:
        page = get(lab, "ada")[2]
    finally:
        lab.close()
    assert len(re.findall(r'<a href="/app/app-\d+/">', page)) == 200
    assert set(sections(page)) == {"apps", "servers"}, "nothing is said of a line that there is not"


class Answers(socketserver.BaseRequestHandler):
    """Says what its server is to say, and would go on for ever."""

    def handle(self) -> None:
        asked = self.request.recv(4096)
        self.server.asked.append(asked.split(b"\r\n")[0])  # type: ignore[attr-defined]
        self.request.sendall(self.server.says)  # type: ignore[attr-defined]


def an_upstream(says: bytes) -> socketserver.ThreadingTCPServer:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    server.says, server.asked = says, []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


async def test_health_is_one_request_that_follows_nothing_and_reads_no_body() -> None:
    leads, fails = an_upstream(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"), an_upstream(b"HTTP/1.1 500 No\r\n\r\n")
    endless, rubbish = an_upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"), an_upstream(b"\0" * 99999)
    apps = [
        *(
            an_app(name, f"http://127.0.0.1:{each.server_address[1]}", "/healthz")
            for name, each in (("leads", leads), ("fails", fails), ("endless", endless), ("rubbish", rubbish))
        ),
        an_app("nobody", f"http://127.0.0.1:{free_port()}"),
        an_app("unasked", f"http://127.0.0.1:{leads.server_address[1]}", ""),
    ]
    try:
        watch = HealthWatch(apps)
        await watch.check_all()
        states = {name: state.state for name, state in watch.states.items()}
        assert states == {"leads": "up", "endless": "up", "fails": "down", "rubbish": "down", "nobody": "down"}
        assert leads.asked == [b"GET /healthz HTTP/1.1"]  # type: ignore[attr-defined]
        down_since = watch.states["nobody"].since
        await watch.check_all()
        assert watch.states["nobody"].since == down_since
        watch.use([replace(apps[4], upstream=apps[0].upstream), apps[1]])
        assert set(watch.states) == {"fails"}, "an app that moved is not known, one that is gone forgotten"
    finally:
        for each in (leads, fails, endless, rubbish):
            each.shutdown()
            each.server_close()
