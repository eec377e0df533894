"""``jupyterhub-gpu store``: checks, copies and restores the GPU service's database (the store) in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hub_extensions.adapters.store import StoreUnavailable
from hub_extensions.adapters.store.copies import copies, copy_to, damage, put_back, refuse_damaged, sqlite_file
from hub_extensions.adapters.store.database import parse_url, where
from hub_extensions.hub_service.process import StoreLock
from hub_extensions.hub_service.setup.settings import SettingsError
from hub_extensions.hub_service.setup.state_dir import LOCK_FILE
from hub_extensions.tools.store_address import store_address


class StoreRefused(Exception):
    """The command was refused. The text has the reason and the remedy; `code` is the exit status."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The SQLite file of a service's database.

    Attributes:
        file: the SQLite file.
        folder: the GPU service's state folder, in which the copies are.
    """

    file: Path
    folder: Path

    @classmethod
    def of(cls, state_dir: Path) -> StoreFile:
        """Return the database file that the GPU service's settings in this state folder name.

        Raises:
            StoreRefused: the settings are missing, or the database is not a file.
        """
        try:
            url = store_address(state_dir)
            file = sqlite_file(url)
            if file is None:
                text = f"The store is {where(parse_url(url))}. Its own tools copy it, check it and put"
                raise StoreRefused(f"{text} it back: pg_dump, pg_amcheck, pg_restore.", 2)
        except (SettingsError, StoreUnavailable) as problem:
            raise StoreRefused(str(problem), 2) from None
        return cls(file, state_dir)

    def check(self) -> tuple[tuple[str, ...], bool]:
        """Check the database and its copies for damage.

        Returns:
            One line about the database and one about each of its copies; and whether the database itself is undamaged.
        """
        lines, whole = [self._line(self.file)], self._state(self.file) == "whole"
        lines += [self._line(copy) for copy in copies(self.file, self.folder)]
        return tuple(lines), whole

    def backup(self, target: Path | None) -> str:
        """Copy the database, also while it is in use, and return a message.

        Args:
            target: the new file; None for a name with the current time in the state folder.

        Raises:
            StoreRefused: the database is missing or damaged, or cannot be copied.
        """
        now = datetime.now(timezone.utc)
        target = target or self.folder / f"{self.file.stem}.backup-{now:%Y-%m-%d-%H%M%S}.sqlite"
        with self._as_refusals():
            self._there()
            refuse_damaged(self.file)
            if target.exists():
                raise StoreRefused(f"{target} exists already. Name another file.", 2)
            copy_to(self.file, target)
        return f"{self.file} was copied to {target}."

    def restore(self, copy: Path | None) -> str:
        """Replace the database by a copy, keep the replaced file beside it, and return a message.

        Args:
            copy: the copy; None for the newest undamaged one.

        Raises:
            StoreRefused: the GPU service runs, no copy is undamaged, or the copy cannot be written there.
        """
        lock = StoreLock(self.folder / LOCK_FILE)
        with self._as_refusals():
            if not lock.take():
                raise StoreRefused(f"The GPU service runs (process {lock.holder()}). Stop the hub first.")
            try:
                copy = copy or self._newest_whole()
                aside = put_back(copy, self.file, datetime.now(timezone.utc))
            finally:
                lock.free()
        kept = f" What was there is {aside} now." if aside is not None else ""
        return f"{copy} was put back as {self.file}.{kept} Start the hub."

    def _newest_whole(self) -> Path:
        found = next((copy for copy in copies(self.file, self.folder) if self._state(copy) == "whole"), None)
        if found is None:
            raise StoreRefused(
                f"There is no whole copy of {self.file}. Name one with --from, or move the file away: the hub then "
                "begins with an empty store."
            )
        return found

    def _there(self) -> None:
        if not self.file.exists():
            raise StoreRefused(
                f"There is no file {self.file}: the service has not been started yet, or it was removed."
            )

    def _line(self, file: Path) -> str:
        return f"{file}: {self._state(file)}"

    def _state(self, file: Path) -> str:
        if not file.exists():
            return "not there"
        try:
            found = damage(file)
        except sqlite3.OperationalError as error:
            return f"cannot be read now: {error}"
        return f"damaged ({found})" if found else "whole"

    @contextmanager
    def _as_refusals(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable as problem:
            raise StoreRefused(problem.message) from None
        except (sqlite3.Error, OSError) as problem:
            raise StoreRefused(f"That could not be done: {problem}.") from None
