"""Sends notices to users who have closed the page, and stores how each sending went.

A notice is stored with the change that caused it, and removed when a receiver has accepted it. If the service is killed
in between, it is sent again with the same id. Each channel (webhook, e-mail) has its own loop, so that a mail server
that hangs delays no webhook.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from hub_extensions.adapters.files.catalogues import catalogues
from hub_extensions.adapters.notices import NotSent
from hub_extensions.adapters.notices.mail import MailServer
from hub_extensions.adapters.notices.webhook import Webhook
from hub_extensions.adapters.store import Changes, JournalRow
from hub_extensions.adapters.store.copies import note_in, sqlite_file
from hub_extensions.core import culling
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.forecast.progress import AHEAD, LONGEST
from hub_extensions.core.messages import TrainingEnded, WebhookNotice
from hub_extensions.core.notices import (
    LETTER,
    MAIL,
    OF_A_STOP,
    READY,
    SHORTEST,
    STOPS,
    TRAINING_ENDED,
    TRAINING_TOO_LONG,
    WEBHOOK,
    Delivery,
    DeliveryAction,
    Sending,
    address_problem,
    after_failure,
    channels_of,
    ended,
    is_repeat,
    judge,
    training_deliveries,
    wait_before,
    warning_channels,
)
from hub_extensions.core.stops import Cause
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import SENDINGS, read_sendings, write_sendings
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.stops.server_evidence import ServerEvidence
from hub_extensions.hub_service.setup.notice_texts import (
    WRONG,
    NoticeTexts,
    letter_subject,
    letter_text,
    too_long_subject,
    too_long_text,
    training_subject,
    training_text,
    warning_subject,
    warning_text,
)
from hub_extensions.hub_service.setup.settings import Settings

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 1.0
AT_ONCE = 4  # simultaneous sendings by one channel
VERSION = 1
QUIET = (DeliveryAction.SEEN, DeliveryAction.OFF, DeliveryAction.SHOWN, DeliveryAction.IN_TIME)
"""Why a notice is dropped without a row in the journal: its user knows, or it is not true any more."""
_NOTICE: TypeAdapter[WebhookNotice] = TypeAdapter(WebhookNotice)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of one try to send a notice.

    Attributes:
        why: why the try failed; "" if the receiver accepted the notice.
        again: whether another try may help.
        verdict: `SEND` if the notice was sent or tried. Otherwise the reason why it is dropped unsent.
    """

    why: str = ""
    again: bool = False
    verdict: DeliveryAction = DeliveryAction.SEND


def last_sendings(settings: Settings) -> Mapping[str, Sending]:
    """Return the last successful and failed sending of each configured channel, for a command-line tool.

    They are read from the SQLite file. With PostgreSQL, or if the hub does not start the service, every channel has an
    empty value; the service's health page shows the real ones.
    """
    file = sqlite_file(settings.store_url) if settings.started_by_hub else None
    known = read_sendings((note_in(file, SENDINGS) if file is not None else None) or "{}")
    return {channel: known.get(channel, Sending()) for channel in _channels(settings)}


def _channels(settings: Settings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*channels_of(settings), *warning_channels(settings, settings.culling))))


