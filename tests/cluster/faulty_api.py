"""Something in front of the API server that misbehaves as told: it cuts, refuses, or is slow; else it passes on.

Speaks HTTPS with a certificate of the cluster's own authority; who asks is known by the token that is passed on, so
the rights are those of whoever asked. Not a fake API server: every answer that is not a told fault is the real one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from tests.cluster.control_plane import ControlPlane
from tests.patience import patient
from tests.ports import free_ports

T = TypeVar("T")
DROPPED = ("host", "content-length", "transfer-encoding", "connection")


@dataclass
class Fault:
    """What is done to the next `times` requests that fit. `status` 0: the request is passed on after `seconds`."""

    method: str
    path: str
    status: int = 0
    times: int = 1
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    done: int = 0

    def fits(self, request: web.Request) -> bool:
        return self.done < self.times and request.method == self.method and request.path.endswith(self.path)


class FaultyApi:
    """``with FaultyApi(control_plane) as api:`` and a kubeconfig whose server is ``api.url``."""

    def __init__(self, cluster: ControlPlane) -> None:
        assert cluster.authority is not None, "the cluster of somebody else has no certificate for us"
        self._cluster = cluster
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        certificate, key = cluster.authority.issue("faulty-api", "faulty-api", addresses=["127.0.0.1"])
        self._ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ours.load_cert_chain(certificate, key)
        self._theirs = ssl.create_default_context(cafile=str(cluster.ca))
        self._faults: list[Fault] = []
        self._open: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FaultyApi:
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(10))
        self._loop.close()

    def misbehave(self, fault: Fault) -> Fault:
        """From now on; the fault given counts how often it was done."""
        self._faults.append(fault)
        return fault

    def behave(self) -> None:
        """Pass everything on again."""
        self._faults.clear()

    def cut(self) -> int:
        """End every connection at once, watches too; how many there were."""
        return self._do(self._cut())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=self._theirs))
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{any:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._ours).start()

    async def _stop(self) -> None:
        await self._cut()
        await self._runner.cleanup()
        await self._session.close()

    async def _cut(self) -> int:
        open_now = list(self._open)
        for transport in open_now:
            abort(transport)
        return len(open_now)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._open.add(transport)
        try:
            for fault in self._faults:
                if fault.fits(request):
                    fault.done += 1
                    await asyncio.sleep(fault.seconds)
                    if fault.status:
                        words = f"told to answer {fault.status}"
                        status = {"kind": "Status", "apiVersion": "v1", "code": fault.status, "message": words}
                        return web.json_response(status, status=fault.status, headers=fault.headers)
            return await self._pass_on(request)
        except (aiohttp.ClientError, OSError):  # the one behind is away: so are we
            abort(transport)
            return web.Response(status=502)
        finally:
            self._open.discard(transport)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        headers["Accept-Encoding"] = "identity"
        asked = self._session.request(
            request.method,
            self._cluster.url + request.raw_path,
            headers=headers,
            data=await request.read(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with asked as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in DROPPED}
            passed = web.StreamResponse(status=answer.status, headers=kept)
            await passed.prepare(request)
            async for chunk in answer.content.iter_any():
                await passed.write(chunk)
            with contextlib.suppress(ConnectionError):  # who asked is gone
                await passed.write_eof()
            return passed


def abort(transport: asyncio.Transport) -> None:
    # a TLS transport of Python 3.11.2, whose peer has gone already, has nothing left to abort and says so in this way
    with contextlib.suppress(AttributeError):
        transport.abort()
