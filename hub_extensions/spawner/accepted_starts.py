"""Starts that the hub has accepted and the GPU service has not answered yet, kept in the hub's database.

Without this record, a restart of the hub would lose such a start. It is stored in the state of its spawner
(``orm.Spawner.state``) until the service has written the start's ticket (the user's place in the line) or refused it.
After a restart, the hub sends the recorded starts to the service again, in the order in which it accepted them. A file
would need a volume, which a hub with PostgreSQL does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from weakref import WeakKeyDictionary

from jupyterhub import orm
from jupyterhub.utils import maybe_future

from hub_extensions.adapters.service.gpu_service import GpuServiceClient
from hub_extensions.core.messages import Ask
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.spawner.user_options import UserOptionsMixin

KEY = "gpu_accepted"
LATELY = timedelta(days=2)
"""After a restart, records of spawners whose last activity is longer ago are ignored. Starts and stops are activity."""
ServerKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AcceptedStart:
    """A start that the hub has accepted and the GPU service has not answered yet, as stored in the spawner's state.

    After a restart, the hub repeats its request to the service from this record.

    Attributes:
        at: when the hub accepted the start; the service orders the line by this time.
        options: the user's validated choice.
    """

    at: datetime
    options: UserOptions

    def to_state(self) -> dict[str, Any]:
        """Return the record of an accepted start as it is stored in the state of its spawner."""
        options = self.options.to_dict()
        # `offers` is for an earlier version of the hub, should the administrator go back to it
        return {"at": self.at.isoformat(), "offers": list(self.options.offers), "options": options}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> AcceptedStart | None:
        """Return the record of an accepted start that a spawner's state contains; None without a readable record."""
        try:
            kept = (state or {})[KEY]
            at = datetime.fromisoformat(kept["at"])
            return cls(at, UserOptions.from_dict(kept["options"], also=None))
        except (KeyError, TypeError, ValueError):
            return None


class AcceptedStarts:
    """The records of accepted starts of all servers of one hub.

    Get it with `of`, which creates it when the first spawner asks.

    Args:
        db: the session of the hub's database.
        service: the client of the GPU service.
    """

    def __init__(self, db: Any, service: GpuServiceClient) -> None:
        self._db = db
        self._service = service
        self._records: dict[ServerKey, AcceptedStart] = {}
        self._asked: dict[ServerKey, asyncio.Future[Any]] = {}
        self._done: set[ServerKey] = set()
        self._findable: set[ServerKey] = set()

    @classmethod
    def of(cls, spawner: Any) -> AcceptedStarts | None:
        """Return the records of this spawner's hub.

        None if no hub runs (as in a script) or if the hub runs without the GPU service.
        """
        db = getattr(spawner.user, "db", None)
        if db is None or not spawner.gpu_service_url or spawner.orm_spawner is None or not _loop_runs():
            return None
        if db not in _OF_HUBS:
            _OF_HUBS[db] = cls(db, spawner._gpu_service)
            _OF_HUBS[db]._resume()
        return _OF_HUBS[db]

    def accept(self, spawner: Any, options: UserOptions) -> AcceptedStart:
        """Record a start that the hub has accepted, and return the record.

        The spawner calls this in `run_auth_state_hook` or in `start`. The hub commits the record when that method
        returns, before it answers the user's request. If the GPU service has not answered an earlier start of the same
        server yet, the new record takes over the earlier record's time `at`, so that the user keeps the place in line.

        Args:
            spawner: the server's spawner.
            options: the user's validated choice.
        """
        key = (spawner.user.name, spawner.name)
        asked = self._asked.pop(key, None)
        if asked is not None:
            self._service.withdraw(asked)  # the user started the server again first, and keeps the earlier time
        before = self._records.get(key)
        record = AcceptedStart(before.at if before else datetime.now(timezone.utc), options)
        self._records[key] = record
        self._done.discard(key)
        self._findable.discard(key)  # the hub has made a server of its own
        spawner.orm_spawner.state = spawner.get_state()
        return record

    @property
    def owed(self) -> bool:
        """Whether the GPU service still owes an answer to any recorded start."""
        return bool(self._records)

    def record_of(self, user: str, server: str) -> AcceptedStart | None:
        """Return the record of this server's start. None if the GPU service has answered it or nothing was started."""
        return self._records.get((user, server))

    def keep_findable(self, spawner: Any) -> None:
        """Add a server row to the database for a stopped spawner whose start is recorded.

        The stop may be the hub's own shutdown. A starting hub loads only spawners that have a server row, so without
        one it would not find the start again.
        """
        key = (spawner.user.name, spawner.name)
        if key in self._records and spawner.orm_spawner.server is None:
            spawner.orm_spawner.server = orm.Server()
            self._findable.add(key)
            self._db.commit()

    def settle(self, user: str, server: str, record: AcceptedStart) -> None:
        """Remove a record, because the GPU service has answered the start or the user has left the line.

        If a newer start of the same server has replaced this record, nothing is removed.
        """
        key = (user, server)
        if self._records.get(key) is not record:
            return  # replaced by a newer start
        del self._records[key]
        if not self._done:
            asyncio.get_running_loop().call_soon(self._write_off)  # one commit for all starts of one answer
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
        """Send the starts that were unanswered at the end of the previous hub process to the GPU service, oldest first.

        This happens before this hub accepts a start, so the earlier starts keep their places in line.
        """
        lately = (datetime.now(timezone.utc) - LATELY).replace(tzinfo=None)  # the hub stores naive UTC
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
            offers=record.options.offers,
            options=record.options.to_dict(),
            groups=tuple(sorted(name for (name,) in groups)),
            accepted=record.at,
            kept=True,
        )
        asked = self._asked[user, server] = self._service.ask(ask, patience=None)
        asked.add_done_callback(lambda _: self._answered(user, server, record))

    def _answered(self, user: str, server: str, record: AcceptedStart) -> None:
        """Remove the record of a resumed start, because the GPU service has answered it.

        The service has created a ticket (place in line) for the start, or has refused it and keeps a notice for the
        user.
        """
        self._asked.pop((user, server), None)
        self.settle(user, server, record)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_OF_HUBS: WeakKeyDictionary[Any, AcceptedStarts] = WeakKeyDictionary()


