"""The common part of all formats of history: converts a valid row to a record, and explains an invalid one.

Pure. Messages have the file, line and column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.text.wording import foreign

LONGEST_NAME = 255
LATEST = 4e9
"""Seconds; later moments and longer durations are taken for mistakes (126 years)."""

MOST_BYTES = 1e15
MOST_DEVICES = 1_000_000
"""GPUs of one session, and presses of a button; more are taken for mistakes."""
FIRST_YEAR = 1969
LAST_MOMENT = datetime.fromtimestamp(LATEST, timezone.utc)


class BadFile(Exception):
    """A file that cannot be imported. None of its rows is."""

    def __init__(self, file: str, line: int, column: str, text: str) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(f"{place}, column {column}: {text}" if column else f"{place}: {text}")


class BadLine(BadFile):
    """A line that cannot be read to its end. `begin` is the readable part, from which the format's reader finds the
    column.
    """

    def __init__(self, file: str, line: int, begin: str, text: str) -> None:
        super().__init__(file, line, "", text)
        self.begin = begin
        self._about = (file, line, text)

    def in_column(self, column: str) -> BadFile:
        """Return the error with the name of the column."""
        file, line, text = self._about
        return BadFile(file, line, column, text)


def located(lines: Iterable[tuple[int, str]], column_of: Callable[[str], str]) -> Iterator[tuple[int, str]]:
    """Yield these lines. If a line cannot be read, the error names the column, which `column_of` finds from the
    readable part.
    """
    try:
        yield from lines
    except BadLine as problem:
        raise problem.in_column(column_of(problem.begin)) from None


def column_at(names: Sequence[str], place: int) -> str:
    """Return the name of the column at a position; the last column for later positions; "" before the header was
    read.
    """
    return names[min(place, len(names) - 1)][:40] if names else ""


@dataclass(frozen=True, slots=True)
class How:
    """Options for reading a file.

    Attributes:
        label: name of the import. pool: the offer whose line the sessions waited in; None to take it from the file.
        begins: start of times in seconds, if the file does not have it.
        slices_per_gpu: for CSV; None to take it from the file. processors_per_gpu: for SWF.
        zone: time zone of times without one.
    """

    file: str
    label: str
    pool: OfferId | None = None
    begins: datetime | None = None
    slices_per_gpu: int | None = None
    processors_per_gpu: int | None = None
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One imported row. `own_key` is its key in our own records; "" if it was not exported from them."""

    line: int
    record: UsageRecord
    own_key: str = ""


@dataclass
class Notes:
    """Counts of rows that an import left out, and of unusual rows."""

    left_out: dict[str, int] = field(default_factory=dict)
    over_limit: int = 0
    unsorted: int = 0
    last: datetime | None = None

    def leave_out(self, why: str) -> None:
        """Count a row that is not imported, because it used no GPU or has not ended."""
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def seen(self, record: UsageRecord) -> None:
        """Count what is unusual about a row that is imported."""
        if record.lifetime_seconds is not None and (record.held_seconds or 0) > record.lifetime_seconds:
            self.over_limit += 1
        if self.last is not None and record.began < self.last:
            self.unsorted += 1
        self.last = max(self.last, record.began) if self.last is not None else record.began


