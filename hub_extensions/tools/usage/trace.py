"""Reads traces: CSV files of sessions with the columns ``submit,duration,num_gpu,slices,user,limit``.

``usage export`` writes such files with further columns, which are read too.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from hub_extensions.adapters.store.archive import CSV_NAMES, OUR_NAMES
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.messages.usage import NONE_WOULD_DO
from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.usage import UseEnd
from hub_extensions.core.usage.course import CHOICE_LENGTH
from hub_extensions.core.usage.right_size import ADVICE
from hub_extensions.tools.usage.rows import (
    MOST_BYTES,
    MOST_DEVICES,
    BadFile,
    How,
    ImportedSession,
    ImportRow,
    Notes,
    column_at,
    end_after,
    gpus,
    located,
)

_MOMENTS = ("asked", "admitted", "ready", "first_used", "last_used", "ended")
_NUMBERS = (
    "waited_seconds", "ran_seconds", "outage_seconds", "mean_use_percent", "highest_use_percent", "use_measured",
    "memory_measured",
)  # fmt: skip
_COUNTS = {"peak_memory_bytes": MOST_BYTES, "keeps": MOST_DEVICES, "warnings": MOST_DEVICES}
CACHE_KIB = 4096  # memory of the temporary database of `Repeats`
_ENDS = {end.value for end in UseEnd}


def sessions(lines: Iterable[tuple[int, str]], how: How, notes: Notes) -> Iterator[ImportedSession]:
    """Yield the sessions of a trace.

    Args:
        lines: number and text of each line.
        how: the options for reading the file.
        notes: counts the unusual rows.

    Raises:
        BadFile: a column is missing or unknown, or a value is impossible.
    """
    names: list[str] = []
    with counted_repeats() as repeats:
        for number, line in located(lines, lambda begin: _last_column(names, begin)):
            fields = _fields(how, number, line, names)
            if not names:
                names.extend(_header(how, number, fields))
                continue
            if not line.strip():
                continue
            if len(fields) != len(names):
                text = f"{len(fields)} fields, and the header names {len(names)}."
                raise BadFile(how.file, number, column_at(names, len(fields)), text)
            row = ImportRow(how, number, dict(zip(names, fields, strict=True)))
            session = _session(row, line, repeats)
            notes.seen(session.record)
            yield session
    if not names:
        raise BadFile(how.file, 0, "", "the file is empty.")


def sizes(text: str, how: How, beside: str) -> How:
    """Return the options, completed with the slices per GPU from the description beside a trace.

    A number that the options already have is kept.

    Args:
        text: the description, in JSON.
        how: the options.
        beside: path of the description, for errors.

    Raises:
        BadFile: the description is malformed.
    """
    try:
        about: Any = json.loads(text)
        slices = int(about["slices_per_gpu"])
        pools = [int(pool["gpus"]) for pool in about.get("pools", ())]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise BadFile(beside, 0, "slices_per_gpu", "a trace's description has a whole number there.") from None
    if slices < 1:
        raise BadFile(beside, 0, "slices_per_gpu", f"{slices}: at least 1 is needed.")
    if any(count < 1 for count in pools):
        raise BadFile(beside, 0, "pools", "a pool without GPUs: at least 1 is needed.")
    return how if how.slices_per_gpu is not None else replace(how, slices_per_gpu=slices)


def _last_column(names: Sequence[str], begin: str) -> str:
    """Return the name of the column at which an unreadable line breaks off.

    Args:
        names: names of the columns.
        begin: the readable part of the line.
    """
    return column_at(names, len(next(csv.reader([begin]), [""])) - 1)


def _fields(how: How, number: int, line: str, names: Sequence[str]) -> list[str]:
    try:
        (fields,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError):
        if not line:
            return []
        text = "a quotation mark is open at the line's end: no name has a line break."
        raise BadFile(how.file, number, _last_column(names, line), text) from None
    return fields


def _header(how: How, number: int, names: list[str]) -> list[str]:
    known = (*CSV_NAMES, *OUR_NAMES)
    missing = [name for name in CSV_NAMES if name not in names]
    unknown = [name for name in names if name not in known]
    if missing:
        near = get_close_matches(missing[0], unknown, 1, 0.0)
        instead = f" Is it '{near[0][:40]}'?" if near else ""
        raise BadFile(how.file, number, missing[0], f"the column is missing.{instead} Needed: {', '.join(CSV_NAMES)}.")
    if unknown:
        near = get_close_matches(unknown[0], known, 1, 0.5)
        instead = f" Is it '{near[0]}'?" if near else ""
        raise BadFile(how.file, number, unknown[0][:40], f"no column is known by that name.{instead}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(how.file, number, twice, "the column is there twice.")
    return names


def _session(row: ImportRow, line: str, repeats: Repeats) -> ImportedSession:
    pool = _pool(row)
    count = gpus(row, "num_gpu", pool)
    held, submit = row.needed("duration"), row.needed("submit")
    times: dict[str, Any] = {name: row.time(name) for name in _MOMENTS}
    row.in_order(**{name: times[name] for name in ("asked", "admitted", "ready", "ended")})
    ended = times.pop("ended")
    if ended is None:
        times["asked"] = _begins(row) + timedelta(seconds=submit)
        ended = end_after(times["asked"], held)
    key = row.text("key")
    known = UsageRecord(
        key=f"csv/{row.how.label}/{key or _content_key(line, repeats)}",
        user=row.text("user"),
        server=row.text("server"),
        offer=_offer(row, pool),
        pool=str(pool),
        share=row.share("slices", row.needed("slices"), _slices(row)) if count else 0,
        ended=ended,
        end=_end(row),
        devices=count,
        groups=_groups(row),
        choice=row.name("choice", row.values.get("choice", ""), longest=CHOICE_LENGTH),
        lifetime_seconds=row.number("limit"),
        held_seconds=held,
        adopted=row.values.get("adopted") == "1",
        source="csv",
    )
    return ImportedSession(row.line, replace(known, **times, **_measured(row), **_named(row)), key)


def _measured(row: ImportRow) -> dict[str, Any]:
    counts = {name: row.maybe_count(name, most=most) for name, most in _COUNTS.items()}
    return {**counts, **{name: row.number(name) for name in _NUMBERS}}


def _named(row: ImportRow) -> dict[str, Any]:
    texts = {name: row.text(name) for name in ("ticket", "device_class", "node", "device", "advice")}
    if texts["advice"] not in ("", *ADVICE):
        raise row.bad("advice", f"'{texts['advice'][:40]}' is none of {', '.join(ADVICE)}.")
    return {**texts, "smaller_would_do": _smaller(row)}


def _smaller(row: ImportRow) -> str | None:
    """Return the column ``smaller_would_do``: an offer's id or ``none``; `None` if it is empty or not in the file."""
    text = row.text("smaller_would_do")
    try:
        return text if text == NONE_WOULD_DO else OfferId(text) if text else None
    except OfferIdError as problem:
        raise row.bad("smaller_would_do", f"{problem}") from None


