"""Decide which sessions to check at the provider again, and what its answer means.

======================================  ==================================================================
the provider's answer                   result
======================================  ==================================================================
the person, who is still allowed        the session stays; its groups are updated, if they are known
the person, who is no longer allowed    all sessions of the person end, and the right is lost
refused (``invalid_grant``, or 401 of   this session ends: it expired at the provider, or the account is
``userinfo``)                           gone. If it was the last one, the account is *unknown* until the
                                        next sign-in: API tokens end too, and servers run while they work
refused because the account is          all sessions of the person end, and the right is lost
disabled or gone (in the same answer,
in ``userinfo`` or at ``account_url``)
refused because the person has to act   this session ends, and nothing else
not readable                            the session stays: an outage of the provider signs nobody out
======================================  ==================================================================
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.sign_on.answers import MUST_ACT, Account, account_in_description
from hub_extensions.core.sign_on.sessions import EndCause

MIN_CONCURRENT = 5
"""Checks that run at the same time; more only if the sessions could not be checked in time otherwise."""
MIN_PER_SECOND = 8.0
"""Checks that start per second; more only if the sessions could not be checked in time otherwise."""
MAX_PER_SECOND = 40.0
"""Upper limit of that, to protect provider and hub: 9,600 sessions in five minutes."""
RESERVE = 1.25
ANSWER_SECONDS = 0.6
"""Expected time of an answer, from which the number of simultaneous checks is computed."""
AHEAD = timedelta(minutes=1)
"""If the last check lies further ahead than this, the clock was set back and the session is checked again."""
JITTER = 0.2
"""A session may be due earlier by up to this fraction of the interval, so that not all are due at once."""

PAUSES_SECONDS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0)
"""Pause before a session without an answer is checked again; it doubles each time up to the last value."""
PROBE_SECONDS = 12.0
"""Longest time between two checks while the provider is away, so that its return is noticed."""
BACK_AFTER = 2
"""Answers in a row after which the provider counts as back, even if some checks still get no answer."""

RIGHT_LOST = frozenset({EndCause.DISABLED, EndCause.DELETED})
"""Ends after which the person may no longer sign in."""


EXPECTED = frozenset({EndCause.SIGN_OUT.value, EndCause.BY_OWNER.value, EndCause.PROVIDER.value})
"""Ends after which the provider does not renew a session, so that its refusal has no meaning for the account."""


class RecheckOutcome(str, Enum):
    """Result of a check for the session."""

    STAYS = "stays"
    ENDS = "ends"
    RIGHT_LOST = "right-lost"


@dataclass(frozen=True, slots=True)
class ProviderLink:
    """The provider's data of a session.

    Attributes:
        session: its public id.
        user_id: the hub's id of its user.
        encrypted_tokens: refresh token and id token; empty if the provider gave none, `None` if not loaded from the
            database.
        checked: when the provider last confirmed it; `None` if it has to be checked at once.
    """

    session: str
    user_id: int
    iss: str
    sub: str
    sid: str
    encrypted_tokens: bytes | None
    checked: datetime | None

    def last_asked(self, now: datetime) -> datetime | None:
        """Return `checked`, or `None` if the clock was set back since and the time is unusable."""
        return None if self.checked is None or self.checked - now > AHEAD else self.checked


def cause_of_error(words: str, code: str = "") -> EndCause:
    """Return the cause of an end from the provider's error description and code."""
    if code == MUST_ACT:
        return EndCause.MUST_ACT
    found = account_in_description(words)
    return EndCause.NOT_RENEWED if found is None else END_OF_ACCOUNT.get(found, EndCause.NOT_RENEWED)


END_OF_ACCOUNT = {Account.DISABLED: EndCause.DISABLED, Account.GONE: EndCause.DELETED}
"""State of an account that the provider reported for certain -> the cause with which its sessions end."""


