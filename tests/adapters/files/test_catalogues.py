"""Which form of a text a number takes, by the rule in a catalogue's header."""

from __future__ import annotations

import pytest

from hub_extensions.adapters.files.catalogues import plural_form

COUNTS = (0, 0.5, 1, 1.0, 1.5, 2, 3.0, 5, 22)
POLISH = "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"


@pytest.mark.parametrize(
    ("rule", "forms"),
    [
        ("nplurals=2; plural=(n != 1);", [1, 1, 0, 0, 1, 1, 1, 1, 1]),
        ("nplurals=2; plural=(n > 1);", [0, 1, 0, 0, 1, 1, 1, 1, 1]),
        ("nplurals=1; plural=0;", [0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (POLISH, [2, 1, 0, 0, 1, 1, 1, 2, 1]),
    ],
)
def test_a_number_takes_the_form_of_its_languages_rule(rule: str, forms: list[int]) -> None:
    form = plural_form(rule)
    assert [form(count) for count in COUNTS] == forms


def test_a_rule_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError):
        plural_form("nplurals=2; plural=(n is one);")
