"""`Store`: one writer thread, one synchronous engine, one transaction for each set of changes.

Not here: tables (``schema.py`` and the files of each family), opening and migrating (``opening.py``, ``migrating.py``).
"""

from __future__ import annotations

from datetime import datetime

from hub_extensions.adapters.store.records import Changes, JournalRow, NoticeRow, Stored, UsageRecord


class Store:
    """What the service remembers. Every method may raise `StoreUnavailable`; the next call tries again by itself."""

    @classmethod
    def open(cls, url: str, *, echo: bool = False) -> Store:
        """Open and migrate the database of `url` (blocking; at start, in a thread).

        `url` is ``sqlite:////absolute/path``, ``sqlite://`` (in memory, gone at the end) or ``postgresql://…``.

        Raises:
            StoreTooNew: a newer version wrote it.
            StoreUnavailable: it cannot be opened, read or written.
        """
        raise StoreUnavailable(url)

    async def load(self) -> Stored:
        """Everything the service goes on with after a restart."""

    async def commit(self, changes: Changes) -> None:
        """Write `changes` in one transaction; when this returns they are on disk, when it raises nothing is written."""

    async def notices(self, user: str, since: datetime) -> tuple[NoticeRow, ...]:
        """What `user` was told at `since` or later, the newest first."""

    async def last_choice(self, user: str) -> tuple[str, ...]:
        """The offer ids of the newest ticket of `user`, in their order of preference; empty without one."""

    async def usage(self, user: str | None = None, limit: int = 1000) -> tuple[UsageRecord, ...]:
        """Usage records of `user` (None: everybody's), the last ended first."""

    async def journal(self, limit: int = 200) -> tuple[JournalRow, ...]:
        """The last journal rows, the newest first."""

    async def prune(self, now: datetime) -> None:
        """Remove what is too old: samples 30 days, notices 30 days; usage, ended tickets and journal 12 months."""

    async def forget_user(self, user: str) -> None:
        """A user was deleted: usage records keep no name; ended tickets, facts, notices and journal rows are removed."""

    def close(self) -> None:
        """Finish what was asked and close the database. Can be called twice."""

    @property
    def state(self) -> str:
        """For ``health``: ``ok``, or the sentence of what is wrong since the last call."""
