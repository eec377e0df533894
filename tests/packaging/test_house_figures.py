"""What ``scripts/house-figures.py`` counts, on a few lines of code each."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "house-figures.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house_figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nodes(**files: str) -> dict[str, list[ast.AST]]:
    """`hub_service__a` is ``hub_extensions/hub_service/a.py``."""
    named = {f"hub_extensions/{name.replace('__', '/')}.py": text for name, text in files.items()}
    return {path: list(ast.walk(ast.parse(text))) for path, text in named.items()}


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("replace(lease, state=ENDED)", 1),
        ("Ticket(id, state=WAITING)\nLease(state=x)", 2),
        ("Info(state=ticket.state.value)", 0),
        ("replace(lease, ready_at=now)", 0),
    ],
)
def test_who_writes_a_state(script: ModuleType, code: str, count: int) -> None:
    found = script.state_writers(nodes(hub_service__a=code, core__b="", server_extension__c=code))
    assert found == ["hub_extensions/hub_service/a.py"] * count


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("self.hub_up = True", []),
        ("self.tickets.hub_up = True", [False]),
        ("self.culler.people[user] = ()", [False]),
        ("self.state.hub_up = True", [True]),
        ("engine.reconciler.a, engine.reconciler.b = 1, 2", [False, False]),
        ("part.done = True", [False]),
        ("part = Part()\n    part.done = True", []),
        ("self.state.hub_up == True", []),
    ],
)
def test_who_writes_an_attribute_of_another(script: ModuleType, line: str, found: list[bool]) -> None:
    assert list(script.cross_writes(nodes(hub_service__a=f"def f(self, part):\n    {line}"))) == found


@pytest.mark.parametrize(
    ("imported", "kind", "found"),
    [
        ("import logging", "logging.LogRecord", []),
        ("from logging import handlers", "logging.LogRecord", [False]),
        ("import hub_extensions", "hub_extensions.Part", [False]),
        ("import logging", "Part", [False]),
    ],
)
def test_what_another_library_gives_is_no_part_of_ours(
    script: ModuleType, imported: str, kind: str, found: list[bool]
) -> None:
    code = f"{imported}\ndef f(self, part: {kind}):\n    part.done = True"
    assert list(script.cross_writes(nodes(hub_service__a=code))) == found


def test_a_circle_is_found_through_a_function_and_a_package(script: ModuleType) -> None:
    there = nodes(
        core__a="from hub_extensions.core import b",
        core__b="def f():\n    from hub_extensions.core.c import x",
        core__c="import hub_extensions.core.a",
        core__d="from hub_extensions.core.a import y",
    )
    assert script.circles(there) == {frozenset(f"hub_extensions.core.{name}" for name in "abc")}


def test_words_are_those_of_functions_classes_and_attributes(script: ModuleType) -> None:
    code = "class GpuOffer:\n    max_wait: int\n    def askHub(self, unseen):\n        self.told_at = local = MIGTable"
    assert script.words(ast.walk(ast.parse(code))) == {"gpu", "offer", "max", "wait", "ask", "hub", "told", "at"}


def test_a_setting_is_counted_by_its_own_name_and_that_of_its_field(script: ModuleType) -> None:
    traits = (
        "class Queue:\n    abandon_seconds = Float(1.0).tag(config=True)\n    port = Int(1).tag(config=True)\n"
        "    def build(self):\n        return Limits(abandon_after=timedelta(seconds=self.abandon_seconds))"
    )
    there = nodes(spawner__traits=traits, core__model="abandon_after: timedelta", core__other="seconds = port")
    assert script.settings_places(there) == {"abandon_seconds": 2}


@pytest.mark.slow
def test_this_checkout_has_one_writer_of_states_no_circle_and_no_part_that_writes_anothers(script: ModuleType) -> None:
    figures = script.figures(script.of_checkout(SCRIPT.parents[1]), set())
    assert figures["writers of a state"].endswith(" in 1 files")
    assert figures["circles"] == "0 of 0 files"
    assert figures["cross-writes, to another part"] == "0"
    assert int(figures["cross-writes, to the shared state"]) > 0, "it still finds what it looks for"
    assert figures["words in names"] == figures["words that no peer uses"] != "0"
