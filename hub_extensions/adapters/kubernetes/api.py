"""Talks to a Kubernetes API server through the official ``kubernetes`` package, in raw JSON.

Typed objects are not used: a typed list of 10,000 pods takes hundreds of MB and blocks for seconds. Pages are small
for the same reason: ``json.loads`` holds the interpreter, other threads too, for 78 ms over 500 middling pods (4 MB),
and for 7 ms over 100. Not here: what is read and when (``reflector.py``).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
from yaml import YAMLError

from hub_extensions.adapters.kubernetes.official_client import make_client, send
from hub_extensions.adapters.kubernetes.parse import Json
from hub_extensions.adapters.linux.timeouts import with_timeout

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
CONNECT_SECONDS = 5.0
BEGIN_SECONDS = 30.0
ANSWER_SECONDS = 60.0
"""How long it may take to connect, to begin an answer, and to end one; a watch ends when it ends."""
AT_ONCE_SECONDS = 0.005
"""So long objects are read in one go; then everybody else has a turn."""
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_MOST_CHARACTERS = 300


class ClusterError(Exception):
    """The API server did not do what was asked.

    Attributes:
        message: for an admin, without "the cluster cannot be read".
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ClusterAway(ClusterError):
    """No answer, or none that can be used. Whether it did what was asked is not known.

    Attributes:
        retry_after: seconds after which the API server wants to be asked again; None: it did not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ClusterRefused(ClusterError):
    """The API server answered, and the answer is no (401, 403, 404, 409 ...).

    Attributes:
        status: HTTP status. log_message: the API server's own text.
    """

    def __init__(self, status: int, log_message: str) -> None:
        super().__init__(f"it answers {status}: {log_message}")
        self.status = status
        self.log_message = log_message


class HistoryGone(ClusterError):
    """410: it no longer knows what happened since. Everything has to be listed again."""

    def __init__(self) -> None:
        super().__init__("it answers 410: what happened since then is no longer known")


class KubernetesApi:
    """One API server. Nothing of the library or of the network escapes: everything is a `ClusterError`."""

    def __init__(self, kubeconfig: str = "", context: str = "", namespace: str = "") -> None:
        """A file and which context of it; without a file the pod's service account."""
        self._kubeconfig, self._context = kubeconfig, context
        self._client: ApiClient | None = None
        self._retired: ApiClient | None = None
        self._opening = asyncio.Lock()
        self.namespace = namespace
        """As given, else of the kubeconfig's context or of the service account, else ``default``, after `open`."""

    async def open(self) -> None:
        """Read where it is and who we are. Asks the API server nothing yet.

        Raises:
            ClusterAway: it is written nowhere, or not as it should be.
        """
        self._client = await self._read_configuration()

    async def close(self) -> None:
        """Close all connections. Can be called twice."""
        for client in (self._client, self._retired):
            if client is not None:
                await client.close()  # type: ignore[no-untyped-call]

    async def page(self, path: str, query: Mapping[str, str], take: Callable[[Json], None]) -> Json:
        """One page of a list: each object is given to `take`, in order. Gives the list's ``metadata``.

        Raises:
            HistoryGone: the page's token is too old. ClusterAway, ClusterRefused.
        """
        async with self._request("GET", path, query) as answer:
            text = await answer.read()
        try:
            return await _take_items(_object(text), take)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise ClusterAway(f"what answers is not an API server: {_one_line(error)}") from error

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], silence: float) -> AsyncIterator[AsyncIterator[Json]]:
        """The events after ``resourceVersion``, as they come, until the stream ends or is silent for so many seconds.

        Raises:
            HistoryGone: that version is too old. ClusterAway, ClusterRefused; also from the iterator.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        async with self._request("GET", path, {**query, "watch": "true"}, timeout=timeout) as answer:
            _keep_alive(answer)
            yield _events(answer)

    async def one(self, path: str) -> Json | None:
        """One object; None: there is none.

        Raises:
            ClusterAway, ClusterRefused.
        """
        try:
            async with self._request("GET", path, {}) as answer:
                return _object(await answer.read())
        except ClusterRefused as refused:
            if refused.status == 404:
                return None
            raise

    async def merge(self, path: str, change: Json) -> None:
        """Change these fields of one object; a field with None goes.

        Raises:
            ClusterAway, ClusterRefused.
        """
        async with self._request("PATCH", path, {}, body=change, kind="application/merge-patch+json"):
            return

    async def delete(self, path: str, uid: str, *, force: bool) -> bool:
        """Ask for the end of the object with this uid. False: there is none (any more).

        Raises:
            ClusterAway, ClusterRefused.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if force:
            options["gracePeriodSeconds"] = 0
        try:
            async with self._request("DELETE", path, {}, body=options):
                return True
        except ClusterRefused as refused:
            if refused.status == 404:
                return False
            if refused.status != 409:
                raise
            there = await self.one(path)  # of the same name; is it the same?
            if there is None or there.get("metadata", {}).get("uid") != uid:
                return False
            raise

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: Any = None,
        kind: str = "",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask and check the status. What goes wrong here, or while the answer is read, becomes a `ClusterError`."""
        from kubernetes.aio.config import ConfigException

        timeout = timeout or aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        client = self._client
        if client is None:
            raise ClusterAway("it has not been opened")
        headers = {"Accept": "application/json", "User-Agent": "jupyterhub-gpu"}
        if kind:
            headers["Content-Type"] = kind
        answer: aiohttp.ClientResponse | None = None
        asking: asyncio.Future[aiohttp.ClientResponse] | None = None
        try:
            url = f"{client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
            asking = asyncio.ensure_future(send(client, method, path, url, headers, body, timeout))
            answer = await with_timeout(BEGIN_SECONDS, asking)
            if answer.status >= 300:
                raise _refusal(answer.status, answer.headers.get("Retry-After"), await answer.read())
            yield answer
        except ClusterRefused as refused:
            if refused.status == 401:
                await self._renew(client)
            raise
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise ClusterAway(_why(error)) from error
        except ConfigException as error:
            raise ClusterAway(f"the service account could not be read: {_one_line(error)}") from error
        finally:
            if answer is not None:
                _drop(answer)
            elif asking is not None:
                asking.add_done_callback(_drop_late)

    async def _renew(self, refused: ApiClient) -> None:
        """Our token or certificate is not taken any more: read the configuration again, for the next question."""
        async with self._opening:
            if self._client is not refused:
                return  # somebody else did
            renewed = await self._read_configuration()
            if self._retired is not None:
                await self._retired.close()  # type: ignore[no-untyped-call]
            self._client, self._retired = renewed, refused  # watches that are open stay open

    async def _read_configuration(self) -> ApiClient:
        # takes 0.3 s and 20 MB: not for those who have no cluster, and not in the loop's thread
        await asyncio.to_thread(import_module, "kubernetes.aio")
        from kubernetes.aio import client, config

        settings = client.Configuration()
        namespace = ""
        try:
            if self._kubeconfig:
                load = config.load_kube_config(self._kubeconfig, self._context or None, settings, False)  # type: ignore[no-untyped-call]
                namespace = (await load).current_context["context"].get("namespace")
            else:
                config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
            self.namespace = self.namespace or namespace or _own_namespace() or "default"
            return await make_client(settings)
        except (
            config.ConfigException,
            OSError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            YAMLError,
        ) as error:
            raise ClusterAway(f"where it is could not be read: {_one_line(error)}") from error


def _own_namespace() -> str:
    return NAMESPACE_FILE.read_text("utf-8").strip() if NAMESPACE_FILE.is_file() else ""


async def _take_items(page: Json, take: Callable[[Json], None]) -> Json:
    """Give each object to `take`, with a turn for others in between. Gives the list's ``metadata``."""
    about, turn = page["metadata"], time.monotonic()
    for raw in page["items"] or ():  # null: it is empty
        take(raw)
        if time.monotonic() - turn > AT_ONCE_SECONDS:
            await asyncio.sleep(0)
            turn = time.monotonic()
    if not isinstance(about, dict):
        raise ValueError("not a list")
    return about


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    rest = b""
    turn = time.monotonic()
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield _event(line)
            if time.monotonic() - turn > AT_ONCE_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()