@dataclass(frozen=True, slots=True)
class ImportRow:
    """The values of one line by column, and functions that convert them."""

    how: How
    line: int
    values: Mapping[str, str]

    def bad(self, column: str, text: str) -> BadFile:
        """Return the error for a value of this row."""
        return BadFile(self.how.file, self.line, column, text)

    def text(self, column: str) -> str:
        """Return the text of a column."""
        return self.name(column, self.values.get(column, ""))

    def name(self, column: str, value: str, *, longest: int = LONGEST_NAME) -> str:
        """Return a name, which may be one of several in a column."""
        if len(value) > longest:
            raise self.bad(column, f"a name of {len(value):,} characters; {longest} are the most.")
        if not value.isprintable():
            raise self.bad(column, f"'{foreign(value)}' has a line break or another control character.")
        return value

    def number(self, column: str, *, least: float = 0.0, most: float = LATEST) -> float | None:
        """Return a number; None if the field is empty."""
        value = self.values.get(column, "").strip()
        if not value:
            return None
        try:
            number = float(value)
        except ValueError:
            raise self.bad(column, f"'{foreign(value, 40)}' is not a number.") from None
        if not math.isfinite(number) or not least <= number <= most:
            raise self.bad(column, f"{foreign(value, 40)} is not a number from {least:g} to {most:g}.")
        return number

    def needed(self, column: str, *, least: float = 0.0) -> float:
        """Return a number. The field must not be empty."""
        number = self.number(column, least=least)
        if number is None:
            raise self.bad(column, "is empty; a number is needed.")
        return number

    def count(self, column: str, *, most: float = MOST_DEVICES) -> int:
        """Return a whole number. The field must not be empty."""
        number = self.maybe_count(column, most=most)
        if number is None:
            raise self.bad(column, "is empty; a number is needed.")
        return number

    def maybe_count(self, column: str, *, most: float) -> int | None:
        """Return a whole number; None if the field is empty."""
        number = self.number(column, most=most)
        if number is not None and number != int(number):
            raise self.bad(column, f"{number:g} is not a whole number.")
        return None if number is None else int(number)

    def time(self, column: str, value: str | None = None, *, after: datetime | None = None) -> datetime | None:
        """Return a time in UTC; None if the field is empty. For a local hour that occurs twice, return the time that
        is not before `after`.
        """
        text = self.values.get(column, "") if value is None else value
        if not text:
            return None
        at = _moment(text)
        if at is None:
            raise self.bad(column, f"'{foreign(text, 40)}' is not a time like 2026-11-20T09:00:00+00:00.")
        if at.tzinfo is None:
            if self.how.zone is None:
                raise self.bad(
                    column, f"{text} is a time without a zone. Say which one with --timezone Europe/Helsinki."
                )
            at = at.replace(tzinfo=self.how.zone)
        if not FIRST_YEAR < at.year < LAST_MOMENT.year:
            years = f"from {FIRST_YEAR + 1} to {LAST_MOMENT.year - 1}"
            raise self.bad(column, f"{foreign(text, 40)} is not a time {years}.")
        first, second = (at.replace(fold=fold).astimezone(timezone.utc) for fold in (0, 1))
        return second if after is not None and first < after <= second else first

    def in_order(self, **moments: datetime | None) -> None:
        """Check that none of these times is before the previous one."""
        last: tuple[str, datetime] | None = None
        for column, at in moments.items():
            if at is not None and last is not None and at < last[1]:
                raise self.bad(column, f"{self._local(at)} is before {last[0]} ({self._local(last[1])}).")
            last = last if at is None else (column, at)

    def _local(self, at: datetime) -> str:
        return (at if self.how.zone is None else at.astimezone(self.how.zone)).isoformat()

    def pool(self, column: str) -> OfferId:
        """Return the line of a row: from `How`, otherwise from this column."""
        if self.how.pool is not None:
            return self.how.pool
        value = self.text(column)
        if not value:
            raise self.bad(column, "nothing says which GPUs it is about. Name an offer with --pool gpu.")
        try:
            return OfferId(value)
        except OfferIdError as problem:
            raise self.bad(column, f"{problem}") from None

    def share(self, column: str, slices: float, of: int) -> int:
        """Return thousandths of a GPU."""
        if slices <= 0:
            raise self.bad(column, f"{slices:g} slices of a GPU: more than 0 are needed.")
        if slices > of:
            raise self.bad(column, f"{slices:g} slices, and a GPU has {of}.")
        return max(1, round(WHOLE * slices / of))


def gpus(row: ImportRow, column: str, pool: OfferId) -> int:
    """Return the number of devices. It is 0 only for CPU only."""
    count = row.count(column)
    if count == 0 and pool != CPU:
        raise row.bad(column, f"the pool {pool} without GPUs: at least 1 is needed.")
    return count


def end_after(began: datetime, seconds: float) -> datetime:
    """Return the end of a session that began then."""
    return began + timedelta(seconds=seconds)


def _moment(text: str) -> datetime | None:
    """Parse a time in ISO 8601; None if it is invalid. Slurm's ``%z`` writes ``+0200``, which Python 3.10 does not
    parse.
    """
    without_colon = len(text) > 5 and text[-5] in "+-" and text[-4:].isdecimal()
    for each in (text.replace("Z", "+00:00"), f"{text[:-2]}:{text[-2:]}" if without_colon else ""):
        with suppress(ValueError):
            return datetime.fromisoformat(each)
    return None
