"""Rules about the shape of values: whether the chart knows each key, and whether each value has the right type.

The chart's JSON schema decides. This module turns each of its errors into a sentence, which never repeats a value that
may be a password.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from jsonschema import Draft7Validator, ValidationError

from hub_extensions.tools.helm_check.chart_facts import NAMED, schema_keys
from hub_extensions.tools.helm_check.model import Finding, Findings, Release
from hub_extensions.tools.helm_check.trees import Path, find, kind_of, listed, nearest

KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}
"""Type in a JSON schema -> its name for administrators."""
_MISPLACED_SERVICES = ("name", "admin", "command", "url", "api_token", "apiToken")
"""Names that the chart refuses for services: its schema wrongly takes them for settings of a service."""
_SECTIONS = (
    *("JupyterHub", "KubeSpawner", "Spawner", "Authenticator"),
    *("GpuKubeSpawner", "GpuService", "GpuOffers", "GpuQueue", "GpuCulling", "GpuCluster"),
)


def check_shape(release: Release) -> Findings:
    """Report every key that the chart does not know, every value of a wrong type, and every missing key.

    The values are checked against the chart's JSON schema. Errors about schema keywords that are not in `EXPLAINERS`,
    such as ``pattern``, are not reported here; Helm reports them.
    """
    findings: dict[Finding, None] = {}
    for error in Draft7Validator(release.facts.schema).iter_errors(release.values):
        if explain := EXPLAINERS.get(error.validator):
            path = tuple(name for name in error.absolute_path if isinstance(name, str))
            findings |= dict.fromkeys(explain(release, error, path))
    yield from findings


def _unknown(release: Release, error: ValidationError, path: Path) -> Findings:
    known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
    for name in error.instance:
        if name not in known and not any(re.search(pattern, name) for pattern in patterns):
            yield _unknown_key(release, (*path, name), list(known))


def _unknown_key(release: Release, path: Path, children: Sequence[str]) -> Finding:
    name, above = path[-1], ".".join(path[:-1])
    if above == "hub.config":
        text = f"hub.config.{name} is no section: sections are names of classes and begin with a capital letter; the "
        close = nearest(name, _SECTIONS)
        fix = f"Did you mean hub.config.{close}?" if close else "Is it a key of hub itself, written one level too deep?"
        return release.found("config-section", path, f"{text}chart refuses it.", fix)
    keys = schema_keys(release.facts.schema)
    elsewhere = [key for key in keys if key.rsplit(".", 1)[-1] == name and NAMED not in key]
    fix = f"There are {listed(children)}." if above else "Values of your own go below custom."
    if close := nearest(name, children):
        fix = f"Did you mean {'.'.join((*path[:-1], close))}?"
    elif len(elsewhere) == 1:
        fix = f"There is {elsewhere[0]}."
    text = f"There is no key {name} in {f'{above} of ' if above else ''}the chart {release.facts.version}."
    return release.found("unknown-key", path, text, fix)


def _misfit(release: Release, error: ValidationError, path: Path) -> Findings:
    if path[:-1] == ("hub", "services") and path[-1] in _MISPLACED_SERVICES:
        text = f"No service can have the name {path[-1]}: the chart takes it for a setting of all services."
        yield release.found("service-name", path, text, "Give the service another name.")
    else:
        yield release.found("wrong-type", path, wrong_kind(error), _how(error))


def wrong_kind(error: ValidationError) -> str:
    """Return the sentence about a value of a wrong type or outside the allowed values."""
    value, wanted, types = error.instance, error.validator_value, _types(error)
    at = error.absolute_path[-1] if error.absolute_path else ""
    it = f"Its entry {at + 1} is" if isinstance(at, int) else "It is"
    shown = kind_of(value)  # what stands where a text or more belongs may be a password
    if set(types) <= {"integer", "number", "boolean", "null"} and not isinstance(value, (Mapping, list)):
        plain = json.dumps(value) if value is None or isinstance(value, bool) else f"the number {value}"
        shown = f"the text {value!r}" if isinstance(value, str) else plain
    if error.validator == "enum":
        choices = ", ".join("null" if choice is None else repr(choice) for choice in wanted)
        return f"{it} {shown}, which is none of {choices}."
    if error.validator == "minimum":
        return f"{it} {value}, where the chart wants at least {wanted:g}."
    return f"{it} {shown}, where the chart wants {' or '.join(KINDS[kind] for kind in types)}."


def _types(error: ValidationError) -> list[str]:
    kinds = error.schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _how(error: ValidationError) -> str:
    """Return what to do about a value of a wrong type or outside the allowed values, such as to quote a number.

    Args:
        error: the schema's error about the value.
    """
    value, types = error.instance, _types(error)
    is_written = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?|true|false", value, re.IGNORECASE)
    if is_written and {"integer", "number", "boolean"} & set(types):
        return "Write it without quotes."
    if isinstance(value, (bool, int, float)) and "string" in types:
        return "Put it into quotes."
    if error.validator == "enum":
        close = nearest(str(value), [str(choice) for choice in error.validator_value if choice])
        return f"Did you mean {close}?" if close else "Choose one of them."
    if isinstance(value, Mapping) and types == ["array"]:
        return "Write a list: each entry on a line that begins with a dash."
    if value is None:
        return "Leave the key out to have the chart's own value; null takes it away."
    return f"Write {' or '.join(KINDS[kind] for kind in types if kind != 'null')}."


def _missing(release: Release, error: ValidationError, path: Path) -> Findings:
    here = ".".join(path)
    lacking = [name for name in error.validator_value if name not in error.instance]
    if "then" in error.relative_schema_path:
        *node, _, _ = error.absolute_schema_path  # …, "then", "required"
        schema = functools.reduce(operator.getitem, node, release.facts.schema)
        switch = next(iter(schema["if"]["properties"]))  # the key whose value makes the others necessary
        text = f"{here}.{switch} is true, which needs {', '.join(lacking)} as well."
        yield release.found("missing-key", (*path, switch), text, f"Give them, or set {here}.{switch} to false.")
        return
    for name in lacking:
        is_nulled = any(find(file.values, (*path, name), "") is None for file in release.files)
        text = f"{name} is missing{f' in {here}' if here else ''}: the chart refuses values without it."
        fix = "Take the null out: it takes the chart's own value away." if is_nulled else "Add it."
        yield release.found("missing-key", (*path, name), text, fix)


def _one_of(release: Release, error: ValidationError, path: Path) -> Findings:
    names = [name for choice in error.validator_value for name in choice.get("required", ())]
    if not isinstance(error.instance, Mapping) or len(names) < 2:
        return  # reported by its kind, or left to Helm
    files = {name: release.where((*path, name))[0] for name in names if name in error.instance}
    places = " and ".join(f"{name} (in {file or 'the chart'})" for name, file in files.items())
    text, fix = f"A file has exactly one of {', '.join(names)}, and here are {places}.", "Take one out."
    if not files:
        text = f"A file needs exactly one of {', '.join(names)}, and here is none."
        fix = f"Add {names[1]} with the file's text."
    elif len(set(files.values())) > 1:
        fix = "Give the later file's entry another key: null cannot take the earlier one's away."
    yield release.found("file-content", path, text, fix)


EXPLAINERS: Mapping[str, Callable[[Release, ValidationError, Path], Findings]] = {
    "additionalProperties": _unknown,
    "type": _misfit,
    "enum": _misfit,
    "minimum": _misfit,
    "required": _missing,
    "oneOf": _one_of,
}
"""Keyword of the JSON schema that an error is about -> the function that makes the findings."""
