"""The store: tickets, leases, facts, samples, usage records and the journal, in SQLite or PostgreSQL.

No other package imports SQLAlchemy or alembic.
"""

from __future__ import annotations

from hub_extensions.adapters.store.database_lock import DatabaseLock
from hub_extensions.adapters.store.errors import StoreTooNew, StoreUnavailable
from hub_extensions.adapters.store.records import (
    Changes,
    JournalFilter,
    JournalRow,
    NoticeRow,
    Stored,
    TicketRow,
)
from hub_extensions.adapters.store.store import Store

__all__ = [
    "Changes",
    "DatabaseLock",
    "JournalFilter",
    "JournalRow",
    "NoticeRow",
    "Store",
    "StoreTooNew",
    "StoreUnavailable",
    "Stored",
    "TicketRow",
]
