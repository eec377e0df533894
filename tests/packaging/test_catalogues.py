"""The panel's catalogues: made from their sources, and with every sentence that the server may say to the panel.

That every string of the panel itself is in them is tested beside the panel (``labextension/tests/catalogue.test.mjs``).
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from hub_extensions.core.reasons import TO_THE_PANEL, Reason, explain
from tests.browser.states import STATES

ROOT = Path(__file__).parents[2]
CATALOGUES = sorted((ROOT / "hub_extensions" / "locale").glob("*/LC_MESSAGES/jupyterhub_gpu.json"))
SOURCES = sorted((ROOT / "labextension" / "locale").glob("*.po"))
SPEAKERS = [
    "adapters/nvml/states.py",
    "core/culling/decision.py",
    "core/culling/policy.py",
    "core/culling/keeps.py",
    "hub_service/engine/culler.py",
    "server_extension/attribution.py",
    "server_extension/readings.py",
    "server_extension/sampler.py",
    "server_extension/service_client.py",
]
SENTENCE = re.compile(r"[A-Z%][^\n]* [^\n]*\.")
NOT_FOR_THE_PANEL = {
    # of the admin's page and of notices on the hub's pages
    "%1 was stopped.",
    "Your files are kept.",
}


def sentences(path: Path) -> Iterator[str]:
    """Each sentence of a module, with what is put in as ``%1``, ``%2``, as the panel looks it up."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(node) for part in ast.walk(tree) for node in _said_to_others(part)}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        text = (_template(node) or "").removesuffix(" {}")
        if not SENTENCE.fullmatch(text):
            continue
        for sentence in re.split(r"(?<=\.) (?=[A-Z{])", text):
            if not re.fullmatch(r"[{}]+", sentence):
                yield _numbered(sentence)


def _said_to_others(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, lines of the log, the help of settings, and parts of what is read as a whole."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield from node.values
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setting":
        yield from node.args
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "log":
        yield from node.args


def _template(node: ast.AST) -> str | None:
    """A literal's text with ``{}`` for what is put in; None: no literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w+\}", "{}", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def _numbered(sentence: str) -> str:
    parts = re.split(r"\{\}|(?<![\w.:-])\d+ (?:h|min|s)(?!\w)|(?<![\w.:-])\d+(?:\.\d+)?(?!\w|[.:-]\w)", sentence)
    return "".join(f"{part}%{place}" for place, part in enumerate(parts[:-1], 1)) + parts[-1]


def all_sentences() -> set[str]:
    found = {one for name in SPEAKERS for one in sentences(ROOT / "hub_extensions" / name)}
    return found - NOT_FOR_THE_PANEL


def shown(value: object) -> Iterator[str]:
    """The sentences in a message to the panel, as the panel looks them up. Those of a reason are found by its code."""
    if isinstance(value, Reason):
        assert value == explain(value.reason, **value.params) and value.reason in TO_THE_PANEL
    elif is_dataclass(value):
        for field in fields(value):
            yield from shown(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from shown(one)
    elif isinstance(value, str) and SENTENCE.fullmatch(value):
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", value):
            yield _numbered(re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "{}", sentence))


@pytest.mark.programs
def test_the_catalogues_are_what_their_sources_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate-catalogues.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"old: {done.stdout}{done.stderr}"


def test_there_are_a_finnish_and_a_japanese_catalogue() -> None:
    assert [path.parts[-3] for path in CATALOGUES] == ["fi_FI", "ja_JP"]


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])
def test_every_sentence_of_the_server_is_in_the_catalogue(path: Path) -> None:
    assert len(all_sentences()) > 40
    assert all_sentences() - set(json.loads(path.read_text(encoding="utf-8"))) == set()


@pytest.mark.parametrize("state", STATES)
def test_the_panels_pictures_show_only_what_the_product_says(state: str) -> None:
    made, _ = STATES[state]
    assert set(shown(made())) - all_sentences() == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_translation_has_what_is_put_into_it(path: Path) -> None:
    with path.open("rb") as file:
        messages = [message for message in read_po(file) if message.id]
    assert len(messages) > 150
    for message in messages:
        text, translation = str(message.id), str(message.string)
        assert set(re.findall(r"%\d", translation)) == set(re.findall(r"%\d", text)), text
        assert message.string and not message.fuzzy, text
