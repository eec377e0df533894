"""Is this an address that one e-mail can go to? A user's name is in it, and names may be anything."""

from __future__ import annotations

import re

MOST = 254
"""As in RFC 5321."""
_PLAIN = re.compile(r"[A-Za-z0-9_+=~-]+(\.[A-Za-z0-9_+=~-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")


def address_problem(address: str) -> str:
    """Why nothing is sent to it; "": it is one plain address.

    Only letters, digits and ``._+=~-`` stand before the one ``@``: a comma would make two of it, and some mail servers
    send what is for ``somebody%elsewhere`` on.
    """
    if not address:
        return "is empty"
    if len(address) > MOST or address.find("@") > 64:
        return "is too long"
    return "" if _PLAIN.fullmatch(address) else "is no plain e-mail address"
