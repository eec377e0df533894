"""Boundaries that import-linter cannot see: who writes a ticket's or a lease's state, who writes attributes of another
part of the service, and import cycles of any kind.

The files are read as syntax trees; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "hub_extensions"
ENGINE = f"{PACKAGE}/hub_service/engine"
STATE_FILES = {  # the shared state and its parts, which only a transaction changes
    *(f"{ENGINE}/state/{name}.py" for name in ("state", "inventory", "ticket_index", "clock", "transaction")),
    f"{ENGINE}/uses/user_notices.py",
    f"{ENGINE}/forecasts/forecast_state.py",
    f"{ENGINE}/forecasts/past_uses.py",
    f"{ENGINE}/stops/policies.py",
}
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert"),
    *("pop", "popitem", "popleft", "remove", "setdefault", "update"),
}
NO_STATE = {  # what is computed from the state and kept, and counters: nothing is decided by them
    *("_availability", "_sharers", "_waiting", "_kept", "_minute", "_judged", "_queues", "_stamp"),
    *("counts", "culls", "last_admission_seconds"),
}
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
    """Return what a statement assigns to or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        return [part for each in node.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def chain(node: ast.expr, aliases: Mapping[str, list[str]] = MappingProxyType({})) -> list[str]:
    """Return the names of ``self.state.uses[key]``: self, state, uses. A variable stands for what it was assigned."""
    names: list[str] = []
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
        node = node.value
    return [*aliases.get(node.id, [node.id]), *names] if isinstance(node, ast.Name) else []


def cross_writes(trees: Trees) -> Iterator[str]:
    """Find assignments in the service to an attribute of an object other than `self`, and of the shared state.

    An object that the function made by a call is its own, and an object of another library is no part of ours.
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
                names = chain(target)
                another = len(names) > 2 or (len(names) == 2 and names[0] not in own)
                if another and names[-2] != "state" and names[:2] != ["self", "state"]:
                    yield f"{path}:{target.lineno} {'.'.join(names)}"


def mutators(trees: Trees) -> set[str]:
    """Return the names of the methods by which the shared state and its parts change."""
    found: set[str] = set()
    classes = [node for path in trees if path in STATE_FILES for node in trees[path] if isinstance(node, ast.ClassDef)]
    methods = [each for node in classes for each in node.body if isinstance(each, FUNCTIONS)]
    while True:
        before = len(found)
        for method in methods:
            nodes = list(ast.walk(method))
            written = [chain(target) for node in nodes for target in targets(node)]
            written += [chain(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in CHANGES]
            written += [chain(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr in found]
            if any(names[:1] == ["self"] and len(names) > 1 and names[1] not in NO_STATE for names in written):
                found.add(method.name)
        if len(found) == before:
            return {name for name in found if not name.startswith("__")}


def state_writes(trees: Trees) -> Iterator[str]:
    """Find what changes the shared state without a transaction: assignments, changed containers, methods of the state.

    Within a transaction a change is written ``transaction.state.…``; elsewhere ``state`` is only read.
    """
    changing = mutators(trees)
    for path, found in trees.items():
        if not path.startswith(f"{PACKAGE}/hub_service/") or path in STATE_FILES:
            continue
        for function in found:
            if not isinstance(function, FUNCTIONS):
                continue
            nodes, aliases = list(ast.walk(function)), dict[str, list[str]]()
            for node in nodes:
                for target, value in _pairs(node):
                    if isinstance(target, ast.Name) and "state" in (names := chain(value)):
                        aliases[target.id] = names
            for node in nodes:
                stored = [target for target in targets(node) if not isinstance(target, ast.Name)]
                written = [(target.lineno, chain(target, aliases)) for target in stored]
                if isinstance(node, ast.Attribute) and node.attr in CHANGES | changing:
                    written.append((node.lineno, chain(node, aliases)))
                for line, names in written:
                    if "state" not in names[:-1]:
                        continue
                    at = names.index("state")
                    called = names[-1] in CHANGES and at < len(names) - 2
                    if names[at - 1 : at] != ["transaction"] and (
                        isinstance(node, ast.stmt) or names[-1] in changing or called
                    ):
                        yield f"{path}:{line} {'.'.join(names)}"


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


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
        ("self.hub_up = True", 0),
        ("self.tickets.hub_up = True", 1),
        ("self.culler.people[user] = ()", 1),
        ("engine.reconciler.a, engine.reconciler.b = 1, 2", 2),
        ("part.done = True", 1),
        ("del part.done", 1),
        ("part = Part()\n    part.done = True", 0),
        ("self.state.hub_up == True", 0),
    ],
)
def test_a_write_to_another_part_is_found(line: str, found: int) -> None:
    assert len(list(cross_writes(parsed(hub_service__a=f"def f(self, part):\n    {line}")))) == found


STATE = """
class State:
    def touch(self, server):
        self.touched[server] = 1

    def touch_all(self):
        self.touch("a")

    def count(self, what):
        self.counts[what] = 1

    def is_known(self, server):
        return self.touched.get(server)
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("self.state.hub_up = True", 1),
        ("engine.state.reports[key] = 1", 1),
        ("del self.state.reports[key]", 1),
        ("a, self.state.revision = 1, 2", 1),
        ("self.state.revision += 1", 1),
        ("self.state.reports.pop(key)", 1),
        ("reports = self.state.reports\n    reports.clear()", 1),
        ("part, clock = self.state.part, self.state.clock\n    part.values.append(1)", 1),
        ("self.state.touch(key)", 1),
        ("ask(self.state.touch)", 1),
        ("state.touch_all()", 1),
        ("transaction.state.touch(key)", 0),
        ("transaction.state.reports[key] = 1", 0),
        ("self.state.count(what)", 0),
        ("self.state.is_known(key)", 0),
        ("self.state.hub_up == True", 0),
        ("self.found.append(self.state.reports)", 0),
        ("self.state = state", 0),
    ],
)
def test_a_change_of_the_shared_state_without_a_transaction_is_found(line: str, found: int) -> None:
    trees = parsed(
        hub_service__engine__state__state=STATE, hub_service__a=f"def f(self, state, transaction):\n    {line}"
    )
    assert len(list(state_writes(trees))) == found


@pytest.mark.parametrize(
    ("imported", "kind", "found"),
    [
        ("import logging", "logging.LogRecord", 0),
        ("from logging import handlers", "logging.LogRecord", 1),
        ("import hub_extensions", "hub_extensions.Part", 1),
        ("import logging", "Part", 1),
    ],
)
def test_an_object_of_another_library_is_no_part_of_ours(imported: str, kind: str, found: int) -> None:
    code = f"{imported}\ndef f(self, part: {kind}):\n    part.done = True"
    assert len(list(cross_writes(parsed(hub_service__a=code)))) == found


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
    assert list(cross_writes(trees)) == [], "no part of the service writes another part's attributes"
    assert sorted(set(state_writes(trees))) == [], "only a transaction changes the shared state"
