"""Two gates with one PostgreSQL: what one makes or ends is known to the other, and nobody misses one that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import jwt
import pytest

from hub_extensions.adapters.provider.assertions import rotate
from hub_extensions.adapters.store.gate import GateStore
from hub_extensions.adapters.store.gate_news import News, NewsFromOthers, letters_of, news_in
from hub_extensions.core.sign_on.ended_sessions import session_hash
from hub_extensions.gate.keys import keys_of
from hub_extensions.gate.settings import GateSettings
from tests import patience
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import BOARD, DASK, FETCH, MLFLOW, ORIGIN, GateBrowser, a_gate, settings_for
from tests.gate.test_ends import report_end
from tests.gate.test_relay import echo_app, opened, told
from tests.machine_needs import proxy_program
from tests.patience import patient
from tests.ports import free_ports

LONG = timedelta(seconds=60)
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream gates {{ server 127.0.0.1:{first}; server 127.0.0.1:{second}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://gates; proxy_set_header Host $host; proxy_next_upstream error non_idempotent; }}
    }}
}}
"""


@dataclass
class Replicas:
    """Gates as processes, each with a folder of its own, and one proxy before them that takes turns."""

    settings: list[GateSettings]
    gates: list[subprocess.Popen[bytes]]
    hub: GateHub
    port: int

    def browser(self, number: int | None = None) -> GateBrowser:
        """One that asks this gate, or the proxy."""
        return GateBrowser(self.port if number is None else self.settings[number].port, self.hub)

    def kill(self, number: int) -> None:
        """With its supervisor, which would start it again."""
        os.killpg(self.gates[number].pid, signal.SIGKILL)
        self.gates[number].wait(patient(10))

    async def published(self, number: int) -> list[str]:
        """Ids of the keys that this gate publishes."""
        return [key["kid"] for key in await keys_at(self.browser(number))]


async def keys_at(browser: GateBrowser) -> list[dict[str, str]]:
    return list(json.loads((await browser.get(f"{ORIGIN}/_gate/jwks.json")).body)["keys"])


async def until(holds: Callable[[], Awaitable[bool]]) -> float:
    """Seconds until it did."""
    began, end = time.monotonic(), time.monotonic() + patient(20)
    while not await holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def answers(browser: GateBrowser) -> bool:
    try:
        return (await browser.get(f"{ORIGIN}/_gate/health")).status == 200
    except OSError:
        return False


@asynccontextmanager
async def replicas(folder: Path, hub: GateHub, url: str, upstream: str) -> AsyncIterator[Replicas]:
    first, second, port = free_ports(3)
    dask = replace(DASK, upstream=upstream, relay=True)
    more = {"database_url": url, "catalogue": (dask, MLFLOW, BOARD), "cache": LONG, "audit": timedelta(0)}
    found = Replicas([], [], hub, port)
    nginx = folder / "nginx.conf"
    nginx.write_text(NGINX.format(folder=folder, first=first, second=second, port=port))
    async with AsyncExitStack() as stack:
        for each in (first, second):
            place = folder / f"gate-{each}"
            place.mkdir()
            settings = settings_for(place, hub, port=each, **more)
            settings.dump(place / "gate.json")
            command = [sys.executable, "-m", "hub_extensions.gate", "--config", str(place / "gate.json")]
            found.settings.append(settings)
            found.gates.append(start(command))
            stack.callback(end, found.gates[-1])
        words = [proxy_program("nginx") or "", "-c", str(nginx), "-p", str(folder), "-e", str(folder / "error.log")]
        stack.callback(end, start(words))
        for browser in (found.browser(0), found.browser(1), found.browser()):
            await until(lambda browser=browser: answers(browser))
        yield found


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(patient(10))


