"""Both warnings of a stop: to the pages, to who has none open, and what follows where nobody heard of either."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.notices.webhook import Webhook
from hub_extensions.core.notices import LAST_WARNING, MAIL, STOPS, WARNING
from tests.fakes.machine import small
from tests.fakes.mail_server import MailServerAsTold
from tests.fakes.webhook import WebhookAsTold, WebhookThatFails, WebhookThatHangs, WebhookThatRedirects
from tests.hub_service.engine.room import Room, room, settings
from tests.hub_service.engine.stops.test_culler import MINUTE, OPEN, one_turn, stops_finish

pytestmark = pytest.mark.programs
SECOND = timedelta(seconds=1)


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


def hooks(path: Path, webhook: WebhookAsTold | None = None, mail: MailServerAsTold | None = None) -> dict[str, Any]:
    """Idle for 3 minutes, warned 1 minute before."""
    by_mail = {
        "smtp_host": "127.0.0.1",
        "smtp_port": mail.port if mail else 0,
        "smtp_security": "none",
        "mail_from": "GPUs <gpu@example.org>",
        "mail_to": "{{ user }}@example.org",
        "public_url": "https://hub.example.org/",
    }
    culling = replace(settings(path).culling, warning_webhook_url=webhook.url if webhook else "")
    return {"culling": culling, **(by_mail if mail else {"public_url": "https://hub.example.org/"})}


async def pass_by(r: Room, seconds: int, *, page: bool = False) -> None:
    """Time goes on, with a decision and what is sent each 5 s."""
    for _ in range(seconds // 5):
        r.hands.pass_time(5 * SECOND)
        state = r.engine.server_state("ada", "")
        if state is None:
            return
        shown = state.countdown.stops_at if page and state.countdown is not None and state.countdown.warn else None
        await one_turn(r, replace(OPEN, warned=shown), heard=False)
        for channel in r.engine.notifier.channels:
            await r.engine.notifier.send_due(channel)


async def is_warned(r: Room) -> None:
    await r.run("ada", "mig-1g.5gb")
    await one_turn(r, heard=False)
    await pass_by(r, 120)
    countdown = r.engine.server_state("ada", "").countdown  # type: ignore[union-attr]
    assert countdown is not None and countdown.warn
    assert countdown.stops_at - countdown.last_warning == 6 * SECOND  # type: ignore[operator]


async def culled_by(r: Room) -> str:
    row = next(row for row in await r.engine.store.journal() if row.kind == "culled")
    return row.evidence.rpartition("reached by ")[2]


def logged(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


async def test_a_countdown_that_nobody_heard_of_begins_again_once_and_then_it_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, small(0)) as r:
        await is_warned(r)
        before = r.engine.server_state("ada", "").countdown  # type: ignore[union-attr]
        await pass_by(r, 60)
        after = r.engine.server_state("ada", "").countdown  # type: ignore[union-attr]
        assert before is not None and after is not None
        assert after.stops_at - before.stops_at == MINUTE and after.warn and after.cause == "idle"
        assert not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        assert logged(caplog, "begins again") == 1
        hub, hands, child = r.hub, r.hands, r.children.pop()
    try:  # and so it is after a restart of the service
        async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
            await pass_by(r, 60)
            await stops_finish(r)
            assert hub.stopped == [("ada", "")]
            assert logged(caplog, "begins again") == 1
            assert await culled_by(r) == "nobody, warned again"
    finally:
        child.kill()
        child.wait()


async def test_who_has_a_page_open_is_reached_by_it_and_gets_no_letter(
    tmp_path: Path, webhook: WebhookAsTold, mail: MailServerAsTold
) -> None:
    async with room(tmp_path, small(0), **hooks(tmp_path, webhook, mail)) as r:
        await is_warned(r)
        await pass_by(r, 60, page=True)
        await stops_finish(r)
        assert (r.hub.stopped, webhook.taken, mail.messages) == ([("ada", "")], [], [])
        assert await culled_by(r) == "page"


async def test_a_page_that_has_shown_the_warning_of_another_end_has_not_shown_this_one(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await is_warned(r)
        other = r.engine.server_state("ada", "").countdown.stops_at - 2 * MINUTE  # type: ignore[union-attr]
        await one_turn(r, replace(OPEN, warned=other), heard=False)
        assert r.engine.state.facts["ada", ""].reached == ()


async def test_who_has_closed_the_page_is_warned_twice_by_webhook_and_mail_and_never_with_a_token(
    tmp_path: Path, webhook: WebhookAsTold, mail: MailServerAsTold
) -> None:
    async with room(tmp_path, small(0), **hooks(tmp_path, webhook, mail)) as r:
        await is_warned(r)
        stops_at = r.engine.server_state("ada", "").countdown.stops_at  # type: ignore[union-attr]
        await pass_by(r, 60)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert await culled_by(r) in ("stop-webhook, mail", "mail, stop-webhook")
        first, last = webhook.taken
        assert [each["kind"] for each in (first, last)] == [WARNING, LAST_WARNING]
        assert (first["user"], first["cause"], first["url"]) == ("ada", "idle", "https://hub.example.org/user/ada/")
        assert first["stops_at"] == stops_at.isoformat().replace("+00:00", "Z") == last["stops_at"]
        assert str(last["text"]).startswith("Your GPU is idle. The server stops in 5 s, at ")
        assert str(first["subject"]) == "Your server stops in 45 s: Small GPU"
        assert [to for to, _ in mail.messages] == ["ada@example.org"] * 2
        assert mail.messages[0][1].get_content().split() == str(first["text"]).split()
        sent = f"{webhook.taken} {[str(each) for _, each in mail.messages]} {webhook.headers}"
        for secret in (r.engine.settings.hub_secret, r.engine.settings.api_token, "token", "uthorization"):
            assert secret not in sent
        told = [(row.kind, row.text) for row in await r.engine.store.journal() if row.kind == "told"]
        assert sorted(told) == sorted(
            ("told", f"{kind} by {by}") for kind in (WARNING, LAST_WARNING) for by in (STOPS, MAIL)
        )


async def test_a_mail_speaks_its_readers_language_also_after_a_restart_else_the_sites_and_a_webhook_english(
    tmp_path: Path, webhook: WebhookAsTold, mail: MailServerAsTold
) -> None:
    async with room(tmp_path, small(0), **hooks(tmp_path, webhook, mail)) as r:
        await r.engine.note_language("ada", "fi-FI")
        await r.engine.note_language("ben", "ja-JP")
        await r.engine.note_language("ben", "en")
        assert dict(r.engine.state.notices.languages) == {"ada": "fi-FI"}
    async with room(tmp_path, small(0), **hooks(tmp_path, webhook, mail), mail_language="ja") as r:
        await is_warned(r)
        await pass_by(r, 30)
        (message,) = [each for _, each in mail.messages]
        assert message["Subject"] == "Palvelimesi pysähtyy 45 s kuluttua: Pieni GPU"
        assert message.get_content().startswith("GPU:si on käyttämättä. Palvelin pysähtyy 45 s kuluttua, klo ")
        assert str(webhook.taken[0]["text"]).startswith("Your GPU is idle. ")
        await r.engine.note_language("ben", "en")
        await r.engine.note_language("eva", "ja-JP")
        await r.engine.state.commit(r.engine.state.notices.without_user("ada"))
        assert dict(r.engine.state.notices.languages) == {"ben": "en"}, "what a page said that is not the site's own"
        await pass_by(r, 30)
        _, last = [each for _, each in mail.messages]
        assert last["Subject"].startswith("サーバーは") and "GPU" in last.get_content()


@pytest.mark.whole
@pytest.mark.parametrize("kind", [WebhookThatFails, WebhookThatRedirects, WebhookThatHangs])
async def test_a_receiver_that_does_not_take_it_has_reached_nobody_and_is_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[WebhookAsTold]
) -> None:
    receiver = kind()
    try:
        async with room(tmp_path, small(0), **hooks(tmp_path, receiver)) as r:
            if kind is WebhookThatHangs:
                r.engine.notifier.webhooks[STOPS] = Webhook(receiver.url, seconds=0.05)
            await is_warned(r)
            await pass_by(r, 60)
            assert logged(caplog, "a notice was not sent by stop-webhook") == 1
            assert logged(caplog, "begins again") == 1 and receiver.hits > 1
            await pass_by(r, 60)
            await stops_finish(r)
            assert r.hub.stopped == [("ada", "")]
            assert await culled_by(r) == "nobody, warned again"
    finally:
        receiver.close()


async def test_a_warning_is_not_lost_by_a_kill_and_not_sent_of_an_end_that_is_off(
    tmp_path: Path, webhook: WebhookAsTold
) -> None:
    made = hooks(tmp_path, webhook)
    async with room(tmp_path, small(0), **made) as r:
        await is_warned(r)
        assert {each.kind for each in r.engine.state.notices.deliveries.values()} == {WARNING, LAST_WARNING}
        hub, hands, child = r.hub, r.hands, r.children.pop()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, **made) as r:
            await pass_by(r, 20)
            assert [each["kind"] for each in webhook.taken] == [WARNING]
            await r.engine.keep("ada", "")
            await pass_by(r, 60)
            assert [each["kind"] for each in webhook.taken] == [WARNING]
            assert r.engine.state.notices.deliveries == {}
    finally:
        child.kill()
        child.wait()
