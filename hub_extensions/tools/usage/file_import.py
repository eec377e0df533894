"""``jupyterhub-gpu usage import``: stores the sessions (jobs or servers with GPUs) in a file as usage records.

All sessions of a file are stored or none. Importing the same file again has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from hub_extensions.adapters.store.archive import Archive, Import
from hub_extensions.tools.usage import sacct, swf, trace
from hub_extensions.tools.usage.lines import digest_of, read_lines
from hub_extensions.tools.usage.rows import BadFile, How, ImportedSession, Notes

AT_ONCE = 400
SessionReader = Callable[[Iterable[tuple[int, str]], How, Notes], Iterator[ImportedSession]]
READERS: dict[str, SessionReader] = {"csv": trace.sessions, "sacct": sacct.sessions, "swf": swf.sessions}


def format_of(file: Path) -> str:
    """Return the format of a file, judged by its name and its first line: ``csv``, ``sacct`` or ``swf``."""
    if ".swf" in file.suffixes:
        return "swf"
    _, first = next(read_lines(file))
    if first.startswith(";"):
        return "swf"
    return "sacct" if sacct.is_sacct(first) else "csv"


def import_file(archive: Archive, file: Path, how: How, kind: str) -> tuple[str, ...]:
    """Import a file; return messages for the administrator.

    Args:
        archive: the GPU service's database.
        file: the file.
        how: the options for reading the file.
        kind: its format: ``csv``, ``sacct`` or ``swf``.

    Raises:
        BadFile: the file has a mistake, and nothing of it was imported.
        StoreUnavailable: the database cannot be written.
    """
    if kind == "csv":
        how = _described(file, how)
    digest = f"{kind} {how.pool or ''} {how.slices_per_gpu or ''} {how.processors_per_gpu or ''} {digest_of(file)}"
    before = archive.import_of(digest)
    if before is not None:
        return (f"{file} was imported as {before[0]} at {before[1].isoformat(timespec='seconds')}. Nothing changed.",)
    notes, count = Notes(), 0
    with archive.importing(how.label, digest) as going:
        read = READERS[kind](read_lines(file), how, notes)
        while piece := tuple(islice(read, AT_ONCE)):
            _add(going, piece, how)
            count += len(piece)
        if not count:
            raise BadFile(str(file), 0, "", "it has no session to import.")
    return tuple(_summary(file, how, count, going.rows, notes))


def _described(file: Path, how: How) -> How:
    """Return the options, completed with the slices per GPU from the description (a ``.json`` file) beside a CSV file.

    Without a description they are returned unchanged.
    """
    beside = file.with_name(f"{file.name.removesuffix('.gz').removesuffix('.csv')}.json")
    if beside == file or not beside.is_file():
        return how
    return trace.sizes(beside.read_text("utf-8", errors="replace"), how, str(beside))


def _add(going: Import, piece: tuple[ImportedSession, ...], how: How) -> None:
    seen: dict[str, ImportedSession] = {}
    for session in piece:
        first = seen.setdefault(session.record.key, session)
        if first is not session:
            raise _twice(session, how, f"line {first.line}")
    for place in going.add([(session.record, session.own_key) for session in piece]):
        raise _twice(piece[place], how, "an earlier line")


def _twice(session: ImportedSession, how: How, other: str) -> BadFile:
    key = session.record.key.rpartition("/")[2]
    return BadFile(how.file, session.line, "key", f"{key} is the key of {other} too; each session has its own.")


def _summary(file: Path, how: How, count: int, added: int, notes: Notes) -> Iterator[str]:
    yield f"{added} sessions of {file} were imported as {how.label}."
    if count > added:
        yield f"{count - added} were here already, by an earlier import or as records of this service."
    for why, number in notes.left_out.items():
        yield f"{number} {why} were left out."
    if notes.over_limit:
        yield f"{notes.over_limit} lasted longer than their limit. They were kept as they are."
    if notes.unsorted:
        yield f"{notes.unsorted} began before the one above them. The history is in order of time all the same."
