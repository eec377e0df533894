"""An API server on loopback: lists in pages, watches, bookmarks, deletions, and the ways in which it fails.

It keeps objects as they were put and judges nothing: no validation, no RBAC but `forbidden`, no scheduler. What it
answers is held against a real API server by ``tests/cluster/test_watch.py``. Its failure modes are classes with a name,
or something it is told (`forbid`, `cut`, `forget_history`, `go_away`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, Finish, RequestHandler

from tests.patience import patient
from tests.ports import free_port

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
VOLUMES, VOLUME_CLAIMS = "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims"
DRA = "/apis/resource.k8s.io/v1"
SLICES, CLAIMS, TEMPLATES = f"{DRA}/resourceslices", f"{DRA}/resourceclaims", f"{DRA}/resourceclaimtemplates"


class ApiServerAsTold:
    """Change it with `put` and `remove` while it runs.

    Attributes:
        asked: (verb, path, query) of every request, in order; verb as RBAC has it. bodies: of the deletions.
        forbidden: paths of lists that are answered with 403. absent: with 404. token: whose bearer is let in.
        watching: the watches that are open, by path.
    """

    def __init__(self, dra: bool = True) -> None:
        self.version = 100
        self.oldest = 0
        self.token = "first-token"
        self.objects: dict[str, dict[str, dict[str, Any]]] = {
            each: {} for each in (NODES, PODS, SLICES, CLAIMS, TEMPLATES, VOLUMES, VOLUME_CLAIMS)
        }
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.forbidden: set[str] = set()
        self.absent: set[str] = set() if dra else {SLICES, CLAIMS, TEMPLATES}
        self.watching: list[_Api] = []
        self.said = asyncio.Condition()
        self._lists: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._server: HTTPServer | None = None
        self._port = free_port()

    async def __aenter__(self) -> ApiServerAsTold:
        self.come_back()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_away()

    def come_back(self) -> None:
        """Listen, on the port it had before."""
        sockets = bind_sockets(self._port, "127.0.0.1")
        self._server = HTTPServer(Application([(r"/.*", _Api, {"told": self})]))
        self._server.add_sockets(sockets)

    async def go_away(self) -> None:
        """Stop listening, with every connection."""
        if self._server is None:
            return
        self._server.stop()
        self.cut()
        await self._server.close_all_connections()
        self._server = None

    def kubeconfig(self, folder: Path, namespace: str = "jhub") -> str:
        """Write one; its token is read from here when it is written."""
        context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": context}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(made), encoding="utf-8")
        return str(path)

    def put(self, path: str, *objects: Mapping[str, Any]) -> None:
        """Create or change objects of the list at `path`."""
        for one in objects:
            self.version += 1
            made = {**one, "metadata": {**one["metadata"], "resourceVersion": str(self.version)}}
            known = key_of(made) in self.objects[path]
            self.objects[path][key_of(made)] = made
            self._happened(path, "MODIFIED" if known else "ADDED", made)

    def remove(self, path: str, key: str) -> None:
        """`key` is ``namespace/name``, or the name."""
        self.version += 1
        gone = self.objects[path].pop(key)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._happened(path, "DELETED", gone)

    def bookmark(self, path: str) -> None:
        """Say the newest version to all watches of it."""
        self._happened(path, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def forget_history(self) -> None:
        """A watch from before now is answered with 410."""
        self.version += 1
        self.oldest = self.version
        self.history.clear()

    def end_with_an_error(self, path: str, code: int) -> None:
        """Say to the open watches that they are too old (410), or something worse."""
        self._happened(path, "ERROR", {"kind": "Status", "code": code, "message": "too old resource version"})

    def cut(self) -> None:
        """Cut every open watch in the middle, without its end."""
        for each in list(self.watching):
            each.cut()

    def verbs(self, path: str) -> list[str]:
        """What was asked of one path."""
        return [verb for verb, where, _ in self.asked if where == path]

    def queries(self, verb: str, path: str) -> list[dict[str, str]]:
        return [query for how, where, query in self.asked if (how, where) == (verb, path)]

    async def until_asked(self, verb: str, path: str, times: int) -> None:
        """Wait until this was asked so many times in all."""
        async with self.said:
            await asyncio.wait_for(self.said.wait_for(lambda: len(self.queries(verb, path)) >= times), patient(20))

    async def until_watched(self, *paths: str) -> None:
        """Wait until each of them has an open watch."""
        async with self.said:
            wanted = set(paths)
            await asyncio.wait_for(
                self.said.wait_for(lambda: wanted <= {each.request.path for each in self.watching}), patient(20)
            )

    async def before(self, handler: RequestHandler, verb: str, path: str) -> None:
        """Called before every answer; who answers here raises ``Finish``."""

    def listed(self, path: str, namespace: str | None) -> list[dict[str, Any]]:
        found: Iterable[dict[str, Any]] = self.objects[path].values()
        return [one for one in found if namespace is None or one["metadata"].get("namespace") == namespace]

    def page(self, path: str, namespace: str | None, limit: int, following: str) -> dict[str, Any]:
        """One page; a token keeps the list as it was."""
        if following:
            version, rest = self._lists.pop(following)
        else:
            version, rest = self.version, self.listed(path, namespace)
        items, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        token = f"token-{len(self.asked)}" if rest else ""
        if rest:
            self._lists[token] = (version, rest)
        about = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
        return {"kind": "List", "apiVersion": "v1", "metadata": about, "items": items or None}

    def _happened(self, path: str, kind: str, what: dict[str, Any]) -> None:
        if kind not in ("BOOKMARK", "ERROR"):
            self.history.append((self.version, path, kind, what))
        for each in self.watching:
            if each.collection == path and each.wants(what, kind):
                each.events.put_nowait((kind, what))

    async def heard(self) -> None:
        async with self.said:
            self.said.notify_all()


class ApiServerThatIsBusy(ApiServerAsTold):
    """Sends everybody away `times` times, with 429 and a Retry-After."""

    def __init__(self, times: int, seconds: int = 1, status: int = 429) -> None:
        super().__init__()
        self.times, self.seconds, self.status = times, seconds, status

    async def before(self, handler: RequestHandler, verb: str, path: str) -> None:
        if self.times <= 0 or path != NODES:
            return
        self.times -= 1
        handler.set_header("Retry-After", str(self.seconds))
        refuse(handler, self.status, "too many requests")


class ApiServerThatIsSlow(ApiServerAsTold):
    """Keeps a list of `path` waiting until `go` is set; `waiting` tells that one waits."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.go, self.waiting = asyncio.Event(), asyncio.Event()

    async def before(self, handler: RequestHandler, verb: str, path: str) -> None:
        if (verb, path) == ("list", self.path) and not self.go.is_set():
            self.waiting.set()
            await self.go.wait()


