"""Reads the Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, -1 for unknown.

The format counts processors. An administrator sets by ``--processors-per-gpu`` how many of them stand for one GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import GPU, OfferId
from hub_extensions.core.usage import UseEnd
from hub_extensions.tools.usage.rows import (
    LAST_MOMENT,
    LATEST,
    MOST_BYTES,
    MOST_DEVICES,
    BadFile,
    How,
    ImportedSession,
    ImportRow,
    Notes,
    column_at,
    located,
)

COLUMNS = (
    "job", "submit", "wait", "run", "processors", "processor_time", "memory", "asked_processors", "asked_time",
    "asked_memory",
    "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
_BEGINS = re.compile(r";\s*UnixStartTime:\s*(\d+)")
_ENDS = {0: UseEnd.FAILED, 1: UseEnd.USER, 5: UseEnd.USER}


def sessions(lines: Iterable[tuple[int, str]], how: How, notes: Notes) -> Iterator[ImportedSession]:
    """Yield the jobs that ran.

    Args:
        lines: number and text of each line.
        how: the options for reading the file.
        notes: counts the unusual rows and those that are left out.

    Raises:
        BadFile: a line does not have 18 numbers, or one of them is impossible.
    """
    begins = how.begins
    for number, line in located(lines, lambda begin: column_at(COLUMNS, len(begin.split()) - 1)):
        if line.startswith(";") or not line.strip():
            found = _BEGINS.match(line)
            if found is not None and begins is None:
                if len(found[1]) > len(f"{LATEST:.0f}") or int(found[1]) > LATEST:
                    text = f"{found[1][:40]} is later than {LAST_MOMENT.year}."
                    raise BadFile(how.file, number, "UnixStartTime", text)
                begins = datetime.fromtimestamp(int(found[1]), timezone.utc)
            continue
        fields = line.split()
        if len(fields) != len(COLUMNS):
            text = f"{len(fields)} fields; a job of SWF has {len(COLUMNS)}."
            raise BadFile(how.file, number, column_at(COLUMNS, len(fields)), text)
        row = ImportRow(how, number, dict(zip(COLUMNS, fields, strict=True)))
        if begins is None:
            text = "seconds from a beginning that no '; UnixStartTime:' says. Say it with --start-time."
            raise row.bad("submit", text)
        session = _session(row, begins, notes)
        if session is not None:
            notes.seen(session.record)
            yield session


def _session(row: ImportRow, begins: datetime, notes: Notes) -> ImportedSession | None:
    job = row.count("job", most=MOST_BYTES)
    submit, run = row.needed("submit"), row.needed("run", least=-1)
    if run < 0:
        notes.leave_out("jobs that have not run")
        return None
    processors = row.needed("processors", least=-1)
    processors = processors if processors > 0 else row.needed("asked_processors", least=-1)
    if processors <= 0:
        notes.leave_out("jobs without a processor")
        return None
    devices, share = _size(row, processors)
    wait, limit, user, group = (row.needed(name, least=-1) for name in ("wait", "asked_time", "user", "group"))
    asked = begins + timedelta(seconds=submit)
    admitted = asked + timedelta(seconds=wait) if wait >= 0 else None
    pool = row.how.pool or OfferId(GPU)
    memory = row.needed("memory", least=-1) * 1024 * processors
    if memory > MOST_BYTES:
        raise row.bad("memory", f"{memory:g} bytes in all are more than {MOST_BYTES:g}.")
    record = UsageRecord(
        key=f"swf/{row.how.label}/{job}",
        user=f"u{user:.0f}" if user >= 0 else "",
        server="",
        offer=pool,
        pool=str(pool),
        share=share,
        devices=devices,
        ended=(admitted or asked) + timedelta(seconds=run),
        end=_ENDS.get(int(row.needed("status", least=-1)), UseEnd.UNKNOWN).value,
        groups=(f"g{group:.0f}",) if group >= 0 else (),
        asked=asked,
        admitted=admitted,
        ready=admitted,
        lifetime_seconds=limit if limit > 0 else None,
        waited_seconds=wait if wait >= 0 else None,
        held_seconds=run,
        ran_seconds=run,
        peak_memory_bytes=int(memory) if memory > 0 else None,
        source="swf",
    )
    return ImportedSession(row.line, record)


def _size(row: ImportRow, processors: float) -> tuple[int, int]:
    """Convert a number of processors to a number of GPUs and the share of each, in thousandths."""
    of = row.how.processors_per_gpu
    if of is None:
        raise row.bad("processors", "how many of them stand for a GPU? Say it with --processors-per-gpu 7.")
    if processors > MOST_DEVICES * of:
        raise row.bad("processors", f"more than {MOST_DEVICES:,} GPUs.")
    if processors <= of:
        return 1, row.share("processors", processors, of)
    return -int(-processors // of), WHOLE
