"""One HTTP request to a service that is near: by no proxy, to no other address, with an answer of bounded length.

Who answers is not proved yet, so he may neither lead a token on to somebody else nor fill our memory. Standard library
only. Not here: what is proved, and how (``signer.py``, ``listeners.py``).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from email.message import Message
from http.client import HTTPException
from typing import NamedTuple, Protocol

from hub_extensions.adapters.linux.listeners import ProvingHandler

ANSWER_BYTES = 16 * 1024 * 1024
"""The longest answer that is read. A form with 1,000 offers has less than 1 MiB."""
_PART_BYTES = 64 * 1024


class TooLong(OSError):
    """Somebody answered more than `ANSWER_BYTES`: it is none of the GPU service."""


class Plain(NamedTuple):
    """An answer, whoever gave it; one that leads elsewhere too."""

    status: int
    body: bytes
    headers: Message


class _Readable(Protocol):
    def read(self, amount: int, /) -> bytes: ...


def body_of(answer: _Readable) -> bytes:
    """All of an answer's body. Raises TooLong, and what reading raises."""
    body = bytearray()
    while part := answer.read(_PART_BYTES):
        body += part
        if len(body) > ANSWER_BYTES:
            raise TooLong(f"answered more than {ANSWER_BYTES // 1024**2} MiB: it is another program")
    return bytes(body)


def fetch_plain(request: urllib.request.Request, seconds: float, account: int | None = None) -> Plain:
    """The answer. Raises OSError: nobody answers, or not in HTTP.

    `account`: the uid of who has to listen there; None: it is not looked at.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect, ProvingHandler(account))
    try:
        with opener.open(request, timeout=seconds) as answer:
            return Plain(answer.status, body_of(answer), answer.headers)
    except urllib.error.HTTPError as problem:
        with problem:
            return Plain(problem.code, body_of(problem), problem.headers)
    except HTTPException as problem:
        raise OSError(f"{type(problem).__name__}: {problem}") from problem


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """``urllib`` sends a token to wherever an answer leads; an answer that leads elsewhere is the answer here."""

    def redirect_request(self, *args: object) -> None:
        """None: it is not followed."""
