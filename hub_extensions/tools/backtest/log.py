"""Read the logs of a folder: CSV files of sessions, and JSON files that describe the pools (sets of equal GPUs).

``usage export`` writes such files. One export has the sessions of all pools; each pool becomes a log of its own.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from hub_extensions.tools.backtest.world import LogSession

NEEDED = ("submit", "duration", "num_gpu", "slices", "user", "limit")
POLICIES = ("strict", "best-effort")
MOST_GPUS = 100_000
"""A pool with more GPUs is refused as a mistake."""


class BacktestRefused(Exception):
    """A log cannot be replayed. The message names file, line and column."""


@dataclass(frozen=True, slots=True)
class ReplayPool:
    """A pool on which a log is replayed: a number of GPUs, each divided into a number of slices.

    Attributes:
        log: name of the log.
        gpus: number of GPUs.
        slices: number of slices of each GPU.
        policy: order of the line (queue policy), ``strict`` or ``best-effort``.
    """

    log: str
    gpus: int
    slices: int
    policy: str

    @property
    def name(self) -> str:
        """The pool's name in the reports and for the option ``--pool``, like ``gaia_int:1``."""
        return f"{self.log}:{self.gpus}"


@dataclass(frozen=True, slots=True)
class Log:
    """Logged sessions in the order of submission, and the pools (sets of equal GPUs) on which they are replayed.

    `read_logs` makes it from a CSV file, or from the sessions of one pool in this file.

    Attributes:
        name: name of the file without its ending, followed by ``/`` and the pool if the file has several pools.
    """

    name: str
    sessions: tuple[LogSession, ...]
    pools: tuple[ReplayPool, ...]

    @property
    def has_users(self) -> bool:
        """Whether the log has at least twenty users, so that methods that learn from each user's past make sense."""
        return len({session.user for session in self.sessions}) >= 20


def read_logs(folder: Path) -> tuple[Log, ...]:
    """Return all logs of the folder.

    Raises:
        BacktestRefused: the folder is empty, or a log is malformed.
    """
    if not folder.is_dir():
        raise BacktestRefused(f"{folder} is no folder.")
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise BacktestRefused(f"{folder} has no file *.csv. `jupyterhub-gpu usage export` writes one.")
    found = tuple(log for file in files for log in _read(file))
    if not any(log.sessions for log in found):
        raise BacktestRefused(f"{folder}: there is no session in it that held a GPU.")
    return tuple(log for log in found if log.sessions)


def _read(file: Path) -> tuple[Log, ...]:
    pools, slices = _described(file)
    try:
        with file.open(encoding="utf-8", newline="") as text:
            rows = _rows(file, text, whole=any(pool.named for pool in pools))
    except (UnicodeDecodeError, csv.Error) as problem:
        raise BacktestRefused(f"{file}: {problem}.") from None
    except OSError as problem:
        raise BacktestRefused(f"{file} cannot be read: {problem.strerror}.") from None
    large = next((row for row in rows if row.session.slices > slices), None)
    if large is not None:
        raise BacktestRefused(f"{file}: a session asks for {large.session.slices} slices of a GPU that has {slices}.")
    names = dict.fromkeys(pool.named for pool in pools)
    return tuple(_log(file, name, rows, [pool for pool in pools if pool.named == name], slices) for name in names)


def _log(file: Path, name: str, rows: Sequence[_Row], pools: Sequence[_Described], slices: int) -> Log:
    """Return the log of one pool in a CSV file.

    Args:
        file: the CSV file, whose name becomes a part of the log's name.
        name: name of the pool in the file; "" if all sessions of the file belong to it.
        rows: all sessions of the file, each with its pool.
        pools: the descriptions of the pool, on each of which the log is replayed.
        slices: number of slices of each GPU.

    Raises:
        BacktestRefused: the file has no session.
    """
    mine = [row.session for row in rows if not name or row.pool == name]
    if not mine and not name:
        raise BacktestRefused(f"{file}: there is no session in it.")
    log = f"{file.stem}/{name}" if name else file.stem
    sessions = tuple(replace(each, number=number) for number, each in enumerate(mine))
    return Log(log, sessions, tuple(ReplayPool(log, pool.gpus, slices, pool.policy) for pool in pools))


