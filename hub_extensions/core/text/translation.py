"""A page's texts in its reader's language: a catalogue that is asked for each English text, and which one it is. Pure.

``t("You are %1 in line", "2nd")`` is the translation with its parts put in, or the English text where there is none.
Not here: where catalogues are kept (``adapters/files/catalogues.py``), and sentences of reasons (``reasons.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

CONTEXT = "\x04"
"""Between a context and its text, as in gettext's own files."""
LONGEST_HEADER = 200
"""So much of an ``Accept-Language`` is read."""
PLACE = re.compile(r"%(\d)")


def _as_in_english(count: float) -> int:
    return 0 if count == 1 else 1


@dataclass(frozen=True, eq=False)
class Catalogue:
    """One language.

    Attributes:
        language: as HTML says it, ``fi-FI``.
        texts: English text -> its translation; of a plural each form.
        form: which form a number takes.
    """

    language: str = "en"
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    form: Callable[[float], int] = _as_in_english

    def __call__(self, text: str, *parts: object) -> str:
        """A text with ``%1``, ``%2``, … put in."""
        return filled(self.texts.get(text, (text,))[0], parts)

    def plural(self, one: str, many: str, count: float, *parts: object) -> str:
        """A text that differs with a number, which is ``%1``; the parts are ``%2`` and so on."""
        found = self.texts.get(one)
        forms = found if found is not None else (one, many)
        form = self.form(count) if found is not None else _as_in_english(count)
        return filled(forms[min(form, len(forms) - 1)], (number(count), *parts))

    def known(self, text: str) -> str | None:
        """The translation as it stands; None: there is none."""
        found = self.texts.get(text)
        return found[0] if found else None


ENGLISH = Catalogue()


def filled(text: str, parts: Sequence[object]) -> str:
    """Put the parts in; a place without one stays as it is."""
    return PLACE.sub(lambda found: str(parts[int(found[1]) - 1]) if 0 < int(found[1]) <= len(parts) else found[0], text)


def halves(text: str) -> tuple[str, str]:
    """What stands before and behind the ``%1`` of a text: for what is no text, as a time."""
    before, _, behind = text.partition("%1")
    return before, behind


def number(value: float) -> str:
    """A number as it is: ``3``, ``1.5``."""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def preferred(header: str, languages: Collection[str]) -> str:
    """Which of these languages an ``Accept-Language`` asks for first; "" where none, or English before.

    ``fi`` is served by ``fi-FI``. What cannot be read counts as not said.
    """
    wishes = sorted(_wishes(header[:LONGEST_HEADER]), key=lambda wish: -wish[1])
    for wanted, _ in wishes:
        kind = wanted.split("-")[0]
        if kind == "en":
            return ""
        for language in sorted(languages, key=lambda each: each.lower() != wanted):
            if language.lower() == wanted or language.lower().split("-")[0] == kind:
                return language
    return ""


def _wishes(header: str) -> list[tuple[str, float]]:
    found = []
    for part in header.split(","):
        name, _, weight = part.partition(";")
        known = re.fullmatch(r"\s*q\s*=\s*([01](?:\.\d{1,3})?)\s*", weight)
        if weight and known is None:
            continue
        value = float(known[1]) if known else 1.0
        if value > 0 and re.fullmatch(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*", name.strip()):
            found.append((name.strip().lower(), value))
    return found
