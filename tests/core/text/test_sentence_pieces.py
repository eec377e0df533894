"""Which pieces of a sentence are translated, and which are English in every language."""

from __future__ import annotations

import pytest

from hub_extensions.adapters.files.catalogues import catalogue_for, catalogues
from hub_extensions.core.text.plural import Plural
from hub_extensions.core.text.reasons import SENTENCES, Reason, as_text, explain, parameters
from hub_extensions.core.text.sentence_pieces import in_pieces, joined, plain_pieces

DENIED = "policy <gpu> says: no %1 {here}"
REFUSED = (explain("cluster-refuses", answer=DENIED), explain("tell-an-admin"))


@pytest.mark.parametrize(
    ("language", "pieces"),
    [
        ("fi", [("Klusteri ei ota tätä palvelinta: ", False), (DENIED, True), (".", False), (" ", False),
                ("Kerro ylläpitäjälle.", False)]),
        ("ja", [("クラスターがこのサーバーを受け入れません: ", False), (DENIED, True), ("。", False), (" ", False),
                ("管理者に伝えてください。", False)]),
        ("en", [(f"The cluster does not take this server: {DENIED}.", False), (" ", False), ("Tell an admin.", False)]),
    ],
)  # fmt: skip
def test_words_of_the_cluster_are_english_in_a_sentence_of_another_language(
    language: str, pieces: list[tuple[str, bool]]
) -> None:
    assert list(in_pieces(REFUSED, catalogue_for(language))) == pieces


@pytest.mark.parametrize(
    ("reason", "pieces"),
    [
        (explain("start-failed-why", why="No image."), [("No image.", True)]),
        (explain("kueue-let-it-in", queue="Kueue"),
         [("Kueue on päästänyt sen sisään; GPU:ta luovutetaan vielä takaisin.", False)]),
        (Reason("of-a-later-version", "Because."), [("Because.", True)]),
        (Reason("server-crashed-with", "The server crashed with exit code 3."),
         [("The server crashed with exit code 3.", True)]),
    ],
    ids=["an error's own words", "a name is no language", "an unknown code", "without its parameter"],
)  # fmt: skip
def test_what_a_catalogue_has_not_is_english(reason: Reason, pieces: list[tuple[str, bool]]) -> None:
    assert list(in_pieces([reason], catalogue_for("fi"))) == pieces


def test_a_text_without_a_code_is_english_unless_a_catalogue_has_it() -> None:
    assert plain_pieces("", catalogue_for("fi")) == ()
    assert plain_pieces("The machine failed.") == (("The machine failed.", False),)
    assert plain_pieces("The machine failed.", catalogue_for("fi")) == (("The machine failed.", True),)
    assert plain_pieces("You were signed out.", catalogue_for("fi")) == (("Sinut kirjattiin ulos.", False),)


@pytest.mark.parametrize("language", ["en", *catalogues()])
def test_the_pieces_of_all_reasons_are_their_text(language: str) -> None:
    values = {"number": 2.0, "duration": 60.0, "people": 0.0}
    told = []
    for code, text in SENTENCES.items():
        params = {name: values.get(kind, "MIG 1g.5gb") for name, kind in parameters(text)}
        told.append(explain(code, **params | ({text.count: 2.0} if isinstance(text, Plural) else {})))
    t = catalogue_for(language)
    assert joined(in_pieces(told, t, ", ")) == as_text(told, ", ", t)
