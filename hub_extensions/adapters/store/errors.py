"""Errors of the store, as sentences for administrators."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

WAY_OUT = "Stop the hub, and put a copy back: jupyterhub-gpu store restore --state-dir DIR."

_SQLITE = (
    ("full", "The disk is full: {where} cannot be written. Free some space."),
    ("locked", "Another process holds {where} (database_url) locked."),
    ("busy", "Another process holds {where} (database_url) locked."),
    ("readonly", "{Where} (database_url) cannot be written to by this account."),
    ("not a database", "{Where} is not an SQLite database. Name another file in database_url, or move it away."),
    ("malformed", f"{{Where}} (database_url) is damaged. {WAY_OUT}"),
    ("unable to open", "{Where} (database_url) cannot be opened."),
    ("disk i/o", "The disk of {where} (database_url) reports an error."),
)
_POSTGRESQL = (
    ("53100", "The disk of {where} is full."),
    ("53", "{Where} has no connection or memory left."),
    ("57", "{Where} is shutting down or starting."),
    ("28", "{Where} refuses the name or password in database_url."),
    ("3D", "{Where} does not exist. Create it, or name another in database_url."),
    ("42501", "The account in database_url may not use the tables of {where}."),
    ("25006", "{Where} is read-only."),
    ("40", "{Where} broke the transaction off. It can be tried again."),
    ("55P03", "Another process holds {where} locked."),
)


class StoreUnavailable(Exception):
    """The store cannot be read or written now. Nothing was written in part.

    Attributes:
        message: what is wrong and what to do, without passwords.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class StoreTooNew(StoreUnavailable):
    """A newer version of this product wrote the database.

    Attributes:
        found: schema number of the database, for example ``0007``.
        ours: newest schema number of this version, for example ``0002``.
    """

    def __init__(self, found: str, ours: str) -> None:
        super().__init__(
            f"The database of database_url has schema {found}, and this version knows schemas up to {ours}. "
            f"Start the newer version again, or name another database in database_url."
        )
        self.found = found
        self.ours = ours


def as_unavailable(error: Exception, where: str) -> StoreUnavailable | None:
    """Convert an error of the database to a sentence for administrators.

    `None` for a programming error, which must not be hidden.

    Args:
        error: the error.
        where: text that names the database, for the sentence, without a password.
    """
    if isinstance(error, StoreUnavailable):
        return error
    if isinstance(error, PoolTimeout):
        return _unavailable("{Where} (database_url) does not answer.", where)
    if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError):
        return _of_driver(error, where)
    return None


def _of_driver(error: DBAPIError, where: str) -> StoreUnavailable | None:
    text = str(error.orig).lower()
    state = getattr(error.orig, "sqlstate", None)
    if type(error.orig).__module__.startswith("sqlite3"):
        return next((_unavailable(message, where) for part, message in _SQLITE if part in text), None)
    if isinstance(state, str):
        return next((_unavailable(message, where) for start, message in _POSTGRESQL if state.startswith(start)), None)
    if "password" in text and "failed" in text:
        return _unavailable("{Where} refuses the name or password in database_url.", where)
    if "does not exist" in text:
        return _unavailable("{Where} does not exist, or its account does not. Look at database_url.", where)
    return _unavailable("{Where} (database_url) does not answer.", where)


def _unavailable(message: str, where: str) -> StoreUnavailable:
    return StoreUnavailable(message.format(where=where, Where=where[:1].upper() + where[1:]))
