"""Values for ``helm check``: values files as they were given, facts about the chart, findings.

Plain values for the rules beside this module. A key is a path of names, for a name may hold dots
(``hub.jupyter.org/…``).
"""

from __future__ import annotations

import ast
import base64
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

CONFIGURATION_FILE = re.compile(r"/usr/local/etc/jupyterhub/jupyterhub_config\.d/[^/]+\.py")
"""A file that the chart's hub runs, after ``hub.config`` and before ``hub.extraConfig``."""

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
class Change:
    """A setting that the administrator's code set. `path`: the key of the code. `before`: None if it was not set."""

    path: Path
    section: str
    trait: str
    value: Any
    before: Any

    @property
    def loses(self) -> bool:
        """Is something of the value before not in the value after?"""
        before, after = self.before, self.value
        if isinstance(before, list):
            return any(each not in after for each in before) if isinstance(after, list) else True
        if isinstance(before, Mapping):
            return any(name not in after for name in before) if isinstance(after, Mapping) else True
        return before is not None


@dataclass(frozen=True)
class HookGpu:
    """A GPU resource that a hook gives to a server. `was_seen`: when it was called; else only its code names it."""

    path: Path
    section: str
    hook: str
    resource: str
    was_seen: bool


@dataclass(frozen=True)
class Evaluation:
    """The settings of the hub after the administrator's code has run (``evaluate.py``).

    Attributes:
        failed: key, name of the exception, line (0 if not known) and module that is missing ("" if none is).
        missing: key and module of each import that was replaced by a stand-in.
        configured: the keys whose code calls our ``configure(c)``.
        sentences: the rule and text of each report of ``configure(c)``.
        unfinished: the key of the code that was running when the process ended or was ended; None if all ran.
        isolated: whether the code had no network.
    """

    changes: Sequence[Change] = ()
    hooks: Sequence[HookGpu] = ()
    failed: Sequence[tuple[Path, str, int, str]] = ()
    missing: Sequence[tuple[Path, str]] = ()
    configured: Sequence[Path] = ()
    sentences: Sequence[tuple[str, str]] = ()
    unfinished: Path | None = None
    in_time: bool = True
    isolated: bool = True


