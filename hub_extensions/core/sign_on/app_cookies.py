"""Remove the gate's cookies from the ``Cookie`` header that an app receives."""

from __future__ import annotations

from collections.abc import Collection

_AROUND = " \t\r\n\0"


def without(header: str, names: Collection[str]) -> str:
    """Return the ``Cookie`` header without the cookies of these names.

    A pair is removed if any parser might read one of these names: in quotes, in another case, with control characters
    around it, or after a comma, which some programs take for a separator. All other pairs stay unchanged.
    """
    unwanted = {name.casefold() for name in names}
    return "; ".join(pair for pair in _pairs(header) if not _names(pair) & unwanted)


def _pairs(header: str) -> list[str]:
    return [pair.strip(" \t") for pair in header.split(";") if pair.strip(" \t")]


def _names(pair: str) -> set[str]:
    """Return each name by which a parser may read this part of the header: its own, and those after a comma."""
    return {part.partition("=")[0].strip(_AROUND).strip('"').strip(_AROUND).casefold() for part in pair.split(",")}
