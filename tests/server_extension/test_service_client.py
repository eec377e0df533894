"""The talk to the service: how often, what is said, and what is shown while it is away."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta, timezone

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from hub_extensions.core.messages import Problem, Report, ServerState
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.codec import encode
from hub_extensions.server_extension.sampler import NOT_UNDER_A_HUB
from hub_extensions.server_extension.service_client import (
    MAX_ANSWER_BYTES,
    RequestRefused,
    ServiceAddress,
    ServiceLink,
    address_in,
)
from tests.fakes.panel_service import TOKEN, PanelService, a_countdown, a_state
from tests.patience import soon


@pytest.fixture
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    yield service
    service.go()


class Server:
    """What the link tells about its server."""

    def __init__(self) -> None:
        self.busy = 0
        self.used: float | None = None
        self.asked_since: list[float] = []

    async def report(self, since: float) -> Report:
        self.asked_since.append(since)
        return Report(opened=True, kernels=2, busy_kernels=self.busy, used_percent=self.used)


@contextlib.asynccontextmanager
async def linked(
    address: ServiceAddress | None, server: Server | None = None, pace: float = 100.0
) -> AsyncIterator[ServiceLink]:
    link = ServiceLink(address, (server or Server()).report, pace=pace)
    link.start()
    try:
        yield link
    finally:
        link.stop()


def address(service: PanelService, token: str = TOKEN) -> ServiceAddress:
    return ServiceAddress(service.url, token)


def test_the_address_comes_from_the_environment_and_hides_its_token() -> None:
    found = address_in({"JUPYTERHUB_GPU_SERVICE_URL": "http://h/services/gpu/", "JUPYTERHUB_API_TOKEN": "secret"})
    assert found == ServiceAddress("http://h/services/gpu", "secret")
    assert "secret" not in repr(found)
    assert address_in({}) is None
    assert address_in({"JUPYTERHUB_API_TOKEN": "secret"}) is None


async def test_outside_a_hub_nothing_is_asked_and_a_sentence_says_so() -> None:
    async with linked(None) as link:
        assert link.note == NOT_UNDER_A_HUB
        with pytest.raises(RequestRefused) as refused:
            await link.keep()
    assert refused.value.status == 503


async def test_it_reports_first_and_then_asks(service: PanelService) -> None:
    async with linked(address(service)) as link:
        assert (link.state, link.note) == (None, None)
        await soon(lambda: ("GET", "api/server") in service.calls)
        assert service.calls[0] == ("POST", "api/server/report")
        expected = {"opened": True, "kernels": 2, "busy_kernels": 0, "saved": False, "used_percent": None}
        expected |= {"busy_terminals": None, "draining": None, "warned": None, "hook_ran": False, "has_hook": False}
        expected |= {"asked": None, "watched": False}
        assert service.reports[0] == expected
        assert link.state is not None and link.state.title == "MIG 1g.5gb"


async def test_a_kernel_that_becomes_busy_is_reported(service: PanelService) -> None:
    server = Server()
    async with linked(address(service), server):
        await soon(lambda: service.reports)
        server.busy = 1
        await soon(lambda: service.reports[-1]["busy_kernels"] == 1)


async def test_the_highest_use_since_the_last_report_that_arrived_is_reported(service: PanelService) -> None:
    server = Server()
    server.used = 71.5
    async with linked(address(service), server):
        await soon(lambda: len(service.reports) >= 2)
        before = len(service.calls)
        server.used = 3.0
        await soon(lambda: ("GET", "api/server") in service.calls[before:])
    assert service.reports[0]["used_percent"] == 71.5
    assert server.asked_since[0] == float("-inf")
    arrived = server.asked_since[1]
    assert server.asked_since[2:4] == [arrived] * 2 or arrived < server.asked_since[-1]


async def test_use_that_moves_is_no_reason_to_report_early(service: PanelService) -> None:
    server = Server()
    async with linked(address(service), server, pace=1.0) as link:
        await soon(lambda: service.reports)
        server.used = 50.0
        link.soon()
        await soon(lambda: ("GET", "api/server") in service.calls)
    assert len(service.reports) == 1


async def test_it_asks_more_often_the_closer_the_end(service: PanelService) -> None:
    async with linked(address(service), pace=1.0) as link:
        await soon(lambda: link.state is not None)
        assert link.period() == 10.0
        link.state = a_state(countdown=a_countdown(540))
        assert link.period() == 5.0
        link.state = a_state(countdown=a_countdown(59))
        assert link.period() == 2.0
        link.state = a_state(save=True)
        assert link.period() == 2.0


async def test_while_the_service_is_away_the_last_state_stays_with_since_when(service: PanelService) -> None:
    async with linked(address(service)) as link:
        await soon(lambda: link.state is not None)
        service.go()
        await soon(lambda: link.note)
        assert link.note is not None and link.note.message.startswith("The GPU service is not answering since 2")
        assert link.state is not None
        since = link.note
        with pytest.raises(RequestRefused) as refused:
            await link.keep()
        assert refused.value.problem.message == "The GPU service is not answering. Nothing was changed."
        assert link.note == since
        service.come()
        await soon(lambda: not link.note)


async def test_a_server_the_service_does_not_know_has_no_state(service: PanelService) -> None:
    service.state = None
    async with linked(address(service)) as link:
        await soon(lambda: link.note)
        assert link.state is None


async def test_a_missing_scope_is_named_with_its_fix(service: PanelService) -> None:
    async with linked(address(service, "another-token")) as link:
        await soon(lambda: link.note)
        assert link.note == explain("no-scope") and "access:services!service=gpu" in link.note.message


async def test_keep_moves_the_end_at_once(service: PanelService) -> None:
    service.state = a_state(countdown=a_countdown())
    async with linked(address(service), pace=0.01) as link:
        await soon(lambda: link.state is not None)
        kept = await link.keep()
        assert kept.countdown is None and kept.keep is not None and kept.keep.left == 0
        assert link.state == kept


async def test_a_refused_keep_is_told_in_the_services_words(service: PanelService) -> None:
    problem = Problem("It was kept twice.", "keep", "keep-none-left", {"times": 2.0, "day": 86400.0, "wait": 60.0})
    service.refuse = (409, asdict(problem))
    async with linked(address(service)) as link:
        with pytest.raises(RequestRefused) as refused:
            await link.keep()
    assert (refused.value.status, refused.value.problem) == (409, problem)


async def test_times_that_are_reckoned_anew_do_not_move(service: PanelService) -> None:
    """The service converts its running clock for each answer: microseconds of difference are no news, minutes are."""
    stops = datetime.now(timezone.utc) + timedelta(seconds=50)
    service.state = a_state(countdown=a_countdown(stops_at=stops), ends_at=stops)
    told: list[ServerState] = []
    link = ServiceLink(address(service), Server().report, on_state=told.append, pace=100.0)
    link.start()
    try:
        await soon(lambda: told)
        for milliseconds in (3, -40, 900):
            moved = stops + timedelta(milliseconds=milliseconds)
            service.state = a_state(countdown=a_countdown(stops_at=moved), ends_at=moved, title=str(milliseconds))
            await soon(lambda title=str(milliseconds): told[-1].title == title)
        assert {state.ends_at for state in told} == {told[0].ends_at}
        assert {state.countdown.stops_at for state in told if state.countdown} == {told[0].ends_at}
        service.state = a_state(countdown=a_countdown(stops_at=stops + timedelta(minutes=30)))
        await soon(lambda: told[-1].countdown and told[-1].countdown.stops_at - stops > timedelta(minutes=29))
    finally:
        link.stop()


@pytest.mark.slow
async def test_saved_is_told_until_the_request_is_over(service: PanelService) -> None:
    service.state = a_state(save=True)
    async with linked(address(service), pace=20.0) as link:
        await soon(lambda: link.state is not None)
        await link.saved()
        assert service.reports[-1]["saved"] is True
        service.state = a_state(save=False)
        await soon(lambda: service.reports[-1]["saved"] is False)


async def test_a_redirect_never_takes_the_token_along(service: PanelService) -> None:
    elsewhere = PanelService().come()
    service.redirect = elsewhere.url + "/api/server"
    try:
        async with linked(address(service)) as link:
            await soon(lambda: link.note)
        assert elsewhere.calls == []
    finally:
        elsewhere.go()


UNREADABLE = explain("unreadable")


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    "odd",
    ["", "[]", "{}", "[" * 100_000, encode(a_state()).replace('"share":1.0', '"share":1e999')],
    ids=["no JSON", "no object", "nothing in it", "nested without end", "no finite number"],
)
async def test_an_answer_that_cannot_be_read_is_a_note_of_its_own_and_one_log_line(
    service: PanelService, odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with linked(address(service)) as link:
        await soon(lambda: link.state is not None)
        service.odd = odd or "not JSON"
        await soon(lambda: link.note)
        calls = len(service.calls)
        await soon(lambda: len(service.calls) >= calls + 5)
        assert link.note == UNREADABLE
        with pytest.raises(RequestRefused) as refused:
            await link.keep()
        assert (refused.value.status, refused.value.problem) == (502, Problem.of(UNREADABLE))
        service.odd = ""
        await soon(lambda: not link.note)
    assert len([line for line in caplog.messages if "cannot be read" in line]) == 1


async def test_an_answer_that_is_much_too_long_is_none(service: PanelService) -> None:
    async with linked(address(service)) as link:
        await soon(lambda: link.state is not None)
        service.state = a_state(title="x" * (MAX_ANSWER_BYTES + 1))
        await soon(lambda: link.note)
        assert link.state is not None and len(link.state.title) < 100
        service.state = a_state(title="y" * (MAX_ANSWER_BYTES // 2))
        await soon(lambda: not link.note)


async def test_a_fault_of_whoever_is_told_ends_nothing_and_is_logged_once(
    service: PanelService, caplog: pytest.LogCaptureFixture
) -> None:
    """A site's own handler of Jupyter Server's events may raise anything."""

    def broken(state: ServerState) -> None:
        raise RuntimeError("a site's own event handler")

    def also_broken() -> None:
        raise KeyError("once more")

    link = ServiceLink(address(service), Server().report, on_state=broken, on_answer=also_broken, pace=100.0)
    link.start()
    try:
        await soon(lambda: len(service.calls) >= 5)
        assert (await link.keep()).keep is not None
        assert link.note is None
    finally:
        link.stop()
    assert len([line for line in caplog.messages if "event handler" in line]) == 1
    assert len([line for line in caplog.messages if "once more" in line]) == 1


class ServerWithAFault(Server):
    """What it would report cannot be found out, at first."""

    async def report(self, since: float) -> Report:
        if len(self.asked_since) < 5:
            self.asked_since.append(since)
            raise ValueError("an odd kernel manager")
        return await super().report(since)


@pytest.mark.slow
async def test_a_fault_of_ours_does_not_end_the_asking(service: PanelService, caplog: pytest.LogCaptureFixture) -> None:
    async with linked(address(service), ServerWithAFault()) as link:
        await soon(lambda: link.note)
        assert link.note is not None and link.note.message.startswith("The GPU service is not answering since")
        await soon(lambda: link.state is not None and not link.note)
    assert len([line for line in caplog.messages if "as it should" in line]) == 1


@contextlib.asynccontextmanager
async def a_hub_without_the_service(code: int) -> AsyncIterator[tuple[ServiceAddress, list[str]]]:
    """It answers everything with a page, as JupyterHub does."""
    asked: list[str] = []

    class Page(RequestHandler):
        def prepare(self) -> None:
            asked.append(self.request.path)
            self.set_status(code)
            self.finish("<html>JupyterHub</html>")

    server = HTTPServer(Application([(".*", Page)]))
    (sock,) = bind_sockets(0, "127.0.0.1")
    server.add_sockets([sock])
    try:
        yield ServiceAddress(f"http://127.0.0.1:{sock.getsockname()[1]}/services/gpu", TOKEN), asked
    finally:
        server.stop()


@pytest.mark.parametrize("code", [302, 403, 404, 405])
async def test_a_hub_without_the_service_is_asked_ever_less_often(code: int) -> None:
    async with a_hub_without_the_service(code) as (there, asked), linked(there, pace=1.0) as link:
        periods = []
        for times in range(1, 7):
            await soon(lambda times=times: len(asked) >= times and link._strangers >= times)
            periods.append(link.period())
            link.soon()
    assert periods == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


async def test_the_services_own_refusal_slows_nobody(service: PanelService) -> None:
    service.state = None
    async with linked(address(service), pace=1.0) as link:
        await soon(lambda: link.note)
        assert link.period() == 10.0


async def test_an_answer_from_before_keep_that_comes_after_it_changes_nothing(service: PanelService) -> None:
    service.state = a_state(countdown=a_countdown())
    answered: list[bool] = []
    link = ServiceLink(address(service), Server().report, on_answer=lambda: answered.append(True))
    link.start()
    try:
        await soon(lambda: answered)
        service.held = threading.Event()
        asked = len(service.calls)
        link.soon()
        await soon(lambda: len(service.calls) > asked)
        assert (await link.keep()).countdown is None
        service.held.set()
        await soon(lambda: len(answered) > 1)
        assert link.state is not None and link.state.countdown is None
    finally:
        link.stop()
