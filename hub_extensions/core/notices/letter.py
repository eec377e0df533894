"""Letters: messages of administrators to the users whose servers hold a card.

The panel in the user's server shows a letter as long as the server runs. It is also sent once by each channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.notices.delivery import LETTER, Delivery
from hub_extensions.core.text.reasons import Reason, explain

LONGEST = 1000  # characters of a letter, or of the reason of an order

A_SERVER = 5  # newest letters kept for a server; the journal has all


@dataclass(frozen=True, slots=True)
class AdminLetter:
    """A message of an administrator to the user of one run of a server.

    Attributes:
        id: id of the letter.
        user, server: name of the user and of the server.
        run: when the server was ready (`ServerFacts.started`), which distinguishes this run of the server from later
            ones. It is a time of the running clock, which stands still while hub or service is down.
        text: the message.
        at: wall-clock time of writing.
    """

    id: str
    user: str
    server: str
    run: datetime
    text: str
    at: datetime


def still_read(
    letters: Iterable[AdminLetter], runs: Iterable[ServerFacts], sending: Collection[str] = ()
) -> tuple[AdminLetter, ...]:
    """Return the letters to keep, in the order of writing: those that a running server shows or that are being sent.

    Args:
        letters: all letters, in the order of writing.
        runs: facts about the running servers.
        sending: ids of the letters that are still being sent.
    """
    left = {(each.user, each.server, each.started): A_SERVER for each in runs}
    found = list[AdminLetter]()
    for letter in reversed(tuple(letters)):
        run = (letter.user, letter.server, letter.run)
        shown = left.get(run, 0) > 0
        if shown:
            left[run] -= 1
        if shown or letter.id in sending:
            found.append(letter)
    return tuple(reversed(found))


def for_panel(letters: Iterable[AdminLetter], facts: ServerFacts) -> tuple[Reason, ...]:
    """Return the letters that the panel of one run of a server shows, the newest first.

    Args:
        letters: all letters.
        facts: what is remembered of that run.
    """
    mine = (each for each in letters if (each.user, each.server, each.run) == (facts.user, facts.server, facts.started))
    newest = sorted(enumerate(mine), key=lambda each: (each[1].at, each[0]), reverse=True)[:A_SERVER]
    return tuple(explain("from-admin", text=each.text, at=each.at) for _, each in newest)


def deliveries_of(
    letter: AdminLetter, facts: ServerFacts, title: str, channels: Iterable[str], now: datetime
) -> tuple[Delivery, ...]:
    """Return a delivery of the letter for each channel (webhook, e-mail), to be sent at once.

    Args:
        letter: the letter.
        facts: what is remembered of the server whose user gets it.
        title: title of the offer with which the server runs.
        channels: names of the channels.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    return tuple(
        Delivery(letter.id, channel, LETTER, letter.user, letter.server, facts.offer, title, letter.run, None, now)
        for channel in channels
    )
