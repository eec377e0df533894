"""Check the file in which a training program reports its progress.

Any program of the user can write such a file, so nothing in it is trusted. One number that cannot be true makes the
whole file invalid.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from hub_extensions.core.forecast.training import TrainingRun

VERSION = 1
MAX_BYTES = 4096  # of a file, without its name field
MAX_READ_BYTES = 32 * 1024  # of a file with a name of 5,000 characters, which is shown cut
NAME_LENGTH = 80
MAX_GROUPS = 64
MAX_COUNT = 2**53  # steps or epochs
MAX_SECONDS = 366 * 86_400.0  # of a step or a group of steps
MAX_PID = 2**31 - 1
LIBRARIES = ("loop", "tqdm", "keras", "lightning", "transformers", "fastai")
RUNNING = "running"
DONE = "done"
ENDED = (DONE, "left", "failed")  # what a file can report; a run also ends as `VANISHED`
VANISHED = "vanished"

_RUN = re.compile(r"[0-9a-f]{16}")
_LAST_TIME = datetime(2200, 1, 1, tzinfo=timezone.utc).timestamp()


class ProgressFileError(ValueError):
    """A progress file that is not valid. The text names the field, and contains nothing of the file."""


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """The content of a valid progress file.

    Attributes:
        pid: id of the process that computes.
        born: start time of that process in clock ticks since boot; `None` if the program could not find it out.
    """

    run: TrainingRun
    pid: int
    born: int | None


def read_progress_file(data: bytes, run: str, now: datetime) -> ProgressFile:
    """Parse and check a progress file.

    Args:
        data: content of the file.
        run: id of the run in the file's name.
        now: wall-clock time. A report from the future counts as made now.

    Raises:
        ProgressFileError: the file is not valid.
    """
    if len(data) > MAX_READ_BYTES:
        raise ProgressFileError("it is too long")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise ProgressFileError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise ProgressFileError("it is not an object")
    name = fields.get("name")
    if name is not None and not isinstance(name, str):
        raise ProgressFileError("name: expected a text")
    if len(data) - len(json.dumps(name)) > MAX_BYTES:
        raise ProgressFileError("it is too long")
    if fields.get("version") != VERSION:
        raise ProgressFileError("version: another one")
    if fields.get("run") != run or not is_run(run):
        raise ProgressFileError("run: expected 16 hexadecimal digits, as in the name of the file")
    state = fields.get("state")
    if state != RUNNING and state not in ENDED:
        raise ProgressFileError("state: not known")
    library = fields.get("library")
    at = min(_time(fields, "at"), now)
    steps, start = _count(fields, "steps"), _count(fields, "start", 0)
    total = _optional_count(fields, "total")
    if total is not None and not max(1, start + steps) <= total:
        total = None  # a total that was passed is not the end
    found = TrainingRun(
        run=run,
        name=shown_name(name or ""),
        library=library if library in LIBRARIES else LIBRARIES[0],
        state=state,
        started=min(_time(fields, "started"), at),
        at=at,
        steps=steps,
        start=start,
        total=total,
        epochs=_optional_count(fields, "epochs") or None,
        epoch_steps=_optional_count(fields, "epoch_steps") or None,
        first_seconds=None if fields.get("first") is None else _seconds(fields, "first"),
        group_steps=max(1, _count(fields, "group_steps", 1)),
        groups=_groups(fields.get("groups", [])),
        rest_steps=_count(fields, "rest_steps", 0),
        rest_seconds=_seconds(fields, "rest"),
        patience=_optional_count(fields, "patience"),
    )
    born = None if fields.get("born") is None else _count(fields, "born", most=2**63)
    pid = _count(fields, "pid", most=MAX_PID)
    if pid == 0:
        raise ProgressFileError("pid: expected the id of a process")
    return ProgressFile(found, pid, born)


def is_run(text: str) -> bool:
    """Return whether a text has the form of the id of a run."""
    return _RUN.fullmatch(text) is not None


def shown_name(name: str) -> str:
    """Return a name without line breaks, control characters and direction marks, cut at `NAME_LENGTH` characters."""
    spaced = (" " if unicodedata.category(each) in ("Cc", "Zl", "Zp") else each for each in name)
    plain = "".join(each for each in spaced if unicodedata.category(each) not in ("Cf", "Cs"))
    return " ".join(plain.split())[:NAME_LENGTH].rstrip()


def _number(value: Any, field: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProgressFileError(f"{field}: expected a number")
    if not 0 <= value <= most:  # also NaN; a comparison takes integers of any size
        raise ProgressFileError(f"{field}: expected a number from 0 to {most:g}")
    return value


def _count(fields: Mapping[str, Any], field: str, default: int | None = None, most: int = MAX_COUNT) -> int:
    if field not in fields and default is not None:
        return default
    value = _number(fields.get(field), field, most)
    if value != math.floor(value):
        raise ProgressFileError(f"{field}: expected a whole number")
    return int(value)


def _optional_count(fields: Mapping[str, Any], field: str) -> int | None:
    return None if fields.get(field) is None else _count(fields, field)


def _seconds(fields: Mapping[str, Any], field: str) -> float:
    return float(_number(fields.get(field, 0.0), field, MAX_SECONDS))


def _groups(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > MAX_GROUPS:
        raise ProgressFileError(f"groups: expected a list of at most {MAX_GROUPS} numbers")
    return tuple(float(_number(item, "groups", MAX_SECONDS)) for item in value)


def _time(fields: Mapping[str, Any], field: str) -> datetime:
    return datetime.fromtimestamp(_number(fields.get(field), field, _LAST_TIME), timezone.utc)
