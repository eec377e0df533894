#!/usr/bin/env python3
"""Write the panel's TypeScript types from the messages the server extension sends, with the standard library only.

It writes ``labextension/src/messages.ts``; with ``--check`` it only says whether it is current (exit status 1: not).
Only what the panel receives is written: ``Push``, ``EndEvent``, ``Problem`` and what they contain.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hub_extensions.core import messages  # noqa: E402
from hub_extensions.core.offers.offer_id import OfferId  # noqa: E402

TARGET = ROOT / "labextension" / "src" / "messages.ts"
RECEIVED = (messages.Push, messages.EndEvent, messages.Problem)
HEAD = """\
// Made by scripts/generate-types.py from hub_extensions/core/messages.py. Change that file, not this one.
// Times are ISO 8601 in UTC; null is not known.
"""
TEXTS: dict[object, str] = dict.fromkeys((str, OfferId, datetime), "string")
WORDS: dict[object, str] = {**TEXTS, int: "number", float: "number", bool: "boolean"}


def typescript() -> str:
    """The whole file's text."""
    kinds = sorted(_reachable(RECEIVED), key=lambda kind: kind.__name__)
    return HEAD + "".join(_interface(kind) for kind in kinds)


def main(arguments: list[str]) -> int:
    """Write the file, or check it; the exit status."""
    text = typescript()
    if "--check" in arguments:
        current = TARGET.exists() and TARGET.read_text() == text
        print("The panel's types are current." if current else f"{TARGET} is old: run scripts/generate-types.py")
        return 0 if current else 1
    TARGET.write_text(text)
    print(f"wrote {TARGET}")
    return 0


def _reachable(roots: tuple[type, ...]) -> set[type]:
    found: set[type] = set()
    waiting = list(roots)
    while waiting:
        kind = waiting.pop()
        if kind in found:
            continue
        found.add(kind)
        for hint in typing.get_type_hints(kind).values():
            waiting.extend(part for part in _parts(hint) if dataclasses.is_dataclass(part))
    return found


def _parts(hint: object) -> list[type]:
    arguments = typing.get_args(hint)
    if not arguments:
        return [hint] if isinstance(hint, type) else []
    return [part for argument in arguments for part in _parts(argument)]


def _interface(kind: type) -> str:
    hints = typing.get_type_hints(kind)
    doc = (inspect.getdoc(kind) or "").splitlines()[0].replace("``", "`")
    fields = [f"  {field.name}: {_word(hints[field.name])};\n" for field in dataclasses.fields(kind)]
    return f"\n/** {doc} */\nexport interface {kind.__name__} {{\n{''.join(fields)}}}\n"


def _word(hint: object) -> str:
    if hint in WORDS:
        return WORDS[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint.__name__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join("null" if part is type(None) else _word(part) for part in arguments)
    if origin is tuple:
        word = _word(arguments[0])
        return f"({word})[]" if "|" in word else f"{word}[]"
    if origin is not None and len(arguments) == 2:
        return f"Record<string, {_word(arguments[1])}>"
    raise TypeError(f"no TypeScript word for {hint!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
