"""Every reason has one English text, made from its parameters alone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.text.reasons import (
    PARAMETER,
    SENTENCES,
    TO_THE_HUB,
    TO_THE_PANEL,
    WRITTEN,
    Plural,
    codes_with_words,
    explain,
    recalled,
    translated,
)

VALUES: dict[str, str | float] = {
    "": "x",
    "duration": 90.0,
    "number": 1.5,
    "people": 2,
    "server": "",
    "time": "t",
    **dict.fromkeys(("own", "foreign", "image", "list", "first", "bare"), "x"),
}


@pytest.mark.parametrize("reason", SENTENCES)
def test_a_reason_is_a_code_with_a_text_for_its_parameters(reason: str) -> None:
    text = SENTENCES[reason]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason)
    for each in (text.one, text.many) if isinstance(text, Plural) else (text,):
        found = PARAMETER.findall(each)
        assert {kind for _, kind in found} <= WRITTEN.keys() | {""}
        params = {name: VALUES[kind] for name, kind in found}
        if isinstance(text, Plural):
            params[text.count] = 1 if each == text.one else 2
        said = explain(reason, **params)
        assert said.params == params and "{" not in said.message


def test_no_reason_is_in_both_tables() -> None:
    assert not TO_THE_PANEL.keys() & TO_THE_HUB.keys()


@pytest.mark.parametrize(
    ("reason", "params", "message"),
    [
        ("in-use", {"total": 1, "title": "T", "ahead": 0}, "T: the only one is in use. You are next."),
        ("in-use", {"total": 3, "title": "T", "ahead": 1}, "T: all 3 are in use. 1 person is ahead of you."),
        ("behind", {"ahead": 2}, "One is free for somebody ahead of you. 2 people are ahead of you."),
        ("own-lease-limit", {"server": "lab"}, "You already hold a GPU in server lab. Stop it, or start CPU only."),
        ("max-wait", {"hours": 1.5}, "Your place in line ended after 1.5 h. Join again, or choose another offer."),
        ("start-failed-why", {"why": "{why} %1"}, "{why} %1"),
        ("image-not-there", {"image": ""}, "The image of the server cannot be pulled: there is no such image."),
        ("free-and-full", {"device": "a share of a GPU"}, "The machines with a free share of a GPU are full now."),
        (
            "machines-without-room",
            {"room": "processors and memory and disk space"},
            "No machine has enough free processors and memory and disk space for it now.",
        ),
        ("server-crashed-with", {"code": 137}, "The server crashed with exit code 137."),
    ],
)
def test_a_parameter_is_written_as_its_text_says(reason: str, params: dict[str, str | float], message: str) -> None:
    assert explain(reason, **params).message == message


def test_lengths_and_times_cross_processes_as_numbers_and_in_utc() -> None:
    here = timezone(timedelta(hours=2))
    said = explain("left", length=timedelta(minutes=2), at=datetime(2026, 11, 21, 15, 30, tzinfo=here))
    assert said.params == {"length": 120.0, "at": "2026-11-21T13:30:00Z"}


def test_a_name_and_somebodys_own_words_stay_as_they_are_in_every_language() -> None:
    finnish = catalogue_for("fi")
    assert finnish("Waiting") != "Waiting"
    assert translated(explain("letter", text="Waiting"), finnish).endswith(": Waiting")
    assert " idle " in translated(explain("server-stopped", server="idle"), finnish)


@pytest.mark.parametrize(
    ("reason", "params"),
    [("of-a-later-version", {}), ("seen-use", {}), ("seen-use", {"percent": "x", "source": "nvml"}),
     ("seen-shown", {"age": "soon"})],
)  # fmt: skip
def test_a_reason_that_another_version_kept_is_none_where_it_does_not_fit(reason: str, params: dict[str, str]) -> None:
    assert recalled(reason, params) is None


@pytest.mark.parametrize(
    ("language", "words", "code", "found"),
    [("fi", "JOUTILAANA", "idle", True), ("fi", "seuraavana", "idle", False), ("ja", "アイドル", "seen-idle", True),
     ("fi", "%1", "idle", False), ("fi", "1", "idle", False), ("fi", "", "idle", False), ("en", "Idle", "idle", False),
     ("en", "duration", "idle", False), ("en", "ended by itself", "start-crashed", True),
     ("fi", "GPU", "idle-memory", False),
     ("fi", "sulki", "hub-away", False), ("fi", "yleensä", "usually-end", True)],
)  # fmt: skip
def test_codes_are_found_by_words_that_their_sentence_has_in_the_readers_language_alone(
    language: str, words: str, code: str, found: bool
) -> None:
    assert (code in codes_with_words(words, catalogue_for(language))) == found
