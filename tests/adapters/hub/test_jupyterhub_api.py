"""The hub's API, asked of a real JupyterHub (of the generation that is installed) and of our stand-in alike."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.httputil import HTTPHeaders

from hub_extensions.adapters.hub.jupyterhub_api import (
    HubApi,
    HubAway,
    HubRefused,
    HubServer,
    HubUser,
    StartRefused,
    StopAnswer,
    StopRefused,
    _retry_after,
)
from hub_extensions.adapters.hub.known_callers import Caller, KnownCallers, server_of
from tests import hubs
from tests.fakes.hub import (
    FakeHub,
    FakeServer,
    FakeUser,
    HubThatIsAway,
    HubThatIsSlow,
)
from tests.patience import patient, soon

ADMIN = "root-admin"
ODD = "jo o+é%20x"
OPTIONS = {"offers": ["mig-2g.10gb", "mig-1g.5gb"]}

SEEN = ["u001", "u002", "u003", "u004"]
NAMES = ["ada", "ben", "slow", ADMIN, ODD, *(f"u{number:03}" for number in range(220))]

CONFIG = """
import asyncio
import os
from jupyterhub.spawner import SimpleLocalProcessSpawner
from hub_extensions.spawner.server_list import ServerList

token = "{token}"

async def held(name, when):
    while os.path.exists("hold-" + name + "-" + when):
        await asyncio.sleep(0.05)

class Held(SimpleLocalProcessSpawner):
    async def stop(self, now=False):
        await held(self.user.name, "before")
        await super().stop(now)

c.JupyterHub.spawner_class = Held
c.Spawner.post_stop_hook = lambda spawner: held(spawner.user.name, "after")
c.JupyterHub.extra_handlers = [(ServerList.route, ServerList)]
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 2, "slow_stop_timeout": 2}}
c.JupyterHub.load_groups = {{"lab": {{"users": ["ada"]}}, "seen": {{"users": {seen!r}}}}}
c.Authenticator.allowed_users = set({names!r})
slow = ("slow", "u004")
c.Spawner.environment = {{"FAKE_SINGLEUSER_SLOW": lambda spawner: "60" if spawner.user.name in slow else "0"}}
c.Spawner.http_timeout = 600
c.JupyterHub.services += [{{"name": "gpu", "api_token": token}}, {{"name": "of-a-group", "api_token": token[::-1]}}]
c.JupyterHub.load_roles += [
    {{
        "name": "of-a-group",
        "services": ["of-a-group"],
        "scopes": ["list:users!group=seen", "read:users", "read:servers", "servers", "delete:servers",
                   "admin:server_state"],
    }},
    {{
        "name": "gpu",
        "services": ["gpu"],
        "scopes": ["list:users", "read:users", "read:users:groups", "read:users:activity", "read:servers", "servers",
                   "delete:servers", "read:hub", "admin:server_state"],
    }},
]
"""


@dataclass
class Hub:
    """A hub to ask, and the servers' tokens that it gave out."""

    url: str
    token: str
    server_token: Callable[[str, str], str]


@dataclass
class RealHub:
    """JupyterHub as it is installed here. `token` has the scopes of the service's role."""

    hub: hubs.Hub
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.hub.hub_port}/hub/api"

    def server_token(self, user: str, server: str) -> str:
        return str(self.hub.environ(quote(user), server)["JUPYTERHUB_API_TOKEN"])


@pytest.fixture(scope="module")
def real_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    token = secrets.token_hex(16)
    with hubs.Hub(tmp_path_factory.mktemp("hub"), CONFIG.format(token=token, names=NAMES, seen=SEEN)) as hub:
        yield RealHub(hub, token)


@pytest.fixture(params=["fake 5", "fake 6", pytest.param("real", marks=pytest.mark.hub)])
async def hub(request: pytest.FixtureRequest) -> AsyncIterator[Hub]:
    if request.param == "real":
        real: RealHub = request.getfixturevalue("real_hub")
        yield Hub(real.url, real.token, real.server_token)
        return
    async with FakeHub(version="5.5.4" if request.param == "fake 5" else "6.1.1") as fake:
        fake.users.update((name, FakeUser(name == ADMIN, ["lab"] if name == "ada" else [])) for name in NAMES)
        fake.slow_users.add("slow")
        fake.tokens[fake.token] = {"kind": "service", "name": "gpu", "admin": False, "scopes": ["list:users"]}

        def server_token(user: str, server: str) -> str:
            token = secrets.token_hex(8)
            scopes = ["read:users:name!user=" + user, f"access:servers!server={user}/{server}"]
            fake.tokens[token] = {"kind": "user", "name": user, "admin": False, "groups": [], "scopes": scopes}
            return token

        yield Hub(fake.url, fake.token, server_token)


