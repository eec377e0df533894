"""The cookies that an app gets: the browser's, without the gate's own.

Not here: reading the gate's cookie, and what it opens.
"""

from __future__ import annotations

from collections.abc import Collection

_AROUND = " \t\r\n\0"


def without(header: str, names: Collection[str]) -> str:
    """The ``Cookie`` header without these cookies, however often and however oddly they are written.

    A pair goes when its name is one of `names` to anybody who might read it so: in quotes, in any case, with control
    signs around it, or before a comma, at which some programs part cookies too. The others stay as they are.
    """
    unwanted = {name.casefold() for name in names}
    return "; ".join(pair for pair in _pairs(header) if not _names(pair) & unwanted)


def _pairs(header: str) -> list[str]:
    return [pair.strip(" \t") for pair in header.split(";") if pair.strip(" \t")]


def _names(pair: str) -> set[str]:
    """All names by which a part of the header may be read: its own, and those after a comma in it."""
    return {part.partition("=")[0].strip(_AROUND).strip('"').strip(_AROUND).casefold() for part in pair.split(",")}