@dataclass(frozen=True, slots=True)
class RecheckFailure:
    """A session whose last `times` checks got no answer, the last one at this second of a monotonic clock."""

    at: float
    times: int = 1

    @property
    def again_at(self) -> float:
        """Second before which the session is not checked again, so that it does not delay other sessions."""
        return self.at + PAUSES_SECONDS[min(self.times, len(PAUSES_SECONDS)) - 1]


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """Whether the provider counts as away, according to the checks so far.

    It is away from the first check without an answer. It is back when no session lacks an answer, or two thirds of
    those checked since have one. A single session without answers does not change the state: that takes two sessions in
    a row.

    Attributes:
        answered: sessions with an answer since the provider is away.
        in_a_row: answers since the last check without one.
        silent: the session of the last check, if it got no answer.
    """

    away: bool = False
    answered: frozenset[str] = frozenset()
    in_a_row: int = 0
    silent: str = ""

    def after_silence(self, session: str, unanswered: Mapping[str, RecheckFailure]) -> ProviderHealth:
        """Return the state after a check without an answer. `unanswered` has all sessions whose last check got none."""
        is_first = len(unanswered) == 1 and unanswered[session].times == 1
        is_second = self.silent not in ("", session)
        away = self.away or is_first or is_second
        return ProviderHealth(away, self.answered - {session}, 0, session)

    def after_answer(self, session: str, unanswered: Mapping[str, RecheckFailure]) -> ProviderHealth:
        """Return the state after a check with an answer."""
        if not self.away:
            return replace(self, in_a_row=self.in_a_row + 1, silent="")
        answered, in_a_row = self.answered | {session}, self.in_a_row + 1
        if not unanswered or (in_a_row >= BACK_AFTER and len(answered) >= 2 * len(unanswered)):
            return ProviderHealth(in_a_row=in_a_row)
        return ProviderHealth(True, answered, in_a_row)


def due_links(
    links: Iterable[ProviderLink],
    every: timedelta,
    now: datetime,
    unanswered: Mapping[str, RecheckFailure] | None = None,
    steady: float = 0.0,
) -> Sequence[ProviderLink]:
    """Return the sessions to check now: first those never checked, then the longest unchecked, then those without an
    answer.

    Args:
        every: the interval; zero checks only sessions that have to be checked at once.
        unanswered: failures by session.
        steady: the current second of the monotonic clock.
    """
    failed = {} if unanswered is None else unanswered

    def is_due(link: ProviderLink) -> bool:
        asked = link.last_asked(now)
        early = JITTER * zlib.crc32(link.session.encode()) / 2**32  # always the same for a session
        return asked is None or (every > timedelta(0) and now - asked >= every * (1 - early))

    found = [each for each in links if is_due(each)]
    found = [each for each in found if each.session not in failed or steady >= failed[each.session].again_at]

    def order(link: ProviderLink) -> tuple[bool, float, bool, datetime]:
        last, asked = failed.get(link.session), link.last_asked(now)
        return last is not None, 0.0 if last is None else last.at, asked is not None, asked or now

    return sorted(found, key=order)


def checks_per_second(sessions: int, every: timedelta) -> float:
    """Return how many checks may start per second, so that this number of sessions is checked within the interval."""
    needed = RESERVE * sessions / every.total_seconds() if every > timedelta(0) else 0.0
    return min(MAX_PER_SECOND, max(MIN_PER_SECOND, needed))


def max_concurrent(questions: float) -> int:
    """Return how many checks may run at the same time if this many start per second."""
    return max(MIN_CONCURRENT, math.ceil(questions * ANSWER_SECONDS))


def overdue(links: Iterable[ProviderLink], every: timedelta, now: datetime) -> timedelta:
    """Return by how much the most overdue session is late; zero if every session is in time, or `every` is zero.

    If the clock was set back, a session counts as late by the distance to its last check, because more is not known.
    """
    if every <= timedelta(0):
        return timedelta(0)
    late = (
        now - each.checked - every if each.last_asked(now) is not None else each.checked - now
        for each in links
        if each.checked is not None
    )
    return max(timedelta(0), max(late, default=timedelta(0)))
