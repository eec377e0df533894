"""No text of the form, the waiting page, one's own and sign-on's stands outside the catalogues; all have each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Message
from babel.messages.pofile import read_po
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader, Undefined

from hub_extensions.adapters.files.catalogues import catalogue_for, catalogues
from hub_extensions.adapters.store.sign_on import PendingStop
from hub_extensions.authenticator.pages import ends_too, limits_in_words
from hub_extensions.core.messages import FormState, Keep, Notice, Wait, offer_texts
from hub_extensions.core.sign_on import EndReport, SignOnConfig, browser_text, end_sentence
from hub_extensions.core.sign_on.failures import failure_of
from hub_extensions.core.text.reasons import SENTENCES, explain, key_of, parameters
from hub_extensions.core.text.translation import CONTEXT, ENGLISH, Catalogue, halves
from hub_extensions.hub_service.http.pages import labels
from hub_extensions.spawner.pages.reader import texts_of_script
from hub_extensions.spawner.pages.spawn_form import form_html
from tests.fakes.service import an_offer
from tests.packaging.page_texts import (
    BY_REASONS,
    PACKAGE,
    SCRIPTS,
    SIGN_ON,
    TEMPLATES,
    page_texts,
    panel_keys,
    reason_codes,
    reason_texts,
    sentences,
)

SOURCES = sorted((PACKAGE / "locale").glob("*.po"))
NAMES = {"JupyterHub", "GiB", "UTC", "UUID"}
"""Said alike in every language."""


def messages(path: Path) -> list[Message]:
    with path.open("rb") as file:
        return [message for message in read_po(file) if message.id]


def keys(found: Sequence[Message]) -> set[tuple[str, str]]:
    whole = (message.id if isinstance(message.id, tuple) else (message.id, "") for message in found)
    contexts = (f"{message.context}{CONTEXT}" if message.context else "" for message in found)
    return {(f"{context}{one}", many) for context, (one, many) in zip(contexts, whole, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_catalogue_has_every_text_of_the_pages_and_nothing_else(path: Path) -> None:
    wanted = {*page_texts(), *reason_texts(), *((code, "") for code in reason_codes())}
    assert len(wanted) > 200
    found = keys(messages(path))
    assert {"missing": wanted - found, "left over": found - wanted} == {"missing": set(), "left over": set()}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_translation_has_what_is_put_into_it(path: Path) -> None:
    for message in messages(path):
        assert message.string and not message.fuzzy, message.id
        assert set(re.findall(r"%\d", str(message.string))) == set(re.findall(r"%\d", str(message.id))), message.id


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_who_translates_a_code_reads_the_sentence_that_it_stands_for(path: Path) -> None:
    codes = {f"reason{CONTEXT}{m.id}": m.auto_comments for m in messages(path) if m.context == "reason"}
    assert codes == {code: [text] for code, text in reason_codes().items()}


@pytest.mark.parametrize("language", catalogues())
def test_every_reason_that_people_are_told_is_known_in_every_language(language: str) -> None:
    """The panel's catalogue has those that the panel shows too."""
    t = catalogues()[language]
    asked = [key_of(text) if parameters(text) else f"reason{CONTEXT}{code}" for code, text in SENTENCES.items()]
    assert panel_keys() < set(asked)
    assert [key for key in asked if t.known(key) is None] == []


