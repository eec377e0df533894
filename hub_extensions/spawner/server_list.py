"""A REST handler that returns all active servers of the hub in one answer, with the fields that the GPU service reads.

JupyterHub's own list builds the complete model of every user and server, 200 users per page, and counts all of them
again for each page. This handler answers only clients who may read all servers. It yields to the event loop regularly.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.metrics import prometheus_log_method
from jupyterhub.scopes import Scope, needs_scope
from jupyterhub.utils import isoformat
from tornado import web

from hub_extensions.adapters.bounded_body import BoundedBody

SCOPES = ("list:users", "read:users:name", "read:users:groups", "read:servers", "admin:server_state")
STATE = ("pid", "pod_name")  # keys of a spawner's state in the answer
PART = 250  # servers that are read without yielding to the event loop, which takes some milliseconds


class _ServerRow(NamedTuple):
    """The columns of one server, and of its user, in the hub's database."""

    id: int
    name: str
    started: datetime | None
    last_activity: datetime | None
    user_id: int
    user: str
    admin: bool


class ServerList(BoundedBody, APIHandler):  # type: ignore[misc]  # jupyterhub is untyped
    """Handler of ``GET /api/gpu/servers``: returns ``{"items": …}`` as ``/users?state=active`` does.

    Each item is one active server with its user, so a user with two active servers is in two items.
    """

    route = "/api/gpu/servers"
    _accept_cookie_auth = False

    @needs_scope("list:users")  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        lacking = [scope for scope in SCOPES if self.parsed_scopes.get(scope) is not Scope.ALL]
        if lacking:
            raise web.HTTPError(403, f"This needs {', '.join(lacking)}, of everybody.")
        seen: dict[int, dict[str, _ServerRow]] = {}
        parts: list[str] = []
        last = 0
        while rows := self._rows_after(last):
            last = rows[-1].id
            for row in rows:
                seen.setdefault(row.user_id, {})[row.name] = row
            parts += self._items(rows)
            await asyncio.sleep(0)
        parts += self._items(self._without_address(seen))
        self.finish('{"items": [' + ", ".join(parts) + "]}")

    def _log(self) -> None:
        """Log a successful request for the list of servers at debug level, because there are two a minute.

        JupyterHub does the same for its health check.
        """
        if self.get_status() != 200:
            super()._log()
            return
        self.log.debug("200 GET %s (%s@%s)", self.request.path, self.current_user.name, self.request.remote_ip)
        prometheus_log_method(self)

    def _rows_after(self, last: int) -> list[_ServerRow]:
        """Return the next `PART` servers with an id above `last` that have an address, ordered by id."""
        columns = (orm.Spawner.id, orm.Spawner.name, orm.Spawner.started, orm.Spawner.last_activity)
        query = self.db.query(*columns, orm.User.id, orm.User.name, orm.User.admin).join(orm.Spawner.user)
        query = query.filter(orm.Spawner.server_id.is_not(None), orm.Spawner.id > last)
        return [_ServerRow(*row) for row in query.order_by(orm.Spawner.id).limit(PART)]

    def _without_address(self, seen: dict[int, dict[str, _ServerRow]]) -> list[_ServerRow]:
        """Return those servers of the users in `seen` that are starting or stopping and have no address.

        Args:
            seen: id of a user -> the user's servers that have an address, by name.
        """
        found = []
        for user_id, rows in seen.items():
            its = next(iter(rows.values()))
            for name, spawner in self._spawners_of(user_id).items():
                if name not in rows and spawner.pending:
                    one = spawner.orm_spawner
                    found.append(its._replace(name=name, started=one.started, last_activity=one.last_activity))
        return found

    def _items(self, rows: Sequence[_ServerRow]) -> list[str]:
        """Return one JSON text for each of these servers that is active: pending or ready.

        Only the hub's process knows which servers are active; `rows` from the database may contain others.
        """
        groups = self._groups_of({row.user_id for row in rows})
        items = []
        for row in rows:
            spawner = self._spawners_of(row.user_id).get(row.name)
            if spawner is None or not spawner.active:
                continue
            user = {"name": row.user, "admin": row.admin, "groups": groups.get(row.user_id, [])}
            items.append(json.dumps({**user, "servers": {row.name: _server_model(row, spawner)}}))
        return items

    def _spawners_of(self, user_id: int) -> dict[str, Any]:
        """Return the spawners of a user by server name; empty if the hub's process has not loaded the user."""
        spawners: dict[str, Any] = self.users[user_id].spawners if user_id in self.users else {}
        return spawners

    def _groups_of(self, users: set[int]) -> dict[int, list[str]]:
        member = orm.user_group_map.c
        query = self.db.query(member.user_id, orm.Group.name).join(orm.Group, orm.Group.id == member.group_id)
        groups: dict[int, list[str]] = {}
        for user, group in query.filter(member.user_id.in_(users)).order_by(orm.Group.id):
            groups.setdefault(user, []).append(group)
        return groups


def _server_model(row: _ServerRow, spawner: Any) -> dict[str, Any]:
    """Return the fields of an active server (ready, or with a pending start or stop) that the GPU service reads.

    Args:
        row: the server in the hub's database.
        spawner: the server's spawner, which knows its pending action.
    """
    pending, state = spawner.pending, spawner.get_state()
    return {
        "ready": not pending,
        "pending": pending,
        "stopped": False,
        "started": isoformat(row.started),
        "last_activity": isoformat(row.last_activity),
        "user_options": spawner.user_options,
        "state": {key: state[key] for key in STATE if key in state},
    }
