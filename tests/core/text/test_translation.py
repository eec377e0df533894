"""Translated texts, and the choice of the language."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub_extensions.core.text.reasons import REASON, Reason, explain, key_of, numbered, parameters, translated
from hub_extensions.core.text.reasons import SENTENCES as S
from hub_extensions.core.text.translation import CONTEXT, ENGLISH, Catalogue, number, preferred
from hub_extensions.core.text.wording import PLACE, about, duration, ordinal

FINNISH = Catalogue(
    "fi-FI",
    {
        "%1 min": ["%1 min"],
        "%1 h": ["%1 t"],
        PLACE: ["%1."],
        "%1 of %2": ["%2:sta %1"],
        "You are next.": ["Olet seuraava."],
        "1 person is ahead of you.": ["1 on edelläsi.", "%1 on edelläsi."],
        f"{REASON}{CONTEXT}left": ["Poistuit jonosta."],
        key_of(S["in-use"]): ["Ainoa %2 on varattu. %3", "Kaikki %1 × %2 ovat varattuina. %3"],
        key_of(S["own-lease-limit"]): ["Sinulla on jo GPU: %1."],
        "your default server": ["oletuspalvelimesi"],
        "Whole GPU": ["Kokonainen GPU"],
    },
)


def test_without_a_translation_a_text_stays_english() -> None:
    assert ENGLISH("%1 of %2", 1, 2) == "1 of 2"
    assert FINNISH("%1 of %2", 1, 2) == "2:sta 1"
    assert FINNISH("%1 was %2", 1) == "1 was %2"
    assert FINNISH("100 %", 1) == "100 %"
    assert ENGLISH("%0 of %1, %2", "all") == "%0 of all, %2"
    assert FINNISH("1 person is ahead of you.") == "1 on edelläsi.", "the first of its forms"
    assert FINNISH.known("1 person is ahead of you.") == "1 on edelläsi." and FINNISH.known("no") is None
    assert [number(each) for each in (3, 3.0, 1.5, 0.25)] == ["3", "3", "1.5", "0.25"]


@pytest.mark.parametrize(
    ("count", "english", "finnish"),
    [
        (1, "1 person is ahead of you.", "1 on edelläsi."),
        (1.0, "1 person is ahead of you.", "1 on edelläsi."),
        (3.0, "3 people are ahead of you.", "3 on edelläsi."),
    ],
)
def test_a_number_chooses_the_form(count: float, english: str, finnish: str) -> None:
    one, many = "1 person is ahead of you.", "%1 people are ahead of you."
    assert ENGLISH.plural(one, many, count) == english
    assert FINNISH.plural(one, many, count) == finnish


def test_a_language_with_one_form_says_all_numbers_with_it() -> None:
    japanese = Catalogue("ja-JP", {"%1 day": ["%1 日"]}, lambda count: 0)
    assert [japanese.plural("%1 day", "%1 days", count) for count in (1, 2)] == ["1 日", "2 日"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (explain("left"), "Poistuit jonosta."),
        (explain("in-use", total=1, title="T", ahead=0), "Ainoa T on varattu. Olet seuraava."),
        (explain("in-use", total=3, title="T", ahead=2), "Kaikki 3 × T ovat varattuina. 2 on edelläsi."),
        (explain("own-lease-limit", server=""), "Sinulla on jo GPU: oletuspalvelimesi."),
        (explain("start-failed-why", why="50 % of %1"), "50 % of %1"),
        # not in the catalogue, of a newer service, or with a parameter that did not come: the English text
        (explain("ready"), "Your server is ready."),
        (explain("behind", ahead=1), "One is free for somebody ahead of you. 1 person is ahead of you."),
        (Reason("newer", "Something new."), "Something new."),
        (Reason("in-use", "All are in use.", {"total": 2.0}), "All are in use."),
    ],
)
def test_a_reason_is_translated_by_its_code_and_parameters(reason: Reason, words: str) -> None:
    assert translated(reason, FINNISH) == words
    assert translated(reason, ENGLISH) == reason.message


@pytest.mark.parametrize("reason", [code for code in S if parameters(S[code])])
def test_a_catalogue_that_says_the_same_makes_the_same_sentence(reason: str) -> None:
    """So parameters are put in one way, by whoever writes them."""
    text = S[reason]
    values: dict[str, str | float] = {
        "duration": 90.0,
        "number": 2,
        "people": 2,
        "server": "s",
        "time": "t",
        **dict.fromkeys(("own", "foreign", "text", "image", "list", "first", "bare"), "X"),
    }
    count = {} if isinstance(text, str) else {text.count: 2.0}
    made = explain(reason, **{name: values[kind] for name, kind in parameters(text)} | count)
    forms = [text] if isinstance(text, str) else [text.one, text.many]
    same = Catalogue("x", {key_of(text): [numbered(form, parameters(text)) for form in forms]})
    assert translated(made, same) == made.message


def test_lengths_and_places_are_written_as_the_language_does() -> None:
    assert duration(timedelta(minutes=130), FINNISH) == "2 t 10 min"
    assert about(7800, FINNISH) == "2 t 10 min"
    assert (ordinal(2), ordinal(2, FINNISH)) == ("2nd", "2.")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", ""),
        ("fi", "fi-FI"),
        ("fi-FI,fi;q=0.9,en;q=0.8", "fi-FI"),
        ("en-GB,en;q=0.9,fi;q=0.8", ""),
        ("de,ja;q=0.5", "ja-JP"),
        ("ja;q=0.2, fi;q=0.7", "fi-FI"),
        ("fi;q=0, ja", "ja-JP"),
        ("fi;q=0", ""),
        ("fi;q=0.001", "fi-FI"),
        ("ja-XX", "ja-JP"),
        ("jp", ""),
        ("de-JP, fi", "fi-FI"),
        ("FI-fi", "fi-FI"),
        ("fil", ""),
        ("*", ""),
        ("fi;q=much, ;;, ../../fi, \x00", ""),
        ("x" * 10_000 + ",fi", ""),
    ],
)
def test_the_language_is_the_first_that_the_browser_asks_for_and_there_is(header: str, language: str) -> None:
    assert preferred(header, ("fi-FI", "ja-JP")) == language


def test_of_two_of_one_language_the_one_that_is_asked_for_is_given() -> None:
    assert preferred("pt-BR", ("pt-PT", "pt-BR")) == "pt-BR"
    assert preferred("pt-AO", ("pt-PT", "pt-BR")) == "pt-PT"