class NoApiServer(ApiServerAsTold):
    """Answers 200 with these bytes, whatever is asked."""

    def __init__(self, body: bytes = b"<html>Log in</html>") -> None:
        super().__init__()
        self.body = body

    async def before(self, handler: RequestHandler, verb: str, path: str) -> None:
        handler.finish(self.body)
        raise Finish


class _Api(RequestHandler):
    def initialize(self, told: ApiServerAsTold) -> None:
        self.told = told
        self.collection = ""
        self.namespace: str | None = None
        self.events: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()

    async def get(self) -> None:
        query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        name = self._find()
        verb = "get" if name else "watch" if query.get("watch") == "true" else "list"
        await self._admit(verb, query)
        if name:
            self._one(name)
        elif verb == "watch":
            await self._watch(query)
        else:
            limit, following = int(query.get("limit", "0")), query.get("continue", "")
            self.finish(json.dumps(self.told.page(self.collection, self.namespace, limit, following)))

    async def delete(self) -> None:
        key = self._find()
        await self._admit("delete", {})
        options = json.loads(self.request.body)
        self.told.bodies.append(options)
        there = self.told.objects[self.collection].get(key)
        if there is None:
            refuse(self, 404, f'pods "{key}" not found')
        elif there["metadata"]["uid"] != options["preconditions"]["uid"]:
            refuse(self, 409, "Precondition failed: UID in precondition")
        self.told.remove(self.collection, key)
        self.finish({"kind": "Status", "status": "Success"})

    def cut(self) -> None:
        if self.request.connection is not None:
            self.request.connection.stream.close()  # type: ignore[attr-defined]
        self.events.put_nowait(None)

    def wants(self, what: dict[str, Any], kind: str) -> bool:
        return kind in ("BOOKMARK", "ERROR") or self.namespace in (None, what["metadata"].get("namespace"))

    def on_connection_close(self) -> None:
        self.events.put_nowait(None)

    def log_exception(self, *args: Any) -> None:
        """What went wrong in the stand-in fails the test by its answer."""

    def _find(self) -> str:
        """Split the path into list, namespace and name; gives the key, "" for a list."""
        parts = self.request.path.strip("/").split("/")
        root = 2 if parts[0] == "api" else 3
        head, rest = "/" + "/".join(parts[:root]), parts[root:]
        if rest[0] == "namespaces":
            self.namespace, rest = rest[1], rest[2:]
        self.collection = f"{head}/{rest[0]}"
        name = rest[1] if len(rest) > 1 else ""
        return f"{self.namespace}/{name}" if name and self.namespace else name

    async def _admit(self, verb: str, query: dict[str, str]) -> None:
        path = self.request.path
        self.told.asked.append((verb, path, query))
        await self.told.heard()
        if self.request.headers.get("Authorization") != f"Bearer {self.told.token}":
            refuse(self, 401, "Unauthorized")
        await self.told.before(self, verb, path)
        if path in self.told.forbidden:
            refuse(self, 403, f'is forbidden: User "system:serviceaccount:jhub:hub" cannot {verb} resource')
        if self.collection in self.told.absent:
            refuse(self, 404, "the server could not find the requested resource")

    def _one(self, key: str) -> None:
        there = self.told.objects[self.collection].get(key)
        if there is None:
            refuse(self, 404, f'"{key}" not found')
        self.finish(json.dumps(there))

    async def _watch(self, query: dict[str, str]) -> None:
        since = int(query["resourceVersion"])
        if since < self.told.oldest:
            refuse(self, 410, f"too old resource version: {since} ({self.told.oldest})")
        for version, path, kind, what in self.told.history:
            if version > since and path == self.collection and self.wants(what, kind):
                self.events.put_nowait((kind, what))
        self.told.watching.append(self)
        try:
            await self.flush()
            await self.told.heard()
            ends = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
            while event := await asyncio.wait_for(self.events.get(), ends - asyncio.get_running_loop().time()):
                self.write(json.dumps({"type": event[0], "object": event[1]}) + "\n")
                await self.flush()
        except (StreamClosedError, asyncio.TimeoutError):
            return
        finally:
            self.told.watching.remove(self)


def refuse(handler: RequestHandler, status: int, message: str) -> None:
    """Answer with a Status object, as the API server does."""
    handler.set_status(status)
    handler.finish({"kind": "Status", "status": "Failure", "message": message, "code": status})
    raise Finish


def key_of(made: Mapping[str, Any]) -> str:
    about = made["metadata"]
    return f"{about['namespace']}/{about['name']}" if "namespace" in about else str(about["name"])
