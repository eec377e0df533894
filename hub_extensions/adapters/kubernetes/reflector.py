"""Keep all objects of one kind in sync with the API server: list them once, then watch them.

The last known objects are kept while the API server cannot be read, and until a new list is complete.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hub_extensions.adapters.kubernetes.api import (
    ClusterAway,
    ClusterError,
    ClusterRefused,
    HistoryGone,
    KubernetesApi,
)
from hub_extensions.adapters.kubernetes.parse import Json

T = TypeVar("T")

_log = logging.getLogger("hub_extensions.hub_service")


@dataclass(frozen=True, slots=True)
class Pace:
    """Delays and timeouts of the reading, in seconds.

    Attributes:
        first, longest: shortest and longest delay between two attempts to read. The delay doubles after each failure
            and is randomly shortened by up to a half.
        doubted: delay after the first answer "forbidden", because an API server that is starting forbids everything.
        forbidden: delay after further answers "forbidden", because a permission may be granted later.
        retry_after: longest delay that the API server can request (Retry-After).
        watch: approximate duration of a watch.
        silence: a watch without any data for this long is reopened. An API server sends a bookmark about every minute.
        page: number of objects per page.
    """

    first: float = 0.2
    longest: float = 30.0
    doubted: float = 5.0
    forbidden: float = 300.0
    retry_after: float = 300.0
    watch: float = 300.0
    silence: float = 75.0
    page: int = 100


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[T]):
    """A kind of Kubernetes objects to read, such as pods.

    Attributes:
        name: name for the log.
        path: path of the list, with ``{namespace}`` for our own namespace.
        take: converts an object to the value that is kept; `None` if the object is to be ignored.
        forbidden: log message if the hub is not allowed to read the objects.
        optional: the cluster may not have this kind (404).
        needed: without this kind the service lacks something, so a missing permission is logged as a warning.
    """

    name: str
    path: str
    take: Callable[[Json], T | None]
    forbidden: str
    optional: bool = False
    needed: bool = True


class Reflector(Generic[T]):
    """Keeps a copy of all objects of one kind in memory, in sync with the API server.

    Attributes:
        values: the kept values by name or ``namespace/name``; `None` if the objects are not read yet, do not exist in
            the cluster, or may not be read.
        edition: how often `values` has changed.
        decided: set when the objects were read once, or are known to be unreadable.
        unreadable: the hub is not allowed to read the objects, or the cluster does not have the kind.
        problem: why the objects cannot be read now; "" if they can be read.
        since: when the problem began; `None` without a problem.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: ObjectKind[T],
        changed: Callable[[], None],
        clock: Callable[[], datetime],
        pace: Pace,
    ) -> None:
        """Create a reflector.

        Args:
            api: the client of the API server.
            kind: the kind of objects to read.
            changed: called after each change of `values`, `unreadable` or `problem`.
            clock: returns the present time (aware).
            pace: delays and timeouts.
        """
        self._api, self.kind, self._on_change, self._clock, self._pace = api, kind, changed, clock, pace
        self.values: dict[str, T] | None = None
        self.edition = 0
        self.decided = asyncio.Event()
        self.unreadable = False
        self.problem = ""
        self.since: datetime | None = None
        self._read_at: datetime | None = None
        self._open = False
        self._version = ""
        self._refusals = 0
        self._delays = _Delays(pace)

    def at(self, now: datetime) -> datetime | None:
        """Return when the values were last known to be current. That is `now` while a watch is open, and `None` if they
        were never read.
        """
        return now if self._open else self._read_at

    async def run(self) -> None:
        """Keep the copy of the API server's objects up to date, until cancelled."""
        while True:
            try:
                delay = await self._read_once()
            except HistoryGone:
                self._version = ""
                delay = self._delays.following()
            except ClusterRefused as refused:
                delay = self._handle_refusal(refused)
            except ClusterError as error:
                self._set_problem(error.message)
                delay = self._delays.following(error.retry_after if isinstance(error, ClusterAway) else None)
            except Exception as error:  # noqa: BLE001  a fault of ours with one object must not end the reading
                _log.exception("Reading %s failed", self.kind.name)
                self._version = ""
                self._set_problem(f"{type(error).__name__}: {error}")
                delay = self._pace.longest
            finally:
                self._open = False
            await asyncio.sleep(delay)

    async def _read_once(self) -> float:
        """List the objects if necessary, and watch them until the watch ends.

        Returns the seconds until the next attempt.
        """
        if not self._version:
            await self._list()
        began = asyncio.get_running_loop().time()
        await self._watch()
        if asyncio.get_running_loop().time() - began < 1.0:
            return self._delays.following()  # avoid a busy loop if every watch is closed immediately
        self._delays.again()
        return 0.0

    async def _list(self) -> None:
        found: dict[str, T] = {}
        before: Mapping[str, T] = self.values or {}

        def keep(raw: Json) -> None:
            value = self.kind.take(raw)
            if value is not None:
                key = _key(raw)
                known = before.get(key)
                # an unchanged object stays identical, so that it is not counted again
                found[key] = value if known is None or known != value else known

        following = ""
        while True:
            query = {"limit": str(self._pace.page)} | ({"continue": following} if following else {})
            about = await self._api.page(self._path(), query, keep)
            self._read_at = self._clock()
            following = str(about.get("continue") or "")
            if not following:
                break
        version = str(about.get("resourceVersion") or "")
        if not version:
            raise ClusterAway("what answers is not an API server: a list without a version")
        self._version = version
        self.values = found
        self._refusals = 0
        if self.unreadable:
            _log.info("%s can be read now.", self.kind.name.capitalize())
        self.unreadable = False
        self._changed()
        self._clear_problem()
        self.decided.set()

    async def _watch(self) -> None:
        seconds = round(self._pace.watch * random.uniform(0.9, 1.1))
        query = {
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, seconds)),
        }
        try:
            async with self._api.watch(self._path(), query, self._pace.silence) as events:
                self._open = True
                self._read_at = self._clock()
                self._clear_problem()
                async for event in events:
                    self._read_at = self._clock()
                    self._take(event)
                self._read_at = self._clock()
        except ClusterAway:
            if not self._open:
                raise
            # the watch broke or was silent: reopen it at once, and report a problem only if that fails

    def _take(self, event: Json) -> None:
        raw = event.get("object")
        if not isinstance(raw, dict) or self.values is None:
            return
        version = raw.get("metadata", {}).get("resourceVersion")
        self._version = version if isinstance(version, str) and version else self._version
        if event.get("type") == "BOOKMARK":
            return
        key = _key(raw)
        value = None if event.get("type") == "DELETED" else self.kind.take(raw)
        if self.values.get(key) == value:
            return  # only parts that are not kept have changed
        if value is None:
            del self.values[key]
        else:
            self.values[key] = value
        self._changed()

    def _path(self) -> str:
        return self.kind.path.replace("{namespace}", quote(self._api.namespace, safe=""))

    def forget(self) -> None:
        """Forget all objects that were read, after the task that ran the reflector was cancelled."""
        self.values, self.unreadable, self.problem, self.since = None, False, "", None
        self._version, self._refusals = "", 0
        self.decided.clear()

    def put(self, key: str, value: T) -> None:
        """Add a value that was read separately, unless the key is already known: the known value is at least as new."""
        if self.values is not None and key not in self.values:
            self.values[key] = value
            self._changed()

    def _handle_refusal(self, refused: ClusterRefused) -> float:
        if not (refused.status == 403 or (refused.status == 404 and self.kind.optional)):
            self._set_problem(refused.message)
            return self._delays.following()
        self._version = ""
        self._refusals += 1
        if self.values is not None and self._refusals == 1:
            self._set_problem(refused.message)
            return self._pace.doubted
        if self._refusals == 1 and not self.kind.optional:
            return self._pace.doubted  # undecided, because the API server may be starting
        if not self.unreadable:
            if refused.status == 403:
                level = logging.WARNING if self.kind.needed else logging.DEBUG
                _log.log(level, "%s (%s)", self.kind.forbidden, refused.log_message)
            self.values, self.unreadable = None, True
            self._changed()
        self._read_at = self._clock()
        self._clear_problem()
        self.decided.set()
        return self._pace.doubted if self._refusals == 1 else self._pace.forbidden

    def _set_problem(self, message: str) -> None:
        if not self.problem:
            self.since = self._clock()
        changed, self.problem = self.problem != message, message
        if changed:
            self._on_change()

    def _clear_problem(self) -> None:
        if self.problem:
            self.problem, self.since = "", None
            self._on_change()

    def _changed(self) -> None:
        self.edition += 1
        self._on_change()


class _Delays:
    """The delays between failed attempts to read: 0.2 s, 0.4 s ... 30 s, each randomly shortened.

    A delay is longer if the API server requests it.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._tries = 0

    def again(self) -> None:
        """Let the next delay between two attempts be the shortest one again, after a success."""
        self._tries = 0

    def following(self, at_least: float | None = None) -> float:
        """Return the seconds until the next attempt.

        Args:
            at_least: the delay that the API server requested; `None` if it requested none.
        """
        delay = min(self._pace.longest, self._pace.first * 2.0 ** min(self._tries, 30)) * random.uniform(0.5, 1.0)
        self._tries += 1
        if at_least is None:
            return delay
        # spread the requests of clients that were rejected at the same time
        return max(delay, min(at_least, self._pace.retry_after) * random.uniform(1.0, 1.2))


def _key(raw: Mapping[str, Any]) -> str:
    about = raw["metadata"]
    namespace = about.get("namespace")
    return f"{namespace}/{about['name']}" if namespace else str(about["name"])
