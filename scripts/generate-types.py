#!/usr/bin/env python3
"""Write the panel's TypeScript types, and the reasons it translates, with the standard library only.

It writes ``labextension/src/messages.ts`` from the messages the server extension sends (``Push``, ``EndEvent``,
``Problem`` and what they contain), ``labextension/src/reasons.ts`` from the table of reasons, and for the panel's tests
an example of each with its English text. With ``--check`` it only says whether they are current (exit status 1: not).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
import typing
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hub_extensions.core import messages  # noqa: E402
from hub_extensions.core.offers.offer_id import OfferId  # noqa: E402
from hub_extensions.core.text.reasons import PARAMETER, TO_THE_PANEL, Plural, Text, explain, numbered, parameters  # noqa: E402

PANEL = ROOT / "labextension"
RECEIVED = (messages.Push, messages.EndEvent, messages.Problem)
HEAD = """\
// Made by scripts/generate-types.py from hub_extensions/core/messages. Change those files, not this one.
// Times are ISO 8601 in UTC; null is not known.
"""
REASONS = """\
// Made by scripts/generate-types.py from hub_extensions/core/text/reasons.py. Change that file, not this one.
import type { TranslationBundle } from '@jupyterlab/translation';

/** What a reason with parameters says: each of them with how it is written, and the sentence they are put into. */
export interface ISentence {
  params: [name: string, kind: string][];
  /** The parameter that is a number of things, where one is said in another way. */
  count?: string;
  text: (trans: TranslationBundle, parts: string[], count: number) => string;
}

/** By the reason's code. */
// prettier-ignore
export const SENTENCES = new Map<string, ISentence>([
"""
EXAMPLES: dict[str, list[str | float]] = {
    "text": ["MIG 1g.5gb"],
    "number": [24, 1.5],
    "duration": [45, 90, 1260, 3600, 7800, 43200],
    "time": ["2026-11-21T13:30:00Z"],
}
TEXTS: dict[object, str] = dict.fromkeys((str, OfferId, datetime), "string")
WORDS: dict[object, str] = {**TEXTS, int: "number", float: "number", bool: "boolean"}


def typescript() -> str:
    """The whole file's text."""
    kinds = sorted(_reachable(RECEIVED), key=lambda kind: kind.__name__)
    return HEAD + "".join(_interface(kind) for kind in kinds)


def reasons() -> str:
    """The sentences with parameters that the panel may show, as literals that its translations are found by.

    One without is not here: in English it comes from the server, and in other languages its code finds it.
    """
    made = [_sentence(reason, text) for reason, text in TO_THE_PANEL.items() if parameters(text)]
    return REASONS + ",\n".join(made) + "\n]);\n"


def examples() -> str:
    """Each reason with parameters of every kind, and its English text."""
    found = [
        {"reason": reason, "params": example.params, "message": example.message}
        for reason, text in TO_THE_PANEL.items()
        for example in (explain(reason, **params) for params in _example_params(text))
    ]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the files, or check them; the exit status."""
    made = {
        PANEL / "src" / "messages.ts": typescript(),
        PANEL / "src" / "reasons.ts": reasons(),
        PANEL / "tests" / "reasons.json": examples(),
    }
    if "--check" in arguments:
        old = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
        for path in old:
            print(f"{path} is old: run scripts/generate-types.py")
        print("" if old else "The panel's types are current.")
        return 1 if old else 0
    for path, text in made.items():
        path.write_text(text)
        print(f"wrote {path}")
    return 0


def _sentence(reason: str, text: Text) -> str:
    params = parameters(text)
    listed = ", ".join(f"['{name}', '{kind}']" for name, kind in params)
    if isinstance(text, Plural):
        # JupyterLab puts the number itself in as %1
        literals = ", ".join(_literal(numbered(each, params)) for each in (text.one, text.many))
        others = ", ...parts.slice(1)" if len(params) > 1 else ""
        count = f"\n    count: '{text.count}',"
        words = f"(trans, parts, count) => trans._n({literals}, count{others})"
    else:
        count = ""
        words = f"(trans, parts) => trans.__({_literal(numbered(text, params))}, ...parts)"
    return f"  ['{reason}', {{\n    params: [{listed}],{count}\n    text: {words}\n  }}]"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _example_params(text: Text) -> list[dict[str, str | float]]:
    """One after the other each value of the longest list; a count is 1 and more than 1."""
    many = text.many if isinstance(text, Plural) else text
    values = {name: EXAMPLES[kind or "text"] for name, kind in PARAMETER.findall(many)}
    if isinstance(text, Plural):
        values[text.count] = [1, 2]
    rows = max((len(each) for each in values.values()), default=1)
    return [{name: each[row % len(each)] for name, each in values.items()} for row in range(rows)]


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
    fields = [f"  {field.name}: {_type_name(hints[field.name])};\n" for field in dataclasses.fields(kind)]
    return f"\n/** {doc} */\nexport interface {kind.__name__} {{\n{''.join(fields)}}}\n"


def _type_name(hint: object) -> str:
    if hint in WORDS:
        return WORDS[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint.__name__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join("null" if part is type(None) else _type_name(part) for part in arguments)
    if origin is tuple:
        word = _type_name(arguments[0])
        return f"({word})[]" if "|" in word else f"{word}[]"
    if origin is not None and len(arguments) == 2:
        return f"Record<string, {_type_name(arguments[1])}>"
    raise TypeError(f"no TypeScript word for {hint!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
