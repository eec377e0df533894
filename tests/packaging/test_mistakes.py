"""The mistakes that `python -m benchmarks.mutations` makes in a piece of code, and those that it does not."""

from __future__ import annotations

import ast

import pytest

from benchmarks.mistakes import mistakes

MADE = [
    ("x = a < b", ["(a <= b)"]),
    ("x = a <= b", ["(a < b)"]),
    ("x = a > b", ["(a >= b)"]),
    ("x = a >= b", ["(a > b)"]),
    ("x = a == b", ["(a != b)"]),
    ("x = a is b", ["(a is not b)"]),
    ("x = a not in b", ["(a in b)"]),
    ("x = a < b <= c", ["(a <= b <= c)", "(a < b < c)"]),
    ("x = a and b", ["(a or b)"]),
    ("x = not (a or b)", ["(a or b)", "(a and b)"]),
    ("x = a + b", ["(a - b)"]),
    ("x = 5", ["4", "6"]),
    ("x = 0", ["(-1)", "1"]),
    ("x = min(a, b)", ["max"]),
    ("x = any(a)", ["all"]),
    ("x = True", ["False"]),
    ("x = a[0]", ["(a[-1])"]),
    ("x = a[-1]", ["(a[0])"]),
    ("a.b = c", ["pass"]),
    ("a.b += c", ["pass"]),
    ("a.append(b)", ["pass"]),
    ("def f(x):\n    if x:\n        return a\n    return b", ["pass"]),
    ("for x in y:\n    if x:\n        continue\n    f(x)", ["pass"]),
]
NOT_MADE = [
    '"""The first of 2 lines."""',
    "x: Literal[1, 2]",
    "def f(x: Literal[1]) -> Literal[2]: ...",
    '__all__ = ["a"] + ["b"]',
    "log.info('%s', a + b)",
    "x = f'{a + 1}'",
    "x = 'a' + b",
    "assert a is not None",
    "if TYPE_CHECKING:\n    x = 1",
    "@dataclass(frozen=True)\nclass A: ...",
    "zip(a, b, strict=True)",
    "a = b",
    "for x in y:\n    if x:\n        continue",
    "def f(x):\n    if x:\n        return",
    "def f(x):\n    return x",
]


@pytest.mark.parametrize(("code", "after"), MADE)
def test_each_kind_of_mistake_is_made_where_the_code_has_room_for_it(code: str, after: list[str]) -> None:
    assert sorted(each.after for each in mistakes(code)) == sorted(after)


@pytest.mark.parametrize("code", NOT_MADE)
def test_no_mistake_is_made_in_what_no_test_of_behaviour_can_see(code: str) -> None:
    assert mistakes(code) == []


@pytest.mark.parametrize("code", [code for code, _ in MADE])
def test_a_mistake_is_code_of_python_and_changes_nothing_around_it(code: str) -> None:
    source = f"ä = 'before'\n{code}\nafter = 1 if a else b\n"
    for each in mistakes(source):
        ast.parse(each.of(source))
        assert each.of(source).encode()[each.begin :].removeprefix(each.after.encode()) == source.encode()[each.end :]
        assert source.encode()[each.begin : each.end].decode() == each.before


def test_a_mistake_says_its_line_and_the_function_around_it() -> None:
    found = mistakes("x = 1\n\nasync def f():\n    def g():\n        return not x\n    return g(), True\n")
    assert [(each.line, each.function) for each in found] == [(1, ""), (1, ""), (5, "g"), (6, "f")]