def test_the_languages_are_those_that_the_panel_speaks() -> None:
    assert [path.stem for path in SOURCES] == ["fi_FI", "ja_JP"]
    assert sorted(catalogues()) == ["fi-FI", "ja-JP"]
    assert catalogue_for("fi,en;q=0.5").language == "fi-FI"
    assert catalogue_for("en-GB") is catalogue_for("de") is ENGLISH


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_says_nothing_by_itself(path: Path) -> None:
    """Neither between its tags nor in what a screen reader hears."""
    source = re.sub(r"{#.*?#}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for made in re.findall(r"{{.*?}}|{%.*?%}", source, re.DOTALL):
        assert not re.findall(
            r"""["'][A-Za-z][a-z]+ [^"']*["']""", re.sub(r"\b(?:t|t\.plural|timed)\(\s*(\"[^\"]+\"|'[^']+')", "", made)
        ), made
    bare = re.sub(r"{{.*?}}|{%.*?%}", "", source, flags=re.DOTALL)
    for attribute in re.findall(r"""\b(?:aria-label|title|alt|placeholder)="([^"]*)\"""", bare):
        assert set(re.findall(r"[A-Za-z]+", attribute)) <= NAMES, attribute
    bare = re.sub(r"<(style|script)\b.*?</\1>", "", bare, flags=re.DOTALL)
    assert set(re.findall(r"[A-Za-z]{2,}", re.sub(r"<[^>]*>", " ", bare))) <= NAMES


@pytest.mark.parametrize("path", BY_REASONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_cluster_does_is_told_in_reasons_alone(path: Path) -> None:
    assert sentences(path) == set()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_nothing_by_itself(path: Path) -> None:
    source = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    literals = re.findall(r'(\bt\()?"([^"\n]*)"', source)
    sentences = [text for asked, text in literals if not asked and re.search(r"[A-Za-z]{2} [A-Za-z]", text)]
    # the hub's own words, a note for whoever looks into the browser's console, classes of a style
    own = {"Spawn cancelled", "no notification:", "use strict"}
    assert {each for each in sentences if not each.startswith(("btn ", "#"))} <= own
    assert len(texts_of_script()) > 40


class Marked(Mapping[str, Sequence[str]]):
    """A language in which every text stands in brackets."""

    def __getitem__(self, text: str) -> Sequence[str]:
        return [f"⟦{text}⟧"]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


MARKED = Catalogue("x", Marked())


class Texts(HTMLParser):
    """What a reader sees or hears of a page, but for styles, scripts and times."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.within: list[str] = []
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("aria-label", "title") and value]
        if tag in ("style", "script", "time"):
            self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.within and self.within[-1] == tag:
            self.within.pop()

    def handle_data(self, data: str) -> None:
        if not self.within:
            self.found.append(data)


def outside(text: str) -> set[str]:
    """The words that stand in no bracket."""
    depth, found = 0, ""
    for sign in text:
        depth += (sign == "⟦") - (sign == "⟧")
        found += sign if depth == 0 else " "
    return set(re.findall(r"[A-Za-z]{2,}", found)) - NAMES


NOW = datetime(2026, 11, 20, 14, 2, tzinfo=timezone.utc)
LIKELY = Wait(False, 1500.0, 2400.0, 9000.0, 18_000.0, explain("limits-ahead"), NOW, (0.1, 0.6, 1.0), "rough")
SOON = Wait(False, 0.0, 300.0, 600.0, None, explain("usually-longer", title="T"), NOW)
FEW = Wait(False, None, None, None, 7800.0, explain("few-data"), note="few-data")
ENDS = Wait(False, None, None, None, None, explain("place-ends-first", hours=24.0))
UNKNOWN = Wait(False, None, None, None, None, explain("no-limit"))


@pytest.mark.parametrize("away", ["", "2026-11-20T14:00:00Z"], ids=["answering", "away"])
def test_all_that_the_form_says_can_be_translated(away: str) -> None:
    offers = [
        an_offer("gpu", free=0, total=2, wait=LIKELY, held_by_others=1, lost=1, memory_enforced=False),
        an_offer("mig-3g.20gb", free=0, total=1, wait=FEW, sm_total=None, description="Own words."),
        an_offer("mig-2g.10gb", free=0, total=None, wait=SOON),
        an_offer("mig-1g.10gb", free=0, total=1, wait=ENDS),
        an_offer("mig-1g.5gb", free=0, total=1, wait=UNKNOWN),
        an_offer("gpu-0.5", free=None, total=None, wait=UNKNOWN, memory_bytes=None, sm_count=None),
        an_offer("cpu", free=None, total=None, gib=None),
    ]
    rule = explain("rule-cpu", quiet=3600.0)
    state = FormState(
        tuple(offers), True, NOW, rule.message, ("lab", ""), (Notice(NOW, "", "42"),), caution="Some.", rule=rule
    )
    html = form_html(state, away_since=away, notice_hint="by e-mail", t=MARKED)
    assert outside("".join(Texts(html).found)) == set()
    assert 'lang="x"' in html and ("⟦likely waits as of " in html) == (not away)


ROW = {"id": "1", "browser": "⟦%1 on %2⟧", "address": "", "begun": "2026-11-20T14:02:00+00:00"}
ROWS = [{**ROW, "last_use": ROW["begun"], "this_one": mine} for mine in (True, False)]
PENDING = [PendingStop(1, name, None, NOW) for name in ("", "42")]
REPORT = EndReport(("1", "2"), 1, 2, ("1",), NOW, ("2", "3"), ("4",), 5)
ENDS_TOO = [ends_too(SignOnConfig(servers_at_revocation=each), MARKED) for each in ("stop", "stop-gpu", "drain")]
LIMITS = [
    limits_in_words(SignOnConfig(idle=idle, lifetime=lifetime), MARKED)
    for idle in (None, timedelta(hours=24))
    for lifetime in (None, timedelta(hours=336))
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("logout", {}),
        ("sign_on_ended", {"message": end_sentence("idle", MARKED), "ended": NOW, "stops": PENDING, "number": "42"}),
        *(
            ("sign_on_failed", {"failure": failure_of(code, {"off": "1"}, MARKED), "number": "42"})
            for code in ("clock", "not-allowed", "token")
        ),
        *(
            (
                "sign_on_sessions",
                {"sessions": ROWS, "ended": ended, "may_list": True, "keeps_servers": ended == 1, "limits": LIMITS[3]},
            )
            for ended in (None, 0, 1, 2)
        ),
        ("sign_on_admin", {"people": [{"name": "1", "sessions": ROWS}], "most": 1, "report": REPORT, "may_end": True}),
        ("sign_on_admin", {"people": [], "search": "42", "report": None}),
        ("sign_on_admin", {"people": [], "report": None}),
    ],
)
def test_all_that_the_pages_of_sign_on_say_can_be_translated(name: str, facts: dict[str, Any]) -> None:
    base = "{% block title %}{% endblock %}{% block main %}{% endblock %}{% block nav_bar_left_items %}{% endblock %}"
    hubs = {"templates/page.html": base, "templates/logout.html": '{% extends "page.html" %}'}
    loader = ChoiceLoader([FileSystemLoader(SIGN_ON / "templates"), DictLoader(hubs)])
    environment = Environment(loader=loader, autoescape=True, undefined=Undefined)
    names = {"t": MARKED, "halves": halves, "sign_on_language": lambda _: MARKED, "ends_too": ENDS_TOO[2], **facts}
    html = environment.get_template(f"{name}.html").render(names)
    assert outside("".join(Texts(html).found)) == set()
    assert 'lang="x"' in html and "⟦Sessions⟧" in html


@pytest.mark.parametrize(
    "text",
    [
        *LIMITS,
        *(", ".join(each) for each in ENDS_TOO),
        *(browser_text(each, MARKED) for each in ("A browser on Linux", "Another program")),
        *(offer_texts.wait_text(each, MARKED) for each in (LIKELY, SOON, FEW, ENDS, UNKNOWN)),
        *(
            offer_texts.place_text(state, position, MARKED)
            for state, position in (("waiting", 3), ("waiting", 0), ("admitted", 0))
        ),
        *(labels.lease_state(state, MARKED) for state in ("starting", "running", "ending", "lost", "none")),
        labels.keep(Keep(left=1, of=2, minutes=30), MARKED),
        labels.keep_left(Keep(left=1, of=2, minutes=30), MARKED),
    ],
)
def test_what_ones_own_page_says_of_figures_can_be_translated(text: str) -> None:
    assert not outside(text)
