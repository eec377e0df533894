"""The end of a server on Jupyter Server's own event stream: what is said when, and that it arrives."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from hub_extensions.core.messages import Report
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.before_stop import HOOK, OUTPUT
from hub_extensions.server_extension.events import END_EVENT_SCHEMA, EndEvents, EndWatch
from hub_extensions.server_extension.service_client import ServiceAddress, ServiceLink
from tests.fakes.panel_service import TOKEN, PanelService, a_countdown, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient, soon

ROOT = Path(__file__).resolve().parents[2]


def test_a_countdown_that_only_runs_is_no_event() -> None:
    watch = EndWatch()
    assert watch.due(a_state(), 0.0) == ()
    assert watch.due(a_state(countdown=a_countdown(warn=False)), 1.0) == ()


def test_a_warning_is_said_once_and_again_each_minute() -> None:
    watch, state = EndWatch(), a_state(countdown=a_countdown())
    said = [clock for clock in range(0, 130, 5) if watch.due(state, 1000.0 + clock) == ("warn",)]
    assert said == [0, 60, 120]


def test_a_hidden_page_is_waked_for_the_last_warning() -> None:
    countdown = a_countdown()
    last = countdown.stops_at - timedelta(seconds=12)
    watch, state = EndWatch(), a_state(countdown=replace(countdown, last_warning=last))
    moments = range(-10, 12, 2)
    said = [at for at in moments if watch.due(state, 1000.0 + at, last + timedelta(seconds=at)) == ("warn",)]
    assert said == [-10, 0]


def test_a_stream_is_never_silent_for_a_minute() -> None:
    """A proxy that cuts what is silent (nginx: 60 s) would leave a hidden page without its warning."""
    watch = EndWatch()
    said = [clock for clock in range(0, 150, 10) if watch.quiet(1000.0 + clock)]
    assert said == [30, 60, 90, 120]


def test_quiet_is_said_when_nothing_else_was_and_slow_looks_leave_no_minute_of_silence() -> None:
    watch, warned = EndWatch(), a_state(countdown=a_countdown())
    assert not watch.quiet(1000.0)
    assert watch.due(warned, 1025.0) == ("warn",)
    assert [clock for clock in (1025.0, 1045.0, 1065.0, 1085.0) if watch.quiet(clock)] == [1065.0]


@pytest.mark.whole
@pytest.mark.slow
async def test_while_the_service_is_away_for_minutes_the_stream_is_not_silent() -> None:
    """With a clock that runs a hundred times as fast; the service was never there, then comes, and goes again."""
    said: list[tuple[float, str]] = []

    def clock() -> float:
        return time.monotonic() * 100

    def emit(schema_id: str, data: dict[str, Any]) -> None:
        said.append((clock(), data["kind"]))

    async def no_report(since: float) -> Report:
        return Report(False, None, None)

    async def quiet_words(number: int) -> None:
        before = len(said)
        await soon(lambda: len(said) >= before + number, what=lambda: f"the stream is silent: {said}")
        assert {word for _, word in said[before:]} == {"quiet"}

    service = PanelService().come()
    service.go()
    events = EndEvents(emit, clock=clock)
    link = ServiceLink(
        ServiceAddress(service.url, TOKEN), no_report, on_state=events.take, on_answer=events.keep_alive, pace=100.0
    )
    link.start()
    try:
        await quiet_words(4)
        service.come()
        await quiet_words(2)
        assert link.state is not None
        service.go()
        await quiet_words(4)
        assert link.note
    finally:
        link.stop()
        service.go()


def test_an_end_that_moves_while_it_is_warned_is_said_at_once() -> None:
    watch, countdown = EndWatch(), a_countdown()
    watch.due(a_state(countdown=countdown), 0.0)
    assert (
        watch.due(a_state(countdown=replace(countdown, reason=explain("idle", idle=timedelta(minutes=22)))), 5.0) == ()
    )
    assert watch.due(a_state(countdown=a_countdown(60)), 10.0) == ("warn",)
    assert watch.due(a_state(countdown=a_countdown(60, cause="lifetime")), 15.0) == ("warn",)


@pytest.mark.parametrize("after", [None, a_countdown(5000, warn=False)])
def test_a_warning_that_is_taken_back_is_over_once(after: Any) -> None:
    watch = EndWatch()
    watch.due(a_state(countdown=a_countdown()), 0.0)
    assert watch.due(a_state(countdown=after), 5.0) == ("over",)
    assert watch.due(a_state(countdown=after), 500.0) == ()


def test_a_request_to_save_is_said_with_the_warning_that_still_stands() -> None:
    watch, countdown = EndWatch(), a_countdown()
    watch.due(a_state(countdown=countdown), 0.0)
    assert watch.due(a_state(countdown=countdown, save=True), 5.0) == ("save",)
    assert watch.due(a_state(countdown=countdown, save=True), 7.0) == ()
    assert watch.due(a_state(countdown=countdown), 9.0) == ()
    assert watch.due(a_state(countdown=countdown, save=True), 11.0) == ("save",)


def test_the_event_has_the_countdown_and_the_budget() -> None:
    said: list[dict[str, Any]] = []
    EndEvents(lambda **event: said.append(event)).take(a_state(countdown=a_countdown()))
    (event,) = said
    assert event["schema_id"] == END_EVENT_SCHEMA
    assert event["data"]["kind"] == "warn"
    assert event["data"]["countdown"]["cause"] == "idle"
    assert event["data"]["keep"] == {"minutes": 30, "left": 1, "of": 2, "of_server": False}


def test_the_panel_listens_for_the_schema_that_the_server_sends() -> None:
    assert END_EVENT_SCHEMA in (ROOT / "labextension" / "src" / "api.ts").read_text()
    assert (
        END_EVENT_SCHEMA
        in (ROOT / "hub_extensions" / "server_extension" / "event_schemas" / "server-end" / "v1.yaml").read_text()
    )


# ------------------------------------------------------------------ on a real server


@pytest.fixture
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    service.state = a_state(countdown=a_countdown(50, warn=False))  # near its end, so it is asked every 2 s
    yield service
    service.go()


@pytest.fixture
def server(service: PanelService, tmp_path: Path) -> Iterator[UserServer]:
    server = UserServer(tmp_path, {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN})
    yield server
    server.stop()


async def subscribed(server: UserServer) -> WebSocketClientConnection:
    url = server.url.replace("http", "ws", 1) + "api/events/subscribe"
    request = HTTPRequest(url, headers={"Authorization": f"token {LOGIN_TOKEN}"}, request_timeout=patient(20))
    return await websocket_connect(request)


async def next_word(stream: WebSocketClientConnection, seconds: float = 20.0) -> dict[str, Any]:
    deadline = time.monotonic() + patient(seconds)
    while True:
        message = await asyncio.wait_for(stream.read_message(), deadline - time.monotonic())
        assert message is not None, "the stream was closed"
        event: dict[str, Any] = json.loads(message)
        if event["schema_id"] == END_EVENT_SCHEMA:
            return event


@pytest.mark.whole
@pytest.mark.programs
async def test_a_page_that_nobody_sees_hears_the_warning_its_end_and_the_request_to_save(
    server: UserServer, service: PanelService
) -> None:
    """Subscribed as JupyterLab subscribes, with no connection of ours, and it is no use of the server."""
    hook = server.directory / "config" / HOOK
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o700)
    stream = await subscribed(server)
    try:
        before = server.last_activity()
        service.state = a_state(countdown=a_countdown(50))
        warned = await next_word(stream)
        assert (warned["kind"], warned["countdown"]["cause"]) == ("warn", "idle")
        service.state = a_state(countdown=a_countdown(40))
        assert (await next_word(stream))["kind"] == "warn"
        service.state = a_state(save=True, countdown=a_countdown(1, warn=False))
        assert [(await next_word(stream))["kind"] for _ in range(2)] == ["over", "save"]
        assert server.last_activity() == before
        await asyncio.sleep(0.5)
        assert not hook.with_name(OUTPUT).exists(), "its user's hook waits for what the page saves"
        assert server.request("gpu/saved", "POST")[0] == 204
        await soon(hook.with_name(OUTPUT).exists)
    finally:
        stream.close()
    assert "Traceback" not in server.log.read_text()
