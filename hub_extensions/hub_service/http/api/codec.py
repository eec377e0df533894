"""Reads and writes the dataclasses of ``core/messages`` as JSON: strict input, compact output.

Invalid input raises `BadInput` with the field's name and what would be right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from hub_extensions.core.forecast.progress import LONGEST
from hub_extensions.core.messages import Ask, Ended, Progress, Report, Started, Stopped, TrainingEnded
from hub_extensions.core.offers.offer_id import OfferIdError
from hub_extensions.core.offers.user_options import UserOptionsError, check_several
from hub_extensions.core.text.wording import foreign
from hub_extensions.hub_service.http.api.requests import TicketRequest

T = TypeVar("T")

BODY_LIMIT_BYTES = 64 * 1024
"""Longest request body; the longest regular one (many offers, long options) is far below 8 KiB."""

OF_ANY_VERSION = frozenset({Report, Progress, TrainingEnded, Ended, Stopped})
"""Messages whose unknown fields are skipped, because their sender may have a newer version: reports of users' servers,
which have the version of their image, and the hub's reports about a start or a server that ended.
"""

TRAINING_ENDS = ("done", "left", "failed", "vanished")
"""How a training can have ended (`TrainingEnded.state`)."""

_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}

WHAT_IS_RIGHT = {
    "string_type": "has to be text",
    "int_type": "has to be a whole number",
    "int_from_float": "has to be a whole number",
    "bool_type": "has to be true or false",
    "float_type": "has to be a number",
    "tuple_type": "has to be a list",
    "dict_type": "has to be an object",
    "mapping_type": "has to be an object",
    "missing": "is missing",
    "string_unicode": "has to be text in UTF-8",
}


class BadInput(Exception):
    """The input of a caller is invalid.

    Attributes:
        message: what is wrong and what would be right.
        field: dotted path; "" for the whole body.
        status: HTTP status of the answer, 4xx.
        reason: a code for programs, which stays the same when the message changes.
    """

    def __init__(self, message: str, field: str = "", status: int = 400, reason: str = "bad-input") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.reason = reason


def read(kind: type[T], body: bytes) -> T:
    """Parse and check one message from a request's body.

    Args:
        kind: the message's dataclass.
        body: the body, or one line of it.

    Raises:
        BadInput: not JSON, a missing field, a wrong type, a value out of range, or an unknown field. Unknown fields are
            skipped if `kind` is a message that another version of this product may send (`OF_ANY_VERSION`).
    """
    raw = _json(body)
    if not isinstance(raw, dict):
        raise BadInput("The body has to be a JSON object.")
    known = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    unknown = sorted(set(raw) - set(known))
    if unknown and kind not in OF_ANY_VERSION:
        name = foreign(unknown[0])
        raise BadInput(f"'{name}' is not a field here. Known: {', '.join(known)}.", name)
    try:
        value: T = _adapter(kind).validate_json(body, strict=True)
    except ValidationError as problem:
        raise _bad_field(problem) from None
    _check_range(value)
    return value


def write(value: object) -> bytes:
    """Return a dataclass, or a tuple of them, as compact JSON. Times are ISO 8601 in UTC."""
    if isinstance(value, tuple):
        return b"[" + b",".join(write(item) for item in value) + b"]"
    return _adapter(type(value)).dump_json(value)


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _json(body: bytes) -> Any:
    if not body:
        raise BadInput("The body is empty; it has to be a JSON object.")
    strange: list[str] = []

    def no_number(name: str) -> list[str]:
        strange.append(name)
        return strange

    try:
        raw = json.loads(body.decode("utf-8"), parse_constant=no_number)
    except UnicodeDecodeError:
        raise BadInput("The body has to be JSON in UTF-8.") from None
    except RecursionError:
        raise BadInput("The body is nested too deeply.") from None
    except ValueError as problem:
        raise BadInput(f"The body is not JSON: {problem}.") from None
    if strange:
        where = _where(raw, lambda value: value is strange)
        raise BadInput(f"{where or 'The body'}: {strange[0]} is not a number in JSON.", where or "")
    half = _where(raw, _is_half)
    if half is not None:
        raise BadInput(f"{half or 'The body'} has half of a character (a lone surrogate).", half)
    return raw


def _where(raw: object, wrong: Callable[[object], bool]) -> str | None:
    """Return the dotted path of the first value or key in a body for which `wrong` returns True.

    Args:
        raw: the parsed JSON of the body.
        wrong: returns whether a value or key is not allowed.

    Returns:
        "" if that is the whole body. `None` if nothing is wrong.
    """
    todo: list[tuple[str, object]] = [("", raw)]
    while todo:
        path, value = todo.pop()
        if wrong(value):
            return path
        inside: list[tuple[object, object]] = []
        if isinstance(value, dict):
            inside = list(value.items())
        elif isinstance(value, list):
            inside = list(enumerate(value))
        for key, each in reversed(inside):
            name = f"{path}.{foreign(key)}".lstrip(".")
            todo += [(name, each), (name, key)]
    return None


def _is_half(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value)


def _bad_field(problem: ValidationError) -> BadInput:
    first = problem.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    error = first.get("ctx", {}).get("error")
    if isinstance(error, OfferIdError):
        field = str(first["loc"][0])  # the sentence names the id, wherever in a list it stands
        return BadInput(f"{field}: {error}.", field)
    right = WHAT_IS_RIGHT.get(first["type"], f"cannot be used: {first['msg']}")
    return BadInput(f"{where or 'The body'} {right}.", where)


def _check_range(value: object) -> None:
    check = RANGES.get(type(value))
    if check is not None:
        check(value)


def _check_ask(ask: Ask) -> None:
    if not ask.user:
        raise BadInput("user is empty; it has to be a user's name.", "user")
    if not ask.offers:
        raise BadInput("offers is empty; it has to name at least one offer.", "offers")
    if ask.accepted is not None and ask.accepted.tzinfo is None:
        raise BadInput("accepted has no time zone; it has to be a time in UTC.", "accepted")


def _check_ticket_request(wanted: TicketRequest) -> None:
    try:
        check_several(wanted.offers)
    except UserOptionsError as problem:
        raise BadInput(problem.text, problem.field) from None


def _check_started(started: Started) -> None:
    _at_least(1, attempt=started.attempt, pid=started.pid)
    _at_least(0, pid_started=started.pid_started)


def _check_ended(ended: Ended) -> None:
    _at_least(1, attempt=ended.attempt)
    if ended.how not in ("left", "failed"):
        raise BadInput(f"how is {ended.how!r}; it has to be 'left' or 'failed'.", "how")


def _check_report(report: Report) -> None:
    _at_least(0, kernels=report.kernels, busy_kernels=report.busy_kernels, busy_terminals=report.busy_terminals)
    if report.kernels is not None and report.busy_kernels is not None and report.busy_kernels > report.kernels:
        raise BadInput("busy_kernels is more than kernels; it has to be that or less.", "busy_kernels")
    used = report.used_percent
    if used is not None and not 0 <= used <= 100:  # NaN is not between them either
        raise BadInput("used_percent has to be a number from 0 to 100, or null.", "used_percent")


def _check_progress(progress: Progress) -> None:
    if progress.at.tzinfo is None:
        raise BadInput("at has no time zone; it has to be a time in UTC.", "at")
    if not 0 <= progress.left_seconds <= LONGEST.total_seconds():
        raise BadInput("left_seconds has to be a number from 0 to 2592000 (30 days).", "left_seconds")
    if not 0 <= progress.spread <= 1:
        raise BadInput("spread has to be a number from 0 to 1.", "spread")


def _check_training_ended(training: TrainingEnded) -> None:
    if not re.fullmatch("[0-9a-f]{16}", training.run):
        raise BadInput("run has to be 16 hexadecimal digits.", "run")
    if training.state not in TRAINING_ENDS:
        raise BadInput(f"state has to be one of {', '.join(TRAINING_ENDS)}.", "state")
    for name, at in (("started", training.started), ("ended", training.ended)):
        if at.tzinfo is None:
            raise BadInput(f"{name} has no time zone; it has to be a time in UTC.", name)
    if training.ended < training.started:
        raise BadInput("ended is before started; it has to be that or later.", "ended")


def _at_least(least: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise BadInput(f"{name} is {value}; it has to be {least} or more.", name)


RANGES: Mapping[type[Any], Callable[[Any], None]] = {
    Ask: _check_ask,
    TicketRequest: _check_ticket_request,
    Started: _check_started,
    Ended: _check_ended,
    Report: _check_report,
    Progress: _check_progress,
    TrainingEnded: _check_training_ended,
}