@pytest.fixture
def api(hub: Hub) -> Iterator[HubApi]:
    api = HubApi(hub.url + "/", hub.token)
    yield api
    api.close()


async def running(api: HubApi, user: str, server: str = "") -> HubServer:
    async def ready() -> bool:
        found = await api.server(user, server)
        return found is not None and found.ready

    await soon(ready)
    found = await api.server(user, server)
    assert found is not None
    return found


@pytest.mark.whole
async def test_a_server_is_started_with_its_options_listed_and_stopped(api: HubApi) -> None:
    assert await api.server("ada", "") is None
    await api.start("ada", "", OPTIONS)
    server = await running(api, "ada")
    assert (server.user, server.server, server.pending, server.groups) == ("ada", "", None, ("lab",))
    assert server.user_options == OPTIONS and not server.admin
    assert server.started is not None and server.started.tzinfo is timezone.utc
    assert [(each.user, each.server, each.ready) for each in await api.servers()] == [("ada", "", True)]
    assert await api.stop("ada", "") is StopAnswer.ASKED
    await soon(lambda: gone(api, "ada", ""))
    assert await api.servers() == ()


async def gone(api: HubApi, user: str, server: str) -> bool:
    return await api.server(user, server) is None


async def test_names_with_odd_characters_are_started_identified_and_stopped(hub: Hub, api: HubApi) -> None:
    await api.start(ODD, "lab-1", {"offer": "cpu"})
    server = await running(api, ODD, "lab-1")
    assert (server.user, server.server, server.user_options) == (ODD, "lab-1", {"offer": "cpu"})
    caller = await api.identify(hub.server_token(ODD, "lab-1"))
    assert caller is not None and (caller.name, caller.kind) == (ODD, "user")
    assert server_of(caller) == (ODD, "lab-1")
    assert await api.stop(ODD, "lab-1") is StopAnswer.ASKED
    await soon(lambda: gone(api, ODD, "lab-1"))


async def test_a_token_of_a_default_server_names_it_by_an_empty_name(hub: Hub, api: HubApi) -> None:
    await api.start("ben", "", {})
    await running(api, "ben")
    caller = await api.identify(hub.server_token("ben", ""))
    assert caller is not None and server_of(caller) == ("ben", "")
    assert await api.stop("ben", "") is StopAnswer.ASKED
    await soon(lambda: gone(api, "ben", ""))


async def test_a_second_start_of_a_running_server_is_refused_in_the_hubs_words(api: HubApi) -> None:
    await api.start("ben", "", {"offer": "cpu"})
    await running(api, "ben")
    with pytest.raises(StartRefused, match="already running") as refused:
        await api.start("ben", "", {"offer": "cpu"})
    assert refused.value.status == 400
    await api.stop("ben", "")
    await soon(lambda: gone(api, "ben", ""))


@pytest.mark.whole
async def test_a_pending_spawn_is_listed_may_be_asked_for_again_and_is_never_stopped(hub: Hub, api: HubApi) -> None:
    assert await api.start("slow", "", {"offer": "gpu"}) is True
    assert await api.start("slow", "", {"offer": "gpu"}) is False
    found = next(each for each in await api.servers() if each.user == "slow")
    assert (found.pending, found.ready, found.user_options) == ("spawn", False, {"offer": "gpu"})
    assert await api.stop("slow", "") is StopAnswer.STARTS
    again = await api.server("slow", "")
    assert again is not None and again.pending == "spawn"
    await cancel(hub, "slow")
    await soon(lambda: gone(api, "slow", ""))


async def cancel(hub: Hub, user: str) -> None:
    """What a user's own Stop on the waiting page does."""
    client = AsyncHTTPClient(force_instance=True)
    headers = {"Authorization": f"token {hub.token}"}
    answer = await client.fetch(
        f"{hub.url}/users/{user}/server", method="DELETE", headers=headers, request_timeout=patient(30)
    )
    assert answer.code in (202, 204)
    client.close()


