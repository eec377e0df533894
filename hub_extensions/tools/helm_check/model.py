"""The data of ``helm check``: the given values files, facts about the chart, the release to check, and findings.

The rules (``rules/``) read a `Release` and yield `Finding` objects.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hub_extensions.tools.helm_check.trees import Path, Tree, as_list, as_tree, dotted, find, has, mappings

CONFIGURATION_FILE = re.compile(r"/usr/local/etc/jupyterhub/jupyterhub_config\.d/[^/]+\.py")
"""Path of a mounted file that the chart's hub runs as Python, after ``hub.config`` and before ``hub.extraConfig``."""
SPAWNERS = ("GpuKubeSpawner", "KubeSpawner", "Spawner")
"""The sections of settings that our spawner reads; an earlier one takes precedence."""
Severity = Literal["problem", "look at"]


@dataclass(frozen=True)
class ChartFacts:
    """The parts of a chart that the rules need.

    Attributes:
        chart: name of the chart.
        version: version of the chart.
        app_version: version of JupyterHub in the chart (``appVersion``).
        schema: the JSON schema of the chart's values.
        defaults: the chart's own values.
    """

    chart: str
    version: str
    app_version: str
    schema: Tree
    defaults: Tree


@dataclass(frozen=True)
class ValuesFile:
    """One values file.

    Attributes:
        name: its path, or ``-``.
        values: its content.
        lines: key -> number of its line, counted from 1.
        twice: keys that occur twice in one mapping, with the lines of both. YAML uses the last one.
    """

    name: str
    values: Tree
    lines: Mapping[Path, int] = field(default_factory=dict)
    twice: Sequence[tuple[Path, int, int]] = ()


@dataclass(frozen=True)
class Change:
    """A setting that the administrator's Python has changed.

    Attributes:
        path: the key of the code in the values.
        section, trait: the setting, as in ``c.KubeSpawner.image``.
        value: its value after the code.
        before: its value before the code; None if it was not set.
    """

    path: Path
    section: str
    trait: str
    value: Any
    before: Any

    @property
    def loses(self) -> bool:
        """Whether the setting's value after the code lacks something that the value before the code had.

        Of a list or mapping, that is an entry. Every other value is lost when it is replaced. False if the setting was
        not set before.
        """
        before, after = self.before, self.value
        for kind in (list, Mapping):
            if isinstance(before, kind):
                return not isinstance(after, kind) or any(each not in after for each in before)
        return before is not None


@dataclass(frozen=True)
class HookGpu:
    """A GPU resource that a hook of the administrator, such as ``c.KubeSpawner.modify_pod_hook``, gives to servers.

    Attributes:
        path: the key of the code in the values.
        section, hook: the setting with the hook: class and trait.
        resource: name of the GPU resource, such as ``nvidia.com/gpu``.
        was_seen: a call of the hook has set the resource. If False, the hook's code only contains its name.
    """

    path: Path
    section: str
    hook: str
    resource: str
    was_seen: bool


