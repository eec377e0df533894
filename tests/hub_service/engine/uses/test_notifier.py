"""Who has closed the page hears of the turn: kept with the change, sent at least once, and never with a token."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from hub_extensions.core.messages import Ask, Report, WebhookNotice
from hub_extensions.core.notices import MAIL, WEBHOOK
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.tools.doctor.config import notices
from tests.fakes.machine import StoreThatIsFull, small
from tests.fakes.mail_server import MailServerAsTold
from tests.fakes.webhook import WebhookAsTold, WebhookThatFails
from tests.hub_service.engine.room import Room, room
from tests.hub_service.engine.stops.test_culler import MINUTE, minutes, one_turn, stops_finish

pytestmark = pytest.mark.programs
SMALL = "mig-1g.5gb"
UNOPENED = Report(opened=False, kernels=0, busy_kernels=0)


@pytest.fixture
def webhook() -> Iterator[WebhookAsTold]:
    receiver = WebhookAsTold()
    yield receiver
    receiver.close()


@pytest.fixture
def mail() -> Iterator[MailServerAsTold]:
    server = MailServerAsTold()
    yield server
    server.close()


def channels(webhook: WebhookAsTold, mail: MailServerAsTold | None = None) -> dict[str, Any]:
    by_mail = {
        "smtp_host": "127.0.0.1",
        "smtp_port": mail.port if mail else 0,
        "smtp_security": "none",
        "mail_from": "GPUs <gpu@example.org>",
        "mail_to": "{{ user }}@example.org",
    }
    common = {
        "webhook_url": webhook.url,
        "webhook_token": "the-receivers-own",
        "public_url": "https://hub.example.org/",
    }
    return {**common, **(by_mail if mail else {})}


async def ask(r: Room, user: str, *, tell: bool = True) -> str:
    """A place in line whose user has closed the page."""
    r.hub.run(user, ready=False)
    return (await r.engine.ask(Ask(user, "", (SMALL,), {"offer": SMALL, "notify_when_ready": tell}))).ticket


async def becomes_ready(r: Room, ticket: str) -> None:
    (state,) = [each for each in r.engine.queue.states() if each.ticket == ticket]
    assert state.answer == "admit"
    await r.ready(state)


async def send(r: Room, *by: str) -> None:
    for channel in by or (WEBHOOK,):
        await r.engine.notifier.send_due(channel)


async def test_who_asked_for_it_is_told_by_webhook_and_mail_and_nobody_else_is(
    tmp_path: Path, webhook: WebhookAsTold, mail: MailServerAsTold
) -> None:
    async with room(tmp_path, small(0), small(1), small(2), **channels(webhook, mail)) as r:
        for user, tell in (("ada", True), ("ben", False), ("eve,x@evil.example", True)):
            await becomes_ready(r, await ask(r, user, tell=tell))
        await send(r, WEBHOOK, MAIL)
        assert (webhook.taken, mail.messages) == ([], []), "who has the page open is there by now"
        r.hands.pass_time(timedelta(seconds=30))
        await send(r, WEBHOOK, MAIL)
        await send(r, WEBHOOK, MAIL)
        first, second = sorted(webhook.taken, key=lambda each: str(each["user"]))
        assert second["user"] == "eve,x@evil.example"
        notice = TypeAdapter(WebhookNotice).validate_python(first)
        assert (notice.url, notice.kind, notice.offer) == ("https://hub.example.org/user/ada/", "ready", SMALL)
        assert notice.open_until is not None and notice.open_until - notice.at == 15 * MINUTE
        assert "Open it within 14 min" in notice.text
        [(to, message)] = mail.messages  # the other's name makes no address: nobody else is written to
        assert (to, message["Message-ID"], message["From"]) == (
            "ada@example.org",
            f"<{notice.id}@example.org>",
            "GPUs <gpu@example.org>",
        )
        assert (message["Subject"], message.get_content().split()) == (notice.subject, notice.text.split())
        told = f"{webhook.taken} {mail.messages[0][1]}"
        settings = r.engine.settings
        for secret in (settings.hub_secret, settings.api_token, settings.webhook_token, "token"):
            assert secret not in told
        journal = [(row.kind, row.user, row.text) for row in await r.engine.store.journal() if "told" in row.kind]
        assert sorted(journal) == [
            ("not-told", "eve,x@evil.example", "ready by mail: The user's address is no plain e-mail address."),
            ("told", "ada", "ready by mail"),
            ("told", "ada", "ready by webhook"),
            ("told", "eve,x@evil.example", "ready by webhook"),
        ]


async def test_a_kill_at_any_moment_loses_no_notice_and_a_repeat_has_the_same_id(
    tmp_path: Path, webhook: WebhookAsTold
) -> None:
    async with room(tmp_path, small(0), notice_after=timedelta(0), **channels(webhook)) as r:
        await becomes_ready(r, await ask(r, "ada"))
        hub, hands = r.hub, r.hands
        child = r.children.pop()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, **channels(webhook)) as r:
            store, r.engine.state.store = r.engine.state.store, StoreThatIsFull()  # type: ignore[assignment]
            await send(r)
            await send(r)
            assert len(webhook.taken) == 1, "taken, and it cannot be written down: not sent again meanwhile"
            r.engine.state.store = store
        async with room(tmp_path, small(0), hub=hub, hands=hands, **channels(webhook)) as r:
            await send(r)
            await send(r)
        async with room(tmp_path, small(0), hub=hub, hands=hands, **channels(webhook)) as r:
            await send(r)
            assert not r.engine.state.notices.deliveries
        assert [each["id"] for each in webhook.taken] == [webhook.taken[0]["id"]] * 2
        assert webhook.headers[0]["idempotency-key"] == webhook.taken[0]["id"]
    finally:
        child.kill()
        child.wait()


async def test_a_receiver_that_fails_is_tried_again_and_then_given_up_and_an_admin_reads_it(tmp_path: Path) -> None:
    fails = WebhookThatFails()
    async with room(tmp_path, small(0), notice_after=timedelta(0), **channels(fails)) as r:
        assert (r.engine.health().notices, r.engine.health().notices_sent) == ({"webhook": "none taken yet"}, True)
        await becomes_ready(r, await ask(r, "ada"))
        for _ in range(120):
            await send(r)
            r.hands.pass_time(timedelta(seconds=10))
        assert fails.hits == 8
        health, counts = r.engine.health(), r.engine.state.counts
        assert health.notices_sent is False
        assert health.notices is not None and health.notices["webhook"].endswith(
            "The webhook answers with an error (500)."
        )
        assert (counts["notice-failed", "webhook"], counts["notice-given-up", "webhook"]) == (8, 1)
        assert not r.engine.state.notices.deliveries
        hub, hands = r.hub, r.hands
        (said,) = notices(r.engine.settings)
        assert (said.state, said.text) == ("warning", f"Users are told by webhook: {health.notices['webhook']}")
    async with room(tmp_path, small(0), hub=hub, hands=hands, **channels(fails)) as r:
        assert r.engine.health().notices == health.notices, "known after a restart, too"
    fails.close()


async def test_a_server_that_nobody_opens_gives_its_gpu_to_the_next_who_is_told(
    tmp_path: Path, webhook: WebhookAsTold
) -> None:
    async with room(tmp_path, small(0), notice_after=timedelta(0), **channels(webhook)) as r:
        first = await ask(r, "ada")
        second = await ask(r, "ben")
        assert {each.user: each.url for each in r.engine.tickets("ben")} == {"ben": "https://hub.example.org/user/ben/"}
        await becomes_ready(r, first)
        await send(r)
        await one_turn(r, UNOPENED)
        await minutes(r, 15, UNOPENED)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        r.children[0].kill()
        r.children[0].wait()
        r.gpus.pids = {}
        await r.engine.watcher.refresh()
        assert {each.state for each in r.engine.state.leases.values()} == {LeaseState.STARTING}
        await becomes_ready(r, second)
        await send(r)
        assert [each["user"] for each in webhook.taken] == ["ada", "ben"]


async def test_a_server_that_has_ended_or_was_opened_is_not_told_of(tmp_path: Path, webhook: WebhookAsTold) -> None:
    async with room(tmp_path, small(0), small(1), **channels(webhook)) as r:
        for user in ("ada", "ben"):
            await becomes_ready(r, await ask(r, user))
        await r.engine.report("ada", "", Report(opened=True, kernels=0, busy_kernels=0))
        r.hub.running.pop(("ben", ""))
        r.children[1].kill()
        r.children[1].wait()
        for _ in range(3):
            await r.engine.reconciler.reconcile()
            await r.engine.watcher.refresh()
            r.hands.pass_time(MINUTE)
        await send(r)
        assert (webhook.taken, r.engine.state.notices.deliveries) == ([], {})
