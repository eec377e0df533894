"""Split a text for a page into pieces in the reader's language and English pieces, for screen readers.

The page marks the English pieces with their language. These are words that the cluster, the hub or a program wrote, and
sentences without a translation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from hub_extensions.core.text.reasons import SENTENCES, Reason, parameters, sentence_in, translated
from hub_extensions.core.text.translation import ENGLISH, Catalogue

FOREIGN = "foreign"  # The format of a parameter that holds words of another program
_FOREIGN_WORDS, _MARKS = re.compile("\x02(.*?)\x03", re.DOTALL), re.compile("[\x02\x03]")


class SentencePiece(NamedTuple):
    """A part of a text that is in one language.

    Attributes:
        english: whether the part is English although the page is in another language.
    """

    text: str
    english: bool = False


Pieces = tuple[SentencePiece, ...]


def in_pieces(reasons: Iterable[Reason], t: Catalogue = ENGLISH, between: str = " ") -> Pieces:
    """Return several reasons as one text, split into pieces that are each in one language.

    Args:
        reasons: the reasons.
        t: the catalogue of the reader's language.
        between: text between two reasons.
    """
    found: list[SentencePiece] = []
    for reason in reasons:
        if found:
            found.append(SentencePiece(between))
        found += _pieces_of(reason, t)
    return tuple(found)


def plain_pieces(text: str, t: Catalogue = ENGLISH) -> Pieces:
    """Return a text without the code of a reason as one piece; no piece if the text is "".

    Such a text comes from an older version or another program. It is translated if the catalogue knows it.

    Args:
        text: the text.
        t: the catalogue of the reader's language.
    """
    known = t.known(text)
    return (SentencePiece(known or text, english=t is not ENGLISH and known is None),) if text else ()


def joined(pieces: Pieces) -> str:
    return "".join(piece.text for piece in pieces)


def _pieces_of(reason: Reason, t: Catalogue) -> Iterable[SentencePiece]:
    if t is ENGLISH:
        return [SentencePiece(reason.message)]
    if sentence_in(reason, t) is None:
        return [SentencePiece(reason.message, english=True)]
    foreign = {name for name, kind in parameters(SENTENCES[reason.reason]) if kind == FOREIGN}
    marked = {
        name: f"\x02{_MARKS.sub('', str(value))}\x03" if name in foreign else value
        for name, value in reason.params.items()
    }
    halves = _FOREIGN_WORDS.split(translated(replace(reason, params=marked), t))
    return [SentencePiece(text, english=bool(place % 2)) for place, text in enumerate(halves) if text]
