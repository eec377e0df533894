"""The settings of a process in a JSON file: validated field by field, written atomically.

The file contains secrets and is written with mode 0600.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from hub_extensions.core.settings import spelled

SettingsT = TypeVar("SettingsT")


class SettingsError(Exception):
    """The settings file is missing or wrong; the text names file and field and what would be right."""


def read_settings(path: str | os.PathLike[str], made: type[SettingsT]) -> SettingsT:
    """Read the file and return its settings as an object of the dataclass `made`.

    Raises:
        SettingsError: it is missing, not readable, not JSON, or a field is wrong.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise SettingsError(
            f"The settings file {file} cannot be read ({problem.strerror}). "
            "configure(c) in jupyterhub_config.py writes it at the hub's start."
        ) from problem
    try:
        raw = json.loads(text)
    except ValueError as problem:
        raise SettingsError(f"The settings file {file} is not JSON: {problem}.") from problem
    return checked(f"The settings file {file}", raw, made)


def write_settings(path: str | os.PathLike[str], settings: Any) -> None:
    """Write the settings of a process, which are an object of a dataclass, to a JSON file atomically with mode 0600."""
    write_private(Path(path), _adapter(type(settings)).dump_json(settings, indent=2).decode() + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. A new file replaces it, so that nobody sees a half-written one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def checked(what: str, raw: Any, made: type[SettingsT]) -> SettingsT:
    """Validate settings from JSON values.

    Args:
        what: the beginning of the error messages, such as "The settings file /srv/gpu-state/service.json".
        raw: the JSON values.
        made: the dataclass of the settings.

    Raises:
        SettingsError: a field is unknown, missing or wrong. The text names the setting as an administrator writes it.
    """
    if not isinstance(raw, dict):
        raise SettingsError(f"{what} has to hold one JSON object.")
    for path, known in _unknown(made, raw):
        raise SettingsError(f"{what} has the unknown field {path!r}. Known: {', '.join(known)}.")
    try:
        return _adapter(made).validate_python(raw)
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        raise SettingsError(f"{what}: {_named(made, first['loc'])}: {first['msg']}.") from None


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(made: type[SettingsT]) -> TypeAdapter[SettingsT]:
    """Return pydantic's adapter for a dataclass from a cache, because creating one takes longer than using it."""
    if made not in _ADAPTERS:
        _ADAPTERS[made] = TypeAdapter(made)
    return _ADAPTERS[made]


def _unknown(value: type[Any], raw: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every key that the dataclass does not have, and the keys that the dataclass has there, for the error
    message.

    pydantic ignores unknown keys of nested values, so this function finds them.

    Args:
        value: the dataclass.
        raw: the JSON values.
        above: the path of the enclosing value in the file; "" for the whole file.
    """
    known = tuple(each.name for each in fields(value))
    for key, inner in raw.items():
        if key not in known:
            yield f"{above}{key}", known
        elif isinstance(inner, Mapping) and (kind := _value_of(value, key)) is not None:
            yield from _unknown(kind, inner, f"{above}{key}.")


def _named(value: type[Any], path: Sequence[int | str]) -> str:
    """Return the name that error messages use for a value: the setting as an administrator writes it.

    If the value has no such setting, its path is returned with dots.

    Args:
        value: the dataclass of the whole file.
        path: keys and indexes that lead to the value.
    """
    inner: type[Any] | None = value
    for part in path:
        if inner is None or part not in [each.name for each in fields(inner)]:
            break
        if name := spelled(inner, str(part)):
            return name
        inner = _value_of(inner, str(part))
    return ".".join(str(part) for part in path)


def _value_of(value: type[Any], name: str) -> type[Any] | None:
    """Return the type of a dataclass's field if that type is a dataclass itself; otherwise `None`.

    Args:
        value: the dataclass.
        name: name of the field.
    """
    kind = get_type_hints(value)[name]
    return next((each for each in (kind, *get_args(kind)) if isinstance(each, type) and is_dataclass(each)), None)
