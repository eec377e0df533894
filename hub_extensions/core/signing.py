"""Proofs between hub and GPU service: both have a secret, and neither ever sends it.

A request carries an HMAC over its method, its address, its body's hash, a time, and a nonce that is used once. The
answer carries one over its status, its body's hash and the request's nonce, so that it fits no other request. A time is
the service's own, as its last answer told it, and `life` names the run of the service that told it: a request to an
earlier run is worth nothing, so nothing has to be remembered from one run to the next. Where either is another, the
service answers so, signed, and the hub signs once more. So clocks that differ stop nothing; they are only told,
by what each side's own clock says.

Not here: what was seen before (``adapters/service/signatures.py``), and sending (``adapters/service/signer.py``).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.text.wording import about

SCHEME = "GPU-HMAC-SHA256"
"""The word before a request's proof in its header ``Authorization``."""
ANSWER_HEADER = "GPU-Signature"
SIGN_AGAIN = 401
"""The status of an answer that tells time and life, for a request that had others."""
WINDOW = timedelta(minutes=5)
"""A request's time may differ so much from the service's: so long a nonce is remembered."""
SAME_CLOCK = timedelta(minutes=1)

_TIME = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00)"
_HEX = "([0-9a-f]{%d})"
_REQUEST = re.compile(
    f"{SCHEME} life=([0-9a-f]{{16}}|-), time={_TIME}, clock={_TIME}, "
    f"nonce={_HEX % 32}, body={_HEX % 64}, signature={_HEX % 64}"
)
_ANSWER = re.compile(f"life={_HEX % 16}, time={_TIME}, clock={_TIME}, signature={_HEX % 64}")
NO_LIFE = "-"
"""The life in a request of who has not heard of one."""


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What of a request is signed.

    Attributes:
        target: the path with its query, as it is sent.
        life, time: the service's, as its last answer told them. clock: what the hub's own clock says.
        nonce: 32 hexadecimal digits, never used twice. body: `hash_of` the body.
    """

    method: str
    target: str
    life: str
    time: datetime
    clock: datetime
    nonce: str
    body: str

    def signed(self, secret: str) -> str:
        """The header ``Authorization``."""
        return (
            f"{SCHEME} life={self.life}, time={_spelled(self.time)}, clock={_spelled(self.clock)}, nonce={self.nonce}, "
            f"body={self.body}, signature={self._signature(secret)}"
        )

    def _signature(self, secret: str) -> str:
        times = (_spelled(self.time), _spelled(self.clock))
        return _hmac(secret, "request", self.method, self.target, self.life, *times, self.nonce, self.body)


def request_of(secret: str, method: str, target: str, header: str) -> SignedRequest | None:
    """The request that this header proves; None: it proves nothing. Neither life nor time were looked at."""
    found = _REQUEST.fullmatch(header) if secret else None  # an empty secret is no secret
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
    """Its time is near the service's."""
    return abs(now - request.time) <= WINDOW


@dataclass(frozen=True, slots=True)
class SignedAnswer:
    """What of an answer is signed, together with the request's nonce.

    Attributes:
        life, time: the service's now, a time that nobody sets. clock: what its machine's clock says.
        body: `hash_of` the body; of an endless one, of nothing.
    """

    nonce: str
    status: int
    life: str
    time: datetime
    clock: datetime
    body: str

    def signed(self, secret: str) -> str:
        """The header `ANSWER_HEADER`."""
        return (
            f"life={self.life}, time={_spelled(self.time)}, clock={_spelled(self.clock)}, "
            f"signature={self._signature(secret)}"
        )

    def _signature(self, secret: str) -> str:
        times = (_spelled(self.time), _spelled(self.clock))
        return _hmac(secret, "answer", self.nonce, str(self.status), self.life, *times, self.body)


def answer_of(secret: str, nonce: str, status: int, body: bytes, header: str) -> SignedAnswer | None:
    """The answer that this header proves; None: it proves nothing."""
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
    """The line with this number of an endless answer, without its end: its signature, a space, the line."""
    return _hmac(secret, "line", nonce, str(number), hash_of(line)).encode() + b" " + line


def line_of(secret: str, nonce: str, number: int, signed: bytes) -> bytes | None:
    """The line that this proves to have this number; None: it proves nothing."""
    line = signed[65:]
    good = bool(secret) and hmac.compare_digest(signed_line(secret, nonce, number, line), signed)
    return line if good else None


def hash_of(body: bytes) -> str:
    """SHA-256 of a body, in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def clock_problem(ahead: timedelta) -> str:
    """How the hub's clock differs from the service's, in words; "": they are the same. `ahead`: by how much."""
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
