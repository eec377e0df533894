"""Do values fit the chart: is there such a key, and is what stands there of the right kind?

By the table of facts alone, and as strict as the chart's own schema. Not here: what the values do (``hub.py``
and beside).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hub_extensions.tools.helm_check.model import (
    NAMED,
    ChartFacts,
    Finding,
    KeyFacts,
    Path,
    Release,
    find,
    found,
    has,
    kind_of,
    listed,
    nearest,
)

KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}
"""JSON schema's words, in an admin's."""

_MISPLACED_SERVICES = ("name", "admin", "command", "url", "api_token", "apiToken")
"""What the chart's schema says of a service stands one level too high: no service can have such a name."""


def check_shape(release: Release) -> Iterator[Finding]:
    """Every key that the chart does not take, and every value of a wrong kind."""
    yield from _walk(release, release.values, (), "")


def _walk(release: Release, tree: Mapping[str, Any], path: Path, row: str) -> Iterator[Finding]:
    facts = release.facts.keys.get(row)
    if facts is None:
        return
    for name, value in tree.items():
        here = (*path, name)
        child = child_row(release.facts, row, facts, name)
        if child is None:
            if not facts.open:
                yield _unknown(release, here, row, facts)
            continue
        problem = wrong_kind(release.facts.keys[child], value)
        if problem and path == ("hub", "services") and name in _MISPLACED_SERVICES:
            text = f"No service can have the name {name}: the chart takes it for a setting of all services."
            yield found(release, "service-name", here, text, "Give the service another name.")
        elif problem:
            yield found(release, "wrong-type", here, problem, _how(release.facts.keys[child], value))
        elif isinstance(value, Mapping):
            yield from _walk(release, value, here, child)
    yield from _required(release, tree, path, facts)


def child_row(facts: ChartFacts, row: str, parent: KeyFacts, name: str) -> str | None:
    """The row of the table that says what a child takes; None where none does."""
    own = f"{row}.{name}".lstrip(".")
    if own in facts.keys and "." not in name:
        return own
    anyone = f"{row}.{NAMED}".lstrip(".")
    return anyone if anyone in facts.keys and re.search(parent.names, name) else None


def _unknown(release: Release, path: Path, row: str, facts: KeyFacts) -> Finding:
    name, above = path[-1], ".".join(path[:-1])
    if path[:2] == ("hub", "config") and facts.names:
        text = (
            f"hub.config.{name} is no section: sections are names of classes and begin with a capital letter; the "
            "chart refuses it."
        )
        return found(release, "config-section", path, text, _section_fix(name))
    prefix = f"{row}." if row else ""
    known = [key[len(prefix) :] for key in release.facts.keys if key and key.startswith(prefix)]
    children = [key for key in known if "." not in key and not key.endswith("[]")]
    close = nearest(name, children)
    where = f"in {above} of the chart {release.facts.version}" if above else f"in the chart {release.facts.version}"
    if close:
        fix = f"Did you mean {'.'.join((*path[:-1], close))}?"
    elif elsewhere := _elsewhere(release.facts, name):
        fix = f"There is {elsewhere}."
    elif above:
        fix = f"There are {listed(children)}."
    else:
        fix = "Values of your own go below custom."
    return found(release, "unknown-key", path, f"There is no key {name} {where}.", fix)


def _section_fix(name: str) -> str:
    known = ("JupyterHub", "KubeSpawner", "Spawner", "Authenticator", "GpuKubeSpawner", "GpuService", "GpuOffers")
    close = nearest(name, (*known, "GpuQueue", "GpuCulling", "GpuCluster"))
    return f"Did you mean hub.config.{close}?" if close else "Is it a key of hub itself, written one level too deep?"


def _elsewhere(facts: ChartFacts, name: str) -> str:
    """The key of this very name at another place, where there is only one."""
    places = [key for key in facts.keys if key.rsplit(".", 1)[-1] == name and NAMED not in key]
    return places[0] if len(places) == 1 else ""


# ------------------------------------------------------------------ kinds


