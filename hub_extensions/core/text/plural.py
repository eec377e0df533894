"""The text of a reason: one sentence, or a pair for singular and plural, such as "1 is free" and "2 are free"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plural:
    """A text with one form for the number 1, and another form for all other numbers.

    Attributes:
        count: name of the text's parameter that has the number, such as ``machines``.
        one: the text if the number is 1.
        many: the text for all other numbers.
    """

    count: str
    one: str
    many: str


Text = str | Plural
