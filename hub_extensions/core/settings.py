"""A setting: a field of a value, with what an admin has to know about it, written once.

``idle: timedelta = setting(timedelta(minutes=30), "A server whose …", name="idle_minutes", least=0)`` in a class with
the `section` ``GpuCulling`` is all of ``c.GpuCulling.idle_minutes``: its trait (``spawner/config/traits.py``), its row
of the reference and its place in what the service reads follow from it.
Not here: reading a configuration, and what a setting means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

UNITS = {"hours": timedelta(hours=1), "minutes": timedelta(minutes=1), "seconds": timedelta(seconds=1)}
"""Word in a setting's name -> the unit in which an admin writes its duration."""

Value = TypeVar("Value")
_KEY = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """What an admin has to know about a field.

    Attributes:
        name: in the configuration; that of a duration has its unit in it.
        text: the help, in an admin's words. The unit of a duration is added to it.
        least, most: of a number, or of the numbers in a dict; None: no such limit. A duration's are in its unit.
        variable: of the environment, which brings it where the configuration does not; "": none does.
        token: it is sent in a header, and has at least so many characters; None: it is no token.
    """

    name: str
    text: str
    least: float | None = None
    most: float | None = None
    variable: str = ""
    token: int | None = None

    @property
    def unit(self) -> str:
        """The unit in its name, a key of `UNITS`; "": none."""
        return next((part for part in self.name.split("_") if part in UNITS), "")


def setting(
    default: Value,
    text: str,
    *,
    name: str = "",
    least: float | None = None,
    most: float | None = None,
    variable: str = "",
    token: int | None = None,
    secret: bool = False,
) -> Value:
    """A field that an admin may set. `name`: where it is another than the field's; `secret`: it is in no ``repr``."""
    about = Setting(name, text, least, most, variable, token)
    common: dict[str, Any] = {"repr": not secret, "metadata": {_KEY: about}}
    made: Any = field(default_factory=dict, **common) if isinstance(default, dict) else field(default=default, **common)
    return cast(Value, made)


def settings_in(value: type[Any]) -> Mapping[str, Setting]:
    """Field -> its setting, in the order they are written. Fields that no admin sets are left out."""
    return _settings_in(cast(Any, value))


@cache
def _settings_in(value: Any) -> Mapping[str, Setting]:
    found = {each.name: each.metadata.get(_KEY) for each in fields(value)}
    named = {name: replace(about, name=about.name or name) for name, about in found.items() if about is not None}
    return MappingProxyType(named)


def spelled(value: type[Any], name: str) -> str:
    """How an admin writes the setting of a field: ``c.GpuCulling.idle_minutes``; "": no admin sets it."""
    about = settings_in(value).get(name)
    if about is None:
        return ""
    # of a value that is made of several sections it is the one that says it
    *_, owner = (
        each for each in value.__mro__ if is_dataclass(each) and name in {field.name for field in fields(each)}
    )
    return f"c.{cast(Any, owner).section}.{about.name}"