def _pool(row: ImportRow) -> OfferId:
    """Return the offer in whose line a session waited.

    It is the offer in the options, which is for all sessions of the file; without it, the offer in the column ``pool``.
    A session without a GPU always has the CPU-only offer.
    """
    return CPU if row.values.get("pool") == CPU else row.pool("pool")


def _offer(row: ImportRow, pool: OfferId) -> OfferId:
    return pool if row.how.pool is not None or not row.values.get("offer") else row.pool("offer")


def _begins(row: ImportRow) -> datetime:
    if row.how.begins is None:
        text = (
            "seconds from a beginning that the file does not say. Say it with --start-time 2026-01-01T00:00:00+00:00."
        )
        raise row.bad("submit", text)
    return row.how.begins


def _slices(row: ImportRow) -> int:
    if row.how.slices_per_gpu is not None:
        return row.how.slices_per_gpu
    if "key" in row.values:
        return WHOLE  # an export of ours
    raise row.bad("slices", "of how many a GPU has? Say it with --slices-per-gpu 7, or in the .json beside the file.")


class Repeats:
    """Counts equal rows of a file, so that each gets a key of its own. Create it with `counted_repeats`.

    The rows are kept in a temporary SQLite file, so that memory does not grow with the file.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def number(self, row: bytes) -> int:
        """Return how often this row has occurred so far: 1 for the first time, 2 for the second."""
        found = self._database.execute("SELECT times FROM seen WHERE row = ?", (row,)).fetchone()
        times: int = 1 if found is None else found[0] + 1
        self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (row, times))
        return times


@contextmanager
def counted_repeats() -> Iterator[Repeats]:
    """Provide a counter for one file while the block runs. Raises OSError if the disk for temporary files is full."""
    database = sqlite3.connect("", isolation_level=None)  # "" makes a temporary database of its own, on disk
    try:
        database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("CREATE TABLE seen (row BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID")
        database.execute("BEGIN")
        yield Repeats(database)
    except sqlite3.OperationalError as problem:
        raise OSError(f"temporary files: {problem}") from problem
    finally:
        database.close()


def _content_key(line: str, repeats: Repeats) -> str:
    """Return a key for a row that has none: a hash of its content, and a number that distinguishes equal rows."""
    digest = hashlib.sha256(line.encode()).digest()[:12]
    return f"{digest.hex()}-{repeats.number(digest)}"


def _end(row: ImportRow) -> str:
    end = row.text("end") or UseEnd.UNKNOWN.value
    if end not in _ENDS:
        raise row.bad("end", f"'{end}' is none of {', '.join(sorted(_ENDS))}.")
    return end


def _groups(row: ImportRow) -> tuple[str, ...]:
    text = row.values.get("groups", "")
    if not text:
        return ()
    try:
        groups = json.loads(text)
    except (ValueError, RecursionError):
        groups = None
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise row.bad("groups", "is not a list of names in JSON.")
    return tuple(row.name("groups", group) for group in groups)