class StartRecovery(UserOptionsMixin):
    """Mixin of our spawners that keeps a start over a restart of the hub, until the GPU service has answered it."""

    user: Any
    name: str
    _gpu_starts: AcceptedStarts | None = None

    def get_state(self) -> dict[str, Any]:
        """Return the state of the spawner behind this mixin, with the record of a start that the service has not
        answered yet.

        The GPU service answers a start by creating a ticket (place in line) for it, or by refusing it.
        """
        state: dict[str, Any] = super().get_state()  # type: ignore[misc]
        record = self._gpu_record
        return state if record is None else {**state, KEY: record.to_state()}

    @property
    def ready(self) -> bool:
        """Whether the server is ready: False as long as the GPU service has not answered its start.

        Until then, the server's row in the database only serves to find the start again after a restart of the hub.
        """
        return bool(super().ready) and self._gpu_record is None  # type: ignore[misc]

    @property
    def _gpu_record(self) -> AcceptedStart | None:
        """The start that the hub has accepted from the user and that the GPU service has not answered yet.

        None if the service has admitted or refused this start, or if the server is not starting. Must be fast, because
        the hub reads `ready` of every spawner when it lists servers.
        """
        if self._gpu_starts is None:
            self._gpu_starts = AcceptedStarts.of(self)
        if self._gpu_starts is None or not self._gpu_starts.owed:
            return None
        return self._gpu_starts.record_of(self.user.name, self.name)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the state of the spawner behind this mixin.

        The first call in a hub process also resumes the starts that the GPU service had not answered when the previous
        hub process ended.
        """
        super().load_state(state)  # type: ignore[misc]
        AcceptedStarts.of(self)

    async def run_post_stop_hook(self) -> None:
        """Make sure that an unanswered start can be resumed, then run the hook of the spawner behind this mixin.

        A start is unanswered as long as the GPU service has neither created a ticket (place in line) for it nor refused
        it. The start's record (`AcceptedStart`) has to be found again after a restart, because the stop may be the
        hub's own shutdown.
        """
        journal = AcceptedStarts.of(self)
        if journal is not None:
            journal.keep_findable(self)
        await maybe_future(super().run_post_stop_hook())  # type: ignore[misc]

    def _gpu_accept(self, options: UserOptions) -> AcceptedStart | None:
        journal = AcceptedStarts.of(self)
        return journal.accept(self, options) if journal is not None else None

    def _gpu_settle_accepted(self, record: AcceptedStart | None) -> None:
        """Remove the record of a start that does not have to be resumed any more.

        That is so if the GPU service knows the start, the start has ended, or its user has left the line.

        Args:
            record: the record of the start; None if the hub keeps none, and nothing is done.
        """
        journal = AcceptedStarts.of(self)
        if journal is not None and record is not None:
            journal.settle(self.user.name, self.name, record)
