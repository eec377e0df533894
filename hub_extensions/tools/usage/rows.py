"""The common part of the readers of all formats: options, errors with file, line and column, and parsing of columns."""

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
"""Seconds (126 years). Later times since 1970 and longer durations are refused as mistakes."""

MOST_BYTES = 1e15
MOST_DEVICES = 1_000_000
"""Largest accepted count, such as of GPUs of one session; more are refused as a mistake."""
FIRST_YEAR = 1969
LAST_MOMENT = datetime.fromtimestamp(LATEST, timezone.utc)


class BadFile(Exception):
    """A file has a mistake and cannot be imported. The text names the place of the mistake.

    Args:
        file: name of the file.
        line: number of the line; 0 if the mistake is not in one line.
        column: name of the column; "" if the mistake is not in one column.
        text: what is wrong.
    """

    def __init__(self, file: str, line: int, column: str, text: str) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(f"{place}, column {column}: {text}" if column else f"{place}: {text}")


class BadLine(BadFile):
    """A line of which only the beginning can be read.

    Attributes:
        begin: the readable part, by which `located` finds the column.
    """

    def __init__(self, file: str, line: int, begin: str, text: str) -> None:
        super().__init__(file, line, "", text)
        self.begin = begin
        self._about = (file, line, text)

    def in_column(self, column: str) -> BadFile:
        """Return the error as a `BadFile` that names a column.

        Args:
            column: the wrong column, in which the readable part of the line ends.
        """
        file, line, text = self._about
        return BadFile(file, line, column, text)


def located(lines: Iterable[tuple[int, str]], column_of: Callable[[str], str]) -> Iterator[tuple[int, str]]:
    """Yield these lines (number and text). If a line cannot be read, raise a `BadFile` that names the column.

    Args:
        column_of: returns the name of the column at which the readable part of a line ends.
    """
    try:
        yield from lines
    except BadLine as problem:
        raise problem.in_column(column_of(problem.begin)) from None


def column_at(names: Sequence[str], place: int) -> str:
    """Return the name of the column at a position; for positions after the last column, that of the last one.

    "" if `names` is empty, because the header has not been read yet.
    """
    return names[min(place, len(names) - 1)][:40] if names else ""


