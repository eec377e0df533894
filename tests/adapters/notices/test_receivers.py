"""A receiver that hangs, redirects, fails or never ends is a sentence, soon, and harms nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.message import EmailMessage

import pytest

from hub_extensions.adapters.notices import NotSent
from hub_extensions.adapters.notices.mail import MailServer
from hub_extensions.adapters.notices.webhook import Webhook
from tests.cluster.certificates import Authority
from tests.fakes.mail_server import MailServerAsTold, MailServerThatDrips, MailServerThatKnowsNobody
from tests.fakes.webhook import (
    WebhookAsTold,
    WebhookThatFails,
    WebhookThatHangs,
    WebhookThatRedirects,
    WebhookWithoutEnd,
)
from tests.patience import patient

BODY = b'{"id":"n-1"}'


async def sent_to(receiver: WebhookAsTold, seconds: float = 10.0) -> str:
    """Why it was not taken; "": it was."""
    webhook = Webhook(receiver.url, "secret-of-the-receiver", seconds=seconds)
    try:
        await webhook.send("n-1", BODY)
    except NotSent as problem:
        assert problem.again
        return problem.message
    finally:
        webhook.close()
        receiver.close()
    return ""


async def test_a_notice_is_posted_with_its_id_and_the_receivers_token() -> None:
    receiver = WebhookAsTold()
    assert await sent_to(receiver) == ""
    assert receiver.taken == [{"id": "n-1"}]
    heads = receiver.headers[0]
    assert (heads["idempotency-key"], heads["content-type"]) == ("n-1", "application/json")
    assert heads["authorization"] == "Bearer secret-of-the-receiver"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (WebhookThatFails, "The webhook answers with an error (500)."),
        (WebhookThatRedirects, "The webhook redirects (307), which is not followed"),
        (WebhookThatHangs, "The webhook does not answer (nothing within 0.3 s)."),
    ],
)
async def test_a_webhook_that_does_not_take_it_is_asked_once_and_told_of(kind: type[WebhookAsTold], said: str) -> None:
    receiver = kind()
    assert (await sent_to(receiver, 0.3 if kind is WebhookThatHangs else patient(10))).startswith(said)
    assert receiver.hits == 1


async def test_an_answer_without_end_is_cut_off_and_has_taken_nothing() -> None:
    """It says 200, as a page or a file does."""
    receiver = WebhookWithoutEnd()
    assert (await sent_to(receiver, patient(10))).startswith("The webhook has not taken it: its answer does not end")
    assert receiver.sent < 50_000_000, "what the two sockets hold, and no more"


async def test_nobody_listening_is_a_sentence() -> None:
    receiver = WebhookAsTold()
    receiver.close()
    webhook = Webhook(receiver.url)
    with pytest.raises(NotSent, match="does not answer"):
        await webhook.send("n-1", BODY)
    webhook.close()


# ------------------------------------------------------------------ mail


def message() -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "gpu@example.org", "ada@example.org", "Ready"
    made.set_content("Your server runs.\n.\n")
    return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "tests")


@pytest.fixture
def secure(authority: Authority) -> Iterator[MailServerAsTold]:
    server = MailServerAsTold(authority.issue("mail", "mail", addresses=["127.0.0.1"]))
    yield server
    server.close()


async def test_an_email_goes_over_a_line_that_was_secured_before_the_password_was_said(
    authority: Authority, secure: MailServerAsTold
) -> None:
    server = MailServer("127.0.0.1", secure.port, "starttls", "gpu", "secret", str(authority.certificate))
    assert "secret" not in repr(server)
    await server.send(message())
    [(to, taken)] = secure.messages
    assert (to, taken["Subject"], secure.secured) == ("ada@example.org", "Ready", [True])
    assert len(secure.logins) == 1


async def test_a_mail_server_whose_certificate_nobody_vouches_for_is_told_nothing(secure: MailServerAsTold) -> None:
    with pytest.raises(NotSent, match="certificate"):
        await MailServer("127.0.0.1", secure.port, "starttls", "gpu", "secret").send(message())
    assert (secure.messages, secure.logins) == ([], [])


async def test_a_mail_server_without_starttls_is_told_nothing() -> None:
    plain = MailServerAsTold()
    with pytest.raises(NotSent, match="cannot do what smtp_security"):
        await MailServer("127.0.0.1", plain.port, "starttls", "gpu", "secret").send(message())
    plain.close()
    assert (plain.messages, plain.logins) == ([], [])


async def test_an_address_that_the_mail_server_refuses_is_not_tried_again() -> None:
    nobody = MailServerThatKnowsNobody()
    with pytest.raises(NotSent, match=r"does not take the address \(550\)") as refused:
        await MailServer("127.0.0.1", nobody.port, "none").send(message())
    nobody.close()
    assert refused.value.again is False


@pytest.mark.slow
async def test_a_mail_server_that_drips_is_cut_off() -> None:
    drips = MailServerThatDrips()
    with pytest.raises(NotSent, match=r"nothing within 0\.5 s"):
        await asyncio.wait_for(MailServer("127.0.0.1", drips.port, "none", seconds=0.5).send(message()), patient(5))
    drips.close()
