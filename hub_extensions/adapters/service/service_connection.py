"""One HTTP connection that stays open, in a thread of its own: requests go one after the other.

Its time-outs are the socket's, so a loop that is held for seconds by something else trips none of them. Not here: what
is asked, what an answer means (``gpu_service.py``), and how both are proved (``signer.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from hub_extensions.adapters.linux.listeners import Proof
from hub_extensions.adapters.service.plain_request import body_of
from hub_extensions.adapters.service.signer import ATTEMPTS, Signer, Unproved
from hub_extensions.core.signing import ANSWER_HEADER


class ServiceConnection:
    """A connection to `url`; opened by the first request, and again when the other side has closed it."""

    def __init__(self, url: str, signer: Signer, account: int | None = None) -> None:
        """`account`: the uid of who has to listen there; None: it is not looked at."""
        self._place = urlsplit(url)
        self._signer = signer
        self._account = account
        self._connection: HTTPConnection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu-service-asks")

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
        """Status and body of the service's answer. Raises OSError where there is none; each step may take `seconds`."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._post, path, body, headers, seconds)
        except asyncio.CancelledError:
            self._give_up()  # else the process would wait for the answer before it ends
            raise

    def close(self) -> None:
        """End the connection and its thread. A hub never needs this; tests do."""
        self._thread.shutdown(wait=False)
        self._drop()

    def _give_up(self) -> None:
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _post(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
        used_before = self._connection is not None
        try:
            return self._exchange(path, body, headers, seconds)
        except ConnectionError:
            if not used_before:
                raise
        return self._exchange(path, body, headers, seconds)  # it was closed since its last use

    def _exchange(self, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
        try:
            target = f"{self._place.path}/{path}"
            for _ in range(ATTEMPTS):
                letter = self._signer.sign("POST", target, body)
                connection = self._opened(seconds)
                connection.request("POST", target, body, {**headers, **letter.headers})
                answer = connection.getresponse()
                content = body_of(answer)
                if letter.heard(answer.status, content, answer.getheader(ANSWER_HEADER)):
                    return answer.status, content
            raise Unproved("answered only that the request is to be signed again")
        except (OSError, HTTPException) as problem:
            self._drop()
            if isinstance(problem, OSError):
                raise
            raise OSError(f"{type(problem).__name__}: {problem}") from problem

    def _opened(self, seconds: float) -> HTTPConnection:
        if self._connection is None or self._connection.sock is None:  # it would open itself again, without the proof
            kind = HTTPSConnection if self._place.scheme == "https" else HTTPConnection
            self._connection = kind(self._place.hostname or "", self._place.port, timeout=seconds)
            proof = Proof(self._connection.port, self._account)
            self._connection.connect()
            proof.check(self._connection.sock)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
