"""Reasons for tests that look at the text only."""

from __future__ import annotations

from hub_extensions.core.text.reasons import Reason


def because(text: str) -> Reason:
    """A reason of somebody newer: nobody here knows its code, so its English text is shown."""
    return Reason("of-a-newer-version", text)
