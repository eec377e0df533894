#!/usr/bin/env python3
"""Print figures of the package's structure: sizes, who writes states and attributes, circles, words, settings.

``house-figures.py`` counts this checkout; ``--at REV``, once or more, git revisions, a column each. What each counts
stands in its function's docstring. ``--words`` lists the words that no peer uses, too.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "hub_extensions"
PEERS = ("jupyterhub", "kubespawner", "jupyter_server", "httpx", "sqlalchemy", "tornado", "kopf", "datasette")
SHARED = {"state"}
"""What the parts of the engine share is called so."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
Tree = Mapping[str, str]
"""Path -> text of each Python file of the package."""


def of_checkout(folder: Path) -> Tree:
    """The files as they are."""
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.glob(f"{PACKAGE}/**/*.py")}


def of_revision(revision: str) -> Tree:
    """The files of a git revision."""
    done = subprocess.run(["git", "archive", revision, PACKAGE], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        read = {each.name: archive.extractfile(each) for each in archive if each.name.endswith(".py")}
        return {name: file.read().decode() for name, file in read.items() if file}


def folders(tree: Tree) -> dict[str, str]:
    """Folder -> lines and number of the files that stand right in it."""
    found: dict[str, list[int]] = {}
    for path, text in tree.items():
        found.setdefault(f"{PurePosixPath(path).parent}/", []).append(text.count("\n"))
    return {folder: f"{sum(sizes)} in {len(sizes)}" for folder, sizes in found.items()}


def state_writers(nodes: Mapping[str, list[ast.AST]]) -> list[str]:
    """The file of each call of ``replace``, ``Ticket`` or ``Lease`` with ``state=``, in the service and in ``core``."""
    return [
        path
        for path, found in nodes.items()
        for call in found
        if re.match(f"{PACKAGE}/(core|hub_service)/", path) and isinstance(call, ast.Call)
        if getattr(call.func, "id", "") in ("replace", "Ticket", "Lease")
        if any(keyword.arg == "state" for keyword in call.keywords)
    ]


def cross_writes(nodes: Mapping[str, list[ast.AST]]) -> Iterator[bool]:
    """Each assignment in the service to an attribute of what is not `self`; True: of what all parts share.

    What the function has from a call is its own, and what another library gives it is no part of ours.
    """
    for path, found in nodes.items():
        imported = (each.asname or each.name for node in found if isinstance(node, ast.Import) for each in node.names)
        foreign = {name for name in imported if name != PACKAGE}
        for function in found if path.startswith(f"{PACKAGE}/hub_service/") else ():
            if not isinstance(function, FUNCTIONS):
                continue
            assigned = [node for node in ast.walk(function) if isinstance(node, ASSIGNMENTS)]
            calls = [node for node in assigned if isinstance(node.value, ast.Call | ast.Await)]
            made = (target for node in calls for target in targets(node))
            own = {"self", "cls", *(target.id for target in made if isinstance(target, ast.Name))}
            own |= {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg) and _of(each, foreign)}
            for target in (each for node in assigned for each in targets(node)):
                while isinstance(target, ast.Subscript):
                    target = target.value
                holder = target.value if isinstance(target, ast.Attribute) else None
                if isinstance(holder, ast.Attribute) or (isinstance(holder, ast.Name) and holder.id not in own):
                    yield (holder.attr if isinstance(holder, ast.Attribute) else holder.id) in SHARED


def circles(nodes: Mapping[str, list[ast.AST]]) -> set[frozenset[str]]:
    """Sets of files that import each other, also for type checking only and within a function."""
    paths = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in nodes}
    after: dict[str, set[str]] = {}
    for name, path in paths.items():
        found = {each.name for node in nodes[path] if isinstance(node, ast.Import) for each in node.names}
        for node in (node for node in nodes[path] if isinstance(node, ast.ImportFrom)):
            modules = {f"{node.module}.{each.name}" for each in node.names} & paths.keys()
            found |= modules or {str(node.module)}
        after[name] = (found & paths.keys()) - {name}
    reached = {name: _reached(name, after) for name in after}
    return {frozenset(b for b in reached[a] if a in reached[b]) for a in reached if a in reached[a]}