class Notifier:
    """Sends the notices to users that are due, by webhook and e-mail.

    Attributes:
        channels: names of the configured ways to send a notice. Each has its own `run`.
        evidence: knows whether a server stops before its training is done, and whether a page of it is open.
    """

    def __init__(self, state: State, transaction: Transactions, settings: Settings, evidence: ServerEvidence) -> None:
        self.state = state
        self.transaction = transaction
        self.settings = settings
        self.evidence = evidence
        self.channels = _channels(settings)
        self.texts = NoticeTexts.of(settings)
        self.webhooks = {
            WEBHOOK: Webhook(settings.webhook_url, settings.webhook_token, ca_file=settings.ca_file),
            STOPS: Webhook(settings.culling.warning_webhook_url, ca_file=settings.ca_file),
        }
        self.mail = MailServer(
            settings.smtp_host,
            settings.smtp_port,
            settings.smtp_security,
            settings.smtp_user,
            settings.smtp_password,
            settings.ca_file,
        )
        self._unwritten: dict[tuple[str, str], _Outcome] = {}
        self._room = {channel: asyncio.Semaphore(AT_ONCE) for channel in self.channels}

    def loops(self) -> Iterator[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """Yield the loops that send notices, one for each channel (webhook, e-mail), with their names for the log."""
        for channel in self.channels:
            yield f"telling users by {channel}", partial(self.run, channel)

    async def run(self, channel: str) -> None:
        """Send the notices of one channel (webhook, e-mail) when they are due, until cancelled."""
        while True:
            await self.send_due(channel)
            await asyncio.sleep(EVERY)

    async def send_due(self, channel: str) -> None:
        """Try once to send each notice of this channel (webhook, e-mail) that is due."""
        mine = [each for each in self.state.notices.deliveries.values() if each.channel == channel]
        await asyncio.gather(*(self._handle(each) for each in sorted(mine, key=lambda each: each.due)))

    def close(self) -> None:
        for webhook in self.webhooks.values():
            webhook.close()

    async def note_language(self, user: str, language: str) -> None:
        """Store the language of the user's last page, for mails. Nothing is stored if no mail server is configured."""
        if MAIL in self.channels and self.state.notices.language_note(user, language):
            with suppress(Refused):  # the language is noted again with the next page
                async with self.transaction() as transaction:
                    note = self.state.notices.language_note(
                        user, language
                    )  # another page may have reported it meanwhile
                    await transaction.write(Changes(meta=note))

    def can_notify(self, user: str) -> bool:
        """Return whether a notice that does not warn of a stop can be sent to this user."""
        return bool(self._channels_to(user))

    def _channels_to(self, user: str) -> tuple[str, ...]:
        """Return the channels (webhook, e-mail) that reach a user: e-mail only if the user has a plain address."""
        return tuple(each for each in channels_of(self.settings) if each != MAIL or self._has_address(user))

    def _has_address(self, user: str) -> bool:
        try:
            return not address_problem(self.texts.address(user))
        except WRONG:  # the administrator's template fails for this name
            return False

    async def training_ended(self, user: str, server: str, report: TrainingEnded) -> None:
        """Send the notice that a training has ended, by each channel (webhook, e-mail).

        A repeated request for the same run changes nothing.

        Args:
            user, server: name of the user and of the server.
            report: the run that has ended.

        Raises:
            Refused: 400, the end is in the future or too long ago. 404, no such server runs. 409, no channel reaches
                the user, or the training was too short. 429, the server has requested too many notices. 503, the store
                cannot be written.
        """
        channels = self._channels_to(user)
        if not channels:
            raise Refused.because(409, explain("no-notices"), "")
        if report.ended - report.started < SHORTEST:
            raise Refused.because(409, explain("training-too-short", least=SHORTEST), "ended")
        async with self.transaction() as transaction:
            facts, now = self.state.facts.get((user, server)), self.state.clock.utc_now()
            if facts is None:
                raise Refused(404, "This server is not known to run.", "server", "unknown-server")
            if not now - LONGEST <= report.ended <= now + AHEAD:
                text = "ended is in the future or too long ago; it has to be a time of the last 30 days."
                raise Refused(400, text, "ended", "bad-input")
            notice, notices = ended(report, (user, server), now, id=secrets.token_hex(8)), self.state.notices
            if is_repeat(notices.trainings, notice):
                return
            wait = wait_before(notices.trainings, (user, server), now)
            if wait > timedelta(0):
                raise Refused.too_often("Too many notices for this server within an hour.", "too-many-notices", wait)
            offer = self.state.offer(facts.offer)
            title = offer.plain_name if offer else facts.offer
            made = training_deliveries(notice, facts.offer, title, facts.started, channels, self.state.clock.now())
            meta = notices.training_note(now, self.state.facts.values(), notice)
            await transaction.write(Changes(deliveries=made, meta=meta))

    def status(self) -> Mapping[str, str] | None:
        """Return for each channel (webhook, e-mail) a sentence about its last sending.

        `None` if no channel is configured.
        """
        return {channel: self._sending(channel).text for channel in self.channels} or None

    def sent(self) -> bool | None:
        """Return whether the last sending by every channel succeeded. `None` if no channel is configured."""
        return all(self._sending(channel).went for channel in self.channels) if self.channels else None

    def _sending(self, channel: str) -> Sending:
        return self.state.notices.sendings.get(channel, Sending())

    async def _handle(self, delivery: Delivery) -> None:
        async with self._room[delivery.channel]:
            outcome = self._unwritten.get(delivery.key) or await self._tried(delivery)
        if outcome is None:
            return
        try:
            await self._write(delivery, outcome)
        except Refused as problem:
            # the outcome is written later; until then the notice is not sent again
            self._unwritten[delivery.key] = outcome
            log.debug("not written how a notice was sent: %s", problem)
        else:
            self._unwritten.pop(delivery.key, None)

    async def _tried(self, delivery: Delivery) -> _Outcome | None:
        """Try to send a notice once, and return the outcome. `None` if it is not due yet; it is not sent then."""
        now = self.state.clock.now()
        facts, too_long, watched = self.state.facts.get(delivery.run_of), False, False
        if delivery.kind == TRAINING_TOO_LONG and facts is not None:
            report = self.evidence.report(*delivery.run_of)
            too_long, watched = self.evidence.too_long(facts) is not None, report is not None and report.watched
        verdict = judge(delivery, facts, now, too_long=too_long, watched=watched)
        if verdict is DeliveryAction.LATER:
            return None
        if verdict is not DeliveryAction.SEND:
            return _Outcome(verdict=verdict)
        try:
            notice = self._notice(delivery, now)
            if delivery.channel == MAIL:
                await self.mail.send(self._message(notice))
            else:
                await self.webhooks[delivery.channel].send(delivery.id, _NOTICE.dump_json(notice))
        except NotSent as problem:
            return _Outcome(problem.message, problem.again)
        except WRONG as problem:
            return _Outcome(f"The notice cannot be written ({problem or type(problem).__name__}).")
        return _Outcome()

    # -------------------------------------------------------------- what is sent

    def _notice(self, delivery: Delivery, now: datetime) -> WebhookNotice:
        url, wall = self.settings.server_url(delivery.user, delivery.server), self.state.clock.wall
        bare = WebhookNotice(
            version=VERSION,
            id=delivery.id,
            kind=delivery.kind,
            user=delivery.user,
            server=delivery.server,
            url=url,
            offer=delivery.offer,
            title=delivery.title,
            at=wall(delivery.run),
            open_until=None,
            subject="",
            text="",
        )
        # for a mail, the language of the user's last page or the site's; for a webhook, English
        known = self.state.notices.languages.get(delivery.user, self.state.notices.usual)
        t = catalogues().get(known, ENGLISH) if delivery.channel == MAIL else ENGLISH
        if delivery.kind == LETTER:
            # a KeyError if the letter is not kept any more
            text = {each.id: each.text for each in self.state.notices.letters}[delivery.id]
            return replace(bare, subject=letter_subject(t), text=letter_text(text, url, t))
        if delivery.kind in (TRAINING_ENDED, TRAINING_TOO_LONG):
            return self._of_training(bare, t)
        return (self._of_ready if delivery.kind == READY else self._of_warning)(bare, delivery, now, t)

    def _of_ready(self, bare: WebhookNotice, delivery: Delivery, now: datetime, t: Catalogue) -> WebhookNotice:
        until = delivery.open_until
        values = {
            "user": delivery.user,
            "server": delivery.server,
            "title": delivery.title,
            "url": bare.url,
            "minutes": None if until is None else max(1, (until - now) // timedelta(minutes=1)),
        }
        return replace(
            bare,
            open_until=None if until is None else self.state.clock.wall(until),
            subject=self.texts.subject(values, t),
            text=self.texts.text(values, t),
        )

    def _of_warning(self, bare: WebhookNotice, delivery: Delivery, now: datetime, t: Catalogue) -> WebhookNotice:
        facts = self.state.facts.get(delivery.run_of)
        cause = facts.cause.value if facts is not None and facts.cause is not None else ""
        until = delivery.open_until or now
        left, ends = max(until - now, timedelta(0)), self.state.clock.wall(until)
        orders = () if facts is None or facts.cause is not Cause.ADMIN else self.state.orders_of(facts)
        words = next((str(each.params.get("why", "")) for each in orders if each.cause is Cause.ADMIN), "")
        return replace(
            bare,
            subject=warning_subject(delivery.title, left, t),
            text=warning_text(cause, left, ends, bare.url, t, words=words),
            stops_at=ends,
            cause=cause,
        )

    def _of_training(self, bare: WebhookNotice, t: Catalogue) -> WebhookNotice:
        # a KeyError if the notice is not kept any more
        told = {each.id: each for each in self.state.notices.trainings}[bare.id]
        about = replace(bare, training=told.name, training_state=told.state, training_ends=told.ends)
        if told.kind == TRAINING_ENDED or told.stops is None:
            return replace(
                about, subject=training_subject(told.name, told.state, t), text=training_text(told, bare.url, t)
            )
        facts = self.state.facts.get((bare.user, bare.server))
        left = None if facts is None else culling.extensions_left(facts, self.state.policy_of(facts.user, facts.offer))
        text = too_long_text(told.ends, told.stops, bare.url, t, more_time=bool(left))
        return replace(about, subject=too_long_subject(t), text=text, stops_at=told.stops)

    def _message(self, notice: WebhookNotice) -> EmailMessage:
        address = self.texts.address(notice.user)
        if problem := address_problem(address):
            raise NotSent(f"The user's address {problem}.", again=False)
        message = EmailMessage(policy=SMTP)
        message["From"] = self.settings.mail_from
        message["To"] = address
        message["Subject"] = notice.subject
        message["Date"] = format_datetime(self.state.clock.utc_now())
        message["Message-ID"] = f"<{notice.id}@{parseaddr(self.settings.mail_from)[1].partition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"  # so that no out-of-office reply answers it
        message.set_content(notice.text)
        return message

    # -------------------------------------------------------------- what is written down

    async def _write(self, delivery: Delivery, outcome: _Outcome) -> None:
        if outcome.verdict is not DeliveryAction.SEND:
            quiet = outcome.verdict in QUIET
            row = () if quiet else (self._row("not-told", delivery, outcome.verdict.value),)
            await self._commit(Changes(delivered=(delivery.key,), journal=row))
            return
        at, before = self.state.clock.utc_now(), self._sending(delivery.channel)
        if not outcome.why:
            self.state.count("notice-sent", delivery.channel)
            row, meta = (self._row("told", delivery, ""),), self._meta(delivery, Sending(at, before.failed, before.why))
            await self._commit(Changes(delivered=(delivery.key,), journal=row, meta=meta), delivered=delivery)
            return
        self.state.count("notice-failed", delivery.channel)
        again = not before.went and before.why == outcome.why  # the same failure of a receiver is a warning only once
        level = logging.DEBUG if again else logging.WARNING
        log.log(level, "a notice was not sent by %s: %s", delivery.channel, outcome.why, extra={"user": delivery.user})
        meta = self._meta(delivery, Sending(before.sent, at, outcome.why))
        later = after_failure(delivery, self.state.clock.now()) if outcome.again else None
        if later is not None:
            await self._commit(Changes(deliveries=(later,), meta=meta))
            return
        self.state.count("notice-given-up", delivery.channel)
        row = (self._row("not-told", delivery, outcome.why),)
        await self._commit(Changes(delivered=(delivery.key,), journal=row, meta=meta))

    async def _commit(self, changes: Changes, delivered: Delivery | None = None) -> None:
        async with self.transaction() as transaction:
            await transaction.write(replace(changes, facts=() if delivered is None else self._reached(delivered)))

    def _reached(self, warning: Delivery) -> tuple[ServerFacts, ...]:
        """Return the server's facts, changed to record that the warning of its stop has reached the user.

        Args:
            warning: the notice that was sent.

        Returns:
            Empty if the notice is not such a warning, or if that stop is not announced any more.
        """
        facts = self.state.facts.get(warning.run_of)
        if warning.kind not in OF_A_STOP or facts is None or facts.started != warning.run:
            return ()
        return (culling.reached(facts, warning.channel),) if culling.is_announced(facts, warning.open_until) else ()

    def _meta(self, delivery: Delivery, sending: Sending) -> Mapping[str, str]:
        return {SENDINGS: write_sendings({**self.state.notices.sendings, delivery.channel: sending})}

    def _row(self, kind: str, delivery: Delivery, why: str) -> JournalRow:
        text = f"{delivery.kind} by {delivery.channel}{f': {why}' if why else ''}"
        log.info("%s: %s", kind, text, extra={"user": delivery.user, "server": delivery.server})
        at, tries = self.state.clock.utc_now(), f"notice {delivery.id}, try {delivery.tries + 1}"
        return JournalRow(at, kind, None, None, delivery.user, delivery.server, text, SERVICE, tries)
