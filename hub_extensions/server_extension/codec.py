"""Converts messages (the dataclasses of ``core/messages``) to JSON and back.

It needs the standard library only, because a user's server may lack pydantic. Unknown fields are skipped, because a
newer service may send more. A missing or wrong field is a ``CodecError`` that names the field.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hub_extensions.core.offers.offer_id import OfferId, OfferIdError

T = TypeVar("T")
PROTOCOL_VERSION = 5
"""Version of the protocol between this server and its pages; a panel with another version asks the user to reload."""


class CodecError(ValueError):
    """A message that does not fit its type; the text names the field and what was expected."""


def encode(message: object) -> str:
    """Convert a frozen dataclass to one line of JSON, with times as ISO 8601 in UTC."""
    if not dataclasses.is_dataclass(message) or isinstance(message, type):
        raise TypeError(f"not a message: {message!r}")
    return json.dumps(_plain(message), separators=(",", ":"), allow_nan=False)


def decode(kind: type[T], text: str | bytes) -> T:
    """Read one message of this type.

    Raises:
        CodecError: the text is not JSON, or a field is missing or of another type.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{kind.__name__}: not JSON") from error
    message: T = _message(kind, data, kind.__name__)
    return message


_SCALARS = frozenset({type(None), bool, int, float, str, OfferId})


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _plain(value: Any) -> Any:
    if value.__class__ in _SCALARS:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        # ten minutes of eight devices are 14,400 numbers, so scalars are not converted again
        return [item if item.__class__ in _SCALARS else _plain(item) for item in value]
    return value


def _message(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise CodecError(f"{path}: expected an object")
    hints = _hints(kind)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in data:
            found[field.name] = _value(hints[field.name], data[field.name], f"{path}.{field.name}")
            continue
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CodecError(f"{path}.{field.name}: missing")
    return kind(**found)


def _value(hint: Any, data: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in get_args(hint):
            return None
        choices = [choice for choice in get_args(hint) if choice is not type(None)]
        fits = choices[:1] if len(choices) == 1 else [choice for choice in choices if _fits(choice, data)]
        if not fits:
            raise CodecError(f"{path}: expected {' or '.join(choice.__name__ for choice in choices)}")
        return _value(fits[0], data, path)
    if origin is tuple:
        if not isinstance(data, list):
            raise CodecError(f"{path}: expected a list")
        return tuple(_value(get_args(hint)[0], item, f"{path}[{index}]") for index, item in enumerate(data))
    if origin is not None:
        if not isinstance(data, dict):
            raise CodecError(f"{path}: expected an object")
        return {str(key): _value(get_args(hint)[1], item, f"{path}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(hint):
        return _message(hint, data, path)
    return _scalar(hint, data, path)


def _fits(hint: Any, data: Any) -> bool:
    """Return whether a JSON value has the type `hint`, which is ``str`` or a number.

    A field that may be either of them is decoded as the first type that fits.
    """
    return isinstance(data, str) if hint is str else isinstance(data, (int, float)) and not isinstance(data, bool)


def _scalar(hint: Any, data: Any, path: str) -> Any:
    if hint is datetime:
        return _time(data, path)
    if hint is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        return _number(data, path)
    if hint is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if hint in (str, bool) and isinstance(data, hint):
        return data
    if hint is OfferId and isinstance(data, str):
        return _offer_id(data, path)
    raise CodecError(f"{path}: expected {getattr(hint, '__name__', hint)}")


def _offer_id(data: str, path: str) -> OfferId:
    try:
        return OfferId(data)
    except OfferIdError as error:
        raise CodecError(f"{path}: expected an offer's id") from error


def _number(data: float, path: str) -> float:
    """Convert a JSON number of the field `path` to a finite float.

    Raises:
        CodecError: it is NaN or too large (such as 1e999). Python reads such values but could not encode them again.
    """
    try:
        number = float(data)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CodecError(f"{path}: expected float")
    return number


def _time(data: Any, path: str) -> datetime:
    if not isinstance(data, str):
        raise CodecError(f"{path}: expected a time")
    try:
        # Python 3.10 reads neither "Z" nor fractions of other than 3 or 6 digits
        text = data[:-1] + "+00:00" if data.endswith("Z") else data
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise CodecError(f"{path}: expected a time with its zone")
        return at.astimezone(timezone.utc)
    except CodecError:
        raise
    except (ValueError, OverflowError) as error:  # the first and last representable days cannot be converted
        raise CodecError(f"{path}: expected a time") from error
