"""Requests to a Kubernetes API server with the official ``kubernetes`` package, in raw JSON.

Typed objects are not used, because a typed list of 10,000 pods needs hundreds of MB and blocks for seconds. Pages are
small for the same reason: ``json.loads`` blocks the interpreter, including other threads, for 78 ms over 500
medium-sized pods (4 MB), and for 7 ms over 100.
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
CONNECT_SECONDS = 5.0  # timeout for connecting
BEGIN_SECONDS = 30.0  # timeout until an answer begins
ANSWER_SECONDS = 60.0  # timeout for a whole answer, except for a watch
AT_ONCE_SECONDS = 0.005  # time after which reading objects yields to the event loop
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_MOST_CHARACTERS = 300


class ClusterError(Exception):
    """A request to the API server failed.

    Attributes:
        message: explanation for administrators, as a text that follows "the cluster cannot be read".
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ClusterAway(ClusterError):
    """The API server gave no usable answer. It is not known whether the request took effect.

    Attributes:
        retry_after: seconds after which to retry, from the answer's header; `None` without that header.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ClusterRefused(ClusterError):
    """The API server refused the request (401, 403, 404, 409 ...).

    Attributes:
        status: HTTP status.
        log_message: the API server's own text.
    """

    def __init__(self, status: int, log_message: str) -> None:
        super().__init__(f"it answers {status}: {log_message}")
        self.status = status
        self.log_message = log_message


class HistoryGone(ClusterError):
    """Status 410: the API server no longer has the changes since the requested ``resourceVersion``.

    All objects have to be listed again.
    """

    def __init__(self) -> None:
        super().__init__("it answers 410: what happened since then is no longer known")


class KubernetesApi:
    """A client of one API server. It raises only `ClusterError`, also for errors of the library and the network."""

    def __init__(self, kubeconfig: str = "", context: str = "", namespace: str = "") -> None:
        """Create a client; `open` reads the configuration.

        Args:
            kubeconfig: path of a kubeconfig file; "" uses the service account of the pod.
            context: name of the context in that file; "" for the file's current context.
            namespace: our own namespace; "" takes that of the context or service account, or ``default``.
        """
        self._kubeconfig, self._context = kubeconfig, context
        self._client: ApiClient | None = None
        self._retired: ApiClient | None = None
        self._opening = asyncio.Lock()
        self.namespace = namespace
        """The given namespace. After `open`, if it was "", that of the context or service account, or ``default``."""

    async def open(self) -> None:
        """Read the address of the API server and the credentials. Sends no request yet.

        Raises:
            ClusterAway: the configuration is missing or invalid.
        """
        self._client = await self._read_configuration()

    async def close(self) -> None:
        """Close all connections to the API server. Can be called twice."""
        for client in (self._client, self._retired):
            if client is not None:
                await client.close()  # type: ignore[no-untyped-call]

    async def page(self, path: str, query: Mapping[str, str], take: Callable[[Json], None]) -> Json:
        """Read one page of a list. Return the list's ``metadata``.

        Args:
            path: path of the list.
            query: the parameters of the list, such as ``limit`` and ``continue``.
            take: called with each object, in order.

        Raises:
            HistoryGone: the page's token is too old.
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused.
        """
        async with self._request("GET", path, query) as answer:
            text = await answer.read()
        try:
            return await _take_items(_object(text), take)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise ClusterAway(f"what answers is not an API server: {_one_line(error)}") from error

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], silence: float) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch while the block runs, and provide an iterator over its events until the stream ends.

        Args:
            path: path of the list to watch.
            query: the parameters, such as ``resourceVersion``.
            silence: seconds without data after which the stream counts as broken.

        Raises:
            HistoryGone: the ``resourceVersion`` is too old. The iterator can raise this too.
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused. The iterator can raise
                them too.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        async with self._request("GET", path, {**query, "watch": "true"}, timeout=timeout) as answer:
            _keep_alive(answer)
            yield _events(answer)

    async def one(self, path: str) -> Json | None:
        """Read one object; `None` if it does not exist.

        Raises:
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused.
        """
        try:
            async with self._request("GET", path, {}) as answer:
                return _object(await answer.read())
        except ClusterRefused as refused:
            if refused.status == 404:
                return None
            raise

    async def merge(self, path: str, change: Json) -> None:
        """Merge fields into an object (a merge patch).

        Args:
            path: path of the object.
            change: the fields to set; a field with the value None is removed.

        Raises:
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused.
        """
        async with self._request("PATCH", path, {}, body=change, kind="application/merge-patch+json"):
            return

    async def delete(self, path: str, uid: str, *, force: bool) -> bool:
        """Delete the object with this uid. Returns False if it does not exist.

        Args:
            force: delete the object at once, without waiting for its node (grace period 0).

        Raises:
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused.
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
            there = await self.one(path)  # an object of the same name, perhaps with another uid
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
        """Send a request and check the status. Errors here, or while the answer is read, become a `ClusterError`.

        Args:
            method: HTTP method.
            path: path of the object or list.
            query: parameters of the URL.
            body: JSON of the request; `None` sends none.
            kind: content type of the body; "" for the default.
            timeout: `None` for `ANSWER_SECONDS` for the whole answer and `CONNECT_SECONDS` for connecting.
        """
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
        """Read the configuration again for the next request, because our token or certificate was rejected.

        Args:
            refused: the client with the rejected token. If another request has replaced it already, nothing is done.
        """
        async with self._opening:
            if self._client is not refused:
                return  # already renewed
            renewed = await self._read_configuration()
            if self._retired is not None:
                await self._retired.close()  # type: ignore[no-untyped-call]
            self._client, self._retired = renewed, refused  # open watches stay open

    async def _read_configuration(self) -> ApiClient:
        # takes 0.3 s and 20 MB, so it is imported only if there is a cluster, and not in the loop's thread
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
    """Call `take` with each object in a page of a list, yielding to the event loop in between.

    Returns:
        The list's ``metadata``.
    """
    about, turn = page["metadata"], time.monotonic()
    for raw in page["items"] or ():  # an empty list can be null
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
    # after a restore from a backup the API server has older versions than we ask for
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
        return None  # an invalid header is ignored


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
    """Drop the answer of a request that nobody waits for any more, if it has arrived in the meantime."""
    if not asking.cancelled() and asking.exception() is None:
        _drop(asking.result())


def _drop(answer: aiohttp.ClientResponse) -> None:
    """Close an answer's connection at once. A completely read answer has already released its connection."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


def _keep_alive(answer: aiohttp.ClientResponse) -> None:
    """Enable TCP keepalive, so that the kernel detects a dead connection within half a minute."""
    transport = answer.connection.transport if answer.connection is not None else None
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None:
        return  # the connection has already ended
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # TCP_KEEPIDLE is not on every system
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
