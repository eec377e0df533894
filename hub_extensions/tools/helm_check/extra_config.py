"""What the admin's own Python in values sets: ``hub.extraConfig``, and ``hub.extraFiles`` that are configuration.

It is read as text and never run, so a value that is computed stays unknown. Not here: where these pieces stand beside
our `configure(c)` (``helm_check/rules/hub.py``).
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from hub_extensions.tools.helm_check.model import Path, Release

IS_CONFIGURATION = re.compile(r"/usr/local/etc/jupyterhub/jupyterhub_config\.d/[^/]+\.py")
"""A file that the chart's hub runs, after ``hub.config`` and before ``hub.extraConfig``."""


Asks = Callable[[str], object]
HOOKS = ("modify_pod_hook", "pre_spawn_hook", "auth_state_hook")
MOST_STEPS = 20
"""From a name to what it stands for, and so on."""


def python_of(release: Release) -> Iterator[tuple[Path, str]]:
    """Key and code of all that the hub runs, in its order and without comments; what is no Python is left out."""
    files = release.tree("hub.extraFiles").items()
    places = {name: str(file.get("mountPath", "")) for name, file in files if isinstance(file, Mapping)}
    for name in sorted(places, key=lambda name: places[name]):
        if IS_CONFIGURATION.fullmatch(places[name]):
            file = release.tree("hub.extraFiles")[name]
            yield from _readable(("hub", "extraFiles", name), file.get("stringData") or file.get("data"))
    for name, code in sorted(release.tree("hub.extraConfig").items()):
        yield from _readable(("hub", "extraConfig", name), code)


def _readable(path: Path, code: object) -> Iterator[tuple[Path, str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield path, ast.unparse(ast.parse(code)) if isinstance(code, str) else ""
    except (SyntaxError, ValueError, RecursionError):
        return  # said by another rule


def last_set(code: str, setting: str) -> str | None:
    """What this code says of ``c.JupyterHub.SETTING`` last, as Python; None where it does not set it."""
    found = re.findall(rf"(?m)^ *c\.JupyterHub\.{setting} = (.+)$", code)
    return found[-1] if found else None


def set_anew(code: str, sections: Iterable[str], traits: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Section and trait of each that this code sets without what was there before."""
    places = f"c\\.({'|'.join(sections)})\\.({'|'.join(traits)})"
    for section, trait, value in re.findall(rf"(?m)^ *{places} = (.+)$", code):
        if f"c.{section}.{trait}" not in value:
            yield section, trait


NodesOfName = Mapping[str, Sequence[ast.AST]]


def names_of(codes: Iterable[str]) -> NodesOfName:
    """What functions and variables of all this code stand for; the chart runs it in one namespace."""
    found: dict[str, list[ast.AST]] = {}
    for code in codes:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(node.value)
    return found


def own_form(code: str, names: NodesOfName, settings: Collection[str]) -> tuple[str, str] | None:
    """Section and setting by which this code puts our form out of use; None if it does not. The form itself first."""
    found = [
        (section, trait)
        for section, trait, _ in _set_by(code, names)
        if trait in settings and (section.endswith("Spawner") or section == "GpuSpawnerMixin")
    ]
    return min(found, key=lambda each: each[1], default=None)


def gpus_set(
    code: str, sections: Collection[str], traits: Collection[str], is_gpu: Asks, names: NodesOfName
) -> dict[str, str]:
    """Return the GPU resources that this code gives to one of these settings, each with its count as Python."""
    found: dict[str, str] = {}
    for section, trait, value in _set_by(code, names):
        if section in sections and trait in traits:
            found |= _resources_given(value, is_gpu, names)
    return found


def gpus_of_hooks(
    code: str, sections: Collection[str], is_gpu: Asks, names: NodesOfName
) -> Iterator[tuple[str, str, str]]:
    """Section, hook and resource of each GPU that a hook of this code gives to a server or to its pod."""
    for section, hook, value in _set_by(code, names):
        if section in sections and hook in HOOKS:
            yield from ((section, hook, resource) for resource in sorted(_resources_given(value, is_gpu, names)))


def _set_by(code: str, names: NodesOfName) -> Iterator[tuple[str, str, ast.AST]]:
    """Section, setting and new value of each setting that this code sets, adds to or changes an item of."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                section, trait, *_ = (*_place(target, names), "", "")
                if trait and not isinstance(target, ast.Name):
                    yield section, trait, node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            section, trait, *_ = (*_place(node.func, names), "", "")
            if trait == "update":  # of the whole section
                given = [(each.arg, each.value) for each in node.keywords]
                for each in node.args:
                    given += zip(map(_text, each.keys), each.values, strict=True) if isinstance(each, ast.Dict) else []
                yield from ((section, name, value) for name, value in given if name)
            elif trait:
                yield section, trait, node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
            place, name = _place(node.args[0], names), _text(node.args[1])
            if place and name:
                yield place[0], name, node.args[2]


def _place(node: ast.AST, names: NodesOfName) -> tuple[str, ...]:
    """``("KubeSpawner", "options_form")`` of ``c.KubeSpawner.options_form``, of ``c["KubeSpawner"]["options_form"]``
    and of a name for the section; empty where this is no setting."""
    steps: list[str] = []
    for _ in range(MOST_STEPS):
        if isinstance(node, ast.Attribute):
            steps.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            steps.append(_text(node.slice) or "")
            node = node.value
        elif isinstance(node, ast.Name) and node.id != "c" and len(names.get(node.id, ())) == 1:
            node = names[node.id][0]
        else:
            break
    return tuple(reversed(steps)) if isinstance(node, ast.Name) and node.id == "c" else ()


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _with_all_named(tree: ast.AST, names: NodesOfName) -> Sequence[ast.AST]:
    """This code, and that of each function and variable that it names."""
    seen: set[str] = set()
    found = [tree]
    for each in found:  # it grows
        for node in ast.walk(each):
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                found += names.get(node.id, ())
    return found


def _resources_given(tree: ast.AST, is_gpu: Asks, names: NodesOfName) -> dict[str, str]:
    """Keys of dictionaries, and items that are set: not what is read, popped, deleted, or set to nothing."""
    given: list[tuple[ast.expr | None, ast.expr | None]] = []
    trees = _with_all_named(tree, names)
    for node in itertools.chain.from_iterable(map(ast.walk, trees)):
        if isinstance(node, ast.Dict):
            given += zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Assign):
            given += [(each.slice, node.value) for each in node.targets if isinstance(each, ast.Subscript)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
            given += [(node.args[0], node.args[-1])] if node.args else []
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and ast.unparse(node.elts[1]).strip("'\"").isdecimal():
            given += [(node.elts[0], node.elts[1])]  # of dict([("nvidia.com/gpu", 1)])
    nothing = (0, "0", None)
    found: dict[str, str] = {}
    for key, value in given:
        of_name = names.get(key.id, ()) if isinstance(key, ast.Name) else ()
        resource = _text(of_name[0] if len(of_name) == 1 else key)
        if resource and is_gpu(resource) and not (isinstance(value, ast.Constant) and value.value in nothing):
            found[resource] = "" if value is None else ast.unparse(value).strip("'\"")
    return found


def names_our_spawner(code: str, value: str) -> bool:
    """Is this ``spawner_class`` ours, or of a class that this code makes from ours?"""
    return "GpuKubeSpawner" in code or value.strip("'\"") == "gpu"
