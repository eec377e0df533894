"""One kind of objects, kept as it is in the API server: listed once, then watched, for as long as it takes.

What was read stays while it cannot be read, and until a new list is complete. Not here: how the API server is talked
to (``api.py``), what is kept of an object (``parse.py``).
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
    """How patient the reading is; seconds.

    Attributes:
        first, longest: the delays between tries, doubled each time, shortened at random by up to a half.
        doubted: after a first "forbidden" it is asked again: an API server that starts forbids everything.
        forbidden: after this long a right may have been given.
        retry_after: the longest that it is left alone because its answer asks for it (Retry-After).
        watch: a watch is opened again after about this long. silence: or when nothing came for this long; an API
            server sends something (a bookmark) about once a minute.
        page: objects a page.
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
    """What is read.

    Attributes:
        name: for the log. path: of the list; ``{namespace}`` stands for our own.
        take: what is kept of one; None: nothing.
        forbidden: a sentence for the log, when it may not be read. optional: it need not be there (404).
        needed: most clusters have some of it.
    """

    name: str
    path: str
    take: Callable[[Json], T | None]
    forbidden: str
    optional: bool = False
    needed: bool = True


class Reflector(Generic[T]):
    """See the top of this file.

    Attributes:
        values: by name, or ``namespace/name``; None: not read yet, not there, or not allowed.
        edition: counts the changes of `values`.
        decided: set once it was read, or found to be unreadable.
        unreadable: it may not be read, or there is none.
        problem: why it cannot be read now; "" when it can. since: when that began.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: ObjectKind[T],
        changed: Callable[[], None],
        clock: Callable[[], datetime],
        pace: Pace,
    ) -> None:
        """`changed` is called after each change of `values`, `unreadable` or `problem`."""
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
        """When the API server last showed that this is how it is: now while a watch is open."""
        return now if self._open else self._read_at

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            try:
                delay = await self._read_once()
            except HistoryGone:
                self._version = ""
                delay = self._delays.following()
            except ClusterRefused as refused:
                delay = self._refused(refused)
            except ClusterError as error:
                self._lost(error.message)
                delay = self._delays.following(error.retry_after if isinstance(error, ClusterAway) else None)
            except Exception as error:  # noqa: BLE001  a fault of ours with one object must not end the reading
                _log.exception("Reading %s failed", self.kind.name)
                self._version = ""
                self._lost(f"{type(error).__name__}: {error}")
                delay = self._pace.longest
            finally:
                self._open = False
            await asyncio.sleep(delay)

    async def _read_once(self) -> float:
        """List if need be, watch until the watch ends. Gives the seconds until the next try."""
        if not self._version:
            await self._list()
        began = asyncio.get_running_loop().time()
        await self._watch()
        if asyncio.get_running_loop().time() - began < 1.0:
            return self._delays.following()  # who cuts every watch at once is not asked in a loop
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
                # what did not change stays the very same object, so that it is not counted again
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
        self._found()
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
                self._found()
                async for event in events:
                    self._read_at = self._clock()
                    self._take(event)
                self._read_at = self._clock()
        except ClusterAway:
            if not self._open:
                raise
            # it was cut or fell silent: asked again at once, and only if that fails it is lost

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
            return  # something changed that is not kept
        if value is None:
            del self.values[key]
        else:
            self.values[key] = value
        self._changed()

    def _path(self) -> str:
        return self.kind.path.replace("{namespace}", quote(self._api.namespace, safe=""))

    def forget(self) -> None:
        """Nobody runs it any more: as if it had never been read."""
        self.values, self.unreadable, self.problem, self.since = None, False, "", None
        self._version, self._refusals = "", 0
        self.decided.clear()

    def put(self, key: str, value: T) -> None:
        """Add what was read by itself; what is known already is as new or newer."""
        if self.values is not None and key not in self.values:
            self.values[key] = value
            self._changed()

    def _refused(self, refused: ClusterRefused) -> float:
        if not (refused.status == 403 or (refused.status == 404 and self.kind.optional)):
            self._lost(refused.message)
            return self._delays.following()
        self._version = ""
        self._refusals += 1
        if self.values is not None and self._refusals == 1:
            self._lost(refused.message)
            return self._pace.doubted
        if self._refusals == 1 and not self.kind.optional:
            return self._pace.doubted  # not read yet, rather than forbidden
        if not self.unreadable:
            if refused.status == 403:
                level = logging.WARNING if self.kind.needed else logging.DEBUG
                _log.log(level, "%s (%s)", self.kind.forbidden, refused.log_message)
            self.values, self.unreadable = None, True
            self._changed()
        self._read_at = self._clock()
        self._found()
        self.decided.set()
        return self._pace.doubted if self._refusals == 1 else self._pace.forbidden

    def _lost(self, message: str) -> None:
        if not self.problem:
            self.since = self._clock()
        changed, self.problem = self.problem != message, message
        if changed:
            self._on_change()

    def _found(self) -> None:
        if self.problem:
            self.problem, self.since = "", None
            self._on_change()

    def _changed(self) -> None:
        self.edition += 1
        self._on_change()


class _Delays:
    """0.2 s, 0.4 s ... 30 s, each shortened at random; longer where the API server asks for it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._tries = 0

    def again(self) -> None:
        """It went well: begin with the short ones."""
        self._tries = 0

    def following(self, at_least: float | None = None) -> float:
        """Seconds until the next try."""
        delay = min(self._pace.longest, self._pace.first * 2.0 ** min(self._tries, 30)) * random.uniform(0.5, 1.0)
        self._tries += 1
        if at_least is None:
            return delay
        # those who were sent away together do not come back together
        return max(delay, min(at_least, self._pace.retry_after) * random.uniform(1.0, 1.2))


def _key(raw: Mapping[str, Any]) -> str:
    about = raw["metadata"]
    namespace = about.get("namespace")
    return f"{namespace}/{about['name']}" if namespace else str(about["name"])
