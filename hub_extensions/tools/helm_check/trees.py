"""Reads values as nested mappings, and names keys and values in texts for administrators.

A key is represented by a tuple of names, because a name may contain dots (``hub.jupyter.org/…``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

Path = tuple[str, ...]
Tree = Mapping[str, Any]
_MISSING = object()


def find(tree: Any, path: Iterable[str], missing: Any = None) -> Any:
    """Return the value at a path of names in a tree (nested mappings); `missing` if the path does not exist."""
    for name in path:
        if not isinstance(tree, Mapping) or name not in tree:
            return missing
        tree = tree[name]
    return tree


def has(tree: Any, path: Iterable[str]) -> bool:
    """Whether a tree has a key at this path, even if its value is null."""
    return find(tree, path, _MISSING) is not _MISSING


def as_tree(value: object) -> Tree:
    """Return a value that has to be a mapping; an empty mapping if it is something else."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """Return a value that has to be a list; an empty list if it is something else."""
    return value if isinstance(value, list) else []


def mappings(values: object) -> list[Tree]:
    """Return the mappings in a list; nothing if it is not a list."""
    return [each for each in values if isinstance(each, Mapping)] if isinstance(values, (list, tuple)) else []


def leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of every value in a tree that is not a mapping, and of every empty mapping.

    Args:
        tree: the tree (nested mappings).
        path: path of this tree in a larger one, with which the yielded paths begin.
    """
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value


def dotted(path: Sequence[str]) -> str:
    """Return a path of names as users write it; a name with dots is quoted: ``hub.extraFiles."a.py"``."""
    return ".".join(f'"{name}"' if "." in name else name for name in path)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to this one, for "did you mean"; "" if none is similar."""
    names = list(known)
    by_case = {each.lower().replace("_", ""): each for each in names}
    alike = by_case.get(name.lower().replace("_", "").replace("-", ""))
    return alike or next(iter(difflib.get_close_matches(name, names, n=1)), "")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number. True and false do not count as numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind_of(value: object) -> str:
    """Name the type of a value for a finding, which must not repeat the value: it may be a password."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    usual = "a mapping" if isinstance(value, Mapping) else "null" if value is None else "something else"
    return kinds.get(type(value), usual)


def listed(names: Iterable[str]) -> str:
    """Return names sorted and joined by commas."""
    return ", ".join(sorted(names))


def few(names: Iterable[object], most: int = 3) -> str:
    """Return the first `most` names joined by commas, and an ellipsis if there are more names."""
    shown = list(map(str, names))
    return ", ".join([*shown[:most], "…"] if len(shown) > most else shown)
