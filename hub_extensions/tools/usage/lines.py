"""Reads a text file line by line, also one that is compressed with gzip. Only one line is in memory at a time."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from hub_extensions.tools.usage.rows import BadFile, BadLine

LONGEST_LINE = 64 * 1024
_GZIP = b"\x1f\x8b"


def digest_of(file: Path) -> str:
    """Return a hash of the file's contents, by which a file that was imported before is recognised."""
    found = hashlib.sha256()
    try:
        with file.open("rb") as opened:
            while piece := opened.read(1 << 20):
                found.update(piece)
    except OSError as problem:
        raise BadFile(str(file), 0, "", f"it cannot be read: {problem.strerror}.") from None
    return found.hexdigest()


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, without its line break.

    Raises:
        BadFile: the file is empty, cannot be read, is broken gzip or not UTF-8, or has a line that is too long.
    """
    number = 0
    try:
        with file.open("rb") as opened:
            packed = opened.read(2) == _GZIP
            opened.seek(0)
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=opened)) if packed else opened
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    text = f"a line of more than {LONGEST_LINE // 1024} KiB. A quotation mark may be open."
                    raise BadLine(str(file), number, line.decode("utf-8", "replace"), text)
                yield number, _text(file, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise BadFile(str(file), number + 1, "", f"the gzip file is broken: {problem}.") from None
    except OSError as problem:
        raise BadFile(str(file), 0, "", f"it cannot be read: {problem.strerror}.") from None
    if number == 0:
        raise BadFile(str(file), 0, "", "the file is empty.")


def _text(file: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as problem:
        begin = line[: problem.start].decode("utf-8", "replace")
        raise BadLine(str(file), number, begin, "is not text in UTF-8.") from None
    return text.rstrip("\r\n")
