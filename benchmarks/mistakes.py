"""Small mistakes that somebody could make in a Python module, found in its syntax tree: the pure part of `mutations`.

Not here: texts, annotations, decorators, asserts (for the type checker), logging, `__all__`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OF_ANY_LENGTH = ("secrets.token_hex", "asyncio.sleep")
"""A random id, and a pause: no test measures time."""
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mistake:
    """One small mistake. `begin` and `end` are bytes of the source; `function` is "" outside of all functions."""

    line: int
    begin: int
    end: int
    before: str
    after: str
    function: str

    def of(self, source: str) -> str:
        """The source with this mistake."""
        raw = source.encode()
        return (raw[: self.begin] + self.after.encode() + raw[self.end :]).decode()


def mistakes(source: str) -> list[Mistake]:
    """All there are, in the order of the source."""
    raw, starts = source.encode(), [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, after, function in _mutated(ast.parse(source), ""):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before = raw[begin:end].decode()
        found.append(Mistake(node.lineno, begin, end, before, after, function))
    return sorted(found, key=lambda each: (each.begin, each.end, each.after))


def _mutated(node: ast.AST, function: str, last: bool = True) -> Iterator[tuple[Any, str, str]]:
    """The nodes below this one to be replaced, by what, and in which function."""
    if _left_alone(node):
        return
    for after in _instead(node, last):
        yield node, after, function
    inside = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (name == "slice" and _is_end(node)):
            continue
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, ast.AST):
                is_last = below is value[-1] if isinstance(value, list) and isinstance(below, ast.stmt) else True
                opens = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.AsyncFor, ast.While))
                yield from _mutated(below, inside, is_last and (last or opens))


def _left_alone(node: ast.AST) -> bool:
    """Texts, annotations, asserts (for the type checker), logging, `__all__`, what only a type checker reads."""
    if isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: both are of one length
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) in OF_ANY_LENGTH:
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "log"


def _instead(node: ast.AST, last: bool) -> list[str]:
    """What this node could have been by mistake."""

    def changed(change: Callable[[Any], object]) -> str:
        other = copy.deepcopy(node)
        change(other)
        return f"({ast.unparse(other)})"

    if isinstance(node, ast.Compare):
        others = [COMPARED[type(operator)]() for operator in node.ops]
        return [changed(lambda n, at=at: n.ops.__setitem__(at, others[at])) for at in range(len(others))]
    if isinstance(node, ast.BoolOp):
        swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return [changed(lambda n: setattr(n, "op", swapped))]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [f"({ast.unparse(node.operand)})"]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and not _is_text(node):
        return [changed(lambda n: setattr(n, "op", ast.Sub()))]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [str(not node.value)]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return [str(node.value + 1), str(node.value - 1) if node.value > 0 else "(-1)"]
    if isinstance(node, ast.Name) and node.id in CALLED:
        return [CALLED[node.id]]
    if _is_end(node):
        return [changed(lambda n: setattr(n, "slice", ast.Constant(0 if _is_end(node) == "-1" else -1)))]
    if isinstance(node, (ast.Return, ast.Continue)):
        return [] if last else ["pass"]
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return ["pass"] if any(isinstance(target, ast.Attribute) for target in targets) else []
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return ["pass"] if node.value.func.attr == "append" else []
    return []


def _is_end(node: ast.AST) -> str:
    """The subscript of the first or the last, else ""."""
    at = ast.unparse(node.slice) if isinstance(node, ast.Subscript) else ""
    return at if at in ("0", "-1") else ""


def _is_text(node: ast.AST) -> bool:
    """A sum of texts or lists has no difference: Python itself would notice."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple)) or isinstance(getattr(node, "value", None), str)
