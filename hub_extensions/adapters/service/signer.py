"""Signs requests to the GPU service or the gate, and verifies their answers.

All connections to one service share one `Signer`, because each answer shows the service's time, which the next
signature needs.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

from hub_extensions.core.signing import (
    NO_LIFE,
    SIGN_AGAIN,
    SignedRequest,
    answer_of,
    clock_problem,
    hash_of,
    line_of,
)

log = logging.getLogger("jupyterhub.gpu")

ATTEMPTS = 3  # a request is signed again if its life or time was wrong; the service may restart in between


class Unproved(OSError):
    """The program that answered did not prove that it knows the secret; its answer is ignored."""


class Signer:
    """Signs requests to one service with the shared secret, and verifies its answers.

    It keeps the last known time of the service, because a signature is valid only near that time.
    """

    def __init__(self, secret: str, now: Callable[[], datetime] | None = None) -> None:
        """Create a signer. `now` is this machine's clock; `None` for the system's."""
        self._secret = secret
        self._now = now or _now
        self._life = NO_LIFE
        self._ahead: timedelta | None = None
        self._logged = ""

    def sign(self, method: str, target: str, body: bytes = b"") -> OutgoingRequest:
        """Sign a new request. `target` is the path with its query, as it is sent."""
        clock = _to_milliseconds(self._now())
        # derived from the service's time, so that setting this machine's clock has no effect
        at = clock if self._ahead is None else _steady() + self._ahead
        nonce = secrets.token_hex(16)
        request = SignedRequest(method, target, self._life, _to_milliseconds(at), clock, nonce, hash_of(body))
        return OutgoingRequest(self, request, {"Authorization": request.signed(self._secret)})

    def _verify(self, request: SignedRequest, status: int, body: bytes, header: str) -> bool:
        answer = answer_of(self._secret, request.nonce, status, body, header)
        if answer is None:
            raise Unproved(
                f"answered {status} and did not prove that it is the GPU service: it is another program, an older "
                "version, or one with another secret"
            )
        self._life = answer.life
        self._ahead = answer.time - _steady()
        problem = clock_problem(
            self._now() - answer.clock
        )  # answer.time would not do: it stands still while the service's machine sleeps
        if problem and not self._logged:
            log.warning("%s", problem)
        self._logged = problem
        return status != SIGN_AGAIN


class OutgoingRequest:
    """One signed request, with which its answer is verified. `Signer.sign` makes it.

    Attributes:
        headers: the signature, to be sent with the request.
    """

    def __init__(self, signer: Signer, request: SignedRequest, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self._signer = signer
        self._request = request
        self._lines = 0

    def verify(self, status: int, body: bytes, proof: str | None) -> bool:
        """Verify the signature of the answer.

        Args:
            status, body: status and body of the answer.
            proof: the header `ANSWER_HEADER` of the answer, which has its signature; `None` if the answer lacks it.

        Returns:
            False if the request has to be signed and sent again, because the service has another time or was restarted.

        Raises:
            Unproved: the signature is wrong or missing.
        """
        return self._signer._verify(self._request, status, body, proof or "")

    def line(self, signed: bytes) -> bytes:
        """Verify the signature of the next line of a stream, and return the line without it.

        Raises:
            Unproved: the signature is wrong.
        """
        line = line_of(self._signer._secret, self._request.nonce, self._lines, signed)
        if line is None:
            raise Unproved("a line of the stream is not the GPU service's")
        self._lines += 1
        return line


def _steady() -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=time.monotonic())


def _to_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _now() -> datetime:
    return datetime.now(timezone.utc)
