"""``jupyterhub-gpu usage export`` and ``audit``: records and journal as CSV or JSON, a piece at a time."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from hub_extensions.adapters.store.archive import (
    CSV_NAMES,
    JOURNAL_NAMES,
    OUR_NAMES,
    SAMPLE_NAMES,
    Archive,
    JournalFilter,
)
from hub_extensions.core.gpu.devices import WHOLE

NAMES = (*CSV_NAMES, *OUR_NAMES)
Rows = Iterable[Sequence[Sequence[Any]]]


def export(archive: Archive, out: Path, kind: str, *, names: bool) -> str:
    """Write all records; what there is to say.

    Args:
        kind: ``csv`` or ``json``. names: False writes numbers for users and choices, and neither servers nor groups.
    """
    rows: Rows = archive.uses() if names else _numbered(archive.uses())
    with _new_file(out) as stream:
        count = _write_csv(stream, NAMES, rows) if kind == "csv" else _write_json(stream, NAMES, rows)
    if kind == "csv" and str(out) != "-":
        _describe(out, count, archive.pool_sizes())
    return f"{count} uses were written to {out}."


def audit(archive: Archive, out: Path, which: JournalFilter) -> str:
    """Write the journal as CSV; what there is to say."""
    with _new_file(out) as stream:
        count = _write_csv(stream, JOURNAL_NAMES, archive.journal(which))
    return f"{count} entries were written to {out}."


def samples(archive: Archive, out: Path, since: datetime | None, until: datetime | None) -> str:
    """Write what was measured, by use and minute, as CSV; what there is to say."""
    with _new_file(out) as stream:
        count = _write_csv(stream, SAMPLE_NAMES, archive.samples(since, until))
    return f"{count} minutes were written to {out}."


def _numbered(pieces: Rows) -> Rows:
    """Numbers for users, and for what they type themselves; keys and tickets lead to a journal that has names."""
    user, server, groups, choice, ticket, key = (
        NAMES.index(name) for name in ("user", "server", "groups", "choice", "ticket", "key")
    )
    users: dict[str, int] = {}
    choices: dict[str, int] = {"": 0}
    rows_before = 0
    for piece in pieces:
        rows = [list(row) for row in piece]
        for number, row in enumerate(rows, rows_before):
            row[user] = f"u{users.setdefault(row[user], len(users)):04d}"
            row[choice] = f"c{choices.setdefault(row[choice], len(choices)):04d}" if row[choice] else ""
            row[server], row[groups], row[ticket], row[key] = "", "[]", "", f"r{number:07d}"
        rows_before += len(rows)
        yield rows


def _write_csv(stream: IO[str], names: Sequence[str], pieces: Rows) -> int:
    writer, count = csv.writer(stream, lineterminator="\n"), 0
    writer.writerow(names)
    for piece in pieces:
        writer.writerows(piece)
        count += len(piece)
    return count


def _write_json(stream: IO[str], names: Sequence[str], pieces: Rows) -> int:
    """One array, with an object a line."""
    encode, groups = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode, names.index("groups")
    adopted, count = names.index("adopted"), 0
    stream.write("[")
    for piece in pieces:
        lines = []
        for row in piece:
            values = list(row)
            values[groups], values[adopted] = json.loads(values[groups]), bool(values[adopted])
            lines.append(encode(dict(zip(names, values, strict=True))))
        stream.write(("\n" if count == 0 else ",\n") + ",\n".join(lines))
        count += len(piece)
    stream.write("\n]\n")
    return count


def _describe(out: Path, count: int, sizes: Mapping[str, int]) -> None:
    """The ``.json`` that stands beside a trace: what it can be replayed on."""
    about = {
        "name": out.name.removesuffix(".csv"),
        "slices_per_gpu": WHOLE,
        "sessions": count,
        "pools": [{"pool": pool, "gpus": size, "policy": "strict"} for pool, size in sorted(sizes.items())],
    }
    beside = out.with_name(f"{about['name']}.json")
    with _new_file(beside) as stream:
        stream.write(json.dumps(about, indent=1) + "\n")


@contextmanager
def _new_file(out: Path) -> Iterator[IO[str]]:
    """A file that only its owner reads, whole or not at all; ``-`` is the standard output."""
    if str(out) == "-":
        yield sys.stdout
        return
    part = out.with_name(f"{out.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            yield stream
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
