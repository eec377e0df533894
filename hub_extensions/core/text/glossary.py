"""Technical terms on the pages that a first-year student may not know, and their explanations.

Also a function that finds these terms in a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hub_extensions.core.text.translation import ENGLISH, Catalogue

WORDS = {
    "gpu": "GPU",
    "gib": "GiB",
    "mig": "MIG",
    "sm": "SM",
    "shared": "shared",
    "line": "if you joined now",
    "likely": "likely",
    "most": "at most",
    "few": "not enough data yet",
    "idle": "is idle",
}
"""Key -> term as it appears in the English texts; a catalogue translates each as it appears in the translations."""
SENTENCES = {
    "gpu": "A card that computes many things at once: for training and running neural networks. "
    "Without one everything else works.",
    "gib": "How much fits into its memory. A program that needs more ends with an error.",
    "mig": "A card that is cut into parts; yours is for you alone, smaller and sooner free.",
    "sm": "A part of the card that computes: more of them compute faster.",
    "shared": "Others use the same card at the same time: they can slow your program down, or crash it.",
    "line": "Who came first starts first. Your place is kept with this page closed.",
    "likely": "Eight waits of ten are as long as this. It is no promise.",
    "most": "A limit that is enforced: it does not take longer.",
    "few": "Too few people have used such a GPU here to say how long it takes.",
    "idle": "No program of yours computes on the GPU; a cell that uses it starts the time anew.",
}


def listed(t: Catalogue = ENGLISH) -> list[tuple[str, str, str]]:
    """Return each term as (key, term, explanation)."""
    return [(key, t(word), t(SENTENCES[key])) for key, word in WORDS.items()]


def explainer(t: Catalogue = ENGLISH) -> Callable[[str], list[tuple[str, str]]]:
    """Return a function that splits the texts of one page at their terms, so that the page can explain each term once.

    The function returns (piece of the text, key of the term), with "" as the key of the pieces between terms. A term
    counts only where it first appears on the page; the function remembers this from one text to the next.
    """
    keys = {t(word): key for key, word in WORDS.items()}
    said: set[str] = set()

    def pieces(text: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        rest = 0
        for match in _pattern(tuple(keys)).finditer(text):
            key = keys[match[1]]
            if key not in said:
                said.add(key)
                found += [(text[rest : match.start()], ""), (match[0], key)]
                rest = match.end()
        return [piece for piece in (*found, (text[rest:], "")) if piece[0]]

    return pieces


def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches any of the terms, also with a plural ending: ``SMs``."""
    return re.compile(rf"(?<![A-Za-z])({'|'.join(map(re.escape, words))})s?(?![A-Za-z])")
