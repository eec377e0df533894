"""Signatures by which the hub and the GPU service authenticate each other with a shared secret that is never sent.

A request carries an HMAC over its method, its target, the hash of its body, a time, and a nonce that is used once.
The answer carries an HMAC over its status, the hash of its body and the nonce of the request. The time in a request is
the service's own, as its last answer reported it. `life` is a random id of the service's current process. A request
that was signed for an earlier process is invalid, so the service need not keep nonces across a restart. If time or life
do not match, the service sends both in a signed answer, and the hub signs its request once more. No request is refused
because the clocks of the two machines differ; the difference is only reported.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.text.wording import about

SCHEME = "GPU-HMAC-SHA256"  # The scheme in the request's header ``Authorization``
ANSWER_HEADER = "GPU-Signature"
SIGN_AGAIN = 401  # status of the answer with time and life, to a request that had others
WINDOW = timedelta(minutes=5)
"""The longest difference between a request's time and the service's; nonces are remembered for this long."""
SAME_CLOCK = timedelta(minutes=1)

_TIME = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00)"
_HEX = "([0-9a-f]{%d})"
_REQUEST = re.compile(
    f"{SCHEME} life=([0-9a-f]{{16}}|-), time={_TIME}, clock={_TIME}, "
    f"nonce={_HEX % 32}, body={_HEX % 64}, signature={_HEX % 64}"
)
_ANSWER = re.compile(f"life={_HEX % 16}, time={_TIME}, clock={_TIME}, signature={_HEX % 64}")
NO_LIFE = "-"  # The life in the first request, before any answer


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The signed parts of a request from the hub to the service.

    Attributes:
        target: the path with its query, as it is sent.
        life: id of the service's process, as its last answer reported it; `NO_LIFE` before the first answer.
        time: the service's time, as its last answer reported it.
        clock: the hub's own time, to report how far the clocks differ.
        nonce: 32 hexadecimal digits, never used twice.
        body: `hash_of` the body.
    """

    method: str
    target: str
    life: str
    time: datetime
    clock: datetime
    nonce: str
    body: str

    def signed(self, secret: str) -> str:
        """Return the value of the request's header ``Authorization``, which contains the signature.

        Args:
            secret: the secret that hub and service share.
        """
        return (
            f"{SCHEME} life={self.life}, time={_spelled(self.time)}, clock={_spelled(self.clock)}, nonce={self.nonce}, "
            f"body={self.body}, signature={self._signature(secret)}"
        )

    def _signature(self, secret: str) -> str:
        times = (_spelled(self.time), _spelled(self.clock))
        return _hmac(secret, "request", self.method, self.target, self.life, *times, self.nonce, self.body)


def request_of(secret: str, method: str, target: str, header: str) -> SignedRequest | None:
    """Parse and verify the header ``Authorization`` of a request; `None` if the signature is invalid.

    The caller has to compare three signed values with those that the service expects: the id of the service's process
    (`life`), the time and the nonce.

    Args:
        secret: the secret that hub and service share.
        method, target: HTTP method, and path with query, of the request; both are signed.
        header: the header.
    """
    found = _REQUEST.fullmatch(header) if secret else None  # an empty secret never matches
    if found is None:
        return None
    life, time, clock, nonce, body, signature = found.groups()
    try:
        times = datetime.fromisoformat(time), datetime.fromisoformat(clock)
    except ValueError:
        return None
    request = SignedRequest(method, target, life, *times, nonce, body)
    return request if hmac.compare_digest(request._signature(secret), signature) else None


def is_in_time(request: SignedRequest, now: datetime) -> bool:
    """Return whether the request's time differs from the service's time `now` by at most `WINDOW`."""
    return abs(now - request.time) <= WINDOW


@dataclass(frozen=True, slots=True)
class SignedAnswer:
    """The signed parts of an answer of the service, together with the request's nonce.

    Attributes:
        life: id of the service's process.
        time: the service's time for signatures, which does not follow changes of the machine's clock.
        clock: the clock of the service's machine, to report how far the clocks differ.
        body: `hash_of` the body; for a stream, `hash_of` nothing, because `signed_line` signs each of its lines.
    """

    nonce: str
    status: int
    life: str
    time: datetime
    clock: datetime
    body: str

    def signed(self, secret: str) -> str:
        """Return the value of the answer's header `ANSWER_HEADER`, which contains the signature.

        Args:
            secret: the secret that hub and service share.
        """
        return (
            f"life={self.life}, time={_spelled(self.time)}, clock={_spelled(self.clock)}, "
            f"signature={self._signature(secret)}"
        )

    def _signature(self, secret: str) -> str:
        times = (_spelled(self.time), _spelled(self.clock))
        return _hmac(secret, "answer", self.nonce, str(self.status), self.life, *times, self.body)


def answer_of(secret: str, nonce: str, status: int, body: bytes, header: str) -> SignedAnswer | None:
    """Parse and verify the header with which the service signs an answer; `None` if the signature is invalid.

    Args:
        secret: the secret that hub and service share.
        nonce: nonce of the request.
        status, body: status and body of the answer.
        header: the header `ANSWER_HEADER` of the answer.
    """
    found = _ANSWER.fullmatch(header) if secret else None
    if found is None:
        return None
    life, time, clock, signature = found.groups()
    try:
        times = datetime.fromisoformat(time), datetime.fromisoformat(clock)
        answer = SignedAnswer(nonce, status, life, *times, hash_of(body))
    except ValueError:
        return None
    return answer if hmac.compare_digest(answer._signature(secret), signature) else None


def signed_line(secret: str, nonce: str, number: int, line: bytes) -> bytes:
    """Return a line of a streamed answer with its signature in front.

    Args:
        secret: the secret that hub and service share.
        nonce: nonce of the request that opened the stream.
        number: position of the line in the stream; it is signed, so that no line can be left out or repeated unnoticed.
    """
    return _hmac(secret, "line", nonce, str(number), hash_of(line)).encode() + b" " + line


def line_of(secret: str, nonce: str, number: int, signed: bytes) -> bytes | None:
    """Return a line of a streamed answer without its signature; `None` if the signature is invalid.

    Args:
        secret: the secret that hub and service share.
        nonce: nonce of the request that opened the stream.
        number: the line's position in the stream, which is signed too.
        signed: the line with its signature in front, as `signed_line` made it.
    """
    line = signed[65:]
    good = bool(secret) and hmac.compare_digest(signed_line(secret, nonce, number, line), signed)
    return line if good else None


def hash_of(body: bytes) -> str:
    """Return the SHA-256 of a body in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def clock_problem(ahead: timedelta) -> str:
    """Return a text about how far the hub's clock is off from the service's; "" if they differ by a minute or less.

    Args:
        ahead: by how much the hub's clock is ahead; negative if it is behind.
    """
    if abs(ahead) <= SAME_CLOCK:
        return ""
    where = "ahead of" if ahead > timedelta(0) else "behind"
    return (
        f"the hub's clock is {about(abs(ahead).total_seconds())} {where} the GPU service's; times on "
        "pages do not fit, and no CPU-only server is stopped by last_activity: set both by NTP"
    )


def _spelled(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


def _hmac(secret: str, *parts: str) -> str:
    return hmac.new(secret.encode(), "\n".join(("jupyterhub-gpu", *parts)).encode(), hashlib.sha256).hexdigest()
