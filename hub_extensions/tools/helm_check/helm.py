"""Reads the inputs of ``helm check``: values files with the line of every key, manifests, and a chart.

It also renders the chart with Helm itself, which comes as the Python package ``helm-python-sdk`` (extra ``[helm]``).
The package contains Helm 4 and needs no network.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hub_extensions.tools.helm_check.model import Finding, ValuesFile
from hub_extensions.tools.helm_check.trees import Path as KeyPath
from hub_extensions.tools.helm_check.trees import Tree, as_tree, kind_of, mappings

_BASE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LARGEST_BYTES = 5_000_000
"""A file in a chart's archive that is larger is ignored: no real values file or schema is that large."""
DEEPEST = 10
"""Maximum depth of folders and kustomizations that list each other, against endless recursion."""


class HelmUnusable(Exception):
    """The check cannot be made, usually because a file or chart cannot be read. The text has cause and remedy."""


class _Loader(_BASE):  # type: ignore[misc, valid-type]
    """A YAML loader that reads dates as texts, as Helm does, because JSON lacks a type for dates."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in rows if tag != "tag:yaml.org,2002:timestamp"]
    for letter, rows in _BASE.yaml_implicit_resolvers.items()
}


def read_values(place: str) -> ValuesFile | Finding:
    """Read one values file, or the standard input if `place` is ``-``.

    Returns:
        A finding if Helm would refuse or misread the file: not YAML, not a mapping, or more than one document.

    Raises:
        HelmUnusable: the file cannot be read.
    """
    return _parse_values(_text(place), place)


def _text(place: str) -> str:
    if place == "-":
        return sys.stdin.read()
    try:
        return Path(place).read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise HelmUnusable(f"{place} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        raise HelmUnusable(f"{place} is no UTF-8 text (byte {problem.start}).") from None


def _parse_values(text: str, name: str) -> ValuesFile | Finding:
    loader, line, fix = _Loader(text), None, "Correct the file."
    try:
        root = loader.get_node() if loader.check_node() else None
        if root is not None and loader.check_node():
            text = f"{name} holds more than one document: Helm reads only the first."
            fix = "Put the documents into files of their own, one -f each."
            return Finding("yaml", "problem", "", text, fix, name, loader.get_node().start_mark.line + 1)
        lines: dict[KeyPath, int] = {}
        twice = list(_walk(root, (), lines, set()))  # before merge keys (<<) are resolved
        values = _plain({} if root is None else loader.construct_document(root))
        if values is None or isinstance(values, Mapping):
            return ValuesFile(name, values or {}, lines, twice)
        kind = kind_of(values) if isinstance(values, list) else "one text or number"
        line, reason = 1, f"holds {kind}, where Helm wants keys and values"
        fix = "Begin with a key such as hub: at the start of a line."
    except yaml.MarkedYAMLError as problem:
        mark, reason = (
            problem.problem_mark or problem.context_mark,
            f"is not YAML: {problem.problem or problem.context}",
        )
        if "the tag '" in reason:  # not repeated: it may be a password
            reason = "is not YAML: a value begins with an exclamation mark, which makes a tag of it"
        line = mark.line + 1 if mark else None
        fix = "Correct this line; mind indentation by spaces and quotes around texts with : or #."
    except RecursionError:
        reason, fix = "is nested too deep, or refers to itself", "Take out the * that names something around it."
    except yaml.YAMLError as problem:
        reason = f"is not YAML: {str(problem).splitlines()[0]}"
    except (ValueError, LookupError, AttributeError):  # PyYAML fails so on some numbers and tags, and repeats the value
        reason = "is not YAML: one of its values cannot be read"
        fix = "Put texts into quotes, and take tags out (!!int and their like)."
    finally:
        loader.dispose()
    return Finding("yaml", "problem", "", f"{name} {reason}.", fix, name, line)


def _walk(node: Any, path: KeyPath, lines: dict[KeyPath, int], above: set[int]) -> Iterator[tuple[KeyPath, int, int]]:
    """Store the line of every key in `lines`, and yield the keys that occur twice in one mapping, with both lines.

    Args:
        node: a node of the parsed YAML. Only mappings have keys.
        path: the key at which the node is in the file.
        lines: key -> line, to which the keys in the node are added.
        above: ids of the nodes that contain this one. An alias (``*name``) can refer to one of them; it is not
            followed.
    """
    if not isinstance(node, yaml.MappingNode) or id(node) in above:
        return
    here: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if key.tag != "tag:yaml.org,2002:merge":
            if name in here:
                yield (*path, name), here[name], line
            place = (*path, name)
            here[name] = lines[place] = line
            yield from _walk(value, place, lines, above | {id(node)})


def _plain(value: Any) -> Any:
    """Convert a value as Helm does, which passes it through JSON, so that every key becomes a text."""
    if isinstance(value, Mapping):
        names = {id(key): json.dumps(key) if isinstance(key, bool) or key is None else str(key) for key in value}
        return {names[id(key)]: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(inner) for inner in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def read_manifests(places: Iterable[Path], depth: int = 0) -> list[Tree]:
    """Return all Kubernetes objects in these files and folders.

    Of a folder with a ``kustomization.yaml``, only the resources that it lists are read.

    Args:
        places: the files and folders.
        depth: how many folders or kustomizations contain these places. Callers leave it at 0.

    Raises:
        HelmUnusable: a file is missing, cannot be read, or is not YAML; or folders are nested deeper than `DEEPEST`.
    """
    found: list[Tree] = []
    for place in places:
        if not place.exists() or depth > DEEPEST:
            raise HelmUnusable(f"There is no {place}.")
        if place.is_dir():
            inner = sorted([*place.glob("*.yaml"), *place.glob("*.yml")])
            listed = place / "kustomization.yaml"
            if listed.exists():
                names = _yaml(_text(str(listed)), str(listed)).get("resources") or ()
                inner = [place / str(name) for name in names]
            found += read_manifests(inner, depth + 1)
        else:
            objects = [item for each in mappings(_documents(_text(str(place)), str(place)))
                       for item in mappings(each.get("items", [each]))]  # fmt: skip
            found += [each for each in objects if each.get("kind", "Kustomization") != "Kustomization"]
    return found


def read_chart(place: Path) -> tuple[Tree, Tree, Tree]:
    """Read the chart at `place`, an archive or a folder.

    Returns:
        ``Chart.yaml``, the JSON schema of the values, and the chart's own values.

    Raises:
        HelmUnusable: the archive or folder cannot be read, is not a chart, or lacks a schema.
    """
    names = ("Chart.yaml", "values.yaml", "values.schema.json", "values.schema.yaml")
    texts = _files(place, names)
    chart, values, schema = (_yaml(texts.get(name, ""), f"{place}: {name}") for name in (*names[:2], names[3]))
    if not chart.get("name") or not chart.get("version"):
        raise HelmUnusable(f"--chart {place} is no chart: it has no Chart.yaml with name and version.")
    if names[2] in texts:
        schema = json.loads(texts[names[2]])
    elif names[3] not in texts:
        raise HelmUnusable(f"--chart {place} has no values.schema.json: nothing says which keys it takes.")
    return chart, schema, values


def read_hub_files(place: Path) -> dict[str, str]:
    """Return name -> text of the Python files with which a chart configures the hub. Raises HelmUnusable.

    Args:
        place: archive or folder of the chart.
    """
    names = ("files/hub/jupyterhub_config.py", "files/hub/z2jh.py")
    texts = _files(place, names)
    for name in names:
        if name not in texts:
            raise HelmUnusable(f"--chart {place} has no {name}: --evaluate needs it.")
    return {name.rpartition("/")[2]: text for name, text in texts.items()}


def _files(place: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return name -> text of those of the named files that a chart has. Raises HelmUnusable.

    Args:
        place: archive or folder of the chart.
        names: paths of the wanted files in the chart.
    """
    try:
        if place.is_dir():
            return {name: (place / name).read_text(encoding="utf-8") for name in names if (place / name).is_file()}
        texts = {}
        with tarfile.open(place) as archive:
            for member in archive:
                name = "/".join(Path(member.name).parts[1:])
                if name in names and member.size <= LARGEST_BYTES and (stream := archive.extractfile(member)):
                    texts[name] = stream.read().decode("utf-8")
        return texts
    except (OSError, tarfile.TarError, UnicodeDecodeError) as problem:
        raise HelmUnusable(f"--chart {place} cannot be read: {problem}.") from None