def _event(line: bytes) -> Json:
    event = _object(line)
    if event.get("type") != "ERROR":
        return event
    status = event.get("object")
    code = status.get("code") if isinstance(status, dict) else None
    raise _refusal(code if isinstance(code, int) else 500, None, json.dumps(status).encode())


def _object(text: bytes) -> Json:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ClusterAway(f"what answers is not an API server: {_one_line(error)}") from error
    if not isinstance(value, dict):
        raise ClusterAway("what answers is not an API server")
    return value


def _refusal(status: int, retry_after: str | None, body: bytes) -> ClusterError:
    message = _message(body)
    # after a restore from a backup it is asked for a future that it does not know
    if status == 410 or "Too large resource version" in message:
        return HistoryGone()
    if status == 429 or status >= 500:
        return ClusterAway(f"it answers {status}: {message}", _seconds(retry_after))
    if status < 400:
        return ClusterAway(f"what answers is not an API server: {status}")
    return ClusterRefused(status, message)


def _message(body: bytes) -> str:
    try:
        status = json.loads(body)
    except ValueError:
        return _one_line(body.decode("utf-8", "replace"))
    return _one_line(status.get("message") or status.get("reason") or "") if isinstance(status, dict) else ""


def _seconds(retry_after: str | None) -> float | None:
    if not retry_after:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None  # as good as none


def _why(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "it does not answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {_one_line(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"it cannot be reached: {os.strerror(number) if number and number > 0 else _one_line(error.os_error)}"
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionResetError)):
        return "the connection was cut"
    return f"it does not answer: {_one_line(error)}"


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:_MOST_CHARACTERS]


def _drop_late(asking: asyncio.Future[aiohttp.ClientResponse]) -> None:
    """Nobody waits any more for what is being asked; its answer may have come in this very moment."""
    if not asking.cancelled() and asking.exception() is None:
        _drop(asking.result())


def _drop(answer: aiohttp.ClientResponse) -> None:
    """End its connection at once; an answer that was read to its end has given it back already."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


def _keep_alive(answer: aiohttp.ClientResponse) -> None:
    """Let the kernel find out within half a minute that the other end is gone without notice."""
    transport = answer.connection.transport if answer.connection is not None else None
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None:
        return  # it ended already
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # TCP_KEEPIDLE is not on every system
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