@dataclass(frozen=True, slots=True)
class _Row:
    session: LogSession
    pool: str


@dataclass(frozen=True, slots=True)
class _Described:
    """A pool as the JSON file beside a log describes it.

    Attributes:
        gpus: number of GPUs.
        policy: order of the line (queue policy).
        named: the pool's name in the CSV file; "" if all sessions of the file belong to it.
    """

    gpus: int
    policy: str
    named: str


def _rows(file: Path, text: TextIO, *, whole: bool) -> tuple[_Row, ...]:
    """Return the sessions of a CSV file in the order of submission.

    Args:
        file: name of the file, for errors.
        text: the opened file.
        whole: the file is an export of all pools, with a column for the pool. Its sessions of unknown duration are
            skipped.
    """
    rows = csv.DictReader(text, strict=True)
    names = rows.fieldnames or ()
    missing = [name for name in (*NEEDED, *(("pool",) if whole else ())) if name not in names]
    if missing:
        raise BacktestRefused(f"{file}, line 1: there is no column {missing[0]}.")
    found: list[_Row] = []
    for row in rows:
        where = f"{file}, line {rows.line_num}"
        if None in row or None in row.values():
            raise BacktestRefused(f"{where}: it has not as many fields as the header names ({len(names)}).")
        if whole and not row["duration"]:
            continue
        submit, duration = _number(where, row, "submit"), _number(where, row, "duration")
        devices, slices = _whole(where, row, "num_gpu"), _whole(where, row, "slices")
        limit = _number(where, row, "limit") if row["limit"] else None
        if duration < 0:
            raise BacktestRefused(f"{where}, column duration: {row['duration']} is negative.")
        if devices < 1 or slices < 1:
            continue  # it held no GPU
        session = LogSession(0, submit, duration, devices, slices, row["user"], limit)
        found.append(_Row(session, row["pool"] if whole else ""))
    found.sort(key=lambda each: each.session.submit)
    return tuple(found)


def _number(where: str, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        raise BacktestRefused(f"{where}, column {column}: {str(row[column])[:40]!r} is no number.") from None
    if not math.isfinite(value):
        raise BacktestRefused(f"{where}, column {column}: {row[column][:40]!r} is no number.")
    return value


def _whole(where: str, row: dict[str, str], column: str) -> int:
    value = _number(where, row, column)
    if value != int(value):
        raise BacktestRefused(f"{where}, column {column}: {row[column][:40]!r} is no whole number.")
    return int(value)


def _described(file: Path) -> tuple[tuple[_Described, ...], int]:
    """Read the JSON file beside a CSV file, which describes the pools.

    Returns:
        The pools, and the number of slices of each GPU.
    """
    beside = file.with_suffix(".json")
    try:
        read = json.loads(beside.read_text(encoding="utf-8"))
        slices = _count(read["slices_per_gpu"])
        pools = tuple(
            _Described(_count(pool["gpus"]), str(pool.get("policy", "strict")), str(pool.get("pool", "")))
            for pool in read["pools"]
        )
    except FileNotFoundError:
        raise BacktestRefused(f"{beside} is missing: it says how many GPUs there are, and slices of each.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BacktestRefused(f"{beside}: it does not name slices_per_gpu and pools with gpus ({problem!r}).") from None
    if slices < 1 or not pools or any(pool.gpus < 1 for pool in pools):
        raise BacktestRefused(f"{beside}: a pool needs at least one GPU of at least one slice.")
    many = next((pool for pool in pools if pool.gpus > MOST_GPUS), None)
    if many is not None:
        raise BacktestRefused(f"{beside}: a pool of {many.gpus} GPUs; at most {MOST_GPUS} can be replayed.")
    odd = next((pool for pool in pools if pool.policy not in POLICIES), None)
    if odd is not None:
        raise BacktestRefused(f"{beside}: the policy {odd.policy[:40]!r} is none of {', '.join(POLICIES)}.")
    return pools, slices


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise ValueError(f"{str(value)[:40]!r} is no whole number")
    return int(value)
