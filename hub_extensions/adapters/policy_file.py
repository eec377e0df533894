"""The policy file of culling: YAML in, rules out, or what is wrong with it: line, field, and what would be right.

Scalars are taken as they are written: a group called ``no`` is no truth value, and ``10:00`` no number of base 60.
A link is followed: a mounted ConfigMap is one. Anchors are refused: nobody needs them here, and a few make a billion.
Not here: what the rules mean (``core/culling/rules.py``), and when the file is read (``hub_service/engine``).
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Literal, cast, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from hub_extensions.core.culling import CullPolicy, CullRule, RuleProblem, RuleWindow, check_rules
from hub_extensions.core.culling.rules import DAY_MINUTES, LIMITS

MOST_BYTES = 256 * 1024
"""A file of a thousand rules is smaller."""
DEEPEST = 8
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
UNITS: Mapping[str, timedelta] = {
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
LENGTH = re.compile(r"(-?\d+(?:\.\d+)?) *([a-zA-Z]*)")
CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)|24:00")

Place = tuple[str | int, ...]


LONGEST = timedelta(days=3650)


class PolicyFileError(Exception):
    """The file cannot be used; `problems` are in the order of the lines."""

    def __init__(self, path: str, problems: Sequence[RuleProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.line))
        super().__init__(f"{path}: " + "; ".join(str(each) if each.line else each.text for each in self.problems))


@dataclass(frozen=True, slots=True)
class FileStamp:
    """By what it shows that a file is another one now."""

    modified: int
    changed: int
    size: int
    inode: int


def stamp_of(path: str) -> FileStamp | None:
    """The stamp of a file; None: there is none, or it may not be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileStamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def read_policy_file(path: str, base: CullPolicy) -> tuple[CullRule, ...]:
    """The rules of a file, which go with the limits of ``c.GpuCulling``.

    Raises:
        PolicyFileError: it cannot be read, or a field is wrong.
    """
    try:
        rules = parse_policy(_text(path))
        problems = list(check_rules(rules, base))
    except _Wrong as wrong:
        raise PolicyFileError(path, wrong.problems) from None
    if problems:
        raise PolicyFileError(path, problems)
    return rules


class _Wrong(Exception):
    def __init__(self, problems: Sequence[RuleProblem]) -> None:
        super().__init__()
        self.problems = problems


def _wrong(text: str, line: int = 0, field: str = "the file") -> _Wrong:
    return _Wrong([RuleProblem(line, field, text)])


def _text(path: str) -> str:
    try:
        with open(path, "rb", opener=_opener) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _wrong("it is no file: it has to be a plain one, or a link to one")
            content: bytes = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise _wrong(f"it cannot be read ({problem.strerror}); the service's account has to be able to") from None
    if len(content) > MOST_BYTES:
        raise _wrong(f"it has more than {MOST_BYTES // 1024} KiB, the most that is read")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        raise _wrong("it has to be text in UTF-8", line) from None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that nobody writes into keeps nobody waiting


# ------------------------------------------------------------------ YAML


