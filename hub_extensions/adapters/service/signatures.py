"""Verifies requests that the hub signed, for the GPU service and the gate.

Each signature is accepted once, by one run of the service or gate, and only near its time.
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

MAX_NONCES = 50_000
"""Maximum number of nonces kept per window. When it is exceeded, the service takes a new `Signatures.life`, which
invalidates all earlier signatures, so that every hub has to sign again.
"""


class SignatureVerdict(Enum):
    """Whether a request with a valid signature is accepted, has to be signed again, or was received before."""

    GOOD = "good"
    AGAIN = "sign again, with the time and life of the answer"
    REPLAYED = "it was here before"


class VerifiedRequest(NamedTuple):
    """A request that the hub signed, and whether it may be accepted.

    Attributes:
        request: what was signed.
        verdict: ``GOOD`` if the request may be accepted.
    """

    request: SignedRequest
    verdict: SignatureVerdict


class Signatures:
    """Verifies requests that the hub signed, and signs the answers. The GPU service and the gate use it.

    Attributes:
        life: random id of this run of the service or gate, for which a signature is made. A new one is taken when more
            signatures than can be remembered were used.
        hub_clock_ahead: by how much the hub's clock was ahead of ours at its last request; `None` before the first one.
    """

    def __init__(
        self,
        secret: str,
        clock: Callable[[], datetime] | None = None,
        wall: Callable[[], datetime] | None = None,
        life: str = "",
    ) -> None:
        """Create a verifier.

        Args:
            secret: the secret that the hub shares with the service or gate.
            clock: the clock by which the age of a request is judged; `None` for one that is not affected when the
                system clock is set.
            wall: this machine's wall clock, which an administrator may set; `None` for the system's.
            life: the identity of this run. Several processes behind one address may share one; each of them then
                accepts the same request once. "" creates a new identity.
        """
        self._secret = secret
        self._clock = clock or _steady_clock()
        self._wall = wall or _wall_clock
        self._seen: dict[str, datetime] = {}
        self._shared_life = life
        self.life = life or secrets.token_hex(8)
        self.hub_clock_ahead: timedelta | None = None

    def verify(self, method: str, target: str, header: str) -> VerifiedRequest | None:
        """Verify a request before its body is read. A valid request is accepted only this once.

        The caller still has to compare the body with the signed hash.

        Args:
            method: HTTP method of the request.
            target: path and query of the request.
            header: the signature, as the hub sent it.

        Returns:
            `None` if the hub did not sign the request.
        """
        request = request_of(self._secret, method, target, header)
        if request is None:
            return None
        now = self._clock()
        self._forget(now)
        if request.nonce in self._seen:
            return VerifiedRequest(request, SignatureVerdict.REPLAYED)
        if request.life != self.life:
            return VerifiedRequest(request, SignatureVerdict.AGAIN)
        if not is_in_time(request, now):
            if request.time > now:
                self._start_new_life()  # otherwise this very request would become valid at its time
            return VerifiedRequest(request, SignatureVerdict.AGAIN)
        if len(self._seen) >= MAX_NONCES:
            self._start_new_life()
            return VerifiedRequest(request, SignatureVerdict.AGAIN)
        self._seen[request.nonce] = request.time
        self.hub_clock_ahead = request.clock - self._wall()
        return VerifiedRequest(request, SignatureVerdict.GOOD)

    def may_be_hub(self, method: str, target: str, header: str) -> bool:
        """Return whether the hub signed this request and it was not used yet.

        This does not count as a use: `verify` can still accept the request later.

        Args:
            method: HTTP method of the request.
            target: path and query of the request.
            header: the signature, as the hub sent it.
        """
        request = request_of(self._secret, method, target, header)
        return request is not None and request.nonce not in self._seen and is_in_time(request, self._clock())

    def signed(self, request: SignedRequest, status: int, body: bytes) -> str:
        """Return the header that proves to the hub that this service gave the answer.

        Args:
            request: the hub's request.
            status: status of the answer.
            body: body of the answer.
        """
        times = self._clock(), self._wall()
        return SignedAnswer(request.nonce, status, self.life, *times, hash_of(body)).signed(self._secret)

    def signed_line(self, request: SignedRequest, number: int, line: bytes) -> bytes:
        """Return a line of a stream with its signature, without its line end.

        Args:
            request: the hub's request for the stream.
            number: how many lines of the stream came before; it is signed too.
            line: the line.
        """
        return signed_line(self._secret, request.nonce, number, line)

    def _forget(self, now: datetime) -> None:
        """Drop nonces that are too old to be valid. They are stored nearly in the order of their times."""
        while self._seen:
            nonce = next(iter(self._seen))
            if now - self._seen[nonce] <= WINDOW:
                return
            del self._seen[nonce]

    def _start_new_life(self) -> None:
        self.life = self._shared_life or secrets.token_hex(8)
        self._seen.clear()


def _wall_clock() -> datetime:
    return datetime.now(timezone.utc)


def _steady_clock() -> Callable[[], datetime]:
    """Return a clock that starts at the current time and is not affected when the system clock is set."""
    began, then = datetime.now(timezone.utc), time.monotonic()
    return lambda: began + timedelta(seconds=time.monotonic() - then)
