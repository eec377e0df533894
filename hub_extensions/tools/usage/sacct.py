"""Reads what Slurm's ``sacct --parsable2`` (or ``-P``) writes: one row for each job.

Steps of jobs, jobs that have not ended, and jobs without a GPU are left out. The command is:

``sacct -a -P -X -S 2026-01-01 -o JobID,Cluster,User,Group,Partition,Submit,Start,End,Timelimit,AllocTRES,State``

Older versions and other options are read too: ``-p``, another ``--delimiter``, ``-D`` (a requeued job has a row for
each of its runs), ``AllocGRES`` and ``ReqGRES`` of before Slurm 21.08, ``Elapsed`` in place of ``End``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError
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
INSTEAD = {
    "JobID": ("JobIDRaw",),
    "End": ("Elapsed", "ElapsedRaw"),
    "AllocTRES": ("AllocGRES", "TRES", "ReqTRES", "ReqGRES"),
    "Group": ("Account",),
    "Timelimit": ("TimelimitRaw",),
}
"""Column -> other columns of sacct with nearly the same content, which are used if it is missing."""
KNOWN = (*NEEDED, *(name for names in INSTEAD.values() for name in names), "Cluster", "Group", "Partition", "Timelimit",
         "State", "JobName", "NodeList")  # fmt: skip
DELIMITERS = "|;\t^~#!"
"""Characters that are recognised as separators of columns. The comma is left out, because AllocTRES contains commas."""
COMMAND = "sacct -P -X -o JobID,User,Submit,Start,End,Timelimit,AllocTRES,State"
LONGEST_NUMBER = 12
"""Largest number of digits of a GPU count; a longer number is refused as a mistake."""
_NEVER = ("", "Unknown", "None", "N/A", "(null)")
_NO_LIMIT = ("", "UNLIMITED", "PARTITION_LIMIT", "INVALID", "NONE", "N/A")
_GPUS = re.compile(
    r"(?:^|,)(?:gres[/:])?(?:gpu|7696487)(?::(?P<kind>[^=,:()]*[^=,:()0-9][^=,:()]*|\d+(?=[=:]\d)))?"
    r"(?:[=:](?P<count>\d+))?(?:\([^)]*\))?(?=,|$)",
    re.IGNORECASE,
)
"""Matches GPUs in TRES (``gres/gpu=2``, ``gres/gpu:a100=2``) and in GRES (``gpu:2``, ``gpu:a100:2(IDX:0-1)``, ``gpu``).
The number 7696487 is how an old database of Slurm names ``gpu``."""
_SHARE = re.compile(r"(?:^|,)(?:gres[/:])?(?:shard|mps)[=:](?!0+(?:,|$))", re.IGNORECASE)
_PROFILE = re.compile(
    r"(?:^|[_.:-])(?P<compute>\d+c[._])?(?P<slices>\d+g)[._]?(?P<gb>\d+gb)(?P<more>[+._-](?:me|gfx)(?:[._]all)?)?$",
    re.I,
)
"""Matches the MIG profile in Slurm's name of a kind of GPU: ``1g.5gb``, ``a100_1g.5gb``, ``nvidia_a100_3g.20gb``,
``1g.10gb+me``, ``a100_mig_1g5gb``."""
_N = r"\d{1,12}"
_LENGTH = re.compile(rf"(?:(?P<days>{_N})-)?(?:(?P<hours>{_N}):)?(?P<minutes>{_N}):(?P<seconds>{_N})(?:\.\d+)?")
_ENDS = {
    ("COMPLETED", "CD", "CANCELLED", "CA"): UseEnd.USER,
    ("TIMEOUT", "TO", "DEADLINE", "DL"): UseEnd.LIFETIME,
    ("FAILED", "F", "OUT_OF_MEMORY", "OOM", "BOOT_FAIL", "BF"): UseEnd.FAILED,
    ("NODE_FAIL", "NF"): UseEnd.NODE_LOST,
    ("PREEMPTED", "PR", "REQUEUED", "RQ"): UseEnd.RECLAIMED,
}
_GO_ON = ("RUNNING", "R", "PENDING", "PD", "SUSPENDED", "S", "COMPLETING", "CG", "CONFIGURING", "CF")
"""States of jobs that have not ended. Such a job may still have a time in the column End, because ``sacct -T`` writes
the end of its time range there."""


def is_sacct(first: str) -> bool:
    """Return whether a file was written by sacct, with whichever options, judged by its first line."""
    words = {word.lower() for word in re.split(r"[|;,\t^~#!\s]+", first)}
    return "|" in first or bool({"jobid", "jobidraw"} & words)


def sessions(lines: Iterable[tuple[int, str]], how: How, notes: Notes) -> Iterator[ImportedSession]:
    """Yield the finished jobs that had a GPU.

    Args:
        lines: number and text of each line.
        how: the options for reading the file.
        notes: counts the unusual rows and those that are left out.

    Raises:
        BadFile: a column is missing, or a value is impossible.
    """
    names: list[str] = []
    between = ["|"]
    for number, line in located(lines, lambda begin: column_at(names, begin.count(between[0]))):
        if not names:
            between[0], columns = _header(line, how, number)
            names.extend(columns)
            continue
        sign = between[0]
        fields = line.split(sign)
        if len(fields) == len(names) + 1 and not fields[-1].strip():
            fields.pop()  # sacct -p ends each line with one more
        if len(fields) != len(names):
            text = (
                f"{len(fields)} fields, and the header names {len(names)}. A name with a line break, or a {sign}, does"
                " that."
            )
            raise BadFile(how.file, number, column_at(names, len(fields)), text)
        row = ImportRow(how, number, dict(zip(names, fields, strict=False)))
        session = _session(row, notes)
        if session is not None:
            notes.seen(session.record)
            yield session


def _header(line: str, how: How, number: int) -> tuple[str, list[str]]:
    """Parse the header line of a file that sacct wrote.

    Args:
        line: the header line.
        how: the options of the import, with the name of the file for errors.
        number: number of the line in the file, for errors.

    Returns:
        The separator of the fields, and the names of the columns as this module uses them.

    Raises:
        BadFile: a column that is needed is missing.
    """
    ours = {name.lower(): name for name in KNOWN}
    sign = max(DELIMITERS, key=line.count)
    names = [ours.get(name.strip().lower(), name.strip()) for name in line.split(sign)]
    for name, others in INSTEAD.items():
        here = next((other for other in others if other in names), None)
        if name not in names and here is not None and not (name == "End" or here == "TimelimitRaw"):
            names[names.index(here)] = name
    missing = [name for name in NEEDED if name not in names]
    if "End" in missing and {"Elapsed", "ElapsedRaw"} & set(names):
        missing.remove("End")
    if missing:
        raise BadFile(how.file, number, missing[0], _what_it_is(line, sign, names))
    return sign, names


def _what_it_is(line: str, sign: str, names: Sequence[str]) -> str:
    """Return why the first line of a file is not a header with all needed columns, and what to do.

    Args:
        line: the first line.
        sign: the separator of its fields.
        names: its fields.
    """
    if line.lstrip()[:1] in ("{", "["):
        return f"this is what sacct --json writes. Write it with -P instead: {COMMAND}."
    if "jobid" in line.lower() and sign not in line and "," in line:
        return f"the fields are separated by commas, which AllocTRES has too. Use -P instead: {COMMAND}."
    if "jobid" in line.lower() and sign not in line and len(line.split()) > 1:
        return f"this is sacct's table for people, which cuts values off. Write it with -P: {COMMAND}."
    if not any(name in KNOWN for name in names):
        return f"there is no line with the columns' names: leave -n (--noheader) out. Needed: {', '.join(NEEDED)}."
    return f"the column is missing. Needed: {', '.join(NEEDED)}, separated by | (sacct -P)."


def _session(row: ImportRow, notes: Notes) -> ImportedSession | None:
    job = row.text("JobID").strip()
    if "." in job:
        notes.leave_out("steps of jobs")
        return None
    state = (row.values.get("State", "").split() or [""])[0].upper()
    is_on = state in _GO_ON or row.values.get("End", "-").strip() in _NEVER
    if is_on or row.values["Start"].strip() in _NEVER:
        notes.leave_out("jobs that have not run, or run still")
        return None
    count, kind, profile = _gpus(row.values["AllocTRES"])
    if count > MOST_DEVICES:
        raise row.bad("AllocTRES", f"more than {MOST_DEVICES:,} GPUs.")
    if not count:
        has_share = _SHARE.search(row.values["AllocTRES"].strip()) is not None
        notes.leave_out("jobs with a share of a GPU (shard or mps)" if has_share else "jobs without a GPU")
        return None
    first = "Start" if row.values["Submit"].strip() in _NEVER else "Submit"
    asked = _time(row, first)
    began = _time(row, "Start", asked)
    ended = _time(row, "End", began) if "End" in row.values else began + _elapsed(row)
    row.in_order(Submit=asked, Start=began, End=ended)
    pool = row.how.pool or OfferId(GPU)
    if profile is not None and pool.base == GPU:
        pool = OfferId(profile.resource)
    held = (ended - began).total_seconds()
    key = f"sacct/{row.text('Cluster') or row.how.label}/{job}"
    record = UsageRecord(
        key=f"{key}@{began:%Y%m%dT%H%M%SZ}",
        user=row.text("User"),
        server=row.text("JobName"),
        offer=pool,
        pool=str(pool),
        share=WHOLE,
        devices=count,
        ended=ended,
        end=_end(state),
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
    return ImportedSession(row.line, record, key)  # earlier versions used the id alone as the key


def _end(state: str) -> str:
    """Return how a job ended (a value of `UseEnd`), by its state in Slurm.

    In narrow columns sacct cuts off a state, such as ``OUT_OF_ME+``; it is recognised by its beginning.
    """
    begin = state[:-1] if state.endswith("+") else None
    for names, end in _ENDS.items():
        if state in names or (begin and any(name.startswith(begin) for name in names)):
            return end.value
    return UseEnd.UNKNOWN.value


def _time(row: ImportRow, column: str, after: datetime | None = None) -> datetime:
    text = row.values.get(column, "").strip()
    if text.isdecimal() and len(text) in (9, 10):  # SLURM_TIME_FORMAT=%s
        text = datetime.fromtimestamp(int(text), timezone.utc).isoformat()
    at = row.time(column, text, after=after)
    if at is None:
        raise row.bad(column, "is empty; a time is needed.")
    return at


def _elapsed(row: ImportRow) -> timedelta:
    seconds = row.number("ElapsedRaw") if row.values.get("ElapsedRaw") else _length(row, "Elapsed")
    return timedelta(seconds=seconds or 0.0)


def _gpus(tres: str) -> tuple[int, str, MigProfile | None]:
    """Return count, kind and MIG profile of a job's GPUs.

    If a job has GPUs of several kinds, or their kind is missing, the kind is "" and the profile is None.

    Args:
        tres: TRES (``billing=8,gres/gpu:a100=2,gres/gpu=2``) or GRES (``gpu:a100:2``). The entry of TRES without a kind
            is the total of all kinds.
    """
    found = [(each["kind"], each["count"]) for each in _GPUS.finditer(tres.strip())]
    whole = [count for kind, count in found if not kind]
    numbers = whole[:1] or [count for _, count in found]
    count = sum(
        1 if text is None else int(text) if len(text) <= LONGEST_NUMBER else MOST_DEVICES + 1 for text in numbers
    )
    kinds = [kind for kind, _ in found if kind]
    profiles = {_profile(kind) for kind in kinds}
    return count, kinds[0] if len(kinds) == 1 else "", profiles.pop() if len(profiles) == 1 else None


def _profile(kind: str) -> MigProfile | None:
    found = _PROFILE.search(kind)
    if found is None:
        return None
    more = found["more"] or ""
    front = f"{(found['compute'] or '').replace('_', '.')}{found['slices']}.{found['gb']}"
    sign = "-" if more.startswith("-") else "+"
    try:
        return MigProfile.parse(f"{front}{sign + more[1:].replace('_', '.') if more else ''}".lower())
    except MigProfileError:
        return None


def _limit(row: ImportRow) -> float | None:
    if "Timelimit" not in row.values and row.values.get("TimelimitRaw", "").strip().isdecimal():
        minutes = row.number("TimelimitRaw", most=LATEST / 60)
        return None if minutes is None else minutes * 60
    text = row.values.get("Timelimit", "").strip()
    return None if text.upper() in _NO_LIMIT else _length(row, "Timelimit")


def _length(row: ImportRow, column: str) -> float:
    text = row.values.get(column, "").strip()
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise row.bad(column, f"'{text[:40]}' is not a length like 1-12:00:00.")
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    length = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if length > LATEST:
        raise row.bad(column, f"'{text[:40]}' is longer than 126 years.")
    return float(length)
