"""A text of a reason: one sentence, or two where a number decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plural:
    """A text that differs where the parameter `count` is 1."""

    count: str
    one: str
    many: str


Text = str | Plural
