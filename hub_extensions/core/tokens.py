"""What a token may look like that is sent in a header: said in one way for settings and for environment variables.

Nothing is stripped: a token with the line break of its file would never be equal to the one that is sent.
Not here: where tokens come from (``configuration.py``, ``hub_service/setup/service_info.py``).
"""

from __future__ import annotations

SHORTEST_TOKEN = 16
"""Of a token that opens something here."""


def token_problem(token: str, shortest: int = 0) -> str:
    """What is wrong with a token, to stand behind its name, without its value; "": nothing."""
    if not all("!" <= letter <= "~" for letter in token):
        return "has to be letters, digits and signs without a space or a line break, also at its end."
    if len(token) < shortest:
        return f"is too short: it has to have at least {shortest} characters."
    return ""