def wrong_kind(facts: KeyFacts, value: object) -> str:
    """What is wrong with a value, as a sentence; empty when nothing is."""
    if facts.enum and value not in facts.enum:
        return f"It is {_shown(value)}, which is none of {_choices(facts)}."
    if facts.types and not any(_is(kind, value) for kind in facts.types):
        plain = set(facts.types) <= {"integer", "number", "boolean", "null"}
        it = _shown(value) if plain else kind_of(value)  # what stands where a text or more belongs may be a password
        return f"It is {it}, where the chart wants {' or '.join(KINDS[kind] for kind in facts.types)}."
    if facts.minimum is not None and isinstance(value, (int, float)) and value < facts.minimum:
        return f"It is {value}, where the chart wants at least {facts.minimum:g}."
    return ""


def _is(kind: str, value: object) -> bool:
    if kind in ("integer", "number"):
        whole = isinstance(value, float) and value.is_integer()
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and (kind == "number" or isinstance(value, int) or whole)
    wanted = {"boolean": bool, "string": str, "object": Mapping, "array": list, "null": type(None)}
    return isinstance(value, wanted[kind])


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"the text {value!r}" if isinstance(value, str) else f"the number {value}"


def _choices(facts: KeyFacts) -> str:
    return ", ".join("null" if choice is None else repr(choice) for choice in facts.enum)


def _how(facts: KeyFacts, value: object) -> str:
    if isinstance(value, str) and {"integer", "number", "boolean"} & set(facts.types):
        return "Write it without quotes." if _reads_as_plain(value) else f"Write {_wanted(facts)}."
    if isinstance(value, (bool, int, float)) and "string" in facts.types:
        return "Put it into quotes."
    if facts.enum:
        close = nearest(str(value), [str(choice) for choice in facts.enum if choice])
        return f"Did you mean {close}?" if close else "Choose one of them."
    if isinstance(value, Mapping) and facts.types == ("array",):
        return "Write a list: each entry on a line that begins with a dash."
    if value is None:
        return "Leave the key out to have the chart's own value; null takes it away."
    return f"Write {_wanted(facts)}."


def _wanted(facts: KeyFacts) -> str:
    return " or ".join(KINDS[kind] for kind in facts.types if kind != "null")


def _reads_as_plain(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?|true|false", text, re.IGNORECASE))


# ------------------------------------------------------------------ what has to be there


def _required(release: Release, tree: Mapping[str, Any], path: Path, facts: KeyFacts) -> Iterator[Finding]:
    here = ".".join(path)
    for name in facts.required:
        if name not in tree:
            text = f"{name} is missing{f' in {here}' if here else ''}: the chart refuses values without it."
            yield found(release, "missing-key", (*path, name), text, _missing_fix(release, (*path, name)))
    for switch, names in facts.required_when.items():
        lacking = [name for name in names if tree.get(name) is None]
        if tree.get(switch) is True and lacking:
            text = f"{here}.{switch} is true, which needs {', '.join(lacking)} as well."
            yield found(release, "missing-key", (*path, switch), text, f"Give them, or set {here}.{switch} to false.")
    if facts.one_of:
        yield from _one_of(release, tree, path, facts)


def _missing_fix(release: Release, path: Path) -> str:
    is_nulled = any(has(file.values, path) and find(file.values, path) is None for file in release.files)
    return "Take the null out: it takes the chart's own value away." if is_nulled else "Add it."


def _one_of(release: Release, tree: Mapping[str, Any], path: Path, facts: KeyFacts) -> Iterator[Finding]:
    given = [name for name in facts.one_of if name in tree]
    if len(given) == 1:
        return
    choices = ", ".join(facts.one_of)
    if not given:
        text = f"A file needs exactly one of {choices}, and here is none."
        yield found(release, "file-content", path, text, f"Add {facts.one_of[1]} with the file's text.")
        return
    files = {name: release.where((*path, name))[0] for name in given}
    told = " and ".join(f"{name} (in {file or 'the chart'})" for name, file in files.items())
    text = f"A file has exactly one of {choices}, and here are {told}."
    fix = "Take one out"
    if len(set(files.values())) > 1:
        fix = "Give the later file's entry another key: null cannot take the earlier one's away"
    yield found(release, "file-content", path, text, f"{fix}.")


__all__ = ["check_shape", "child_row", "wrong_kind"]
