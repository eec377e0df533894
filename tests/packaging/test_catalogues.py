"""The panel's catalogues: made from their sources, and every reason that its server gives is one that they can have.

That every string of the panel is in them, those of the reasons too, is tested beside the panel
(``labextension/tests/catalogue.test.mjs``).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from hub_extensions.core.text.reasons import PARAMETER, SENTENCES, TO_THE_PANEL, Reason, explain
from tests.browser.states import STATES

ROOT = Path(__file__).parents[2]
CATALOGUES = sorted((ROOT / "hub_extensions" / "locale").glob("*/LC_MESSAGES/jupyterhub_gpu.json"))
SOURCES = sorted((ROOT / "labextension" / "locale").glob("*.po"))
SPEAKERS = [
    *(ROOT / "hub_extensions" / "adapters" / "nvml").glob("*.py"),
    *(ROOT / "hub_extensions" / "server_extension").glob("*.py"),
    ROOT / "hub_extensions" / "core" / "culling" / "keeps.py",
    ROOT / "hub_extensions" / "core" / "culling" / "policy.py",
    ROOT / "hub_extensions" / "core" / "queue" / "wait_bound.py",
    ROOT / "hub_extensions" / "hub_service" / "engine" / "views" / "server_view.py",
]
"""What speaks to the panel alone."""


def texts(path: Path, *, of: str = "") -> Iterator[str]:
    """Each text that stands in a module; `of`: only in what is given to this function first."""
    tree: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == of]
    for place in [call.args[0] for call in calls] if of else [tree]:
        for node in ast.walk(place):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def reasons_in(value: object) -> Iterator[Reason]:
    """The reasons in a message to the panel."""
    if isinstance(value, Reason):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from reasons_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from reasons_in(one)


def sentences_in(value: object) -> Iterator[str]:
    """The texts in a message to the panel that are sentences, outside its reasons."""
    if isinstance(value, Reason):
        return
    if is_dataclass(value):
        for field in fields(value):
            yield from sentences_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from sentences_in(one)
    elif isinstance(value, str) and value.endswith("."):
        yield value


@pytest.mark.programs
def test_the_catalogues_are_what_their_sources_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate-catalogues.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"old: {done.stdout}{done.stderr}"


@pytest.mark.programs
def test_the_history_that_is_made_up_is_what_its_script_writes() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/make-habits.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"old: {done.stdout}{done.stderr}"


def test_there_are_a_finnish_and_a_japanese_catalogue() -> None:
    assert [path.parts[-3] for path in CATALOGUES] == ["fi_FI", "ja_JP"]


@pytest.mark.slow
@pytest.mark.parametrize("path", SPEAKERS, ids=lambda path: path.stem)
def test_what_speaks_to_the_panel_gives_reasons_that_the_panel_translates(path: Path) -> None:
    assert set(texts(path, of="explain")) <= TO_THE_PANEL.keys()


@pytest.mark.slow
def test_every_reason_is_given_by_somebody() -> None:
    tables = ("reasons.py", *(f"{name}_sentences.py" for name in ("admin", "journal", "cluster", "start")))
    sources = [path for path in (ROOT / "hub_extensions").rglob("*.py") if path.name not in tables]
    said = {text for path in sources if any(map(path.read_text().__contains__, SENTENCES)) for text in texts(path)}
    made_of_parts = {
        "rule-by-offer", "rule-at-most", "rule-by-offer-at-most", "rule-wanted", "rule-wanted-at-most",
        "closed-machine", "opened-machine", "letter-to-place", "letter-to-machine", "your-server-stopped",
        "your-server-returned", "your-server-not-returned",
    }  # fmt: skip
    assert SENTENCES.keys() - said == made_of_parts


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_the_panels_pictures_show_only_what_the_product_says(state: str) -> None:
    made, _ = STATES[state]
    for reason in reasons_in(made()):
        assert reason == explain(reason.reason, **reason.params) and reason.reason in TO_THE_PANEL
    assert not list(sentences_in(made()))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_who_translates_a_code_reads_the_sentence_that_it_stands_for(path: Path) -> None:
    with path.open("rb") as file:
        codes = {str(message.id): message.auto_comments for message in read_po(file) if message.context == "reason"}
    assert codes == {
        reason: [text] for reason, text in TO_THE_PANEL.items() if isinstance(text, str) and not PARAMETER.search(text)
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_translation_has_what_is_put_into_it(path: Path) -> None:
    with path.open("rb") as file:
        messages = [message for message in read_po(file) if message.id]
    assert len(messages) > 150
    for message in messages:
        text, translation = str(message.id), str(message.string)
        assert set(re.findall(r"%\d", translation)) == set(re.findall(r"%\d", text)), text
        assert message.string and not message.fuzzy, text