@dataclass(frozen=True)
class Release:
    """The release to check.

    Attributes:
        files: as given, in order. values: all of them over the chart's defaults. name: the release's.
        manifests: all Kubernetes objects that go beside the chart; with none given, the policies are taken to be
            those of ``helm-values/manifests``.
        evaluation: None if the administrator's code was not run; then `values` is from the files alone.
    """

    files: Sequence[ValuesFile]
    values: Tree
    facts: ChartFacts
    namespace: str = "jhub"
    manifests: Sequence[Tree] = ()
    name: str = "jhub"
    evaluation: Evaluation | None = None

    def at(self, dotted: str, default: Any = None) -> Any:
        """Return the value at a key without dots in its names; `default` if the key is missing or null."""
        found = find(self.values, dotted.split("."))
        return default if found is None else found

    def tree(self, dotted: str) -> Tree:
        """Return the mapping at a key; an empty one if the key is missing or its value is not a mapping."""
        found = self.at(dotted)
        return found if isinstance(found, Mapping) else {}

    def variables(self, dotted: str) -> Tree:
        """An ``extraEnv`` by its variables' names; of a list what stands beside each ``name``."""
        named = [each for each in self.items(dotted) if isinstance(each, Mapping)]
        return {str(each.get("name")): each for each in named} or self.tree(dotted)

    def items(self, dotted: str) -> Sequence[Any]:
        """Return the list at a key; an empty one if the key is missing or its value is not a list."""
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

        Files before it are the administrator's own; later files override it on purpose.
        """
        for at, file in enumerate(self.files):
            entries = find(file.values, ("hub", "extraConfig"))
            if isinstance(entries, Mapping) and any(map(calls_configure, entries.values())):
                return at
        return 0

    @property
    def is_ours(self) -> bool:
        """Is our spawner or our `configure(c)` in these values at all?"""
        spawner = self.tree("hub.config.JupyterHub").get("spawner_class")
        return is_own_spawner(spawner) or any(calls_configure(code) for _, code in self.python)

    @property
    def python(self) -> Sequence[tuple[Path, str]]:
        """Key and code of all Python in the values, in the order in which the hub runs it."""
        files: list[tuple[str, Path, str]] = []
        for name, file in self.tree("hub.extraFiles").items():
            place = str(file.get("mountPath", "")) if isinstance(file, Mapping) else ""
            if CONFIGURATION_FILE.fullmatch(place):
                files.append((place, ("hub", "extraFiles", name), _text_of(file)))
        codes = [(path, code) for _, path, code in sorted(files)]
        entries = sorted(self.tree("hub.extraConfig").items())
        return [*codes, *((("hub", "extraConfig", name), code) for name, code in entries if isinstance(code, str))]

    def change_of(self, path: Sequence[str]) -> Change | None:
        """The last change by code of a setting ``hub.config.SECTION.TRAIT``; None if code did not set it."""
        changes = self.evaluation.changes if self.evaluation else ()
        wanted = tuple(path[2:4]) if tuple(path[:2]) == ("hub", "config") else ()
        return next((each for each in reversed(changes) if (each.section, each.trait) == wanted), None)


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
    """Make a finding about a key, with the file and line that set it. If code set it, the finding names the code."""
    parts = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    if change := release.change_of(parts):
        parts = change.path
        if text.startswith("It "):
            text = f"c.{change.section}.{change.trait}{text[2:]}"
    file, line = release.where(parts)
    return Finding(rule, severity, dotted(parts), text, fix, file, line)


SPAWNERS = ("GpuKubeSpawner", "KubeSpawner", "Spawner")
"""The sections that our spawner reads, the strongest first."""


def spawner_keys(trait: str) -> tuple[str, ...]:
    """The keys of a setting of the spawner, the strongest first."""
    return tuple(f"hub.config.{section}.{trait}" for section in SPAWNERS)


@dataclass(frozen=True)
class Row:
    """A rule about one value.

    Attributes:
        keys: the first of them that is set decides.
        is_wrong: is asked with the value.
        text: a sentence; ``{0}`` stands for the value.
        absent: the sentence if none of the keys is set; "" if that is right.
    """

    rule: str
    keys: Sequence[str]
    is_wrong: Callable[[Any], bool]
    text: str
    fix: str
    severity: Severity = "problem"
    absent: str = ""


def check_rows(release: Release, rows: Iterable[Row]) -> Iterator[Finding]:
    for row in rows:
        key = next((key for key in row.keys if release.at(key) is not None), "")
        value = release.at(key) if key else None
        text = row.text.format(value) if key and row.is_wrong(value) else "" if key else row.absent
        if text:
            yield found(release, row.rule, key or row.keys[-1], text, row.fix, severity=row.severity)


def name_of(manifest: Tree) -> str:
    """Kind and name of a Kubernetes object."""
    return f"{manifest.get('kind')} {(manifest.get('metadata') or {}).get('name', '?')}"


# ------------------------------------------------------------------ trees and words


def find(tree: Any, path: Iterable[str]) -> Any:
    """Return the value at a path; None if there is no such key."""
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
    """Yield path and value of every value that is not a mapping, and of every empty mapping."""
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
    """Name the type of a value. The value itself may be a password."""
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
    """Is this ``spawner_class`` ours on Kubernetes? A class of an administrator's own is known only after a run."""
    if isinstance(chosen, Mapping):
        return chosen.get("ours") is True or chosen.get("known") is False
    return chosen == "gpu" or str(chosen).endswith(".GpuKubeSpawner")


def _text_of(file: Tree) -> str:
    """The content of one of ``hub.extraFiles``; "" if it is not a text."""
    if "binaryData" in file:
        try:
            return base64.b64decode("".join(str(file["binaryData"]).split()), validate=True).decode()
        except ValueError:
            return ""
    text = file.get("stringData") or file.get("data")
    return text if isinstance(text, str) else ""


def is_only_configure(code: str) -> bool:
    """Does this Python only call our `configure(c)`, or nothing at all?"""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError):
        return True  # reported as no Python
    known = ("from hub_extensions import configure", "import hub_extensions")
    calls = ("configure(c)", "hub_extensions.configure(c)", "pass")
    return all(ast.unparse(each) in known + calls for each in statements)


def calls_configure(code: object) -> bool:
    """Does this Python call our `configure(c)`?"""
    return isinstance(code, str) and "hub_extensions" in code and "configure(" in code
