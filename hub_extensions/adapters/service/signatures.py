"""What the hub signed, as the service judges it: each request counts once, for this run, near to its time.

Not here: what is signed, and how (``core/signing.py``).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import NamedTuple

from hub_extensions.core.signing import (
    WINDOW,
    SignedAnswer,
    SignedRequest,
    hash_of,
    is_in_time,
    request_of,
    signed_line,
)

MOST_NONCES = 50_000
"""So many are remembered. With more in one window a new life begins, for which every hub signs once more."""


class SignatureVerdict(Enum):
    """What becomes of a request that the hub has signed."""

    GOOD = "good"
    AGAIN = "sign again, with the time and life of the answer"
    REPLAYED = "it was here before"


class Judged(NamedTuple):
    """A request that the hub signed, and its verdict."""

    request: SignedRequest
    verdict: SignatureVerdict


class Signatures:
    """Judges requests and signs answers.

    Attributes:
        life: of this run; `hub_clock_ahead`: by how much the hub's clock was ahead of ours last; None: it was not here.
    """

    def __init__(
        self,
        secret: str,
        clock: Callable[[], datetime] | None = None,
        wall: Callable[[], datetime] | None = None,
        life: str = "",
    ) -> None:
        """`clock`: by which requests are judged. `wall`: this machine's clock, which may be set.

        `life`: of all that judge for one address, where a request once for each of them does no harm; "": of this run.
        """
        self._secret = secret
        self._clock = clock or _steady_clock()
        self._wall = wall or _wall_clock
        self._seen: dict[str, datetime] = {}
        self._shared_life = life
        self.life = life or secrets.token_hex(8)
        self.hub_clock_ahead: timedelta | None = None

    def judge(self, method: str, target: str, header: str) -> Judged | None:
        """A request by what came before its body, the first time that it is looked at; None: the hub did not sign it.

        Its body has still to be compared with the hash.
        """
        request = request_of(self._secret, method, target, header)
        if request is None:
            return None
        now = self._clock()
        self._forget(now)
        if request.nonce in self._seen:
            return Judged(request, SignatureVerdict.REPLAYED)
        if request.life != self.life:
            return Judged(request, SignatureVerdict.AGAIN)
        if not is_in_time(request, now):
            if request.time > now:
                self._begin_anew()  # else this very request would be good once its time has come
            return Judged(request, SignatureVerdict.AGAIN)
        if len(self._seen) >= MOST_NONCES:
            self._begin_anew()
            return Judged(request, SignatureVerdict.AGAIN)
        self._seen[request.nonce] = request.time
        self.hub_clock_ahead = request.clock - self._wall()
        return Judged(request, SignatureVerdict.GOOD)

    def may_be_hub(self, method: str, target: str, header: str) -> bool:
        """The hub signed this and it was not here yet. Changes nothing: `judge` comes later."""
        request = request_of(self._secret, method, target, header)
        return request is not None and request.nonce not in self._seen and is_in_time(request, self._clock())

    def signed(self, request: SignedRequest, status: int, body: bytes) -> str:
        """The header with which an answer is proved."""
        times = self._clock(), self._wall()
        return SignedAnswer(request.nonce, status, self.life, *times, hash_of(body)).signed(self._secret)

    def signed_line(self, request: SignedRequest, number: int, line: bytes) -> bytes:
        """The line with this number of an endless answer, without its end."""
        return signed_line(self._secret, request.nonce, number, line)

    def _forget(self, now: datetime) -> None:
        """What is too old to be good again; they came nearly in the order of their times."""
        while self._seen:
            nonce = next(iter(self._seen))
            if now - self._seen[nonce] <= WINDOW:
                return
            del self._seen[nonce]

    def _begin_anew(self) -> None:
        self.life = self._shared_life or secrets.token_hex(8)
        self._seen.clear()


def _wall_clock() -> datetime:
    return datetime.now(timezone.utc)


def _steady_clock() -> Callable[[], datetime]:
    """The time, as if nobody ever set the clock: what was too old once stays so."""
    began, then = datetime.now(timezone.utc), time.monotonic()
    return lambda: began + timedelta(seconds=time.monotonic() - then)
