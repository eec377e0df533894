"""What every interface answers where it cannot do what it was asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """An error's body: what is wrong and what would be right, in which field, and a stable code."""

    message: str
    field: str = ""
    reason: str = ""
