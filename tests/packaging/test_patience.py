"""Every wait of a test is stretched by one setting: no number stands as a time by itself (``tests/patience.py``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NOT_OURS = TESTS / "cluster" / "programs"
"""A program of the set-up, which is no test."""
PATIENT_THEMSELVES = {"api"}
"""Calls that stretch the `timeout` they get: ``Hub.api``."""
WAITS = {"wait": 0, "join": 0, "wait_for": 1, "wait_for_timeout": 0, "set_default_timeout": 0, "settimeout": 0}
"""Call -> which of its positional arguments is a time."""
MAY_PASS = {"raises", "suppress"}
"""``with pytest.raises`` and ``contextlib.suppress``: that the time is over is expected there, and no failure."""

IN_VAIN = {"adapters/nvml/test_fake.py": ["look.join(0.3)"]}
"""A call that hangs is seen to hang for so long."""


def impatient(text: str) -> list[str]:
    """The calls in this text of a test that wait for a number of seconds which no setting stretches."""
    tree = ast.parse(text)
    expected = {id(call) for each in ast.walk(tree) for call in _expected(each)}
    calls = (each for each in ast.walk(tree) if isinstance(each, ast.Call) and id(each) not in expected)
    return [ast.unparse(call) for call in calls if any(map(_is_number, _times(call)))]


def _expected(node: ast.AST) -> Iterator[ast.AST]:
    """What stands where a time may pass, and the pace of a loop: ``while not done.wait(0.5)``."""
    if isinstance(node, ast.While):
        yield from ast.walk(node.test)
    if isinstance(node, ast.With | ast.AsyncWith) and any(_name(each.context_expr) in MAY_PASS for each in node.items):
        for part in node.body:
            yield from ast.walk(part)


def _times(call: ast.Call) -> Iterator[ast.expr]:
    name = _name(call)
    if name not in PATIENT_THEMSELVES:
        yield from (each.value for each in call.keywords if each.arg in ("timeout", "_request_timeout"))
    if name in WAITS:
        yield from call.args[WAITS[name] : WAITS[name] + 1]


def _name(node: ast.AST) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return str(getattr(called, "attr", getattr(called, "id", "")))


def _is_number(node: ast.expr) -> bool:
    """Made of numbers only, as ``60`` and ``60 * 1000``; 0 waits for nothing."""
    parts = [each for each in ast.walk(node) if isinstance(each, ast.Constant | ast.Name | ast.Call | ast.Attribute)]
    numbers = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, int | float)]
    return bool(parts) and len(numbers) == len(parts) and any(numbers)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("child.wait(30)", True),
        ("child.wait(patient(30))", False),
        ("child.communicate(timeout=60)", True),
        ("subprocess.run(words, timeout=60 * 2)", True),
        ("subprocess.run(words, timeout=seconds)", False),
        ("expect(it).to_be_visible(timeout=patient(60) * 1000)", False),
        ("expect(it).to_be_visible(timeout=60_000)", True),
        ("await asyncio.wait_for(it, 10)", True),
        ("await asyncio.wait_for(it, patient(10))", False),
        ("await asyncio.wait_for(it, timeout=10)", True),
        ("hub.api('GET', 'users', timeout=5)", False),
        ("core.read(_request_timeout=2)", True),
        ("thread.join(5)", True),
        ("', '.join(names)", False),
        ("server.settimeout(0)", False),
        ("with pytest.raises(TimeoutExpired):\n    child.wait(2)", False),
        ("with open(file):\n    child.wait(2)", True),
        ("while not done.wait(0.5):\n    look()", False),
        ("while look():\n    done.wait(0.5)", True),
    ],
)
def test_what_counts_as_a_wait_without_patience(line: str, found: bool) -> None:
    code = f"async def test() -> None:\n    {line.replace(chr(10), chr(10) + '    ')}"
    assert bool(impatient(code)) == found


@pytest.mark.whole
@pytest.mark.slow
def test_no_wait_of_a_test_is_without_patience() -> None:
    files = [path for path in sorted(TESTS.rglob("*.py")) if not path.is_relative_to(NOT_OURS)]
    found = {str(path.relative_to(TESTS)): impatient(path.read_text("utf-8")) for path in files}
    assert {path: calls for path, calls in found.items() if calls} == IN_VAIN
