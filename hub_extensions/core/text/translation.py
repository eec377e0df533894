"""Catalogues of translated texts, and the choice of a catalogue for a browser.

``t("You are %1 in line", "2nd")`` returns the translation with its parameters filled in, or the English text if it
is not translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

CONTEXT = "\x04"  # The separator of a context and its text, as in gettext's files
LONGEST_HEADER = 200  # number of characters of an ``Accept-Language`` header that are read
PLACE = re.compile(r"%(\d)")


def _as_in_english(count: float) -> int:
    return 0 if count == 1 else 1


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The translations into one language.

    Attributes:
        language: the language tag used in HTML, such as ``fi-FI``.
        texts: English text -> its translations. A text without a plural has one; a text with a plural has one per form.
        form: a function that returns, for a number, the index of the plural form to use.
    """

    language: str = "en"
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    form: Callable[[float], int] = _as_in_english

    def __call__(self, text: str, *parts: object) -> str:
        """Return the translation of an English text, with the parts in place of ``%1``, ``%2`` and so on."""
        return filled(self.texts.get(text, (text,))[0], parts)

    def plural(self, one: str, many: str, count: float, *parts: object) -> str:
        """Return the translation of a text that depends on a number.

        Args:
            one, many: the English text for the number 1, and for all others.
            count: the number, which replaces ``%1``.
            parts: what replaces ``%2`` and so on.
        """
        found = self.texts.get(one)
        forms = found if found is not None else (one, many)
        form = self.form(count) if found is not None else _as_in_english(count)
        return filled(forms[min(form, len(forms) - 1)], (number(count), *parts))

    def known(self, text: str) -> str | None:
        """Return the translation of an English text without filling in parts, or `None` if it is not translated."""
        found = self.texts.get(text)
        return found[0] if found else None


ENGLISH = Catalogue()


def filled(text: str, parts: Sequence[object]) -> str:
    """Replace ``%1``, ``%2`` and so on by the parts. A placeholder without a part stays as it is."""
    return PLACE.sub(lambda found: str(parts[int(found[1]) - 1]) if 0 < int(found[1]) <= len(parts) else found[0], text)


def halves(text: str) -> tuple[str, str]:
    """Return the text before and after ``%1``, so that a page can put HTML between, such as a time element.

    For a text without ``%1``, return the whole text and "".
    """
    before, _, behind = text.partition("%1")
    return before, behind


def number(value: float) -> str:
    """Format a number without trailing zeros: ``3``, ``1.5``."""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def preferred(header: str, languages: Collection[str]) -> str:
    """Return the one of `languages` that an ``Accept-Language`` header prefers; "" for English.

    The result is also "" if the header prefers none of them. ``fi`` matches ``fi-FI``. Entries that cannot be parsed
    are ignored.
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
