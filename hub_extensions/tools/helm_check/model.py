"""What ``helm check`` looks at and what it says: values files as they were given, facts about the chart, findings.

Plain values for the rules beside this module. A key is a path of names, for a name may hold dots
(``hub.jupyter.org/…``). Not here: the rules (``rules/``, ``files.py``), reading files and charts (``helm.py``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Path = tuple[str, ...]
Tree = Mapping[str, Any]
Severity = Literal["problem", "look at"]


@dataclass(frozen=True)
class ChartFacts:
    """A chart: its name and version, the JSON schema of its values (draft 7), and what it sets itself."""

    chart: str
    version: str
    app_version: str
    schema: Tree
    defaults: Tree


@dataclass(frozen=True)
class Twice:
    """A key that stands twice in one file: YAML takes the last."""

    path: Path
    first: int
    last: int


@dataclass(frozen=True)
class ValuesFile:
    """One values file. `lines`: where each key stands, counted from 1."""

    name: str
    values: Tree
    lines: Mapping[Path, int] = field(default_factory=dict)
    twice: Sequence[Twice] = ()


@dataclass(frozen=True)
class Release:
    """What is checked.

    Attributes:
        files: as given, in order. values: all of them over the chart's defaults. name: the release's.
        manifests: all Kubernetes objects that go beside the chart; with none given, the policies are taken to be
            those of ``helm-values/manifests``.
    """

    files: Sequence[ValuesFile]
    values: Tree
    facts: ChartFacts
    namespace: str = "jhub"
    manifests: Sequence[Tree] = ()
    name: str = "jhub"

    def at(self, dotted: str, default: Any = None) -> Any:
        """The value at a key without dots in its names; None and `default` where there is none."""
        found = find(self.values, dotted.split("."))
        return default if found is None else found

    def tree(self, dotted: str) -> Tree:
        """The mapping at a key; empty where there is none, or something else stands there."""
        found = self.at(dotted)
        return found if isinstance(found, Mapping) else {}

    def variables(self, dotted: str) -> Tree:
        """An ``extraEnv`` by its variables' names; of a list what stands beside each ``name``."""
        named = [each for each in self.items(dotted) if isinstance(each, Mapping)]
        return {str(each.get("name")): each for each in named} or self.tree(dotted)

    def items(self, dotted: str) -> Sequence[Any]:
        """The list at a key; empty where there is none, or something else stands there."""
        found = self.at(dotted)
        return found if isinstance(found, list) else ()

    def is_given(self, dotted: str) -> bool:
        """Does one of the files set it (or something below)?"""
        path = tuple(dotted.split("."))
        return any(has(file.values, path) for file in self.files)

    def where(self, path: Sequence[str]) -> tuple[str, int | None]:
        """The file that had the last word about a key, and the line; "" where the chart itself had it."""
        wanted = tuple(path)
        for file in reversed(self.files):
            if has(file.values, wanted):
                return file.name, file.lines.get(wanted)
        return "", None

    @property
    def base_url(self) -> str:
        """``hub.baseUrl``, with a slash at both ends."""
        inner = str(self.at("hub.baseUrl") or "").strip("/")
        return f"/{inner}/" if inner else "/"

    @property
    def base(self) -> int:
        """The place of the first file that calls our `configure(c)`; 0 where none does.

        What stands before it is the admin's own, what comes from there on is laid over it on purpose.
        """
        for at, file in enumerate(self.files):
            entries = find(file.values, ("hub", "extraConfig"))
            if isinstance(entries, Mapping) and any(map(calls_configure, entries.values())):
                return at
        return 0

    @property
    def overlays(self) -> Sequence[ValuesFile]:
        """The files from our base on."""
        return self.files[self.base :]

    @property
    def is_ours(self) -> bool:
        """Is our spawner or our `configure(c)` in these values at all?"""
        hub = self.tree("hub.config.JupyterHub").get("spawner_class")
        return is_own_spawner(hub) or bool(self.own_extra_config)

    @property
    def own_extra_config(self) -> tuple[str, ...]:
        """The keys of ``hub.extraConfig`` that call our `configure(c)`."""
        entries = self.tree("hub.extraConfig")
        return tuple(sorted(key for key, code in entries.items() if calls_configure(code)))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that would not work, or should be looked at.

    Attributes:
        rule: a stable word for programs. key: the values key, dotted.
        text: a sentence. fix: what to do about it.
        file, line: where the key was set; "" and None where the chart or nobody did.
    """

    rule: str
    severity: Severity
    key: str
    text: str
    fix: str
    file: str = ""
    line: int | None = None


def found(
    release: Release, rule: str, path: str | Sequence[str], text: str, fix: str, *, severity: Severity = "problem"
) -> Finding:
    """A finding about a key, with the file and line that set it."""
    parts = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    file, line = release.where(parts)
    return Finding(rule, severity, dotted(parts), text, fix, file, line)


# ------------------------------------------------------------------ trees and words


def find(tree: Any, path: Iterable[str]) -> Any:
    """What stands at a path; None where nothing does."""
    for name in path:
        if not isinstance(tree, Mapping) or name not in tree:
            return None
        tree = tree[name]
    return tree


def has(tree: Any, path: Iterable[str]) -> bool:
    """Is there a key of this path, also one that is null?"""
    for name in path:
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is no mapping, and every empty mapping, with its path."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, str(name)))
        else:
            yield (*path, str(name)), value


def dotted(path: Sequence[str]) -> str:
    """A path as it is written: ``hub.extraFiles."a.py"``."""
    return ".".join(f'"{name}"' if "." in name else name for name in path)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one; "" where none is."""
    names = list(known)
    by_case = {each.lower().replace("_", ""): each for each in names}
    alike = by_case.get(name.lower().replace("_", "").replace("-", ""))
    close = difflib.get_close_matches(name, names, n=1)
    return alike or (close[0] if close else "")


def kind_of(value: object) -> str:
    """What it is, and never the value: it may be a password."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, Mapping):
        return "a mapping"
    kinds = {str: "a text", list: "a list", type(None): "null"}
    return kinds.get(type(value), "something else")


def listed(names: Iterable[str]) -> str:
    """Names in one line, sorted."""
    return ", ".join(sorted(names))


def is_own_spawner(chosen: object) -> bool:
    """Is this ``spawner_class`` ours on Kubernetes? A class of an admin's own is not known to be."""
    return chosen == "gpu" or str(chosen).endswith(".GpuKubeSpawner")


def calls_configure(code: object) -> bool:
    """Does this Python call our `configure(c)`?"""
    return isinstance(code, str) and "hub_extensions" in code and "configure(" in code