async def test_a_stop_of_a_server_that_is_gone_is_done_already(api: HubApi) -> None:
    assert await api.stop("ada", "") is StopAnswer.OVER
    assert await api.stop("ada", "never-was") is StopAnswer.OVER
    assert await api.stop("nobody", "") is StopAnswer.OVER


async def test_all_users_are_read_page_by_page(api: HubApi) -> None:
    users = await api.users()
    assert len(users) == len(set(users)) == 225
    assert HubUser(ADMIN, True, ()) in users and HubUser("ada", False, ("lab",)) in users
    assert await api.user("ada") == HubUser("ada", False, ("lab",))
    assert await api.user("nobody") is None


async def test_a_start_for_somebody_who_does_not_exist_is_refused(api: HubApi) -> None:
    with pytest.raises(StartRefused) as refused:
        await api.start("nobody", "", {})
    assert refused.value.status == 404


async def test_a_stranger_is_nobody_and_a_service_is_a_service(hub: Hub, api: HubApi) -> None:
    assert await api.identify("no-such-token") is None
    service = await api.identify(hub.token)
    assert service is not None and (service.name, service.kind) == ("gpu", "service")
    assert server_of(service) is None


async def test_a_token_without_the_scopes_is_refused_not_away(hub: Hub) -> None:
    api = HubApi(hub.url, "no-such-token")
    with pytest.raises(HubRefused) as refused:
        await api.servers()
    assert refused.value.status == 403
    api.close()


@pytest.mark.hub
async def test_a_users_own_token_is_not_a_servers(real_hub: RealHub) -> None:
    made = await asyncio.to_thread(
        real_hub.hub.api, "POST", "users/ada/tokens", {"scopes": ["access:servers!user=ada", "read:users!user=ada"]}
    )
    api = HubApi(real_hub.url, real_hub.token)
    caller = await api.identify(made.json()["token"])
    assert caller is not None and caller.name == "ada" and caller.groups == ("lab",)
    assert server_of(caller) is None
    api.close()


@pytest.mark.hub
async def test_the_process_id_is_read_where_the_scope_allows_it(real_hub: RealHub) -> None:
    api = HubApi(real_hub.url, real_hub.token)
    await api.start("ada", "", {})
    server = await running(api, "ada")
    assert server.pid is not None
    os.kill(server.pid, 0)  # it is there
    await api.stop("ada", "")
    await soon(lambda: gone(api, "ada", ""))
    api.close()


@pytest.mark.whole
@pytest.mark.hub
async def test_the_list_of_ours_says_what_the_hubs_own_says_to_who_may_see_all_alone(real_hub: RealHub) -> None:
    """Of servers that run, start, and end, with and without an address; the fourth is as good as gone."""
    hub = real_hub.hub
    whole, of_a_group = HubApi(real_hub.url, real_hub.token), HubApi(real_hub.url, real_hub.token[::-1])
    holds = [hub.folder / name for name in ("hold-u001-after", "hold-u002-before", "hold-u003-after")]
    began = [("u001", ""), ("u001", "ends"), ("u002", ""), ("u003", "")]
    for user, server in began:
        await whole.start(user, server, {"of": [user, server]})
    for user, server in began:
        await running(whole, user, server)
    await whole.start("u004", "", OPTIONS)
    for hold in holds:
        hold.touch()
    for user, server in began[1:]:
        assert await whole.stop(user, server) is StopAnswer.ASKED
    listed = {("u001", ""): None, ("u001", "ends"): "stop", ("u002", ""): "stop", ("u004", ""): "spawn"}
    await soon(lambda: has(of_a_group, listed))
    mark = len(hub.log())
    ours = sorted(await whole.servers(), key=by_name)
    await soon(lambda: was_asked(hub, mark, "200 GET /hub/api/gpu/servers (gpu@"))
    assert not re.search(r"GET /hub/api/users\?\S+ \(gpu@", hub.log()[mark:])
    assert ours == sorted(await of_a_group.servers(), key=by_name)
    assert [each.pid is not None for each in ours] == [True, False, True, True]
    for token in ("no-such-token", real_hub.token[::-1], hub.token_of("ada")):
        assert hub.api("GET", "gpu/servers", token=token).status_code == 403
    assert hub.login(ADMIN).get(f"{hub.url}/hub/api/gpu/servers").status_code == 403
    for hold in holds:
        hold.unlink()
    await cancel(Hub(real_hub.url, real_hub.token, real_hub.server_token), "u004")
    await whole.stop("u001", "")
    await soon(lambda: has(whole, {}))
    whole.close()
    of_a_group.close()