def words(nodes: Iterable[ast.AST]) -> set[str]:
    """The words in the names of functions, classes and attributes."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {each.id for part in node.body for each in targets(part) if isinstance(each, ast.Name)}
        names |= {each.attr for each in targets(node) if isinstance(each, ast.Attribute)}
    parts = (part.lower() for name in names for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))
    return {part for part in parts if len(part) > 1}


def peers() -> dict[str, set[str]]:
    """The words of each peer that is installed; nothing of it is run."""
    found = {}
    for name in PEERS:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            files = [path for path in Path(folder).glob("**/*.py") if not {"test", "tests"} & set(path.parts)]
            found[name] = {word for path in files for word in words(ast.walk(ast.parse(path.read_bytes())))}
    return found


def settings_places(nodes: Mapping[str, list[ast.AST]]) -> dict[str, int]:
    """Trait of several words that an admin sets -> files in which it, or the field that is built from it, is named."""
    names: dict[str, set[str]] = {}
    for owner in (node for found in nodes.values() for node in found if isinstance(node, ast.ClassDef)):
        tagged = (part for part in owner.body if targets(part) and ".tag(config=True" in ast.unparse(part))
        traits = {getattr(target, "id", "") for part in tagged for target in targets(part)}
        names |= {name: {name} for name in traits - names.keys()}
        for call in (node for node in ast.walk(owner) if isinstance(node, ast.Call)):
            for keyword in call.keywords if getattr(call.func, "id", "") != "timedelta" else ():
                for used in {getattr(node, "attr", "") for node in ast.walk(keyword.value)} & traits:
                    names[used].add(str(keyword.arg))
    kinds = {ast.Name: "id", ast.Attribute: "attr", ast.keyword: "arg", ast.arg: "arg", ast.Constant: "value"}
    said = [{getattr(node, kinds[type(node)]) for node in found if type(node) in kinds} for found in nodes.values()]
    counted = {name: {each for each in either if "_" in each} for name, either in names.items() if "_" in name}
    return {name: sum(1 for there in said if there & either) for name, either in counted.items()}


def figures(tree: Tree, peer_words: set[str]) -> dict[str, str]:
    """Every figure of one tree, by its name."""
    nodes = {path: list(ast.walk(ast.parse(text))) for path, text in tree.items()}
    functions = [node for found in nodes.values() for node in found if isinstance(node, FUNCTIONS)]
    writers, crossed, places = state_writers(nodes), list(cross_writes(nodes)), settings_places(nodes)
    mine, found = words(node for each in nodes.values() for node in each), circles(nodes)
    most = max(places, key=lambda name: (places[name], name), default="")
    return {
        **folders(tree),
        "all": f"{sum(text.count(chr(10)) for text in tree.values())} in {len(tree)}",
        "longest module": "{} {}".format(*max((text.count("\n"), path) for path, text in tree.items())),
        "longest function": "{} {}".format(*max(((f.end_lineno or 0) - f.lineno + 1, f.name) for f in functions)),
        "writers of a state": f"{len(writers)} in {len(set(writers))} files",
        "cross-writes, to another part": str(crossed.count(False)),
        "cross-writes, to the shared state": str(crossed.count(True)),
        "circles": f"{len(found)} of {sum(map(len, found))} files",
        "words in names": str(len(mine)),
        "words that no peer uses": str(len(mine - peer_words)),
        "files that name a setting": f"{sum(places.values()) / max(1, len(places)):.1f} (mean of {len(places)})",
        "files that name a setting, at most": f"{places.get(most, 0)} {most}",
        "": " ".join(sorted(mine - peer_words)),
    }


def targets(node: ast.AST) -> list[ast.expr]:
    """What an assignment writes to."""
    if isinstance(node, ast.Assign):
        return [part for each in node.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _of(argument: ast.arg, modules: set[str]) -> bool:
    """Whether its type is one of these modules' own: ``record: logging.LogRecord``."""
    kind = argument.annotation
    return isinstance(kind, ast.Attribute) and isinstance(kind.value, ast.Name) and kind.value.id in modules


def _reached(start: str, after: Mapping[str, set[str]]) -> set[str]:
    seen, ahead = set[str](), list(after[start])
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead.extend(after[name])
    return seen


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", action="append", default=[], metavar="REV", help="a git revision; may be given twice")
    parser.add_argument("--words", action="store_true", help="list the words that no peer uses")
    asked, known = parser.parse_args(), peers()
    trees = {revision: of_revision(revision) for revision in asked.at} or {"here": of_checkout(ROOT)}
    columns = {name: figures(tree, set[str]().union(*known.values())) for name, tree in trees.items()}
    unknown = {name: column.pop("") for name, column in columns.items()}
    rows = dict.fromkeys(row for column in columns.values() for row in column)
    table = [["", *columns], *([row, *(column.get(row, "") for column in columns.values())] for row in sorted(rows))]
    for row in [*table[:1], ["---"] * len(table[0]), *table[1:]]:
        print(f"| {row[0]:50} | " + " | ".join(f"{each:40}" for each in row[1:]) + " |")
    print(f"\nA folder's row: lines in files. Peers: {', '.join(known)}.")
    for name, found in unknown.items() if asked.words else ():
        print(f"\n{name}: {found}")


if __name__ == "__main__":
    main()
