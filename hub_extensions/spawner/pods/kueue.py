"""What Kueue says of those who wait: one read of its line and of its events, now and then, for all of them together.

A pod that it holds back says nothing of why, and one that is sent to an unknown line is held back for ever. Not here:
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

from hub_extensions.core.cluster.kueue import GROUP, VERSION, line_problem, pending_words

LOOK_SECONDS = 10.0
READ_SECONDS = 5.0
MOST_EVENTS = 500
WAITING = "involvedObject.kind=Workload,reason=Pending"


Log = logging.Logger | logging.LoggerAdapter[Any]


@dataclass(eq=False)
class LocalQueue:
    """One LocalQueue, as it was read last. `problem`: a sentence for everybody who waits there; "" for none known."""

    namespace: str
    name: str
    problem: str = ""
    _said: Mapping[str, str] = field(default_factory=dict)
    _at: float = float("-inf")
    _told: str = ""
    _reading: asyncio.Future[None] | None = None

    def look(self, api: Any, log: Log) -> str:
        """The problem as it is known; read anew beside us where that is old. `api`: KubeSpawner's client."""
        now = asyncio.get_running_loop().time()
        if now - self._at >= LOOK_SECONDS and (self._reading is None or self._reading.done()):
            self._at = now
            self._reading = asyncio.ensure_future(self._read(api, log))
        return self.problem

    def said_of(self, workload: str) -> str:
        """Why this one waits, in Kueue's words; "" where it said nothing (of several alike it looks at one)."""
        return self._said.get(workload, "")

    async def _read(self, api: Any, log: Log) -> None:
        try:
            self.problem, said = line_problem(await self._read_line(api))
            events: Any = await CoreV1Api(api).list_namespaced_event(
                self.namespace,
                field_selector=WAITING,
                limit=MOST_EVENTS,
                _request_timeout=READ_SECONDS,
                _preload_content=False,
            )
            self._said = pending_words(json.loads(await events.read()).get("items") or ())
        except (ApiException, ClientError, ConnectionError, asyncio.TimeoutError, ValueError) as error:
            # what was known last stays: no rights, another release of Kueue, or nobody answers
            status = f"{error.status} {error.reason}" if isinstance(error, ApiException) else repr(error)
            said = f"cannot be read, so nothing is said of it: {status}"
        if said and said != self._told:
            log.warning("c.GpuCluster.kueue_queue: the LocalQueue %s in %s: %s", self.name, self.namespace, said)
        self._told = said

    async def _read_line(self, api: Any) -> Mapping[str, Any] | None:
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


_LINES: dict[tuple[str, str], LocalQueue] = {}


def line_of(namespace: str, name: str) -> LocalQueue:
    """The one object of this LocalQueue, for all servers of the hub."""
    return _LINES.setdefault((namespace, name), LocalQueue(namespace, name))


__all__ = ["LocalQueue", "line_of"]