def _documents(text: str, name: str) -> list[Any]:
    """Return the documents in a YAML text. Raises HelmUnusable, which names the file by `name`."""
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as problem:
        raise HelmUnusable(f"{name} is not YAML: {str(problem).splitlines()[0]}.") from None


def _yaml(text: str, name: str) -> Tree:
    documents = _documents(text, name)
    if len(documents) > 1:
        raise HelmUnusable(f"{name} is not YAML: expected a single document in the stream.")
    return as_tree(documents[0] if documents else None)


def ask_helm(place: Path, values: Tree, *, release: str, namespace: str) -> tuple[list[str], dict[str, str]]:
    """Validate and render the chart with Helm.

    Args:
        place: archive or folder of the chart.
        values: the merged values of all files, without the chart's own.
        release, namespace: as they would be given to ``helm upgrade``.

    Returns:
        The reasons for which Helm refuses the values, and template -> rendered manifests. One of them is empty.

    Raises:
        HelmUnusable: Helm cannot load the chart.
    """
    from helm_python import Chart, HelmError

    try:
        with tempfile.TemporaryDirectory() as folder:
            chart = Chart.load(str(_with_schema(place, Path(folder))))
    except HelmError as problem:
        raise HelmUnusable(f"--chart {place}: {problem}") from None
    with chart:
        try:
            chart.validate_schema(dict(values))
            return [], chart.render(dict(values), name=release, namespace=namespace)
        except HelmError as problem:
            refusals = [line[2:].strip() for line in str(problem).splitlines() if line.startswith("- ")]
            return refusals or [" ".join(str(problem).split())], {}


def _with_schema(place: Path, folder: Path) -> Path:
    """Return the path of a chart that Helm can read.

    The source folder of zero-to-jupyterhub has its schema only as YAML. Such a folder is copied, and the copy gets the
    schema as JSON. The path of another chart is returned unchanged.

    Args:
        place: archive or folder of the chart.
        folder: a temporary folder for the copy.
    """
    if not place.is_dir() or (place / "values.schema.json").exists():
        return place
    _, schema, _ = read_chart(place)
    copied = folder / place.name
    shutil.copytree(place, copied)
    (copied / "values.schema.json").write_text(json.dumps(schema), encoding="utf-8")
    return copied
