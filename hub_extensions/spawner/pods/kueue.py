"""What Kueue says of those who wait: one read of its queue and of its events, now and then, for all of them together.

A pod that it holds back says nothing of why, and one that is sent to an unknown queue is held back for ever. Not here:
what it means (``core/cluster/kueue.py``), who waits how long (``launch.py``).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError
from kubernetes_asyncio.client import ApiException, CoreV1Api, CustomObjectsApi

from hub_extensions.core.cluster.kueue import GROUP, VERSION, pending_messages, queue_problem
from hub_extensions.core.text.reasons import Reason

REFRESH_SECONDS = 10.0
READ_SECONDS = 5.0
MOST_EVENTS = 500
WAITING = "involvedObject.kind=Workload,reason=Pending"


AnyLogger = logging.Logger | logging.LoggerAdapter[Any]


@dataclass(eq=False)
class LocalQueue:
    """One LocalQueue, as it was read last. `problem`: for everybody who waits there; None: none is known."""

    namespace: str
    name: str
    problem: Reason | None = None
    _messages: Mapping[str, str] = field(default_factory=dict)
    _at: float = float("-inf")
    _logged: str = ""
    _reading: asyncio.Future[None] | None = None

    def refresh(self, api: Any, log: AnyLogger) -> Reason | None:
        """The problem as it is known; read anew beside us where that is old. `api`: KubeSpawner's client."""
        now = asyncio.get_running_loop().time()
        if now - self._at >= REFRESH_SECONDS and (self._reading is None or self._reading.done()):
            self._at = now
            self._reading = asyncio.ensure_future(self._read(api, log))
        return self.problem

    def message_of(self, workload: str) -> str:
        """Why this one waits, in Kueue's own text; "" where it said nothing (of several alike it looks at one)."""
        return self._messages.get(workload, "")

    async def _read(self, api: Any, log: AnyLogger) -> None:
        try:
            self.problem = queue_problem(await self._read_queue(api))
            log_message = "" if self.problem is None else self.problem.log_message
            events: Any = await CoreV1Api(api).list_namespaced_event(
                self.namespace,
                field_selector=WAITING,
                limit=MOST_EVENTS,
                _request_timeout=READ_SECONDS,
                _preload_content=False,
            )
            self._messages = pending_messages(json.loads(await events.read()).get("items") or ())
        except (ApiException, ClientError, ConnectionError, asyncio.TimeoutError, ValueError) as error:
            # what was known last stays: no rights, another release of Kueue, or nobody answers
            status = f"{error.status} {error.reason}" if isinstance(error, ApiException) else repr(error)
            log_message = f"cannot be read, so nothing is said of it: {status}"
        if log_message and log_message != self._logged:
            log.warning("c.GpuCluster.kueue_queue: the LocalQueue %s in %s: %s", self.name, self.namespace, log_message)
        self._logged = log_message

    async def _read_queue(self, api: Any) -> Mapping[str, Any] | None:
        read = CustomObjectsApi(api).get_namespaced_custom_object
        try:
            found: Mapping[str, Any] = await read(
                GROUP, VERSION, self.namespace, "localqueues", self.name, _request_timeout=READ_SECONDS
            )
        except ApiException as error:
            if self._is_missing(error):
                return None
            raise
        return found

    def _is_missing(self, error: ApiException) -> bool:
        """The object is not there; where its kind is not served at all, the answer names no object."""
        try:
            details = json.loads(error.body or "").get("details") or {}
        except (ValueError, AttributeError):
            return False
        return error.status == 404 and details.get("name") == self.name


_QUEUES: dict[tuple[str, str], LocalQueue] = {}


def local_queue(namespace: str, name: str) -> LocalQueue:
    """The one object of this LocalQueue, for all servers of the hub."""
    return _QUEUES.setdefault((namespace, name), LocalQueue(namespace, name))
