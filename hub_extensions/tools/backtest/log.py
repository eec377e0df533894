"""The logs of a folder: each CSV of sessions and the JSON of its pools, as ``usage export`` writes them; or why not.

Not here: what is done with them (``replay.py``).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from hub_extensions.tools.backtest.world import Session

NEEDED = ("submit", "duration", "num_gpu", "slices", "user", "limit")


class BacktestRefused(Exception):
    """It cannot be replayed; the text names file, line and column."""


@dataclass(frozen=True, slots=True)
class Pool:
    """So many GPUs, each of so many slices, that a log is replayed on."""

    log: str
    gpus: int
    slices: int
    policy: str

    @property
    def name(self) -> str:
        """As ``--pool`` says it: ``gaia_int:1``."""
        return f"{self.log}:{self.gpus}"


@dataclass(frozen=True, slots=True)
class Log:
    """Sessions in the order of asking, and the pools to replay them on."""

    name: str
    sessions: tuple[Session, ...]
    pools: tuple[Pool, ...]

    @property
    def has_users(self) -> bool:
        """Users are told apart: there are at least twenty of them."""
        return len({session.user for session in self.sessions}) >= 20


def read_logs(folder: Path) -> tuple[Log, ...]:
    """Every log of the folder.

    Raises:
        BacktestRefused: there is none, or one is not as it should be.
    """
    if not folder.is_dir():
        raise BacktestRefused(f"{folder} is no folder.")
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise BacktestRefused(f"{folder} has no file *.csv. `jupyterhub-gpu usage export` writes one.")
    return tuple(_read(file) for file in files)


def _read(file: Path) -> Log:
    try:
        with file.open(encoding="utf-8", newline="") as text:
            sessions = _sessions(file, text)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise BacktestRefused(f"{file}: {problem}.") from None
    except OSError as problem:
        raise BacktestRefused(f"{file} cannot be read: {problem.strerror}.") from None
    return Log(file.stem, sessions, _pools(file, sessions))


def _sessions(file: Path, text: TextIO) -> tuple[Session, ...]:
    rows = csv.DictReader(text)
    missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise BacktestRefused(f"{file}, line 1: there is no column {missing[0]}.")
    found: list[tuple[float, float, int, int, str, float | None]] = []
    for row in rows:
        where = f"{file}, line {rows.line_num}"
        submit, duration = _number(where, row, "submit"), _number(where, row, "duration")
        devices, slices = _number(where, row, "num_gpu"), _number(where, row, "slices")
        limit = _number(where, row, "limit") if row["limit"] not in (None, "") else None
        if duration < 0:
            raise BacktestRefused(f"{where}, column duration: {row['duration']} is negative.")
        if devices < 1 or slices < 1:
            continue  # it held no GPU
        found.append((submit, duration, int(devices), int(slices), row["user"] or "", limit))
    if not found:
        raise BacktestRefused(f"{file}: there is no session in it.")
    found.sort(key=lambda each: each[0])
    return tuple(Session(number, *each) for number, each in enumerate(found))


def _number(where: str, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        raise BacktestRefused(f"{where}, column {column}: {str(row[column])[:40]!r} is no number.") from None
    if not math.isfinite(value):
        raise BacktestRefused(f"{where}, column {column}: {row[column][:40]!r} is no number.")
    return value


def _pools(file: Path, sessions: Sequence[Session]) -> tuple[Pool, ...]:
    beside = file.with_suffix(".json")
    try:
        read = json.loads(beside.read_text(encoding="utf-8"))
        slices = int(read["slices_per_gpu"])
        pools = tuple(Pool(file.stem, int(p["gpus"]), slices, str(p.get("policy", "strict"))) for p in read["pools"])
    except FileNotFoundError:
        raise BacktestRefused(f"{beside} is missing: it says how many GPUs there are, and slices of each.") from None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise BacktestRefused(f"{beside}: it does not name slices_per_gpu and pools with gpus ({problem!r}).") from None
    wrong = next((pool for pool in pools if pool.gpus < 1 or pool.slices < 1), None)
    if wrong is not None or not pools:
        raise BacktestRefused(f"{beside}: a pool needs at least one GPU of at least one slice.")
    large = next((session for session in sessions if session.slices > slices), None)
    if large is not None:
        raise BacktestRefused(f"{file}: a session asks for {large.slices} slices of a GPU that has {slices}.")
    return pools
