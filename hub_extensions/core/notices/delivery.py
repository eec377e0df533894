"""One notice on its way to a user by one channel: when it is made, tried, tried again, and given up.

| what is true                                              | it is     |
| --------------------------------------------------------- | --------- |
| its server has ended, or is another (of a letter: sent)   | dropped   |
| of a turn: its user has opened the server                 | dropped   |
| of a warning: another end is announced now, or none       | dropped   |
| of a warning: a page of the server has shown it           | dropped   |
| it is not due yet                                         | left      |
| else                                                      | sent      |

Times are on the running clock. Not here: who sends it and where it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.culling import PAGE, CullPolicy, ServerFacts, is_announced, last_warning
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import NOTIFY
from hub_extensions.core.queue.model import Ticket

READY, WARNING, LAST_WARNING, LETTER = "ready", "warning", "last-warning", "letter"
PAGES_FIRST = timedelta(seconds=20)
"""So long an open page has to show a warning, of which it hears within 10 s (or a quarter of a warning's time)."""
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 45, 135, 300, 300, 300))
"""Before the second try, the third, …; after the last it is given up, 18 min after the first."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notice for one user by one channel.

    Attributes:
        id: of the notice: the same by each channel and at each try, so that a receiver knows a repeat.
        kind: what is told: ``ready``, ``warning``, ``last-warning``, or ``letter``: what an admin wrote.
        title: the offer's, as it was called then.
        run: when its server was ready (`ServerFacts.started`): with user and server it names this run of the server.
        open_until: when the GPU goes to the next unless the server is opened; None: nothing stops an unopened one. Of
            a warning: when the server stops.
        due: not to be tried before. tries: how often it was.
    """

    id: str
    channel: str
    kind: str
    user: str
    server: str
    offer: OfferId
    title: str
    run: datetime
    open_until: datetime | None
    due: datetime
    tries: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Under which it is kept."""
        return self.id, self.channel

    @property
    def run_of(self) -> tuple[str, str]:
        """The server whose run it is about."""
        return self.user, self.server


@dataclass(frozen=True, slots=True)
class Sending:
    """When a channel last took something, and when it last failed to, and why; None: never. Wall-clock times."""

    sent: datetime | None = None
    failed: datetime | None = None
    why: str = ""

    @property
    def went(self) -> bool:
        """The last one did not fail."""
        return self.failed is None or (self.sent is not None and self.sent > self.failed)

    @property
    def text(self) -> str:
        """For an admin."""
        sent = "none taken yet" if self.sent is None else f"taken last at {self.sent.isoformat(timespec='seconds')}"
        if self.failed is None:
            return sent
        return f"{sent}, failed last at {self.failed.isoformat(timespec='seconds')}: {self.why}"


class DeliveryAction(Enum):
    """What is to be done with a delivery now. The value says why, for the journal."""

    SEND = "it is due"
    LATER = "it is not due yet"
    GONE = "its server has ended"
    SEEN = "its user has opened the server"
    OFF = "it is not about to stop then"
    SHOWN = "a page has shown it"


def turn_notices(
    ticket: Ticket,
    facts: ServerFacts,
    title: str,
    policy: CullPolicy,
    after: timedelta,
    channels: Iterable[str],
    *,
    id: str,
) -> tuple[Delivery, ...]:
    """What is sent because a ticket's server is ready: one for each channel, where its user has asked for it.

    A server without a GPU is nobody's turn.
    """
    if facts.lease is None or ticket.options.get(NOTIFY) is not True:
        return ()
    limit = policy.unopened if policy.enabled and not policy.never else None
    until = None if limit is None else facts.started + max(limit, policy.warn)
    made = Delivery(
        id, "", READY, ticket.user, ticket.server, facts.offer, title, facts.started, until, facts.started + after
    )
    return tuple(replace(made, channel=channel) for channel in channels)


def warning_notices(
    facts: ServerFacts, title: str, policy: CullPolicy, channels: Iterable[str], now: datetime, *, ids: tuple[str, str]
) -> tuple[Delivery, ...]:
    """Both warnings of the end that was announced just now, for each channel; one where no time is left for two."""
    end = facts.announced
    if end is None:
        return ()
    first, last = now + min(PAGES_FIRST, policy.warn / 4), last_warning(end, policy)
    due = ((WARNING, first), (LAST_WARNING, last)) if first < last else ((LAST_WARNING, min(first, end)),)
    return tuple(
        Delivery(id, channel, kind, facts.user, facts.server, facts.offer, title, facts.started, end, at)
        for id, (kind, at) in zip(ids, due, strict=False)
        for channel in channels
    )


def judge(delivery: Delivery, facts: ServerFacts | None, now: datetime) -> DeliveryAction:
    """What is to be done with it now. `facts`: of its server, None where none runs."""
    if delivery.kind == LETTER:  # what was written is not lost with the server that it was written to
        return DeliveryAction.SEND if now >= delivery.due else DeliveryAction.LATER
    if facts is None or facts.started != delivery.run:
        return DeliveryAction.GONE
    if delivery.kind == READY and facts.opened is not None:
        return DeliveryAction.SEEN
    if delivery.kind != READY and not is_announced(facts, delivery.open_until):
        return DeliveryAction.OFF
    if delivery.kind != READY and PAGE in facts.reached:
        return DeliveryAction.SHOWN
    return DeliveryAction.SEND if now >= delivery.due else DeliveryAction.LATER


def after_failure(delivery: Delivery, now: datetime) -> Delivery | None:
    """The same, to be tried again after a pause that grows; None: it was tried often enough."""
    if delivery.tries >= len(PAUSES):
        return None
    return replace(delivery, due=now + PAUSES[delivery.tries], tries=delivery.tries + 1)
