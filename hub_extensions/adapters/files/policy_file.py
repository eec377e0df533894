"""Reads the policy file of culling (rules for idle servers): YAML becomes rules, or problems that each name the line,
the field and the right form.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, Any, Literal, cast, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from hub_extensions.adapters.files.yaml_file import EXPECTED, YamlError, YamlPath, find_line, load_yaml, read_text
from hub_extensions.core.culling import CullPolicy, CullRule, RuleProblem, RuleWindow, check_rules
from hub_extensions.core.culling.rules import DAY_MINUTES, LIMITS

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
UNITS: Mapping[str, timedelta] = {
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
LENGTH = re.compile(r"(-?\d+(?:\.\d+)?) *([a-zA-Z]*)")
CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)|24:00")

LONGEST = timedelta(days=3650)
ONLY_HERE = {"literal_error": "it has to be 1"}


class PolicyFileError(Exception):
    """The policy file cannot be used.

    Attributes:
        problems: what is wrong, in the order of the lines.
    """

    def __init__(self, path: str, problems: Sequence[RuleProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.line))
        super().__init__(f"{path}: " + "; ".join(str(each) if each.line else each.text for each in self.problems))


def read_policy_file(path: str, base: CullPolicy) -> tuple[CullRule, ...]:
    """Return the rules of a file. They change the limits of ``c.GpuCulling`` for some servers.

    Args:
        base: the limits of ``c.GpuCulling``, against which the rules are checked.

    Raises:
        PolicyFileError: the file cannot be read, or a field is wrong.
    """
    try:
        rules = parse_policy(read_text(path))
        problems = list(check_rules(rules, base))
    except _Wrong as wrong:
        raise PolicyFileError(path, wrong.problems) from None
    except YamlError as wrong:
        raise PolicyFileError(path, [RuleProblem(wrong.line, wrong.field, wrong.text)]) from None
    if problems:
        raise PolicyFileError(path, problems)
    return rules


class _Wrong(Exception):
    def __init__(self, problems: Sequence[RuleProblem]) -> None:
        super().__init__()
        self.problems = problems


def _wrong(text: str, line: int = 0, field: str = "the file") -> _Wrong:
    return _Wrong([RuleProblem(line, field, text)])


def parse_policy(text: str) -> tuple[CullRule, ...]:
    """Return the rules for idle servers in the text of a policy file; empty if the text is empty.

    Raises:
        _Wrong: a field is wrong.
        YamlError: the text is not YAML that can be used.
    """
    raw, lines = load_yaml(text)
    if raw is None:
        return ()
    try:
        made = _FileShape.model_validate(raw)
    except ValidationError as problem:
        raise _Wrong([_problem(each, lines, raw) for each in problem.errors(include_url=False)]) from None
    rules = [_rule(cast(Any, each), place, made.zone, lines) for place, each in enumerate(made.rules)]
    names = [each.name for each in rules]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise _wrong(f"another rule is called {name!r} too", find_line(("rules", place, "name"), lines), "name")
    return tuple(rules)


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
    """Return the pydantic type with which the file's value for a field of `CullPolicy` is validated.

    It differs from the field's own type for durations, which are written as text in the file.

    Args:
        hint: the field's own type.
    """
    if hint is timedelta:
        return Annotated[timedelta, BeforeValidator(_length)]
    if hint == (timedelta | None):
        return Annotated[timedelta | None, BeforeValidator(_length_or_none)]
    return hint


RENAMED = {
    "extend_lifetime_times": "max_lifetime_extensions",
    "soft": "restart_on_cpu",
    "wanted": "contended_idle",
}
"""Earlier name of a limit -> its name now, for the error message about the earlier name."""

_HINTS = get_type_hints(CullPolicy)
_LimitedRule: Any = create_model(
    "_LimitedRule", __base__=_RuleShape, **cast(Any, {name: (_kind(_HINTS[name]), None) for name in LIMITS})
)


class _FileShape(_Shape):
    version: Literal["1"] = "1"
    zone: Zone = Field(default_factory=lambda: ZoneInfo("UTC"))
    rules: list[_LimitedRule] = []


# ------------------------------------------------------------------ its meaning


def _rule(made: Any, place: int, zone: ZoneInfo, lines: Mapping[YamlPath, int]) -> CullRule:
    at = ("rules", place)
    limits = {name: getattr(made, name) for name in LIMITS if name in made.model_fields_set}
    if made.never and limits:
        first = next(iter(limits))
        raise _wrong(
            "a rule that says never has no limits: leave one of them out", find_line((*at, first), lines), first
        )
    if not made.never and not limits:
        text = f"it sets nothing: write never: true, or a limit ({', '.join(LIMITS)})"
        raise _wrong(text, find_line(at, lines), f"rule {made.name!r}")
    windows = tuple(_window(each, (*at, "windows", index), zone, lines) for index, each in enumerate(made.windows))
    own = {"".join(map(str, each[2:])): line for each, line in lines.items() if each[:2] == at and len(each) < 4}
    return CullRule(made.name, made.groups, made.users, made.offers, made.pools, windows, made.never, limits, own)


def _window(made: _WindowShape, place: YamlPath, zone: ZoneInfo, lines: Mapping[YamlPath, int]) -> RuleWindow:
    if made.ends <= made.begins:
        text = "it ends before it begins; for a night write two windows, one to 24:00 and one from 00:00"
        raise _wrong(text, find_line((*place, "to"), lines), "to")
    if made.first is not None and made.last is not None and made.last < made.first:
        raise _wrong("it is before first", find_line((*place, "last"), lines), "last")
    return RuleWindow(made.begins, made.ends, made.days, made.zone or zone, made.first, made.last)


def _problem(error: Any, lines: Mapping[YamlPath, int], raw: Any) -> RuleProblem:
    """Convert a validation error of pydantic to a problem that names the line and the field.

    Args:
        error: one of ``ValidationError.errors()``.
        lines: line of each value in the file.
        raw: the whole content of the file.
    """
    place = tuple(error["loc"])
    line = find_line(place, lines)
    field = next((str(part) for part in reversed(place) if isinstance(part, str)), "the file")
    if error["type"] == "extra_forbidden" and field in RENAMED:
        return RuleProblem(line, field, f"it is called {RENAMED[field]} now")
    if error["type"] == "extra_forbidden":
        known = [*_known(place)]
        nearest = difflib.get_close_matches(field, known, n=1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        return RuleProblem(line, field, f"it is not known here; {hint}Known: {', '.join(known)}")
    if error["type"] == "missing":
        return RuleProblem(line, field, "it is missing")
    own = error["ctx"]["error"] if error["type"] == "value_error" else f"it cannot be used: {error['msg']}"
    return RuleProblem(line, field, ONLY_HERE.get(error["type"]) or EXPECTED.get(error["type"], str(own)))


def _known(place: YamlPath) -> Iterator[str]:
    kind: type[BaseModel] = _FileShape
    if "windows" in place[:-1]:
        kind = _WindowShape
    elif "rules" in place[:-1]:
        kind = _LimitedRule
    for name, field in kind.model_fields.items():
        yield field.alias or name
