"""Starts that the hub has accepted and the GPU service has not answered: kept in the hub's own database.

A record stands in the state of its spawner (``orm.Spawner.state``, which every JupyterHub keeps in its database, on one
machine and on Kubernetes) from the moment of acceptance until the service has written the ticket, or has refused. What
a hub leaves behind there, the next one asks for, in the order of acceptance. A file would need a volume that a hub with
PostgreSQL does not have. Not here: sending (``adapters/service/outbox.py``), and waiting (``base.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from weakref import WeakKeyDictionary

from jupyterhub import orm

from hub_extensions.adapters.service.gpu_service import GpuServiceClient
from hub_extensions.core.messages import Ask
from hub_extensions.core.offers.offer_id import OfferId

KEY = "gpu_accepted"
LATELY = timedelta(days=2)
"""What is older is nobody's wish any more; a start and a stop are activity for the hub."""
ServerKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AcceptedStart:
    """What has to be asked for again: the validated choice, and since when it is owed."""

    at: datetime
    offers: tuple[OfferId, ...]
    options: Mapping[str, Any]

    def to_state(self) -> dict[str, Any]:
        """As it stands in a spawner's state."""
        return {"at": self.at.isoformat(), "offers": list(self.offers), "options": dict(self.options)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> AcceptedStart | None:
        """The record in a spawner's state; None: there is none that can be read."""
        try:
            kept = (state or {})[KEY]
            at = datetime.fromisoformat(kept["at"])
            return cls(at, tuple(OfferId(offer) for offer in kept["offers"]), kept["options"])
        except (KeyError, TypeError, ValueError):
            return None


class AcceptedStarts:
    """All of one hub process. Made by `of` when the hub makes its first spawner."""

    def __init__(self, db: Any, service: GpuServiceClient) -> None:
        self._db = db
        self._service = service
        self._records: dict[ServerKey, AcceptedStart] = {}
        self._asked: dict[ServerKey, asyncio.Future[Any]] = {}
        self._done: set[ServerKey] = set()
        self._findable: set[ServerKey] = set()

    @classmethod
    def of(cls, spawner: Any) -> AcceptedStarts | None:
        """Those of this spawner's hub; None: there is no hub around it, or nobody whom it could ask."""
        db = getattr(spawner.user, "db", None)
        if db is None or not spawner.gpu_service_url or spawner.orm_spawner is None or not _loop_runs():
            return None
        if db not in _OF_HUBS:
            _OF_HUBS[db] = cls(db, spawner._gpu_service)
            _OF_HUBS[db]._resume()
        return _OF_HUBS[db]

    def accept(self, spawner: Any, offers: tuple[OfferId, ...], options: Mapping[str, Any]) -> AcceptedStart:
        """Write a start down. The hub commits it before its first answer: it does so as `Spawner.start` returns."""
        key = (spawner.user.name, spawner.name)
        asked = self._asked.pop(key, None)
        if asked is not None:
            self._service.withdraw(asked)  # its user was quicker, and keeps the time
        before = self._records.get(key)
        record = AcceptedStart(before.at if before else datetime.now(timezone.utc), offers, options)
        self._records[key] = record
        self._done.discard(key)
        self._findable.discard(key)  # the hub has made a server of its own
        spawner.orm_spawner.state = spawner.get_state()
        return record

    @property
    def owed(self) -> bool:
        """Somebody's start is owed."""
        return bool(self._records)

    def record_of(self, user: str, server: str) -> AcceptedStart | None:
        """The record of a start that is still owed."""
        return self._records.get((user, server))

    def make_findable(self, spawner: Any) -> None:
        """After a stop, which may be the hub's own end: a hub that starts looks only at spawners that have a server."""
        key = (spawner.user.name, spawner.name)
        if key in self._records and spawner.orm_spawner.server is None:
            spawner.orm_spawner.server = orm.Server()
            self._findable.add(key)
            self._db.commit()

    def settle(self, user: str, server: str, record: AcceptedStart) -> None:
        """The service has answered, or the user has left: it is not owed any more."""
        key = (user, server)
        if self._records.get(key) is not record:
            return  # a newer one
        del self._records[key]
        if not self._done:
            asyncio.get_running_loop().call_soon(self._write_off)  # those of one answer in one commit
        self._done.add(key)

    def _write_off(self) -> None:
        done, self._done = self._done, set[ServerKey]()
        for user, server in done:
            row = self._row(user, server)
            if row is not None and (user, server) in self._findable:
                row.server = None
            if row is not None:
                row.state = {name: value for name, value in (row.state or {}).items() if name != KEY}
        self._findable -= done
        self._db.commit()

    def _row(self, user: str, server: str) -> Any:
        rows = self._db.query(orm.Spawner).join(orm.Spawner.user)
        return rows.filter(orm.User.name == user, orm.Spawner.name == server).first()

    def _resume(self) -> None:
        """Ask for what the hub before this one has left, before anything that this one accepts."""
        lately = (datetime.now(timezone.utc) - LATELY).replace(tzinfo=None)  # as the hub writes it
        for row in self._db.query(orm.Spawner).filter(orm.Spawner.last_activity > lately):
            record = AcceptedStart.from_state(row.state)
            if record is not None and row.user is not None:
                self._records[row.user.name, row.name or ""] = record
        for (user, server), record in sorted(self._records.items(), key=lambda each: each[1].at):
            self._ask(user, server, record)

    def _ask(self, user: str, server: str, record: AcceptedStart) -> None:
        groups = self._db.query(orm.Group.name).join(orm.Group.users).filter(orm.User.name == user)
        ask = Ask(
            user=user,
            server=server,
            offers=record.offers,
            options=record.options,
            groups=tuple(sorted(name for (name,) in groups)),
            accepted=record.at,
            kept=True,
        )
        asked = self._asked[user, server] = self._service.ask(ask, patience=None)
        asked.add_done_callback(lambda _: self._answered(user, server, record))

    def _answered(self, user: str, server: str, record: AcceptedStart) -> None:
        """It has its ticket, and the service starts its server; or it was refused, and its user finds a notice."""
        self._asked.pop((user, server), None)
        self.settle(user, server, record)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_OF_HUBS: WeakKeyDictionary[Any, AcceptedStarts] = WeakKeyDictionary()
