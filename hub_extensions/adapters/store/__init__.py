"""The service's database, in SQLite or PostgreSQL.

It has tickets (users' places in the line), leases (a server's right to a share of a GPU), facts about running servers,
usage records and samples (how long and how much servers used their GPUs), and the journal of decisions.

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
