"""How often a service apart asks the hub for its settings, and what it does with each answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubAway, HubRefused
from hub_extensions.adapters.linux.supervisor import FINAL
from hub_extensions.hub_service.process import Lifetime
from hub_extensions.hub_service.setup import settings_client
from hub_extensions.hub_service.setup.service_info import ServiceEnvironment, to_info
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.hub_service.setup.settings_client import RemoteSettings

OWN = ServiceEnvironment("http://127.0.0.1:9/hub/api", "token-of-the-service", "/srv/gpu", "127.0.0.1", {})
INFO = to_info(Settings(hub_secret="secret", api_token="token", port=8200))


class HubThatSays:
    """Answers with what is next in `answers`, the last one for ever; exceptions are raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def service_info(self, name: str) -> dict[str, Any]:
        assert name == "gpu"
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def close(self) -> None:
        """Nothing is open."""


class Room:
    def __init__(self, lifetime: Lifetime) -> None:
        self.now = 0.0
        self.lifetime = lifetime
        self.remote = RemoteSettings(OWN, lifetime, clock=lambda: self.now)

    def hub(self, *answers: Any) -> HubThatSays:
        hub = HubThatSays(*answers)
        self.remote._hub = hub  # type: ignore[assignment]
        return hub


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    monkeypatch.setattr(settings_client, "FIRST_PAUSE", 0.001)
    with Lifetime(None) as lifetime:
        yield Room(lifetime)


async def test_it_asks_until_the_hub_tells_and_says_each_reason_once(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away, refused = HubAway("The hub does not answer (refused)."), HubRefused(403, "no")
    hub = room.hub(away, away, away, refused, refused, {}, {"settings": {"later": 1}}, INFO)
    settings = await room.remote.wait_for_settings()
    assert settings is not None and settings.port == 8200
    assert hub.asked == 8
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.split(":")[1][:18] for line in said] == [
        " it does not answe",
        " it answers 403",
        " its configuration",
        " What the hub says",
    ]


async def test_the_pauses_grow(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def within(seconds: float, work: Any) -> None:
        work.close()
        pauses.append(seconds)
        raise asyncio.TimeoutError

    monkeypatch.setattr(settings_client, "with_timeout", within)
    monkeypatch.setattr(settings_client, "FIRST_PAUSE", 1.0)
    room.hub(*[HubAway("away")] * 6, INFO)
    await room.remote.wait_for_settings()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


async def test_one_that_is_told_to_stop_while_it_waits_has_no_settings(room: Room) -> None:
    room.hub(HubAway("away"))
    waiting = asyncio.ensure_future(room.remote.wait_for_settings())
    await asyncio.sleep(0)
    room.lifetime.stop("SIGTERM")
    assert await waiting is None


async def test_it_looks_once_a_minute_and_at_once_when_the_hub_may_be_a_new_one(room: Room) -> None:
    hub = room.hub(INFO)
    await room.remote.wait_for_settings()
    room.now = 59.0
    assert not await room.remote.has_changed(may_be_new=False)
    assert hub.asked == 1
    assert not await room.remote.has_changed(may_be_new=True)
    assert hub.asked == 2
    room.now = 118.0
    assert not await room.remote.has_changed(may_be_new=False)
    room.now = 119.0
    assert not await room.remote.has_changed(may_be_new=False)
    assert hub.asked == 3
    assert not room.lifetime.stopping.is_set()


@pytest.mark.parametrize("answer", [HubAway("away"), HubRefused(403, "no"), HubRefused(404, "no")])
async def test_a_hub_that_cannot_be_asked_ends_nothing(room: Room, answer: Exception) -> None:
    room.hub(INFO, answer)
    await room.remote.wait_for_settings()
    assert not await room.remote.has_changed(may_be_new=True)
    assert not room.lifetime.stopping.is_set()


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_hub_that_tells_no_settings_any_more_ends_it_after_a_minute(
    room: Room, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """It starts the service itself now, and the token it made for this one goes on being valid."""
    room.hub(INFO, HubRefused(status, "no"))
    await room.remote.wait_for_settings()
    for room.now in (100.0, 130.0, 159.9):
        assert not await room.remote.has_changed(may_be_new=True)
    assert not room.lifetime.stopping.is_set()
    room.now = 160.0
    assert await room.remote.has_changed(may_be_new=True)
    assert room.lifetime.stopping.is_set()
    assert room.lifetime.status == 0
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


async def test_two_of_the_regular_looks_are_enough_for_that(room: Room) -> None:
    room.hub(INFO, HubRefused(403, "no"))
    await room.remote.wait_for_settings()
    room.now = 60.0
    assert not await room.remote.has_changed(may_be_new=False)
    room.now = 120.0
    assert await room.remote.has_changed(may_be_new=False)


async def test_a_hub_that_tells_them_in_between_or_is_only_broken_ends_nothing(room: Room) -> None:
    no, broken = HubRefused(403, "no"), HubRefused(500, "broken")
    room.hub(INFO, no, INFO, no, INFO, broken, broken, HubAway("away"))
    await room.remote.wait_for_settings()
    for minute in range(1, 9):
        room.now = 60.0 * minute
        assert not await room.remote.has_changed(may_be_new=False)
    assert not room.lifetime.stopping.is_set()


@pytest.mark.parametrize(
    "other",
    [
        {},
        {**INFO, "settings": {**INFO["settings"], "port": 8201}},
        {**INFO, "needs": ["JUPYTERHUB_GPU_DATABASE_URL"]},
    ],
)
async def test_other_settings_end_it_with_0(room: Room, other: dict[str, Any]) -> None:
    room.hub(INFO, other)
    await room.remote.wait_for_settings()
    assert await room.remote.has_changed(may_be_new=True)
    assert room.lifetime.stopping.is_set()
    assert room.lifetime.status == 0


async def test_something_of_the_admins_own_beside_them_is_not_other_settings(room: Room) -> None:
    room.hub(INFO, {**INFO, "contact": "gpu@example.org"})
    await room.remote.wait_for_settings()
    assert not await room.remote.has_changed(may_be_new=True)


async def test_a_token_that_the_hub_refuses_for_long_ends_it_so_that_it_is_read_anew(room: Room) -> None:
    room.hub(INFO)
    await room.remote.wait_for_settings()
    for room.now in (100.0, 110.0, 129.9):
        room.remote.refused(HubRefused(403, "no"))
    assert not room.lifetime.stopping.is_set()
    room.now = 130.0
    room.remote.refused(HubRefused(404, "no such page"))
    assert not room.lifetime.stopping.is_set()
    room.remote.refused(HubRefused(403, "no"))
    assert room.lifetime.stopping.is_set()
    assert room.lifetime.status in FINAL, "its supervisor has the old token too"


async def test_it_also_ends_while_it_still_waits_for_its_settings(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_client, "TOKEN_SECONDS", 0.0)
    room.hub(HubAway("away"), HubRefused(403, "no"))
    assert await room.remote.wait_for_settings() is None
    assert room.lifetime.stopping.is_set()


async def test_a_hub_that_answers_in_between_is_waited_for_anew(room: Room) -> None:
    room.hub(INFO)
    await room.remote.wait_for_settings()
    room.remote.refused(HubRefused(403, "no"))
    room.now = 31.0
    await room.remote.has_changed(may_be_new=False)
    room.remote.refused(HubRefused(403, "no"))
    assert not room.lifetime.stopping.is_set()
