"""Check of a user's e-mail address. It is made from the user name, which may be any text."""

from __future__ import annotations

import re

MOST = 254  # characters, by RFC 5321
_PLAIN = re.compile(r"[A-Za-z0-9_+=~-]+(\.[A-Za-z0-9_+=~-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")


def address_problem(address: str) -> str:
    """Return why nothing can be sent to an address; "" if it is one plain address.

    Only letters, digits and ``._+=~-`` are allowed before the single ``@``. A comma would make two addresses, and some
    mail servers forward mail for addresses such as ``somebody%elsewhere``.
    """
    if not address:
        return "is empty"
    if len(address) > MOST or address.find("@") > 64:
        return "is too long"
    return "" if _PLAIN.fullmatch(address) else "is no plain e-mail address"
