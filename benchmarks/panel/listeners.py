"""Many pages with a panel open, all in this one process, so that they do not disturb who measures.

Started by the benchmark as ``python -m benchmarks.panel.listeners KIND URL TOKEN COUNT``. It says how many are on, then
takes two words on standard input: ``begin`` counts from here, ``end`` says what was heard and ends. Answers are JSON
lines. A page does what the product's own page does with its settings as shipped:

* ours: one websocket, which is read;
* nvdashboard: the websocket of its chart *GPU Utilization*, told its default of 100 ms;
* resource-usage: asks for its metrics every 5 s, its default.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

PATHS = {"ours": "gpu/live", "nvdashboard": "nvdashboard/gpu_utilization", "resource-usage": "api/metrics/v1"}
DEFAULT_OF_NVDASHBOARD = json.dumps({"updateFrequency": 100, "isPaused": False})
POLL_SECONDS = 5.0
OPEN_SECONDS = 40.0


@dataclass
class Heard:
    """What all listeners were told together. `first`: bytes of the first message of each."""

    on: int = 0
    messages: int = 0
    bytes: int = 0
    first: list[int] = field(default_factory=list)
    lost: int = 0

    def begin(self) -> None:
        self.messages = self.bytes = self.lost = 0


class Page:
    """One websocket that is read; its first message is no part of the stream."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._first = True

    def hear(self, message: str | bytes | None) -> None:
        if message is None:
            self._heard.lost += 1
            return
        if self._first:
            self._first = False
            self._heard.first.append(len(message))
            return
        self._heard.messages += 1
        self._heard.bytes += len(message)


async def main(kind: str, url: str, token: str, count: int) -> None:
    """Open all, count, close all."""
    heard = Heard()

    def request(address: str) -> HTTPRequest:
        headers = {"Authorization": f"token {token}"}
        return HTTPRequest(address + PATHS[kind], headers=headers, request_timeout=OPEN_SECONDS)

    if kind == "resource-usage":
        AsyncHTTPClient.configure(SimpleAsyncHTTPClient, max_clients=count)
        polls = [asyncio.create_task(poll(request(url), heard, POLL_SECONDS * n / count)) for n in range(count)]
        heard.on = count
        await speak(heard)
        for one in polls:
            one.cancel()
        return
    socket = url.replace("http", "ws", 1)
    opening = [asyncio.create_task(connect(request(socket), heard)) for _ in range(count)]
    done, late = await asyncio.wait(opening, timeout=OPEN_SECONDS)
    for too_late in late:
        too_late.cancel()
    connections = [one.result() for one in done if one.exception() is None]
    if kind == "nvdashboard":
        for connection in connections:
            await connection.write_message(DEFAULT_OF_NVDASHBOARD)
    heard.on = len(connections)
    await speak(heard)
    for connection in connections:
        connection.close()
    await asyncio.sleep(0.2)  # the closing frames leave


async def connect(request: HTTPRequest, heard: Heard) -> WebSocketClientConnection:
    return await websocket_connect(request, on_message_callback=Page(heard).hear)


async def poll(request: HTTPRequest, heard: Heard, late: float) -> None:
    """Ask, and ask again so long after the answer, as its page does."""
    await asyncio.sleep(late)
    while True:
        with suppress(OSError, asyncio.TimeoutError):
            answer = await AsyncHTTPClient().fetch(request, raise_error=False)
            heard.messages += answer.code == 200
            heard.lost += answer.code != 200
            heard.bytes += len(answer.body or b"")
        await asyncio.sleep(POLL_SECONDS)


async def speak(heard: Heard) -> None:
    """Say how many are on; take the two words."""
    loop = asyncio.get_running_loop()
    print(json.dumps({"on": heard.on}), flush=True)
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if word == "end":
            break
        heard.begin()
    print(json.dumps(vars(heard)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
