"""The text of a reason: one sentence, or a pair for singular and plural, such as "1 is free" and "2 are free"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plural:
    """A text with one form for the case that the parameter `count` is 1, and another form for all others."""

    count: str
    one: str
    many: str


Text = str | Plural
