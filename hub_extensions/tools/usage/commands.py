"""Runs the commands ``usage`` and ``audit`` with the options that ``tools/cli/records.py`` has parsed.

It opens the service's database, calls the export or import, and prints messages and errors.
"""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import NoReturn, TypeVar

import click

from hub_extensions.adapters.store import JournalFilter, StoreUnavailable
from hub_extensions.adapters.store.archive import Archive, label_of
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.hub_service.setup.settings import SettingsError
from hub_extensions.tools.store_address import store_address
from hub_extensions.tools.usage.file_export import audit, export, samples
from hub_extensions.tools.usage.file_import import format_of, import_file
from hub_extensions.tools.usage.rows import FIRST_YEAR, LAST_MOMENT, BadFile, How

T = TypeVar("T")


def run_export(state_dir: Path, out: Path, kind: str | None, names: bool) -> None:
    """Run ``usage export``: write all usage records to a file.

    Args:
        state_dir: the GPU service's state folder, in which the address of its database is.
        out: the file; ``-`` for the standard output.
        kind: ``csv`` or ``json``; None to choose by the name of the file.
        names: write the names of users; if False, write numbers instead.
    """
    chosen = kind or ("json" if out.suffix == ".json" else "csv")
    _done(_with_store(state_dir, True, lambda archive: export(archive, out, chosen, names=names)))


def run_samples(state_dir: Path, out: Path, since: str | None, until: str | None) -> None:
    """Run ``usage samples``: write what was measured of each use, minute by minute.

    Args:
        state_dir: the GPU service's state folder, in which the address of its database is.
        out: the file; ``-`` for the standard output.
        since, until: times in ISO form; None for no bound.
    """
    begin, end = _moment("--since", since), _moment("--until", until)
    _done(_with_store(state_dir, True, lambda archive: samples(archive, out, begin, end)))


def run_audit(
    state_dir: Path, out: Path, since: str | None, until: str | None, user: str | None, kinds: tuple[str, ...]
) -> None:
    """Run ``audit``: write the journal (who did what, and why).

    Args:
        state_dir: the GPU service's state folder, in which the address of its database is.
        out: the file; ``-`` for the standard output.
        since, until: times in ISO form; None for no bound.
        user: write only entries about this user; None for all users.
        kinds: write only entries of these kinds; empty for all.
    """
    which = JournalFilter(_moment("--since", since), _moment("--until", until), user, kinds)
    _done(_with_store(state_dir, True, lambda archive: audit(archive, out, which)))


def run_import(
    state_dir: Path,
    file: Path,
    kind: str | None,
    label: str | None,
    pool: str | None,
    begins: str | None,
    slices: int | None,
    processors: int | None,
    zone: str | None,
) -> None:
    """Run ``usage import``: store the sessions in a file as usage records.

    None stands for an option that was not given.

    Args:
        state_dir: the GPU service's state folder, in which the address of its database is.
        file: the file to import.
        kind: format of the file; None to recognise it.
        label: name of the import; None to take it from the file's name.
        pool: the offer in whose line the sessions waited; None to take it from each row.
        begins: the time in ISO form from which the file counts seconds.
        slices: for CSV: how many slices a GPU has.
        processors: for SWF: how many processors stand for one GPU.
        zone: time zone of times without one; None refuses such times.
    """
    how = How(
        str(file),
        label or label_of(file),
        _pool(pool),
        _moment("--start-time", begins),
        slices,
        processors,
        _zone(zone),
    )
    try:
        chosen = kind or format_of(file)
        summary = _with_store(state_dir, False, lambda archive: import_file(archive, file, how, chosen))
    except BadFile as problem:
        _refuse(f"{problem} Nothing was imported.")
    _done("\n".join(summary))


def _with_store(state_dir: Path, reading: bool, work: Callable[[Archive], T]) -> T:
    try:
        with Archive.open(store_address(state_dir), reading=reading) as archive:
            return work(archive)
    except SettingsError as problem:
        _refuse(str(problem))
    except StoreUnavailable as problem:
        _refuse(problem.message, 1)
    except OSError as problem:
        _refuse(f"That could not be written: {problem}.", 1)


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        _refuse(f"{option}: '{text[:40]}' is not a time like 2026-11-20T09:00:00+00:00.")
    if at.tzinfo is None:
        _refuse(f"{option}: {text} is a time without a zone. Write {text}+00:00 for UTC.")
    if not FIRST_YEAR < at.year < LAST_MOMENT.year:
        _refuse(f"{option}: {text} is not a time from {FIRST_YEAR + 1} to {LAST_MOMENT.year - 1}.")
    return at


def _pool(text: str | None) -> OfferId | None:
    try:
        return None if text is None else OfferId(text)
    except OfferIdError as problem:
        _refuse(f"--pool: {problem}")


def _zone(name: str | None) -> tzinfo | None:
    try:
        return None if name is None else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        _refuse(f"--timezone: no time zone is known as '{name}'. One is Europe/Helsinki.")


def _done(text: str) -> None:
    click.echo(text, err=True)  # the records may be on the standard output


def _refuse(text: str, code: int = 2) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(code)
