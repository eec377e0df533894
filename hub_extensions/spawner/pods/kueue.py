"""Read why Kueue holds pods back, from the status of its LocalQueue and from its events.

The pod itself does not show why it is held, and a pod that names an unknown queue is held forever. Each queue is read
at most every `REFRESH_SECONDS`, for all starts together.
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

REFRESH_SECONDS = 10.0  # minimum time between two reads of a queue
READ_SECONDS = 5.0  # timeout of one request
MOST_EVENTS = 500  # events of pending workloads that are read
WAITING = "involvedObject.kind=Workload,reason=Pending"


AnyLogger = logging.Logger | logging.LoggerAdapter[Any]


@dataclass(eq=False)
class LocalQueue:
    """A LocalQueue of Kueue as it was last read, with Kueue's messages about its workloads. `local_queue` makes it.

    Attributes:
        namespace, name: where it is in the cluster.
        problem: why no pod in this queue can start; None if no such problem is known.
    """

    namespace: str
    name: str
    problem: Reason | None = None
    _messages: Mapping[str, str] = field(default_factory=dict)
    _at: float = float("-inf")
    _logged: str = ""
    _reading: asyncio.Future[None] | None = None

    def refresh(self, api: Any, log: AnyLogger) -> Reason | None:
        """Return why no pod in this queue can start, as last read; None if no such problem is known.

        If the last read is older than `REFRESH_SECONDS`, the queue is read again in the background.

        Args:
            api: KubeSpawner's client of the API server.
            log: the hub's logger, for errors of the background read.
        """
        now = asyncio.get_running_loop().time()
        if now - self._at >= REFRESH_SECONDS and (self._reading is None or self._reading.done()):
            self._at = now
            self._reading = asyncio.ensure_future(self._read(api, log))
        return self.problem

    def message_of(self, workload: str) -> str:
        """Return why a workload waits, in Kueue's own words; "" if Kueue has written no event about it.

        Of several similar workloads, Kueue examines and reports only one.
        """
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
            # keep what was last read: no permission, another version of Kueue, or no answer
            status = f"{error.status} {error.reason}" if isinstance(error, ApiException) else repr(error)
            log_message = f"cannot be read, so nothing is said of it: {status}"
        if log_message and log_message != self._logged:
            log.warning("c.GpuCluster.kueue_queue: the LocalQueue %s in %s: %s", self.name, self.namespace, log_message)
        self._logged = log_message

    async def _read_queue(self, api: Any) -> Mapping[str, Any] | None:
        """Read the LocalQueue from the API server. Return None if it does not exist."""
        read = CustomObjectsApi(api).get_namespaced_custom_object
        try:
            found: Mapping[str, Any] = await read(
                GROUP, VERSION, self.namespace, "localqueues", self.name, _request_timeout=READ_SECONDS
            )
        except ApiException as error:
            try:
                details = json.loads(error.body or "").get("details") or {}
            except (ValueError, AttributeError):
                raise error from None
            # if the API does not know the kind at all, the answer does not name the queue
            if error.status == 404 and details.get("name") == self.name:
                return None
            raise
        return found


_QUEUES: dict[tuple[str, str], LocalQueue] = {}


def local_queue(namespace: str, name: str) -> LocalQueue:
    """Return the `LocalQueue` of this name. It is created once, and all servers of the hub share it."""
    return _QUEUES.setdefault((namespace, name), LocalQueue(namespace, name))
