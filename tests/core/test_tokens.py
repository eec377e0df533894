"""The form of a token that can be sent in a header."""

from __future__ import annotations

import pytest

from hub_extensions.core.tokens import SHORTEST_TOKEN, token_problem


@pytest.mark.parametrize("token", ["", "x", "Aa0-._~+/=", "x" * 200])
def test_letters_digits_and_signs_are_right(token: str) -> None:
    assert token_problem(token) == ""


@pytest.mark.parametrize("token", ["two words", "line\n", " ahead", "tab\t", "null\0", "tämä"])
def test_what_no_header_carries_unchanged_is_wrong_and_not_shown(token: str) -> None:
    said = token_problem(token)
    assert "without a space or a line break" in said
    assert token not in said


def test_one_that_opens_something_has_a_shortest_length() -> None:
    assert token_problem("x" * SHORTEST_TOKEN, SHORTEST_TOKEN) == ""
    assert "at least 16 characters" in token_problem("x" * (SHORTEST_TOKEN - 1), SHORTEST_TOKEN)