@dataclass(frozen=True)
class Evaluation:
    """The effects of the administrator's Python when it was run (``evaluate.py``). Keys are those of pieces of code.

    Attributes:
        changes: the settings that the code has changed.
        hooks: the GPU resources that hooks of the code give to servers.
        failed: for each piece that failed, its key, the name of the exception, the line (0 if not known) and the
            missing module ("" if none is missing).
        missing: key and module of each import of a module that is not installed here.
        configured: the keys of pieces that call our ``configure(c)``.
        sentences: rule and text of each report of ``configure(c)``.
        unfinished: the key of the piece that ran when the process ended early or was killed; None if all pieces ran.
        in_time: the process ended within the time limit.
        isolated: the code had no network.
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
    """The Helm release that would result from the given files: the input of all rules.

    Attributes:
        files: the values files, in order.
        values: all files merged over the chart's own values; after an evaluation, with the settings of the code.
        facts: the schema and the own values of the chart.
        namespace, name: Kubernetes namespace and name of the release.
        manifests: the Kubernetes objects that are applied beside the chart. If empty, the network policies of
            ``helm-values/manifests`` are assumed.
        evaluation: what the administrator's Python has done; None if it was not run.
    """

    files: Sequence[ValuesFile]
    values: Tree
    facts: ChartFacts
    namespace: str = "jhub"
    manifests: Sequence[Tree] = ()
    name: str = "jhub"
    evaluation: Evaluation | None = None

    def at(self, dotted: str) -> Any:
        """Return the value at a dotted key such as ``hub.config``; None if the key is missing or null.

        Keys with a dot inside one of their names cannot be given in this form.
        """
        return find(self.values, dotted.split("."))

    def first(self, *keys: str) -> tuple[str, Any]:
        """Return the first of these keys that is set, and its value; the last key and None if none is set."""
        key = next((key for key in keys if self.at(key) is not None), keys[-1])
        return key, self.at(key)

    def tree(self, dotted: str) -> Tree:
        """Return the mapping at a dotted key; an empty one if the key is missing or its value is not a mapping."""
        return as_tree(self.at(dotted))

    def items(self, dotted: str) -> Sequence[Any]:
        """Return the list at a dotted key; an empty one if the key is missing or its value is not a list."""
        return as_list(self.at(dotted))

    def variables(self, dotted: str) -> Tree:
        """Return the environment variables that an ``extraEnv`` sets: name of a variable -> its entry in the values.

        If the ``extraEnv`` is a mapping, the entry is the variable's value. If it is a list, the entry is the mapping
        with this ``name``.

        Args:
            dotted: key of the ``extraEnv``, such as ``hub.extraEnv``.
        """
        return {str(each.get("name")): each for each in mappings(self.items(dotted))} or self.tree(dotted)

    def where(self, path: Sequence[str]) -> tuple[str, int | None]:
        """Return the name of the last file that sets a key, and the line; "" and None if no file sets it.

        Args:
            path: the names of which the key consists.
        """
        file = next((file for file in reversed(self.files) if has(file.values, path)), None)
        return (file.name, file.lines.get(tuple(path))) if file else ("", None)

    @property
    def base_url(self) -> str:
        """``hub.baseUrl``, with a slash at both ends."""
        inner = str(self.at("hub.baseUrl") or "").strip("/")
        return f"/{inner}/" if inner else "/"

    @property
    def base(self) -> int:
        """The index in `files` of the first values file that calls our ``configure(c)``: our own file or a copy of it.

        It is 0 if that is the first file, and also if no file calls ``configure(c)``. Earlier files are the
        administrator's own. Later files override our settings on purpose.
        """
        for at, file in enumerate(self.files):
            if any(map(_calls_configure, as_tree(find(file.values, ("hub", "extraConfig"))).values())):
                return at
        return 0

    @property
    def is_ours(self) -> bool:
        """Whether the values use this product: our spawner, or a call of our ``configure(c)``."""
        return is_own_spawner(self.at("hub.config.JupyterHub.spawner_class")) or self.calls_configure

    @property
    def calls_configure(self) -> bool:
        """Whether Python in the values calls our ``configure(c)``."""
        return any(_calls_configure(code) for _, code in self.python)

    @property
    def python(self) -> Sequence[tuple[Path, str]]:
        """Key and text of each piece of Python in the values, in the order in which the hub runs them."""
        files: list[tuple[str, Path, str]] = []
        for name, file in self.tree("hub.extraFiles").items():
            place = str(as_tree(file).get("mountPath", ""))
            if CONFIGURATION_FILE.fullmatch(place):
                files.append((place, ("hub", "extraFiles", name), _text_of(file)))
        codes = [(path, code) for _, path, code in sorted(files)]
        entries = sorted(self.tree("hub.extraConfig").items())
        return codes + [(("hub", "extraConfig", name), code) for name, code in entries if isinstance(code, str)]

    @property
    def is_apart(self) -> bool:
        """Whether the GPU service runs in its own Deployment instead of the hub's pod."""
        return self.at("hub.config.GpuService.started_by_hub") is False

    def change_of(self, path: Path) -> Change | None:
        """Return the administrator's last change of a setting by Python; None without a change.

        Args:
            path: the key of the setting, as in ``hub.config.SECTION.TRAIT``. For another key the result is None.
        """
        changes = self.evaluation.changes if self.evaluation and path[:2] == ("hub", "config") else ()
        return next((each for each in reversed(changes) if (each.section, each.trait) == path[2:4]), None)

    def found(self, rule: str, key: str | Path, text: str, fix: str, severity: Severity = "problem") -> Finding:
        """Make a finding about a key of the values, with the file and line that set it, or about a Kubernetes object.

        If the administrator's Python set the key, the finding has the key of that code instead.

        Args:
            rule: a stable identifier for programs.
            key: the key of the values, or a text that names the Kubernetes object.
            text: a sentence that explains the mistake. It may begin with "It", which then stands for the value.
            fix: what to do about it.
            severity: ``problem`` if the value would not work, ``look at`` if it may be intended.
        """
        path = tuple(key.split(".")) if isinstance(key, str) else key
        if change := self.change_of(path):
            path = change.path
            if text.startswith("It "):
                text = f"c.{change.section}.{change.trait}{text[2:]}"
        return Finding(rule, severity, dotted(path), text, fix, *self.where(path))


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in the values.

    Attributes:
        rule: a stable identifier for programs.
        severity: ``problem`` if it would not work, ``look at`` if it may be intended.
        key: the dotted key of the values.
        text: a sentence that explains the mistake.
        fix: what to do about it.
        file, line: where the key is set; "" and None if no file sets it.
    """

    rule: str
    severity: Severity
    key: str
    text: str
    fix: str
    file: str = ""
    line: int | None = None


Findings = Iterator[Finding]


def spawner_keys(trait: str) -> tuple[str, ...]:
    """Return the keys of the values that can set a trait of the spawner; an earlier one takes precedence."""
    return tuple(f"hub.config.{section}.{trait}" for section in SPAWNERS)


def name_of(manifest: Tree) -> str:
    """Return kind and name of a Kubernetes object as one text, for findings."""
    return f"{manifest.get('kind')} {find(manifest, ('metadata', 'name')) or '?'}"


def is_own_spawner(chosen: object) -> bool:
    """Whether a ``spawner_class`` is our spawner for Kubernetes or a subclass.

    Args:
        chosen: the value of the setting: a name, or if ``--evaluate`` has run code that sets a class, a mapping that
            describes this class. A class whose base class could not be imported counts as ours.
    """
    if isinstance(chosen, Mapping):
        return chosen.get("ours") is True or chosen.get("known") is False
    return chosen == "gpu" or str(chosen).endswith(".GpuKubeSpawner")


def _text_of(file: Tree) -> str:
    """Return the content of an entry of ``hub.extraFiles``; "" if it is not text."""
    text = file.get("stringData") or file.get("data")
    if "binaryData" in file:
        try:
            return base64.b64decode("".join(str(file["binaryData"]).split()), validate=True).decode()
        except ValueError:
            return ""
    return text if isinstance(text, str) else ""


def _calls_configure(code: object) -> bool:
    """Whether this Python calls our ``configure(c)``, judged by its text."""
    return isinstance(code, str) and "hub_extensions" in code and "configure(" in code
