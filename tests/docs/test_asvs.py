"""The items of ASVS 5.0 that sign-on answers: each has a row, and the test that a row names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ITEMS = [
    *("7.1.1", "7.1.2", "7.1.3", "7.2.3", "7.2.4", "7.3.1", "7.3.2", "7.4.1", "7.4.2", "7.4.5", "7.5.2", "7.6.1"),
    *("10.1.2", "10.2.1", "10.2.2", "10.2.3", "10.3.3", "10.4.1", "10.4.2", "10.4.3", "10.4.6"),
    *("10.5.1", "10.5.2", "10.5.3", "10.5.4", "10.5.5"),
]


@pytest.mark.slow
def test_each_item_has_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "explanation" / "sign-on-asvs.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \|.*\| `([^:`]+)::(\w+)` \|$", text, re.MULTILINE)
    assert [item for item, _, _ in rows] == ITEMS
    missing = [(item, name) for item, path, name in rows if name not in functions_of(ROOT / path)]
    assert missing == []


def functions_of(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in found if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