@dataclass(frozen=True, slots=True)
class How:
    """Options for reading a file, from the command line.

    Attributes:
        file: name of the file, for errors.
        label: name of the import.
        pool: the offer in whose line the sessions waited; None to take it from each row.
        begins: the time from which a file counts seconds; None if the file itself has it.
        slices_per_gpu: for CSV: how many slices a GPU has; None to take it from the file.
        processors_per_gpu: for SWF: how many processors stand for one GPU; None if it was not given.
        zone: time zone of times without one; None refuses such times.
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
    """A session (one job or server) that was read from a row of a file.

    Attributes:
        line: number of its line in the file.
        record: the usage record to store.
        own_key: its key if the file is an export of this service, by which known records are recognised; otherwise "".
    """

    line: int
    record: UsageRecord
    own_key: str = ""


@dataclass
class Notes:
    """Counts of unusual rows in an imported file, for the summary.

    Attributes:
        left_out: kind of rows that were left out, such as "jobs without a GPU" -> their number.
        over_limit: number of sessions that lasted longer than their time limit.
        unsorted: number of sessions that began before the one above them.
        last: the latest beginning so far; None before the first row.
    """

    left_out: dict[str, int] = field(default_factory=dict)
    over_limit: int = 0
    unsorted: int = 0
    last: datetime | None = None

    def leave_out(self, why: str) -> None:
        """Count a row that is not imported.

        Args:
            why: the kind of such rows in words, such as "jobs without a GPU".
        """
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def seen(self, record: UsageRecord) -> None:
        """Count an imported row if it is unusual: longer than its time limit, or earlier than a row above it."""
        if record.lifetime_seconds is not None and (record.held_seconds or 0) > record.lifetime_seconds:
            self.over_limit += 1
        if self.last is not None and record.began < self.last:
            self.unsorted += 1
        self.last = max(self.last, record.began) if self.last is not None else record.began


@dataclass(frozen=True, slots=True)
class ImportRow:
    """One line of a file, with methods that convert its fields. An invalid field raises `BadFile`.

    Attributes:
        how: the options for reading the file.
        line: number of the line.
        values: name of a column -> its field.
    """

    how: How
    line: int
    values: Mapping[str, str]

    def bad(self, column: str, text: str) -> BadFile:
        """Return the error for a field of this line.

        Args:
            column: name of the column.
            text: what is wrong.
        """
        return BadFile(self.how.file, self.line, column, text)

    def text(self, column: str) -> str:
        """Return the text in a column, which is checked like a name; "" if the file does not have the column."""
        return self.name(column, self.values.get(column, ""))

    def name(self, column: str, value: str, *, longest: int = LONGEST_NAME) -> str:
        """Check that a text can be a name, and return it. An invalid name raises `BadFile`.

        Args:
            column: the column, for the error. It may have several names, of which this is one.
            value: the text.
            longest: largest number of characters.
        """
        if len(value) > longest:
            raise self.bad(column, f"a name of {len(value):,} characters; {longest} are the most.")
        if not value.isprintable():
            raise self.bad(column, f"'{foreign(value)}' has a line break or another control character.")
        return value

    def number(self, column: str, *, least: float = 0.0, most: float = LATEST) -> float | None:
        """Parse the number in a column; None if the field is empty.

        Args:
            least, most: smallest and largest accepted number; others raise `BadFile`.
        """
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
        """Parse the number in a column. An empty field raises `BadFile`.

        Args:
            least: smallest accepted number; smaller ones raise `BadFile`.
        """
        number = self.number(column, least=least)
        if number is None:
            raise self.bad(column, "is empty; a number is needed.")
        return number

    def count(self, column: str, *, most: float = MOST_DEVICES) -> int:
        """Parse the whole number in a column. An empty field raises `BadFile`.

        Args:
            most: largest accepted number; larger ones raise `BadFile`.
        """
        number = self.maybe_count(column, most=most)
        if number is None:
            raise self.bad(column, "is empty; a number is needed.")
        return number

    def maybe_count(self, column: str, *, most: float) -> int | None:
        """Parse the whole number in a column; None if the field is empty.

        Args:
            most: largest accepted number; larger ones raise `BadFile`.
        """
        number = self.number(column, most=most)
        if number is not None and number != int(number):
            raise self.bad(column, f"{number:g} is not a whole number.")
        return None if number is None else int(number)

    def time(self, column: str, value: str | None = None, *, after: datetime | None = None) -> datetime | None:
        """Parse a time and convert it to UTC; None if the field is empty.

        Args:
            column: the column.
            value: the text to parse; None for the text in the column.
            after: an earlier time of the session; None without an earlier time. If a local hour occurs twice at the end
                of summer time, the first of both times that is not before `after` is meant; without `after`, the first
                one.
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
        """Check that the times of a session are in order. A time before the previous one raises `BadFile`.

        Args:
            moments: name of a column -> its time, in the expected order; `None` for an empty field.
        """
        last: tuple[str, datetime] | None = None
        for column, at in moments.items():
            if at is not None and last is not None and at < last[1]:
                raise self.bad(column, f"{self._local(at)} is before {last[0]} ({self._local(last[1])}).")
            last = last if at is None else (column, at)

    def _local(self, at: datetime) -> str:
        return (at if self.how.zone is None else at.astimezone(self.how.zone)).isoformat()

    def pool(self, column: str) -> OfferId:
        """Return the offer in whose line a session waited: the one in the options, otherwise the one in this column."""
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
        """Convert a number of slices to thousandths of a GPU.

        Args:
            column: the column, for errors.
            slices: the number of slices.
            of: how many slices a GPU has.
        """
        if slices <= 0:
            raise self.bad(column, f"{slices:g} slices of a GPU: more than 0 are needed.")
        if slices > of:
            raise self.bad(column, f"{slices:g} slices, and a GPU has {of}.")
        return max(1, round(WHOLE * slices / of))


def gpus(row: ImportRow, column: str, pool: OfferId) -> int:
    """Return the number of a session's devices from a column.

    It may be 0 only if `pool` is the CPU-only offer.
    """
    count = row.count(column)
    if count == 0 and pool != CPU:
        raise row.bad(column, f"the pool {pool} without GPUs: at least 1 is needed.")
    return count


def end_after(began: datetime, seconds: float) -> datetime:
    """Return the end of a session from its beginning and its duration."""
    return began + timedelta(seconds=seconds)


def _moment(text: str) -> datetime | None:
    """Parse a time in ISO 8601; None if it is invalid.

    A zone like ``+0200``, as Slurm's ``%z`` writes it, is accepted too; Python 3.10 does not parse it.
    """
    without_colon = len(text) > 5 and text[-5] in "+-" and text[-4:].isdecimal()
    for each in (text.replace("Z", "+00:00"), f"{text[:-2]}:{text[-2:]}" if without_colon else ""):
        with suppress(ValueError):
            return datetime.fromisoformat(each)
    return None
