"""Boundaries that import-linter cannot see: who writes a ticket's or a lease's state, who writes attributes of another
part of the service, and import cycles of any kind.

The files are read as syntax trees; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "hub_extensions"
SHARED = {"state"}  # the attribute through which the parts of the engine share their state
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Trees = Mapping[str, list[ast.AST]]  # path -> all nodes of the file


def state_writers(trees: Trees) -> list[str]:
    """Return the file of each call that sets ``state=`` of a ticket, a lease or a stop, in the service and in core."""
    return [
        path
        for path, found in trees.items()
        for call in found
        if re.match(f"{PACKAGE}/(core|hub_service)/", path) and isinstance(call, ast.Call)
        if getattr(call.func, "id", "") in ("replace", "Ticket", "Lease", "StopRecord")
        if any(keyword.arg == "state" for keyword in call.keywords)
    ]


def targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [part for each in node.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def cross_writes(trees: Trees) -> Iterator[bool]:
    """Find assignments in the service to an attribute of an object other than `self`.

    An object that the function made by a call is its own, and an object of another library is no part of ours.

    Returns:
        For each such assignment, whether it writes to the shared state (and not to another part).
    """
    for path, found in trees.items():
        imported = (each.asname or each.name for node in found if isinstance(node, ast.Import) for each in node.names)
        foreign = {name for name in imported if name != PACKAGE}
        for function in found if path.startswith(f"{PACKAGE}/hub_service/") else ():
            if not isinstance(function, FUNCTIONS):
                continue
            assigned = [node for node in ast.walk(function) if targets(node)]
            calls = [node for node in assigned if isinstance(getattr(node, "value", None), ast.Call | ast.Await)]
            own = {"self", "cls"}
            own |= {target.id for node in calls for target in targets(node) if isinstance(target, ast.Name)}
            own |= {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg) and _is_of(each, foreign)}
            for target in (each for node in assigned for each in targets(node)):
                while isinstance(target, ast.Subscript):
                    target = target.value
                holder = target.value if isinstance(target, ast.Attribute) else None
                if isinstance(holder, ast.Attribute) or (isinstance(holder, ast.Name) and holder.id not in own):
                    yield (holder.attr if isinstance(holder, ast.Attribute) else holder.id) in SHARED


def _is_of(argument: ast.arg, modules: set[str]) -> bool:
    """Return whether the argument's type belongs to one of these modules: ``record: logging.LogRecord``."""
    kind = argument.annotation
    return isinstance(kind, ast.Attribute) and isinstance(kind.value, ast.Name) and kind.value.id in modules


def cycles(trees: Trees) -> set[frozenset[str]]:
    """Find sets of files that import each other, also within a function or for type checking only."""
    paths = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in trees}
    imports: dict[str, set[str]] = {}
    for name, path in paths.items():
        found = {each.name for node in trees[path] if isinstance(node, ast.Import) for each in node.names}
        for node in (node for node in trees[path] if isinstance(node, ast.ImportFrom)):
            found |= {f"{node.module}.{each.name}" for each in node.names} & paths.keys() or {str(node.module)}
        imports[name] = (found & paths.keys()) - {name}

    def reached(start: str) -> set[str]:
        seen, ahead = set[str](), list(imports[start])
        while ahead:
            if (name := ahead.pop()) not in seen:
                seen.add(name)
                ahead.extend(imports[name])
        return seen

    all_reached = {name: reached(name) for name in imports}
    return {
        frozenset(other for other in found if name in all_reached[other])
        for name, found in all_reached.items()
        if name in found
    }


def parsed(**files: str) -> Trees:
    """Parse small files; `hub_service__a` is ``hub_extensions/hub_service/a.py``."""
    named = {f"{PACKAGE}/{name.replace('__', '/')}.py": text for name, text in files.items()}
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
def test_a_writer_of_a_state_is_found(code: str, count: int) -> None:
    found = state_writers(parsed(hub_service__a=code, core__b="", server_extension__c=code))
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
def test_a_write_to_another_part_is_found(line: str, found: list[bool]) -> None:
    assert list(cross_writes(parsed(hub_service__a=f"def f(self, part):\n    {line}"))) == found


@pytest.mark.parametrize(
    ("imported", "kind", "found"),
    [
        ("import logging", "logging.LogRecord", []),
        ("from logging import handlers", "logging.LogRecord", [False]),
        ("import hub_extensions", "hub_extensions.Part", [False]),
        ("import logging", "Part", [False]),
    ],
)
def test_an_object_of_another_library_is_no_part_of_ours(imported: str, kind: str, found: list[bool]) -> None:
    code = f"{imported}\ndef f(self, part: {kind}):\n    part.done = True"
    assert list(cross_writes(parsed(hub_service__a=code))) == found


def test_a_cycle_is_found_through_a_function_and_a_package() -> None:
    trees = parsed(
        core__a="from hub_extensions.core import b",
        core__b="def f():\n    from hub_extensions.core.c import x",
        core__c="import hub_extensions.core.a",
        core__d="from hub_extensions.core.a import y",
    )
    assert cycles(trees) == {frozenset(f"hub_extensions.core.{name}" for name in "abc")}


@pytest.mark.slow
def test_the_package_keeps_its_boundaries() -> None:
    trees = {
        path.relative_to(ROOT).as_posix(): list(ast.walk(ast.parse(path.read_text("utf-8"))))
        for path in ROOT.glob(f"{PACKAGE}/**/*.py")
    }
    lifecycles = {f"{PACKAGE}/core/queue/lifecycle.py", f"{PACKAGE}/core/stops/lifecycle.py"}
    assert set(state_writers(trees)) == lifecycles, "each lifecycle is the one writer of its states"
    assert cycles(trees) == set()
    assert False not in list(cross_writes(trees)), "no part of the service writes another part's attributes"
