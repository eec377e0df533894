"""The rule for tokens in settings and environment variables.

A token is not stripped, because one that was read with its line break would never equal the one that is sent.
"""

from __future__ import annotations

SHORTEST_TOKEN = 16  # minimum length of a token that gives access to this service


def token_problem(token: str, shortest: int = 0) -> str:
    """Return what is wrong with a token; "" if it is fine.

    The text follows the name of the setting in a message, and does not contain the token.

    Args:
        shortest: minimum number of characters.
    """
    if not all("!" <= letter <= "~" for letter in token):
        return "has to be letters, digits and signs without a space or a line break, also at its end."
    if len(token) < shortest:
        return f"is too short: it has to have at least {shortest} characters."
    return ""
