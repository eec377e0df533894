"""Exports usage records, measurements and the journal as files, for the commands ``usage`` and ``audit``.

A usage record is one server's time with a GPU; the journal has who did what and why. Rows are read and written in
pieces, because the history may be larger than memory.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from hub_extensions.adapters.store import JournalFilter
from hub_extensions.adapters.store.archive import (
    AT_ONCE,
    CSV_NAMES,
    JOURNAL_NAMES,
    OUR_NAMES,
    SAMPLE_NAMES,
    Archive,
)
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.tools.usage.pool_sizes import OF_A_USE, PoolSizes

NAMES = (*CSV_NAMES, *OUR_NAMES)
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_DESCRIPTION = frozenset({"name", "slices_per_gpu", "sessions", "pools"})
_LONGEST_DESCRIPTION = 1 << 20
Rows = Iterable[Sequence[Sequence[Any]]]


def export(archive: Archive, out: Path, kind: str, *, names: bool) -> str:
    """Write all usage records; return a message for the administrator.

    Args:
        archive: the GPU service's database.
        out: the file; ``-`` for the standard output.
        kind: ``csv`` or ``json``.
        names: if False, replace users and choices (the image or profile that a user chose) by numbers, and leave out
            servers and groups.

    Raises:
        FileExistsError: records would overwrite a description, or a description would overwrite another file.
    """
    described = kind == "csv" and str(out) != "-"
    _spare_others(out, described=described)
    pools = PoolSizes(archive.pool_sizes()) if described else None
    rows: Rows = archive.uses()
    if pools is not None:
        rows = _seen_by(pools, rows)
    if not names:
        rows = _numbered(rows)
    with _new_file(out) as stream:
        count = _write_csv(stream, NAMES, rows) if kind == "csv" else _write_json(stream, NAMES, rows)
    if pools is not None:
        _describe(out, count, pools.sizes())
    return f"{count} uses were written to {out}."


def audit(archive: Archive, out: Path, which: JournalFilter) -> str:
    """Write entries of the journal as CSV; return a message for the administrator.

    Args:
        out: the file; ``-`` for the standard output.
        which: selects the entries.
    """
    with _new_file(out) as stream:
        count = _write_csv(stream, JOURNAL_NAMES, archive.journal(which))
    return f"{count} entries were written to {out}."


def samples(archive: Archive, out: Path, since: datetime | None, until: datetime | None) -> str:
    """Write what was measured of each GPU use, minute by minute, as CSV; return a message for the administrator.

    Args:
        out: the file; ``-`` for the standard output.
        since, until: write only minutes in this time; None for no bound.
    """
    with _new_file(out) as stream:
        count = _write_csv(stream, SAMPLE_NAMES, archive.samples(since, until))
    return f"{count} minutes were written to {out}."


def _seen_by(pools: PoolSizes, pieces: Rows) -> Rows:
    """Yield the rows unchanged, and let `pools` count how many devices each pool (devices of one kind) has in them."""
    use = itemgetter(*map(NAMES.index, OF_A_USE))
    for rows in pieces:
        pools.add(map(use, rows))
        yield rows


def _numbered(pieces: Rows) -> Rows:
    """Yield the rows with numbers instead of users and of the choices that users typed, and without servers and groups.

    The journal has the keys and ticket ids of records (a ticket is a place in line) together with users' names. To hide
    the names, keys are replaced by numbers too, and ticket ids are left out.
    """
    users, choices, keys = _Numbers("u{:04d}"), _Numbers("c{:04d}"), map("r{:07d}".format, itertools.count())
    choices[""] = ""
    user, choice, key, server, groups, ticket = map(
        NAMES.index, ("user", "choice", "key", "server", "groups", "ticket")
    )
    for rows in pieces:
        numbered = [list(row) for row in rows]
        for row, row_key in zip(numbered, keys):  # noqa: B905, keys have no end
            row[user], row[choice], row[key] = users[row[user]], choices[row[choice]], row_key
            row[server], row[groups], row[ticket] = "", "[]", ""
        yield numbered


class _Numbers(dict[str, str]):
    """A dict from a text to the number that replaces it. A text gets its number when it is first looked up."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern

    def __missing__(self, text: str) -> str:
        self[text] = number = self._pattern.format(len(self))
        return number


def _write_csv(stream: IO[str], names: Sequence[str], pieces: Rows) -> int:
    writer, count = csv.writer(stream, lineterminator="\n"), 0
    writer.writerow(names)
    for piece in pieces:
        writer.writerows(piece)
        count += len(piece)
    return count


def _write_json(stream: IO[str], names: Sequence[str], pieces: Rows) -> int:
    """Write the rows as a JSON array with one object per line. Return the number of rows.

    Args:
        names: names of the columns.
        pieces: the rows, in several sequences.
    """
    groups_of, count, between = lru_cache(AT_ONCE)(json.loads), 0, "\n"
    stream.write("[")
    for rows in pieces:
        columns: dict[str, Iterable[Any]] = dict(zip(names, zip(*rows, strict=True), strict=True))
        columns["groups"], columns["adopted"] = map(groups_of, columns["groups"]), map(bool, columns["adopted"])
        for row in zip(*columns.values(), strict=True):
            stream.write(between + _OBJECT.dump_json(dict(zip(names, row, strict=True))).decode())
            between = ",\n"
        count += len(rows)
    stream.write("\n]\n")
    return count


def _spare_others(out: Path, *, described: bool) -> None:
    """Refuse an export that would overwrite a file which is not an earlier export.

    Args:
        out: the file of the export.
        described: a description (`_describe`) will be written beside it.

    Raises:
        FileExistsError: the export would overwrite such a file.
    """
    beside, instead = _beside(out), "choose another name with --output, or move it away"
    if str(out) != "-" and _is_description(out):
        raise FileExistsError(f"{out} is the description of an export as CSV; {instead}")
    if described and beside.exists() and not _is_description(beside):
        raise FileExistsError(f"{beside} is where the description of {out} goes, and is another file; {instead}")


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name.removesuffix('.csv')}.json")


def _is_description(file: Path) -> bool:
    """Return whether a file is a description that `_describe` wrote.

    It is recognised as a JSON object with certain keys; exported records are an array.
    """
    if not file.is_file() or file.stat().st_size > _LONGEST_DESCRIPTION:
        return False
    try:
        about = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(about, dict) and about.keys() >= _DESCRIPTION


def _describe(out: Path, count: int, sizes: Mapping[str, int]) -> None:
    """Write the description beside a CSV export: a JSON file with the pools, which a replay of the export needs.

    Args:
        out: the file of the export.
        count: number of exported records.
        sizes: pool -> number of devices.
    """
    beside = _beside(out)
    about = {
        "name": beside.stem,
        "slices_per_gpu": WHOLE,
        "sessions": count,
        "pools": [{"pool": pool, "gpus": size, "policy": "strict"} for pool, size in sorted(sizes.items())],
    }
    with _new_file(beside) as stream:
        stream.write(json.dumps(about, indent=1) + "\n")


@contextmanager
def _new_file(out: Path) -> Iterator[IO[str]]:
    """Open a file for writing that only its owner may read, or the standard output if `out` is ``-``.

    Its folder is created. The file gets its name only when it is complete, so a failed export leaves none.
    """
    if str(out) == "-":
        yield sys.stdout
        return
    out.parent.mkdir(mode=0o700, exist_ok=True)
    part = out.with_name(f"{out.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            yield stream
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
