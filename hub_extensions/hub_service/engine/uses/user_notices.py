"""The notices' part of the state: what the next page of a user shows, and what is being sent to users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.adapters.store import Changes, NoticeRow, Stored
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.notices import (
    AdminLetter,
    Delivery,
    NoticeConfig,
    Sending,
    TrainingNotice,
    remembered,
    run_of,
)
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.failed_starts import KeptFailure, places_of, taken_up
from hub_extensions.core.queue.model import WantedOffer
from hub_extensions.hub_service.engine.state.meta import (
    FAILED_STARTS,
    LANGUAGES,
    LETTERS,
    SENDINGS,
    TRAININGS,
    read_failures,
    read_languages,
    read_letters,
    read_sendings,
    read_trainings,
    write_failures,
    write_languages,
    write_letters,
    write_trainings,
)

NOTICES_LAST = timedelta(hours=24)  # pages show a notice this long


class UserNotices:
    """Notices for users without an open page, a part of `State`.

    Attributes:
        config: how notices are sent.
        deliveries: the notices that are being sent by a channel (webhook or e-mail), by `Delivery.key`.
        sendings: channel -> its last successful and its last failed sending.
        failures: failed starts, the oldest first. They are shown until a later start of the server is ready.
        letters: messages of administrators to the users of single servers.
        trainings: notices about trainings that are being sent, or were sent lately.
        languages: user -> the language of the last page, if it differs from that of the site's mails.
    """

    def __init__(self, config: NoticeConfig) -> None:
        self.config = config
        self.deliveries: dict[tuple[str, str], Delivery] = {}
        self.sendings: Mapping[str, Sending] = {}
        self.failures: tuple[KeptFailure, ...] = ()
        self.letters: tuple[AdminLetter, ...] = ()
        self.trainings: tuple[TrainingNotice, ...] = ()
        self.languages: Mapping[str, str] = {}
        self._by_user: dict[str, list[NoticeRow]] = {}

    def load(self, stored: Stored, notices: Sequence[NoticeRow]) -> None:
        """Restore the notices from the store, after a restart.

        Args:
            stored: the content of the store.
            notices: the notices for pages, the latest first.
        """
        self.sendings = read_sendings(stored.meta.get(SENDINGS, "{}"))
        self.failures = read_failures(stored.meta.get(FAILED_STARTS, "[]"))
        self.letters = read_letters(stored.meta.get(LETTERS, "[]"))
        self.trainings = read_trainings(stored.meta.get(TRAININGS, "[]"))
        self.languages = read_languages(stored.meta.get(LANGUAGES, "{}"))
        self.deliveries = {each.key: each for each in stored.deliveries}
        for notice in reversed(notices):
            self._by_user.setdefault(notice.user, []).append(notice)

    def remember(self, changes: Changes) -> None:
        """Update deliveries, failed starts and letters after a transaction has written these changes."""
        for delivered in changes.delivered:
            self.deliveries.pop(delivered, None)
        for delivery in changes.deliveries:
            self.deliveries[delivery.key] = delivery
        for notice in changes.notices:
            self._by_user.setdefault(notice.user, []).append(notice)
        if LETTERS in changes.meta:
            self.letters = read_letters(changes.meta[LETTERS])
        if TRAININGS in changes.meta:
            self.trainings = read_trainings(changes.meta[TRAININGS])
        if LANGUAGES in changes.meta:
            self.languages = read_languages(changes.meta[LANGUAGES])
        if SENDINGS in changes.meta:
            self.sendings = read_sendings(changes.meta[SENDINGS])
        if FAILED_STARTS in changes.meta:
            self.failures = read_failures(changes.meta[FAILED_STARTS])

    def recent(self, user: str, now: datetime) -> tuple[NoticeRow, ...]:
        """Return the notices of the last 24 h for the next page of this user."""
        since = now - NOTICES_LAST
        return tuple(notice for notice in self._by_user.get(user, ()) if notice.at >= since)

    def take_up_places(
        self, user: str, server: str, offers: Sequence[OfferId], now: datetime
    ) -> tuple[tuple[WantedOffer, ...], Mapping[str, str]]:
        """Return the places in line that a failed start of this server left for its next start.

        Args:
            user, server: name of the user and of the server.
            offers: the offers that the next start accepts.
            now: by the running clock, which stands still while the hub is away.

        Returns:
            The places; and the values to store (`engine.state.meta`) so that no other start gets these places too,
            empty if nothing changes.
        """
        left = places_of(self.failures, user, server, now)
        after = taken_up(self.failures, user, server, offers) if left else self.failures
        return left, {} if after == self.failures else {FAILED_STARTS: write_failures(after)}

    @property
    def usual(self) -> str:
        """The language of mails to users who have not opened a page yet, as an HTML language tag."""
        return catalogue_for(self.config.mail_language).language

    def language_note(self, user: str, language: str) -> Mapping[str, str]:
        """Return the values to store (`engine.state.meta`) if the language of the user's page has changed.

        Empty if it has not changed.
        """
        if language == self.languages.get(user, self.usual):
            return {}
        others = {name: each for name, each in self.languages.items() if name != user}
        return {LANGUAGES: write_languages(others if language == self.usual else {**others, user: language})}

    def training_note(
        self, now: datetime, runs: Iterable[ServerFacts], new: TrainingNotice | None = None
    ) -> Mapping[str, str]:
        """Return the values to store (`engine.state.meta`) so that old notices about trainings are forgotten.

        Empty if nothing changes.

        Args:
            now: wall-clock time.
            runs: facts about the running servers.
            new: a notice to add. `None` for none.
        """
        running = {(each.user, each.server, run_of(each)) for each in runs}
        left = (*remembered(self.trainings, running, now), *((new,) if new is not None else ()))
        return {} if left == self.trainings else {TRAININGS: write_trainings(left)}

    def without_user(self, user: str) -> Changes:
        """Return the changes that remove a deleted user's failed starts, letters, trainings and language."""
        failures = tuple(each for each in self.failures if each.start.user != user)
        letters = tuple(each for each in self.letters if each.user != user)
        meta = {} if failures == self.failures else {FAILED_STARTS: write_failures(failures)}
        meta |= {} if letters == self.letters else {LETTERS: write_letters(letters)}
        trainings = tuple(each for each in self.trainings if each.user != user)
        meta |= {} if trainings == self.trainings else {TRAININGS: write_trainings(trainings)}
        return Changes(meta={**meta, **self.language_note(user, self.usual)})

    def forget_old(self, now: datetime) -> None:
        """Remove from memory the notices that are older than 24 h, so that pages do not show them any more."""
        self._by_user = {user: rows for user in self._by_user if (rows := [*self.recent(user, now)])}