def parse_policy(text: str) -> tuple[CullRule, ...]:
    """The rules of a file's text. Raises `_Wrong`."""
    try:
        _check_events(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        tabs = "\\t" in str(problem.problem)
        advice = "indent with spaces, not with tabs" if tabs else f"it is not YAML ({problem.problem})"
        raise _wrong(advice, 0 if mark is None else mark.line + 1) from None
    except yaml.YAMLError as problem:
        raise _wrong(f"it is not YAML ({str(problem).splitlines()[0]})") from None
    if root is None:
        return ()
    lines: dict[Place, int] = {}
    raw = _plain(root, (), lines)
    try:
        made = _FileShape.model_validate(raw)
    except ValidationError as problem:
        raise _Wrong([_problem(each, lines, raw) for each in problem.errors(include_url=False)]) from None
    rules = [_rule(cast(Any, each), place, made.zone, lines) for place, each in enumerate(made.rules)]
    names = [each.name for each in rules]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise _wrong(f"another rule is called {name!r} too", _line(("rules", place, "name"), lines), "name")
    return tuple(rules)


def _check_events(text: str) -> None:
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _wrong("anchors (&) and aliases (*) are not read; write the value out", line)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if documents > 1:
            raise _wrong("it has to hold one document, without a second ---", line)
        if depth > DEEPEST:
            raise _wrong("it is nested too deeply", line)


def _plain(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    """Texts, None, lists and dicts; `lines` gets the line of each place."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        null = node.tag == "tag:yaml.org,2002:null" or (node.style is None and node.value == "none")
        return None if null else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, (*place, index), lines) for index, each in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong("a key has to be a word", line)
        if key.value in found:
            raise _wrong("it stands twice; leave one out", line, key.value)
        inner = (*place, key.value)
        lines[inner] = line
        found[key.value] = _plain(value, inner, lines)
    return found


# ------------------------------------------------------------------ its shape


def _length(written: Any) -> Any:
    found = LENGTH.fullmatch(written.strip()) if isinstance(written, str) else None
    if found is None:
        raise ValueError("it has to be a number with a unit, such as 30 min, 6 h or 2 d")
    number, unit = found.groups()
    if not unit:
        raise ValueError(f"it has no unit: write {number} min, {number} h or {number} d")
    if unit not in UNITS:
        raise ValueError(f"{unit!r} is no unit: s, min, h and d are")
    if float(number) < 0:
        raise ValueError("it has to be 0 or more")
    if float(number) * UNITS[unit].total_seconds() > LONGEST.total_seconds():
        raise ValueError(f"it is longer than {LONGEST.days} d; write null where there is no limit")
    return UNITS[unit] * float(number)


def _length_or_none(written: Any) -> Any:
    return None if written is None else _length(written)


def _minute(written: Any) -> int:
    if not isinstance(written, str) or not CLOCK.fullmatch(written):
        raise ValueError("it has to be a time of the day, from 00:00 to 24:00")
    hours, minutes = written.split(":")
    return int(hours) * 60 + int(minutes)


def _zone(written: Any) -> ZoneInfo:
    try:
        return ZoneInfo(written)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        nearest = difflib.get_close_matches(str(written), available_timezones(), n=1, cutoff=0.5)
        hint = f"; did you mean {nearest[0]}?" if nearest else ", such as Europe/Helsinki (the package tzdata has them)"
        raise ValueError(f"there is no zone {str(written)[:40]!r}: it has to be one of the IANA names{hint}") from None


def _days(written: Any) -> Any:
    if not isinstance(written, list):
        raise ValueError(f"it has to be a list of days ({', '.join(DAYS)})")
    for day in written:
        if day not in DAYS:
            raise ValueError(f"{str(day)[:20]!r} is no day: they are {', '.join(DAYS)}")
    return frozenset(DAYS.index(day) for day in written)


def _names(written: Any) -> Any:
    if not isinstance(written, list) or not written or not all(isinstance(each, str) and each for each in written):
        raise ValueError("it has to be a list of names with at least one in it, such as [course-a]")
    return frozenset(written)


Names = Annotated[frozenset[str], BeforeValidator(_names)]
Zone = Annotated[Any, BeforeValidator(_zone)]
ClockTime = Annotated[int, BeforeValidator(_minute)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class _WindowShape(_Shape):
    days: Annotated[frozenset[int], BeforeValidator(_days)] = frozenset(range(7))
    begins: ClockTime = Field(0, alias="from")
    ends: ClockTime = Field(DAY_MINUTES, alias="to")
    zone: Zone | None = None
    first: date | None = None
    last: date | None = None


class _RuleShape(_Shape):
    name: str = Field(min_length=1, max_length=80)
    groups: Names = frozenset()
    users: Names = frozenset()
    offers: Names = frozenset()
    pools: Names = frozenset()
    windows: list[_WindowShape] = []
    never: bool = False


def _kind(hint: Any) -> Any:
    """How a field of `CullPolicy` is written in the file."""
    if hint is timedelta:
        return Annotated[timedelta, BeforeValidator(_length)]
    if hint == (timedelta | None):
        return Annotated[timedelta | None, BeforeValidator(_length_or_none)]
    return hint


_HINTS = get_type_hints(CullPolicy)
_LimitedRule: Any = create_model(
    "_LimitedRule", __base__=_RuleShape, **cast(Any, {name: (_kind(_HINTS[name]), None) for name in LIMITS})
)


class _FileShape(_Shape):
    version: Literal["1"] = "1"
    zone: Zone = Field(default_factory=lambda: ZoneInfo("UTC"))
    rules: list[_LimitedRule] = []


# ------------------------------------------------------------------ its meaning


def _rule(made: Any, place: int, zone: ZoneInfo, lines: Mapping[Place, int]) -> CullRule:
    at = ("rules", place)
    limits = {name: getattr(made, name) for name in LIMITS if name in made.model_fields_set}
    if made.never and limits:
        first = next(iter(limits))
        raise _wrong("a rule that says never has no limits: leave one of them out", _line((*at, first), lines), first)
    if not made.never and not limits:
        text = f"it sets nothing: write never: true, or a limit ({', '.join(LIMITS)})"
        raise _wrong(text, _line(at, lines), f"rule {made.name!r}")
    windows = tuple(_window(each, (*at, "windows", index), zone, lines) for index, each in enumerate(made.windows))
    own = {"".join(map(str, each[2:])): line for each, line in lines.items() if each[:2] == at and len(each) < 4}
    return CullRule(made.name, made.groups, made.users, made.offers, made.pools, windows, made.never, limits, own)


def _window(made: _WindowShape, place: Place, zone: ZoneInfo, lines: Mapping[Place, int]) -> RuleWindow:
    if made.ends <= made.begins:
        text = "it ends before it begins; for a night write two windows, one to 24:00 and one from 00:00"
        raise _wrong(text, _line((*place, "to"), lines), "to")
    if made.first is not None and made.last is not None and made.last < made.first:
        raise _wrong("it is before first", _line((*place, "last"), lines), "last")
    return RuleWindow(made.begins, made.ends, made.days, made.zone or zone, made.first, made.last)


def _problem(error: Any, lines: Mapping[Place, int], raw: Any) -> RuleProblem:
    """What pydantic found, in our words."""
    place = tuple(error["loc"])
    line = _line(place, lines)
    field = next((str(part) for part in reversed(place) if isinstance(part, str)), "the file")
    if error["type"] == "extra_forbidden":
        known = [*_known(place)]
        nearest = difflib.get_close_matches(field, known, n=1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        return RuleProblem(line, field, f"it is not known here; {hint}Known: {', '.join(known)}")
    if error["type"] == "missing":
        return RuleProblem(line, field, "it is missing")
    own = error["ctx"]["error"] if error["type"] == "value_error" else f"it cannot be used: {error['msg']}"
    return RuleProblem(line, field, RIGHT.get(error["type"], str(own)))


RIGHT: Mapping[str, str] = {
    "bool_parsing": "it has to be true or false",
    "bool_type": "it has to be true or false",
    "int_parsing": "it has to be a whole number",
    "int_type": "it has to be a whole number",
    "float_parsing": "it has to be a number",
    "float_type": "it has to be a number",
    "list_type": "it has to be a list",
    "string_type": "it has to be a text",
    "string_too_short": "it has to be a name",
    "model_type": "it has to have fields, as in the example",
    "model_attributes_type": "it has to have fields, as in the example",
    "date_from_datetime_parsing": "it has to be a date, such as 2026-09-01",
    "date_parsing": "it has to be a date, such as 2026-09-01",
    "literal_error": "it has to be 1",
}


def _known(place: Place) -> Iterator[str]:
    kind: type[BaseModel] = _FileShape
    if "windows" in place[:-1]:
        kind = _WindowShape
    elif "rules" in place[:-1]:
        kind = _LimitedRule
    for name, field in kind.model_fields.items():
        yield field.alias or name


def _line(place: Place, lines: Mapping[Place, int]) -> int:
    """The line of a place, or of the nearest one around it that is written."""
    for length in range(len(place), -1, -1):
        if place[:length] in lines:
            return lines[place[:length]]
    return 0
