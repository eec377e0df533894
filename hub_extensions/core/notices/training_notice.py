"""Notices about a training: that it will not be done before its server stops, and that it has ended.

The first one is sent once per run of a server to a user without an open page. The second one is sent once per run of a
program if its user wishes so, and only after a long run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.forecast.progress_file import shown_name
from hub_extensions.core.messages.server import TrainingEnded
from hub_extensions.core.notices.delivery import PAGES_FIRST, TRAINING_ENDED, TRAINING_TOO_LONG, Delivery
from hub_extensions.core.offers.offer_id import OfferId

SHORTEST = timedelta(minutes=10)
"""A notice at the end is sent only for a training of at least this time."""
AN_HOUR = timedelta(hours=1)
AN_HOURS_NOTICES = 6  # notices at the end of trainings that are sent in an hour for one server
REMEMBERED = timedelta(hours=24)
"""Time for which a sent notice is remembered, so that a repeated request does not send it again."""


@dataclass(frozen=True, slots=True)
class TrainingNotice:
    """A notice about a training that is being sent, or was sent lately.

    Attributes:
        id: id of the notice.
        user, server: name of the user and of the server.
        kind: `TRAINING_ENDED` or `TRAINING_TOO_LONG`.
        run: id of the program's run; for `TRAINING_TOO_LONG` the start of the server, as text.
        at: wall-clock time at which the notice was created.
        ends: when the training has ended, or will likely end, by the wall clock.
        name: the name that the program gave the run; "" if it gave none.
        state: how the run ended (`TrainingEnded.state`); "" if it goes on.
        started: when the training began, by the wall clock; `None` if that is not known.
        stops: when the server stops, by the wall clock; `None` if the notice is not about that.
    """

    id: str
    user: str
    server: str
    kind: str
    run: str
    at: datetime
    ends: datetime
    name: str = ""
    state: str = ""
    started: datetime | None = None
    stops: datetime | None = None


def is_repeat(notices: Iterable[TrainingNotice], new: TrainingNotice) -> bool:
    """Return whether a notice about the same run was created before."""
    key = (new.user, new.server, new.kind, new.run)
    return any((each.user, each.server, each.kind, each.run) == key for each in notices)


def ended(report: TrainingEnded, server: tuple[str, str], now: datetime, *, id: str) -> TrainingNotice:
    """Return the notice that a training has ended.

    Args:
        report: the request of the server.
        server: name of the user and of the server.
        now: wall-clock time.
        id: id of the notice.
    """
    return TrainingNotice(
        id,
        *server,
        TRAINING_ENDED,
        report.run,
        now,
        report.ended,
        name=shown_name(report.name),
        state=report.state,
        started=report.started,
    )


def wait_before(notices: Iterable[TrainingNotice], server: tuple[str, str], now: datetime) -> timedelta:
    """Return how long the server has to wait before its next notice at the end of a training; 0 if it need not wait.

    Args:
        notices: the notices that were created lately.
        server: name of the user and of the server.
        now: wall-clock time.
    """
    lately = sorted(
        each.at
        for each in notices
        if (each.user, each.server) == server and each.kind == TRAINING_ENDED and each.at > now - AN_HOUR
    )
    if len(lately) < AN_HOURS_NOTICES:
        return timedelta(0)
    return lately[-AN_HOURS_NOTICES] + AN_HOUR - now


def remembered(
    notices: Sequence[TrainingNotice], running: Collection[tuple[str, str, str]], now: datetime
) -> tuple[TrainingNotice, ...]:
    """Return the notices that are still remembered: of the last 24 h, and of servers that were told of a long training.

    Args:
        notices: the notices, in the order in which they were created.
        running: (user, server, start as text) of the running servers.
        now: wall-clock time.
    """
    return tuple(
        each for each in notices if now - each.at < REMEMBERED or (each.user, each.server, each.run) in running
    )


def training_deliveries(
    notice: TrainingNotice, offer: OfferId, title: str, run: datetime, channels: Iterable[str], now: datetime
) -> tuple[Delivery, ...]:
    """Return a delivery of the notice for each channel (webhook, e-mail).

    The notice that a training is too long is due a little later, so that an open page can show it first.

    Args:
        notice: the notice.
        offer: id of the server's offer.
        title: the offer's title.
        run: when the server was ready (`ServerFacts.started`).
        channels: names of the channels.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    due = now + PAGES_FIRST if notice.kind == TRAINING_TOO_LONG else now
    made = Delivery(notice.id, "", notice.kind, notice.user, notice.server, offer, title, run, None, due)
    return tuple(replace(made, channel=channel) for channel in channels)


def run_of(facts: ServerFacts) -> str:
    """Return the text by which a run of a server is told from others (`TrainingNotice.run`)."""
    return facts.started.isoformat()
