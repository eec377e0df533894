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
"""Usual limit of checks that run at the same time; it rises if the sessions could not be checked in time."""
MIN_PER_SECOND = 8.0
"""Usual limit of checks that start per second; it rises if the sessions could not be checked in time."""
MAX_PER_SECOND = 40.0
"""Highest limit of checks per second, to protect provider and hub: 9,600 sessions in five minutes."""
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
"""Ends after which the provider does not renew a session, so its refusal does not mean that the account is gone."""


class RecheckOutcome(str, Enum):
    """The effect of a check at the provider: the session stays, it ends, or the person may not sign in any more."""

    STAYS = "stays"
    ENDS = "ends"
    RIGHT_LOST = "right-lost"


@dataclass(frozen=True, slots=True)
class ProviderLink:
    """A session of the hub, linked to the session at the identity provider that it came from.

    Attributes:
        session: public id of the hub's session.
        user_id: the hub's id of its user.
        iss: the provider.
        sub: the provider's id of the account.
        sid: the provider's id of the session; "" if the provider gave none.
        encrypted_tokens: refresh token and id token. Empty if the provider gave none; `None` if they were not loaded
            from the database.
        checked: when the provider last confirmed the session; `None` if the session has to be checked at once.
    """

    session: str
    user_id: int
    iss: str
    sub: str
    sid: str
    encrypted_tokens: bytes | None
    checked: datetime | None

    def last_asked(self, now: datetime) -> datetime | None:
        """Return when the provider last confirmed the session; `None` if it has to be checked at once.

        A time in the future means that the clock was set back since, so it counts as `None`.
        """
        return None if self.checked is None or self.checked - now > AHEAD else self.checked


def cause_of_error(words: str, code: str = "") -> EndCause:
    """Return the cause with which a session ends after the provider refused to renew it.

    Args:
        words: the provider's error description.
        code: the provider's error code, or `MUST_ACT` if the person has to act at the provider. "" without a code.
    """
    if code == MUST_ACT:
        return EndCause.MUST_ACT
    found = account_in_description(words)
    return EndCause.NOT_RENEWED if found is None else END_OF_ACCOUNT.get(found, EndCause.NOT_RENEWED)


END_OF_ACCOUNT = {Account.DISABLED: EndCause.DISABLED, Account.GONE: EndCause.DELETED}
"""State of an account that the provider reported for certain -> the cause with which its sessions end."""


@dataclass(frozen=True, slots=True)
class RecheckFailure:
    """The checks of a session that the provider did not answer, since its last answer about the session.

    Attributes:
        at: when the last check failed, in seconds of a monotonic clock.
        times: number of checks in a row without an answer.
    """

    at: float
    times: int = 1

    @property
    def again_at(self) -> float:
        """When the session may be checked again, in seconds of the monotonic clock of `at`.

        The pause keeps a session that gets no answers from delaying other sessions.
        """
        return self.at + PAUSES_SECONDS[min(self.times, len(PAUSES_SECONDS)) - 1]


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """Whether the provider counts as away (not answering), according to the checks of sessions so far.

    The provider is away from the first check without an answer. It is back when every session got an answer to its last
    check. It is also back after `BACK_AFTER` answers in a row, if the sessions that got an answer while the provider
    was away are at least twice as many as the sessions whose last check got none. Later, a single session that never
    gets an answer does not count; the provider is away again if two different sessions in a row get none.

    Attributes:
        away: whether the provider counts as away.
        answered: sessions that got an answer while the provider counts as away.
        in_a_row: number of answers since the last check without one.
        silent: the session that was checked last, if the check got no answer; "" if it got one.
    """

    away: bool = False
    answered: frozenset[str] = frozenset()
    in_a_row: int = 0
    silent: str = ""

    def after_silence(self, session: str, unanswered: Mapping[str, RecheckFailure]) -> ProviderHealth:
        """Return the provider's health after it has not answered a check of a session.

        Args:
            session: the session that was checked.
            unanswered: all sessions whose last check got no answer, including this one.
        """
        is_first = len(unanswered) == 1 and unanswered[session].times == 1
        is_second = self.silent not in ("", session)
        away = self.away or is_first or is_second
        return ProviderHealth(away, self.answered - {session}, 0, session)

    def after_answer(self, session: str, unanswered: Mapping[str, RecheckFailure]) -> ProviderHealth:
        """Return the provider's health after it has answered a check of a session.

        Args:
            session: the session that was checked.
            unanswered: all sessions whose last check got no answer.
        """
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
    """Return the sessions to check now, in the order in which to check them.

    Sessions that were never checked come first, then those whose last check is longest ago, and last those whose last
    check got no answer.

    Args:
        every: the interval between two checks of a session; zero checks only sessions that were never checked.
        unanswered: session -> its checks in a row without an answer. The session is left out until its pause is over.
            `None` means that there are no such sessions.
        steady: now, in seconds of the monotonic clock of `RecheckFailure`.
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
    """Return how many checks may start per second, so that all sessions are checked within the interval `every`."""
    needed = RESERVE * sessions / every.total_seconds() if every > timedelta(0) else 0.0
    return min(MAX_PER_SECOND, max(MIN_PER_SECOND, needed))


def max_concurrent(questions: float) -> int:
    """Return how many checks may run at the same time.

    Args:
        questions: number of checks that start per second.
    """
    return max(MIN_CONCURRENT, math.ceil(questions * ANSWER_SECONDS))


def overdue(links: Iterable[ProviderLink], every: timedelta, now: datetime) -> timedelta:
    """Return by how much the most overdue session is late.

    The result is zero if every session was checked in time, or if `every` (the interval) is zero. If the clock was set
    back, the last check seems to lie in the future; the session then counts as late by that difference.
    """
    if every <= timedelta(0):
        return timedelta(0)
    late = (
        now - each.checked - every if each.last_asked(now) is not None else each.checked - now
        for each in links
        if each.checked is not None
    )
    return max(timedelta(0), max(late, default=timedelta(0)))