@pytest.mark.programs
@pytest.mark.needs("postgresql")
@pytest.mark.needs("nginx")
@pytest.mark.whole
async def test_two_gates_are_one_to_people_apps_and_the_hub(
    tmp_path: Path, hub: GateHub, postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add_user("ada", MLFLOW.scope, DASK.scope, groups=("lab",))
    async with echo_app() as upstream, replicas(tmp_path, hub, postgresql_url, upstream) as both:
        one, other = both.settings[0].port, both.settings[1].port
        # a sign-in that begins at one comes back at the other, and is good at both
        ada = both.browser(0)
        out = await ada.get((await ada.check(kind="answer"))["Location"])
        ada.port = other
        await ada.get(await ada.at_the_hub(out["Location"]))
        for ada.port in (one, other):
            assert (await ada.check()).status == 200
        # one round for who has no right, whichever gate asks next
        ben, hub.signed_in = both.browser(0), "ben"
        out = await ben.get((await ben.check(kind="answer"))["Location"])
        ben.port = other
        await ben.get(await ben.at_the_hub(out["Location"]))
        for ben.port in (one, other):
            assert (await ben.check()).status == 403
        # an assertion of one is good by the keys of the other, also after a change of keys
        before = await both.published(0)
        rotate(keys_of(both.settings[0]))
        for number in (0, 1):
            await until(lambda number=number: changed(both, number, before))
        assert await both.published(0) == await both.published(1)
        ada.port = one
        signed = (await ada.check())["X-Sign-On-Assertion"]
        known = jwt.PyJWKSet.from_dict({"keys": await keys_at(both.browser(1))})
        key = known[jwt.get_unverified_header(signed)["kid"]]
        assert jwt.decode(signed, key.key, ["ES256"], audience="mlflow")["sub"] == "ada"
        # what the hub tells one, by the proxy, is over at the other, though its answer is believed for a minute
        eve, hub.signed_in = both.browser(1), "ada"
        await eve.sign_in("dask")
        socket = await opened(eve)
        await told(socket)
        assert (await eve.check()).status == 200
        hub.revoke("ada")
        began, report = time.monotonic(), {"user": "ada", "sessions": [session_hash("of-ada")]}
        assert await report_end(both.browser(), report) == (200, {"ended": 2})
        for browser in (ada, eve):
            for browser.port in (one, other):
                await until(lambda browser=browser: is_over(browser))
        print(f"every page is closed after {time.monotonic() - began:.3f} s")
        assert await told(socket) is None and socket.close_code == 4401
        print(f"the WebSocket is closed after {time.monotonic() - began:.3f} s")
        # the proxy's other gate goes on where one is killed
        await ada.sign_in()
        both.kill(0)
        ada.port = ben.port = both.port
        for _ in range(4):
            named = {"Host": "apps.example.org"}
            assert ((await ada.check(**named)).status, (await ben.check(**named)).status) == (200, 403)
        await eve.sign_in()
        assert await report_end(both.browser(), report) == (200, {"ended": 2})
        ada.port = other
        assert await is_over(ada)


async def changed(both: Replicas, number: int, before: list[str]) -> bool:
    return await both.published(number) != before


async def is_over(browser: GateBrowser) -> bool:
    return (await browser.check(**FETCH)).status == 401


@pytest.mark.whole
@pytest.mark.needs("postgresql")
async def test_a_use_at_one_gate_keeps_a_session_at_the_other(
    tmp_path: Path, hub: GateHub, postgresql_url: str
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    async with a_gate(one, hub, database_url=postgresql_url) as a, a_gate(other, hub, database_url=postgresql_url) as b:
        ada = a.browser()
        await ada.sign_in()
        ada.port = b.port
        assert (await ada.check()).status == 200
        for hours, used in ((20, a), (40, a)):
            a.ahead = b.ahead = timedelta(hours=hours)
            ada.port = used.port
            assert (await ada.check()).status == 200
            await a.gate.sessions.tidy()
        ada.port = b.port
        assert (await ada.check()).status == 200, "b used it last 40 hours ago, and a just now"
        a.ahead = b.ahead = timedelta(hours=65)
        assert (await ada.check()).status == 401
        await b.gate.sessions.tidy()
        await a.gate.sessions.tidy()
        assert (len(a.gate.sessions), len(b.gate.sessions)) == (0, 0)


@pytest.mark.needs("postgresql")
def test_gates_hear_each_other_and_one_leads(postgresql_url: str) -> None:
    one, other = NewsFromOthers(postgresql_url), NewsFromOthers(postgresql_url)
    assert one.wait(patient(1)) == other.wait(patient(1)) == [News(missed=True)], "what was before is to be looked at"
    assert (one.leads, other.leads) == (True, False)
    store = GateStore.open(postgresql_url)
    many = {f"{number:064d}" for number in range(150)}
    store.remove(many, "ada")
    for news in (one, other):
        ended: set[str] = set()
        while ended != many:  # in three letters
            heard = news.wait(patient(5))
            assert {each.user for each in heard} == {"ada"}
            ended |= {id for each in heard for id in each.ended}

    def takes_over() -> bool:
        other.try_again_at = 0.0
        other.wait(patient(0.01))
        return other.leads

    one.close()
    patience.until(takes_over, what="PostgreSQL has seen the connection end")
    assert not one.leads
    other.close()
    store.close()


@pytest.mark.parametrize("letter", ["", "[]", "{}", '{"user": "ada", "ended": 7, "keys": false}'])
def test_a_letter_that_cannot_be_read_says_that_something_was_missed(letter: str) -> None:
    assert news_in(letter) == News(missed=True)
    assert [news_in(each) for each in letters_of(News("ada", ("1",), keys=True))] == [News("ada", ("1",), keys=True)]
