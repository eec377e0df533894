"""Asking the provider again about who is signed in: who is due, and what an answer means.

======================================  ==================================================================
what the provider says                  what follows
======================================  ==================================================================
here is who it is, and we let them in   it stays; its groups are taken over, where they are known
here is who it is; not let in any more  all sessions of the person end, and the right is lost
no (``invalid_grant``, ``userinfo``     this session ends: it ran out there, or the account is gone. If it
401)                                    was the last one, the account is *unknown* until the next sign-in: API
                                        tokens end too, and servers run on while they work
no, and it says that the account is     all sessions of the person end, and the right is lost
disabled or gone (in the same answer,
as ``userinfo``, or as ``account_url``)
no, the person has to act there         this session ends, and nothing else
nothing that can be read                it stays: nobody is signed out because a provider is away
======================================  ==================================================================

Not here: asking (``adapters/provider/oidc.py``), and ending (``authenticator/session_ender.py``).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.sign_on.answers import MUST_ACT, Account, account_of_words
from hub_extensions.core.sign_on.sessions import EndCause

AT_ONCE = 5
"""So many are asked about at a time, and more only where all are not asked about in time otherwise."""
PER_SECOND = 8.0
"""So many questions begin in a second at most, and more only as above."""
MOST_PER_SECOND = 40.0
"""The bound of that, for the sake of provider and hub: 9,600 sessions in five minutes."""
RESERVE = 1.25
ANSWER_SECONDS = 0.6
"""What an answer may take so that as many as begin also end."""
AHEAD = timedelta(minutes=1)
"""A session that was asked about later than so long from now is asked about anew: the clock was set back."""
JITTER = 0.2
"""A session is due up to this part of the time earlier, each by another, so that not all come at once."""

PAUSES_SECONDS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0)
"""A session without an answer is not asked about for so long; each time twice as long, up to the last."""
PROBE_SECONDS = 12.0
"""While the provider is away, somebody is asked about so often at least: that it is back is seen after no more."""
BACK_AFTER = 2
"""So many questions in a row have an answer where the provider counts as back, though some still have none."""

RIGHT_LOST = frozenset({EndCause.DISABLED, EndCause.DELETED})
"""Ends after which the person may not sign in any more."""


EXPECTED = frozenset({EndCause.SIGN_OUT.value, EndCause.BY_OWNER.value, EndCause.PROVIDER.value})
"""Ends after which the provider renews nothing, so that its refusal says nothing of the account."""


class RecheckOutcome(str, Enum):
    """What becomes of a session."""

    STAYS = "stays"
    ENDS = "ends"
    RIGHT_LOST = "right-lost"


@dataclass(frozen=True, slots=True)
class ProviderLink:
    """What a session has from its provider.

    Attributes:
        session: its public id. user_id: the hub's number of its user.
        kept: refresh token and id token, encrypted; empty: there is none to ask with; None: the database has them.
        checked: when the provider last said that it is good; None: it is to be asked at once.
    """

    session: str
    user_id: int
    iss: str
    sub: str
    sid: str
    kept: bytes | None
    checked: datetime | None

    def last_asked(self, now: datetime) -> datetime | None:
        """`checked`; None as well where a clock that was set back since makes nothing of it."""
        return None if self.checked is None or self.checked - now > AHEAD else self.checked


def end_of_no(words: str, code: str = "") -> EndCause:
    """Return why a session ends that the provider does not renew, by the provider's words."""
    if code == MUST_ACT:
        return EndCause.MUST_ACT
    found = account_of_words(words)
    return EndCause.NOT_RENEWED if found is None else END_OF_ACCOUNT.get(found, EndCause.NOT_RENEWED)


END_OF_ACCOUNT = {Account.DISABLED: EndCause.DISABLED, Account.GONE: EndCause.DELETED}
"""What a provider that is sure of an account ends."""


