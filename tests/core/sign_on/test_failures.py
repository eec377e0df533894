"""The texts of the pages about a failed sign-in."""

from __future__ import annotations

import re

import pytest

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.sign_on.failures import FAILURES, PARAMETERS, FailureAction, failure_of


@pytest.mark.parametrize("code", [*FAILURES, "whatever"])
def test_each_page_says_what_happened_and_what_to_do_in_whole_sentences(code: str) -> None:
    page = failure_of(code, {"account": "ada", "name": "ada", "claim": "groups", "off": "300"})
    assert page.title
    assert not page.title.endswith(".")
    for text in (page.text, page.advice):
        assert text.endswith((".", "below."))
        assert "{" not in text
    assert 400 <= page.status < 504


def test_what_a_page_names_is_given_to_it() -> None:
    named = {each for page in FAILURES.values() for each in re.findall(r"{(\w+)}", page.text)}
    assert named == set(PARAMETERS)
    assert "not known" in failure_of("clock", {}).text
    assert "is 5 min behind" in failure_of("clock", {"off": "300", "where": "behind"}).text
    t = catalogue_for("fi")
    assert failure_of("clock", {"off": "7200"}, t).text.startswith("Kirjautumispalvelusi kello on 2 h edellä")
    assert failure_of("not-allowed", {}, t).text.startswith("Olet kirjautumispalvelussasi ei tiedossa,")


def test_who_may_not_come_in_can_be_somebody_else() -> None:
    codes = {code for code, page in FAILURES.items() if page.action is FailureAction.OTHER_ACCOUNT}
    assert {"not-allowed", "disabled", "name-taken", "no-name"} <= codes
