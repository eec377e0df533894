"""A delivery, one notice to a user by one channel (webhook, e-mail): when it is created, tried, retried and given up.

A *turn* notice reports that a user's turn in line has come and the server is ready. A *warning* reports that a server
will stop. A *letter* is a message of an administrator. A *training* notice reports that a training has ended, or that
its server stops before its end (*too long*). The first condition that holds decides about a delivery:

| condition                                                    | action    |
| ------------------------------------------------------------ | --------- |
| letter, training has ended: it is due                        | sent      |
| its server has ended, or is another run                      | dropped   |
| turn: the user has opened the server                         | dropped   |
| warning: another end is announced now, or no end             | dropped   |
| warning: a page of the server has shown it                   | dropped   |
| too long: the training will be done in time now              | dropped   |
| too long: a page of the server is open, which shows it       | dropped   |
| it is not due yet                                            | left      |
| otherwise                                                    | sent      |

Times are on the running clock, which stands still while hub or service is down.
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
TRAINING_ENDED, TRAINING_TOO_LONG = "training-ended", "training-too-long"
OF_A_STOP = (WARNING, LAST_WARNING)
OUTLIVE = (LETTER, TRAINING_ENDED)  # kinds that are sent although their server has ended
# an open page has this long to show a warning (or a quarter of the warning's time); it learns of it within 10 s
PAGES_FIRST = timedelta(seconds=20)
# before the second try, the third and so on; it is given up 18 min after the first try
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 45, 135, 300, 300, 300))


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notice for one user by one channel (webhook, e-mail).

    Attributes:
        id: id of the notice, the same for each channel and each try, so that a receiver recognises a repeat.
        channel: name of the channel, such as ``mail``.
        kind: ``ready``, ``warning``, ``last-warning``, ``letter`` (by an administrator), ``training-ended``, or
            ``training-too-long`` (the server stops before its training is done).
        user, server: name of the user and of the server.
        offer: id of the server's offer.
        title: the offer's title when the notice was created.
        run: when the server was ready (`ServerFacts.started`). It distinguishes this run of the server from later ones.
        open_until: when the GPU is given to the next user unless the server is opened. For a warning: when the server
            stops. `None` if nothing stops an unopened server, for a letter, and for a notice about a training.
        due: the earliest time of the next try.
        tries: the number of tries so far.
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
        """The key under which the delivery is stored: id of the notice, and channel."""
        return self.id, self.channel

    @property
    def run_of(self) -> tuple[str, str]:
        """The server that the notice is about, as (user, name of the server)."""
        return self.user, self.server


@dataclass(frozen=True, slots=True)
class Sending:
    """Whether a channel (webhook, e-mail) works: its last success and its last failure, by the wall clock.

    Attributes:
        sent, failed: time of the last success and failure; `None` before the first.
        why: why the last failure happened; "" before the first failure.
    """

    sent: datetime | None = None
    failed: datetime | None = None
    why: str = ""

    @property
    def went(self) -> bool:
        """Whether the last sending by this channel succeeded. True if nothing has been sent yet."""
        return self.failed is None or (self.sent is not None and self.sent > self.failed)

    @property
    def text(self) -> str:
        """The state of this channel (webhook or e-mail) as a sentence for administrators."""
        sent = "none taken yet" if self.sent is None else f"taken last at {self.sent.isoformat(timespec='seconds')}"
        if self.failed is None:
            return sent
        return f"{sent}, failed last at {self.failed.isoformat(timespec='seconds')}: {self.why}"


class DeliveryAction(Enum):
    """The action for a delivery now. The value gives the reason, for the journal."""

    SEND = "it is due"
    LATER = "it is not due yet"
    GONE = "its server has ended"
    SEEN = "its user has opened the server"
    OFF = "it is not about to stop then"
    IN_TIME = "its training will be done in time"
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
    """Return the notices that a user's turn in line has come and the server is ready, one for each channel.

    Empty if the user has not asked for a notice, or if the server runs without a GPU and so did not wait for a turn.

    Args:
        ticket: the server's ticket (its place in line); its options show whether the user wants a notice.
        facts: what is remembered of the server.
        title: the offer's title.
        policy: the limits of the server, one of which stops a server that nobody opens.
        after: how long after the server was ready a notice is sent, unless the user opens the server before.
        channels: names of the channels.
        id: id of the notice.
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
    """Return the two warnings of a stop that has just been announced, for each channel.

    If the time is too short for two, only the last warning is returned. Empty if the service has not announced an end
    of the server.

    Args:
        facts: what the service remembers of the server, such as the announced end.
        title: the offer's title.
        policy: the limits of the server, which contain the warning time.
        channels: names of the channels.
        now: the present time of the running clock, which stands still while hub or service is down.
        ids: ids of the two notices.
    """
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


def judge(
    delivery: Delivery, facts: ServerFacts | None, now: datetime, *, too_long: bool = False, watched: bool = False
) -> DeliveryAction:
    """Return what to do with a delivery now, by the table in the module's docstring.

    Args:
        delivery: the delivery.
        facts: facts about the server that the notice is about. `None` if the server does not run.
        now: the present time of the running clock, which stands still while hub or service is down.
        too_long: whether the server's training is still too long.
        watched: whether a page of the server is open.
    """
    if delivery.kind in OUTLIVE:
        return DeliveryAction.SEND if now >= delivery.due else DeliveryAction.LATER
    if facts is None or facts.started != delivery.run:
        return DeliveryAction.GONE
    if delivery.kind == READY and facts.opened is not None:
        return DeliveryAction.SEEN
    if delivery.kind == TRAINING_TOO_LONG and not too_long:
        return DeliveryAction.IN_TIME
    if delivery.kind == TRAINING_TOO_LONG and watched:
        return DeliveryAction.SHOWN
    if delivery.kind in OF_A_STOP and not is_announced(facts, delivery.open_until):
        return DeliveryAction.OFF
    if delivery.kind in OF_A_STOP and PAGE in facts.reached:
        return DeliveryAction.SHOWN
    return DeliveryAction.SEND if now >= delivery.due else DeliveryAction.LATER


def after_failure(delivery: Delivery, now: datetime) -> Delivery | None:
    """Return the delivery with the time of its next try, after a pause that grows with each failure.

    `None` if it is given up, because this was the last try.
    """
    if delivery.tries >= len(PAUSES):
        return None
    return replace(delivery, due=now + PAUSES[delivery.tries], tries=delivery.tries + 1)