@dataclass(frozen=True, slots=True)
class RecheckFailure:
    """A session that was asked about `times` in a row without an answer, last `at` this (steady) second."""

    at: float
    times: int = 1

    @property
    def again_at(self) -> float:
        """It is not asked about before: one session that has no answer keeps nobody else waiting."""
        return self.at + PAUSES_SECONDS[min(self.times, len(PAUSES_SECONDS)) - 1]


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """Whether the provider counts as away, by what became of the questions so far.

    It is away from the first one without an answer, and back where all have one, or two thirds of the sessions that
    were asked about since. One session that never has an answer does not make it go and come: that takes two in a row.

    Attributes:
        answered: sessions about which it gave an answer since it is away. in_a_row: answers since the last question
            without one. silent: the session of the last question, where that had none.
    """

    away: bool = False
    answered: frozenset[str] = frozenset()
    in_a_row: int = 0
    silent: str = ""

    def after_silence(self, session: str, unanswered: Mapping[str, RecheckFailure]) -> ProviderHealth:
        """A question about `session` had no answer. `unanswered`: all sessions whose last one had none."""
        is_first = len(unanswered) == 1 and unanswered[session].times == 1
        is_second = self.silent not in ("", session)
        away = self.away or is_first or is_second
        return ProviderHealth(away, self.answered - {session}, 0, session)

    def after_answer(self, session: str, unanswered: Mapping[str, RecheckFailure]) -> ProviderHealth:
        """A question about `session` had one."""
        if not self.away:
            return replace(self, in_a_row=self.in_a_row + 1, silent="")
        answered, in_a_row = self.answered | {session}, self.in_a_row + 1
        if not unanswered or (in_a_row >= BACK_AFTER and len(answered) >= 2 * len(unanswered)):
            return ProviderHealth(in_a_row=in_a_row)
        return ProviderHealth(True, answered, in_a_row)


def due(
    links: Iterable[ProviderLink],
    every: timedelta,
    now: datetime,
    unanswered: Mapping[str, RecheckFailure] | None = None,
    steady: float = 0.0,
) -> Sequence[ProviderLink]:
    """Whom to ask about now: those that had no answer last, by when that was; before them the longest unasked first.

    Args:
        every: zero: only those that are to be asked at once.
        unanswered: by session. steady: the steady second that it is now.
    """
    failed = {} if unanswered is None else unanswered

    def is_due(link: ProviderLink) -> bool:
        asked = link.last_asked(now)
        return asked is None or (every > timedelta(0) and now - asked >= every * (1 - _early(link.session)))

    found = [each for each in links if is_due(each)]
    found = [each for each in found if each.session not in failed or steady >= failed[each.session].again_at]

    def order(link: ProviderLink) -> tuple[bool, float, bool, datetime]:
        last, asked = failed.get(link.session), link.last_asked(now)
        return last is not None, 0.0 if last is None else last.at, asked is not None, asked or now

    return sorted(found, key=order)


def per_second(sessions: int, every: timedelta) -> float:
    """How many questions may begin in a second, so that so many sessions are asked about in time (zero: when asked)."""
    needed = RESERVE * sessions / every.total_seconds() if every > timedelta(0) else 0.0
    return min(MOST_PER_SECOND, max(PER_SECOND, needed))


def at_once(questions: float) -> int:
    """How many may be open at a time where so many begin in a second."""
    return max(AT_ONCE, math.ceil(questions * ANSWER_SECONDS))


def overdue(links: Iterable[ProviderLink], every: timedelta, now: datetime) -> timedelta:
    """By how much the one that has waited longest is past its time; zero: none is, or there is no such time.

    Where the clock was set back since, it is taken to be late by as much as that is ahead: longer is not known.
    """
    if every <= timedelta(0):
        return timedelta(0)
    late = (
        now - each.checked - every if each.last_asked(now) is not None else each.checked - now
        for each in links
        if each.checked is not None
    )
    return max(timedelta(0), max(late, default=timedelta(0)))


def _early(session: str) -> float:
    """0 to `JITTER`: always the same for a session."""
    return JITTER * zlib.crc32(session.encode()) / 2**32