def by_name(server: HubServer) -> tuple[str, str]:
    return server.user, server.server


async def was_asked(hub: hubs.Hub, mark: int, line: str) -> bool:
    return line in hub.log()[mark:]


async def has(api: HubApi, pending: dict[tuple[str, str], str | None]) -> bool:
    return {by_name(each): each.pending for each in await api.servers()} == pending


@pytest.mark.parametrize(
    ("scopes", "kind", "is_for"),
    [
        (["access:servers!server=ada/"], "user", ("ada", "")),
        (["access:servers!server=ada/lab-1", "users:activity!user=ada"], "user", ("ada", "lab-1")),
        (["access:servers!server=ben/"], "user", None),
        (["access:servers!server=ada/", "access:servers!server=ada/b"], "user", None),
        (["access:servers!user=ada"], "user", None),
        (["access:servers"], "user", None),
        (["access:servers!server=ada"], "user", None),
        (["access:servers!server=ada/"], "service", None),
        ([], "user", None),
    ],
)
def test_only_the_one_server_of_the_callers_own_is_the_callers_server(
    scopes: list[str], kind: str, is_for: tuple[str, str] | None
) -> None:
    assert server_of(Caller("ada", kind, False, (), frozenset(scopes))) == is_for


async def test_an_identity_is_remembered_for_some_seconds_only_and_by_token() -> None:
    async with FakeHub() as fake:
        api = HubApi(fake.url, fake.token)
        fake.tokens["a"] = {"kind": "user", "name": "ada", "admin": True, "groups": ["lab"], "scopes": ["self"]}
        ada = Caller("ada", "user", True, ("lab",), frozenset({"self"}))
        assert [await api.identify("a"), await api.identify("a"), await api.identify("b")] == [ada, ada, None]
        assert await api.identify("b") is None
        assert len(fake.asked) == 2
        api.close()


@pytest.mark.parametrize(
    ("scopes", "seconds", "as_server"),
    [
        (["access:servers!server=ada/", "users:activity!user=ada"], 15, 300),
        (["access:servers!server=ada/", "access:services!service=gpu"], 15, 300),
        (["access:servers!server=ben/"], 15, 15),
        (["self"], 15, 15),
        (None, 5, 5),
    ],
)
def test_a_server_that_asks_for_itself_is_no_question_to_the_hub_at_each_of_its_polls(
    scopes: list[str] | None, seconds: float, as_server: float
) -> None:
    """Every server's token opens the service's pages too; there it is asked about as any other."""
    known = KnownCallers()
    caller = None if scopes is None else Caller("ada", "user", False, (), frozenset(scopes))
    known.keep("a token", caller, 100.0)
    for own, lasts in ((False, seconds), (True, as_server)):
        assert known.find("a token", 99.0 + lasts, as_server=own) == (True, caller)
        assert not known.find("a token", 100.0 + lasts, as_server=own)[0]


async def test_a_listing_tells_the_hubs_clock(api: HubApi) -> None:
    assert api.clock_ahead is None
    await api.servers()
    assert api.clock_ahead is not None and abs(api.clock_ahead) < timedelta(seconds=patient(30))


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("0", 0), ("", None), ("soon", None), ("-1", None), ("9" * 30, None)]
)
def test_retry_after_is_read_in_seconds_only(header: str, seconds: int | None) -> None:
    answer = HTTPResponse(HTTPRequest("http://hub/"), 429, HTTPHeaders({"Retry-After": header}))
    assert _retry_after(answer) == (None if seconds is None else timedelta(seconds=seconds))


