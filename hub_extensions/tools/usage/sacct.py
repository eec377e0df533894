"""Slurm's ``sacct --parsable2`` (or ``-P``): one row a job; steps, jobs that run and jobs without a GPU are left out.

``sacct -a -P -X -S 2026-01-01 -o JobID,Cluster,User,Group,Partition,Submit,Start,End,Timelimit,AllocTRES,State``
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import GPU, OfferId
from hub_extensions.core.usage import UseEnd
from hub_extensions.tools.usage.rows import (
    LATEST,
    MOST_DEVICES,
    BadFile,
    How,
    ImportedSession,
    ImportRow,
    Notes,
    column_at,
    located,
)

NEEDED = ("JobID", "User", "Submit", "Start", "End", "AllocTRES")
LONGEST_NUMBER = 12
"""Digits; a longer one is none of GPUs."""
_NEVER = ("", "Unknown", "None", "N/A")
_NO_LIMIT = ("", "UNLIMITED", "Partition_Limit", "INVALID")
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_GPUS_OF_A_KIND = re.compile(r"(?:^|,)gres/gpu:([^=,]+)=(\d+)")
_N = r"\d{1,12}"
_LENGTH = re.compile(rf"(?:(?P<days>{_N})-)?(?:(?P<hours>{_N}):)?(?P<minutes>{_N}):(?P<seconds>{_N})(?:\.\d+)?")
_ENDS = {
    "COMPLETED": UseEnd.USER,
    "CANCELLED": UseEnd.USER,
    "TIMEOUT": UseEnd.LIFETIME,
    "DEADLINE": UseEnd.LIFETIME,
    "FAILED": UseEnd.FAILED,
    "OUT_OF_MEMORY": UseEnd.FAILED,
    "BOOT_FAIL": UseEnd.FAILED,
    "NODE_FAIL": UseEnd.NODE_LOST,
    "PREEMPTED": UseEnd.RECLAIMED,
}


def sessions(lines: Iterable[tuple[int, str]], how: How, notes: Notes) -> Iterator[ImportedSession]:
    """The jobs with a GPU that are over.

    Raises:
        BadFile: a column is missing, or a value is none that can be.
    """
    names: list[str] = []
    for number, line in located(lines, lambda begin: column_at(names, begin.count("|"))):
        fields = line.split("|")
        if not names:
            names.extend(fields)
            missing = [name for name in NEEDED if name not in names]
            if missing:
                text = f"the column is missing. Needed: {', '.join(NEEDED)}, separated by | (sacct -P)."
                raise BadFile(how.file, number, missing[0], text)
            continue
        if len(fields) not in (len(names), len(names) + 1):  # sacct -p ends each line with one more
            text = (
                f"{len(fields)} fields, and the header names {len(names)}. A name with a line break, or a |, does that."
            )
            raise BadFile(how.file, number, column_at(names, len(fields)), text)
        row = ImportRow(how, number, dict(zip(names, fields, strict=False)))
        session = _session(row, notes)
        if session is not None:
            notes.seen(session.record)
            yield session


def _session(row: ImportRow, notes: Notes) -> ImportedSession | None:
    job = row.text("JobID")
    if "." in job:
        notes.leave_out("steps of jobs")
        return None
    if row.values["Start"] in _NEVER or row.values["End"] in _NEVER:
        notes.leave_out("jobs that have not run, or run still")
        return None
    count, kind = _gpus(row.values["AllocTRES"])
    if count > MOST_DEVICES:
        raise row.bad("AllocTRES", f"more than {MOST_DEVICES:,} GPUs.")
    if not count:
        notes.leave_out("jobs without a GPU")
        return None
    asked = _time(row, "Submit")
    began = _time(row, "Start", asked)
    ended = _time(row, "End", began)
    row.in_order(Submit=asked, Start=began, End=ended)
    pool = row.how.pool or OfferId(GPU)
    state = (row.values.get("State", "").split() or [""])[0]
    held = (ended - began).total_seconds()
    record = UsageRecord(
        key=f"sacct/{row.text('Cluster') or row.how.label}/{job}",
        user=row.text("User"),
        server=row.text("JobName"),
        offer=pool,
        pool=str(pool),
        share=WHOLE,
        devices=count,
        ended=ended,
        end=_ENDS.get(state, UseEnd.UNKNOWN).value,
        groups=tuple(filter(None, (row.text("Group"),))),
        choice=row.text("Partition"),
        device_class=kind,
        node=row.text("NodeList"),
        asked=asked,
        admitted=began,
        ready=began,
        lifetime_seconds=_limit(row),
        waited_seconds=(began - asked).total_seconds(),
        held_seconds=held,
        ran_seconds=held,
        source="sacct",
    )
    return ImportedSession(row.line, record)


def _time(row: ImportRow, column: str, after: datetime | None = None) -> datetime:
    at = row.time(column, after=after)
    if at is None:
        raise row.bad(column, "is empty; a time is needed.")
    return at


def _gpus(tres: str) -> tuple[int, str]:
    """How many, and of which kind, as ``billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G`` says it."""
    kinds = _GPUS_OF_A_KIND.findall(tres)
    whole = _GPUS.search(tres)
    numbers = [whole[1]] if whole else [number for _, number in kinds]
    count = sum(int(number) if len(number) <= LONGEST_NUMBER else MOST_DEVICES + 1 for number in numbers)
    return count, kinds[0][0] if len(kinds) == 1 else ""


def _limit(row: ImportRow) -> float | None:
    text = row.values.get("Timelimit", "")
    if text in _NO_LIMIT:
        return None
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise row.bad("Timelimit", f"'{text[:40]}' is not a length like 1-12:00:00.")
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    length = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if length > LATEST:
        raise row.bad("Timelimit", f"'{text[:40]}' is longer than 126 years.")
    return float(length)
