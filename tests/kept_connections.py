"""Whether a proxy that keeps its connections may send the next request over the one that was just answered.

`ends_unannounced` asks one server directly; `failures_beside` sends refusals and somebody's work through a real proxy.
"""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.patience import patient

CLIENTS = 2


class SentRequest(NamedTuple):
    """A request, with its path from the root of the server. `body` may be shorter than its Content-Length says."""

    method: str
    path: str
    headers: tuple[str, ...] = ()
    body: bytes = b""

    def written(self, host: str) -> bytes:
        """The request as it goes over the line."""
        lines = (f"{self.method} {self.path} HTTP/1.1", f"Host: {host}", *self.headers, "", "")
        return "\r\n".join(lines).encode() + self.body


async def ends_unannounced(port: int, request: SentRequest) -> str:
    """Send a request, and a second one after its answer; "": the connection went on, or its end was announced.

    Returns the first lines of an answer without such an announcement, after which the server closed the connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.written(f"127.0.0.1:{port}"))
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patient(5))).decode().lower()
        has_length = "content-length:" in head or "transfer-encoding:" in head
        is_empty = head.split()[1] in ("204", "304")
        if "connection: close" in head or (not has_length and not is_empty):
            return ""
        if "content-length:" in head and request.method != "HEAD":
            await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        writer.write(SentRequest("GET", "/nowhere/at/all").written("x"))
        answered = await asyncio.wait_for(reader.read(12), patient(5))
        return "" if answered.startswith(b"HTTP/1.1") else head
    except (ConnectionError, EOFError, asyncio.TimeoutError) as problem:
        return repr(problem)
    finally:
        writer.close()


def failures_beside(url: str, refused: Sequence[SentRequest], refusals: int, work: SentRequest) -> Counter[int]:
    """Send `refusals` requests of strangers from two clients, and meanwhile one person's work; its statuses, counted.

    The refused requests take turns. The work is sent until all of them are answered.
    """
    place, statuses, done = urlsplit(url), Counter[int](), threading.Event()

    def refuse(number: int) -> None:
        for each in range(refusals // CLIENTS):
            asked(refused[(CLIENTS * each + number) % len(refused)])

    def asked(request: SentRequest) -> int:
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=patient(5))
        headers = dict(header.split(": ", 1) for header in request.headers)
        try:
            connection.request(request.method, request.path, request.body or None, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (http.client.HTTPException, OSError):
            return 0
        finally:
            connection.close()

    def work_on() -> None:
        while not done.is_set():
            statuses[asked(work)] += 1

    strangers = [threading.Thread(target=refuse, args=(number,)) for number in range(CLIENTS)]
    person = threading.Thread(target=work_on)
    for thread in (person, *strangers):
        thread.start()
    for thread in strangers:
        thread.join()
    done.set()
    person.join()
    return statuses