async def test_a_server_that_the_hub_still_checks_after_its_restart_is_not_stopped() -> None:
    async with FakeHub() as fake:
        fake.users["ada"] = FakeUser(servers={"": FakeServer(ready=False, pending="check")})
        fake.users["ben"] = FakeUser(servers={"": FakeServer(ready=False, pending="stop")})
        api = HubApi(fake.url, fake.token)
        assert await api.stop("ada", "") is StopAnswer.STARTS
        assert await api.stop("ben", "") is StopAnswer.OVER
        assert fake.sent("DELETE") == []
        api.close()


async def test_options_are_the_whole_body_on_hub_5_and_a_part_of_it_on_hub_6() -> None:
    sent = []
    for version in ("5.5.4", "6.1.1", "7.0.0"):
        async with FakeHub(version=version) as fake:
            fake.users["ada"] = FakeUser()
            api = HubApi(fake.url, fake.token)
            await api.start("ada", "", OPTIONS)
            sent += [body for _, body in fake.sent("POST")]
            api.close()
    assert sent == [OPTIONS, {"user_options": OPTIONS}, {"user_options": OPTIONS}]


async def test_refusals_carry_the_hubs_status_and_words() -> None:
    async with FakeHub() as fake:
        fake.users["ada"] = FakeUser()
        fake.users["ben"] = FakeUser(servers={"": FakeServer()})
        fake.refusals["ada", ""] = (429, "Too many users trying to log in right now.")
        fake.refusals["ben", ""] = (400, "Cannot stop a server while it is being renamed")
        api = HubApi(fake.url, fake.token)
        with pytest.raises(StartRefused, match="429: Too many users"):
            await api.start("ada", "", {})
        with pytest.raises(StopRefused, match="being renamed"):
            await api.stop("ben", "")
        api.close()


async def test_a_hub_that_is_away_is_a_sentence() -> None:
    hub = HubThatIsAway()
    api = HubApi(hub.url, "token")
    assert await api.up() is False
    asked: list[Callable[[], Awaitable[Any]]] = [
        api.servers,
        api.users,
        lambda: api.user("ada"),
        lambda: api.start("ada", "", {}),
        lambda: api.stop("ada", ""),
        lambda: api.identify("token"),
    ]
    for ask in asked:
        with pytest.raises(HubAway, match="The hub does not answer") as away:
            await ask()
        assert "token" not in away.value.message
    api.close()
    api.close()


async def test_what_is_not_a_hub_is_a_sentence() -> None:
    async with FakeHub() as fake:
        api = HubApi(fake.url.replace("/hub/api", "/nothing"), fake.token)
        assert await api.up() is False
        with pytest.raises(HubRefused):
            await api.servers()
        api.close()


async def test_a_slow_list_does_not_delay_a_stop_or_an_identity() -> None:
    async with HubThatIsSlow("/users") as slow:
        slow.users["ada"] = FakeUser(servers={"": FakeServer()})
        slow.tokens["a"] = {"kind": "user", "name": "ada", "scopes": []}
        api = HubApi(slow.url, slow.token)
        lists = [asyncio.ensure_future(api.servers()) for _ in range(12)]
        await asyncio.wait_for(slow.waiting.wait(), patient(10))
        slow.paths = ("/nothing",)
        assert await asyncio.wait_for(api.stop("ada", ""), patient(10)) is StopAnswer.ASKED
        assert await asyncio.wait_for(api.identify("a"), patient(10)) is not None
        assert await asyncio.wait_for(api.up(), patient(10)) is True
        for each in lists:
            each.cancel()
        await asyncio.gather(*lists, return_exceptions=True)
        api.close()


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("2026-11-20T10:00:00.123456Z", datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=timezone.utc)),
        ("2026-11-20T10:00:00Z", datetime(2026, 11, 20, 10, tzinfo=timezone.utc)),
        ("2026-11-20T10:00:00.5Z", datetime(2026, 11, 20, 10, 0, 0, 500000, tzinfo=timezone.utc)),
        ("2026-11-20T12:00:00+02:00", datetime(2026, 11, 20, 10, tzinfo=timezone.utc)),
        (None, None),
    ],
)
async def test_the_hubs_times_are_read_as_utc(said: Any, read: datetime | None) -> None:
    async with FakeHub() as fake:
        fake.users["ada"] = FakeUser(servers={"": FakeServer(last_activity=said)})
        api = HubApi(fake.url, fake.token)
        assert [each.last_activity for each in await api.servers()] == [read]
        api.close()
