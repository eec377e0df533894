"""How one sending goes and what is written down of it, by channels that are values."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.notices import NotSent
from hub_extensions.adapters.store import Changes
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.notices import MAIL, STOPS, WEBHOOK, Delivery
from hub_extensions.core.notices.delivery import PAUSES, Sending
from hub_extensions.core.offers.offer_id import OfferId
from tests.fakes.machine import StoreThatIsFull, small
from tests.hub_service.engine.room import Room, room

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)
BOTH: dict[str, Any] = {
    "webhook_url": "http://127.0.0.1:9/", "smtp_host": "127.0.0.1", "mail_from": "GPUs <gpu@example.org>",
    "mail_to": "{{ user }}@example.org", "public_url": "https://hub.example.org/",
}  # fmt: skip


class Carrier:
    """Takes what it is given, or fails as it is told."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.fails: NotSent | None = None

    async def send(self, *what: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.taken.append(what)

    def close(self) -> None:
        """Nothing to let go."""


def carriers(r: Room) -> tuple[Carrier, Carrier]:
    webhook, mail = Carrier(), Carrier()
    r.engine.notifier.webhooks[WEBHOOK] = r.engine.notifier.webhooks[STOPS] = webhook  # type: ignore[assignment]
    r.engine.notifier.mail = mail  # type: ignore[assignment]
    return webhook, mail


async def due(r: Room, name: str = "n1", channel: str = WEBHOOK, user: str = "ada", **changes: object) -> Delivery:
    """A notice of a server that runs, to be sent now."""
    now = r.engine.state.clock.now()
    made = Delivery(name, channel, "ready", user, "", OfferId("gpu"), "Whole GPU", now, now + 90 * SECOND, now)
    made = replace(made, **changes)  # type: ignore[arg-type]
    r.engine.state.facts[user, ""] = ServerFacts(user, "", OfferId("gpu"), now, lease="l")
    await r.engine.state.commit(Changes(deliveries=(made,)))
    return made


async def written(r: Room) -> list[tuple[str, str, str]]:
    rows = [row for row in await r.engine.store.journal(20) if "told" in row.kind]
    return [(row.kind, row.text, row.evidence) for row in reversed(rows)]


@pytest.mark.parametrize(("channel", "other"), [(WEBHOOK, MAIL), (MAIL, WEBHOOK)])
async def test_what_is_due_by_a_channel_is_sent_by_that_one_the_longest_due_first(
    tmp_path: Path, channel: str, other: str
) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        sent, not_sent = carriers(r) if channel == WEBHOOK else carriers(r)[::-1]
        now = r.engine.state.clock.now()
        for name, ago in (("second", 1), ("first", 2), ("later", -1)):
            await due(r, name, channel, due=now - ago * SECOND)
        await due(r, "other", other)
        assert r.engine.notifier.status() == {WEBHOOK: "none taken yet", MAIL: "none taken yet"}
        await r.engine.notifier.send_due(channel)
        assert len(sent.taken) == 2 and not_sent.taken == []
        if channel == WEBHOOK:
            assert [name for name, _ in sent.taken] == ["first", "second"]
            body = json.loads(sent.taken[0][1])
            assert (body["version"], body["url"], body["user"]) == (1, "https://hub.example.org/user/ada/", "ada")
            assert "within 1 min" in body["text"], "of 90 s a full minute"
        else:
            (message,) = sent.taken[0]
            assert isinstance(message, EmailMessage) and message["To"] == "ada@example.org"
            assert message["Message-ID"] == "<first@example.org>" and message["Auto-Submitted"] == "auto-generated"
        assert {key[0] for key in r.engine.state.notices.deliveries} == {"later", "other"}
        assert await written(r) == [
            ("told", f"ready by {channel}", f"notice {name}, try 1") for name in ("first", "second")
        ]
        assert r.engine.state.counts["notice-sent", channel] == 2
        assert r.engine.notifier.sent() is True
        assert r.engine.notifier.status() == {
            channel: f"taken last at {r.hands.wall.isoformat(timespec='seconds')}", other: "none taken yet",
        }  # fmt: skip


@pytest.mark.parametrize(("left", "minutes"), [(90, 1), (120, 2), (30, 1), (-60, 1), (None, None)])
async def test_a_notice_says_how_many_full_minutes_are_left_and_one_at_least(
    tmp_path: Path, left: int | None, minutes: int | None
) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        webhook, _ = carriers(r)
        now = r.engine.state.clock.now()
        await due(r, open_until=None if left is None else now + left * SECOND)
        await r.engine.notifier.send_due(WEBHOOK)
        body = json.loads(webhook.taken[0][1])
        assert ("within" in body["text"]) is (minutes is not None)
        assert minutes is None or f"within {minutes} min" in body["text"]
        assert (body["open_until"] is None) is (left is None)


@pytest.mark.parametrize(("started", "opened", "verdict"), [(1, None, "its server has ended"), (0, 0, None)])
async def test_what_is_not_true_any_more_is_not_sent_and_written_down_unless_its_user_has_come(
    tmp_path: Path, started: int, opened: int | None, verdict: str | None
) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        webhook, _ = carriers(r)
        made = await due(r)
        facts, now = r.engine.state.facts["ada", ""], r.engine.state.clock.now()
        r.engine.state.facts["ada", ""] = replace(
            facts, started=made.run + started * SECOND, opened=None if opened is None else now
        )
        await r.engine.notifier.send_due(WEBHOOK)
        assert webhook.taken == [] and r.engine.state.notices.deliveries == {}
        expected = [("not-told", f"ready by webhook: {verdict}", "notice n1, try 1")] if verdict else []
        assert await written(r) == expected


async def test_what_failed_is_tried_again_after_a_pause_and_given_up_after_the_last(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        webhook, _ = carriers(r)
        await due(r)
        webhook.fails, state = NotSent("No answer."), r.engine.state
        for tries, pause in enumerate(PAUSES, start=1):
            await r.engine.notifier.send_due(WEBHOOK)
            (kept,) = state.notices.deliveries.values()
            assert (kept.tries, kept.due) == (tries, state.clock.now() + pause)
            r.hands.pass_time(pause - SECOND)
            await r.engine.notifier.send_due(WEBHOOK)
            assert state.counts["notice-failed", WEBHOOK] == tries
            r.hands.pass_time(SECOND)
        assert r.engine.notifier.sent() is False and await written(r) == []
        await r.engine.notifier.send_due(WEBHOOK)
        assert state.notices.deliveries == {} and state.counts["notice-given-up", WEBHOOK] == 1
        assert await written(r) == [("not-told", "ready by webhook: No answer.", "notice n1, try 8")]
        at = r.hands.wall.isoformat(timespec="seconds")
        assert (r.engine.notifier.status() or {})[WEBHOOK] == f"none taken yet, failed last at {at}: No answer."


async def test_what_no_other_try_helps_is_given_up_at_once(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        webhook, mail = carriers(r)
        webhook.fails = NotSent("It is refused.", again=False)
        await due(r)
        await due(r, "n2", MAIL, user="no address")
        for channel in (WEBHOOK, MAIL):
            await r.engine.notifier.send_due(channel)
        assert r.engine.state.notices.deliveries == {} and mail.taken == []
        assert [text for _, text, _ in await written(r)] == [
            "ready by webhook: It is refused.", "ready by mail: The user's address is no plain e-mail address.",
        ]  # fmt: skip


async def test_what_was_taken_and_could_not_be_written_is_written_later_and_not_sent_twice(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        webhook, _ = carriers(r)
        await due(r)
        store, r.engine.state.store = r.engine.state.store, StoreThatIsFull()  # type: ignore[assignment]
        for _ in range(2):
            await r.engine.notifier.send_due(WEBHOOK)
            assert len(webhook.taken) == 1 and len(r.engine.state.notices.deliveries) == 1
        r.engine.state.store = store
        await r.engine.notifier.send_due(WEBHOOK)
        assert len(webhook.taken) == 1 and r.engine.state.notices.deliveries == {} and len(await written(r)) == 1
        await due(r)
        await r.engine.notifier.send_due(WEBHOOK)
        assert len(webhook.taken) == 2, "another of that name is another"


async def test_without_a_channel_nothing_is_known_of_sending(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        assert (r.engine.notifier.status(), r.engine.notifier.sent()) == (None, None)
        assert list(r.engine.notifier.loops()) == []


async def test_one_channel_that_failed_last_is_enough_to_say_so(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **BOTH) as r:
        at = r.hands.wall
        for sendings, went in (
            ({WEBHOOK: Sending(at, None), MAIL: Sending(None, at, "No.")}, False),
            ({WEBHOOK: Sending(at, at - SECOND, "No.")}, True),
            ({WEBHOOK: Sending(at - SECOND, at, "No.")}, False),
            ({WEBHOOK: Sending(at, at, "No.")}, False),
        ):
            r.engine.state.notices.sendings = sendings
            assert r.engine.notifier.sent() is went
        assert [name for name, _ in r.engine.notifier.loops()] == ["telling users by webhook", "telling users by mail"]
