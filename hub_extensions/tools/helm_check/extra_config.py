"""What the admin's own Python in values sets: ``hub.extraConfig``, and ``hub.extraFiles`` that are configuration.

It is read as text and never run, so a value that is computed stays unknown. Not here: where these pieces stand beside
our `configure(c)` (``helm_check/rules/hub.py``).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping

from hub_extensions.tools.helm_check.model import Path, Release

IS_CONFIGURATION = re.compile(r"/usr/local/etc/jupyterhub/jupyterhub_config\.d/[^/]+\.py")
"""A file that the chart's hub runs, after ``hub.config`` and before ``hub.extraConfig``."""


Asks = Callable[[str], object]
HOOKS = ("modify_pod_hook", "pre_spawn_hook")


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


_FORM = re.compile(r"(?m)^ *c\.(\w*Spawner|GpuSpawnerMixin)\.(options_form|options_from_form) = ")


def own_form(code: str) -> tuple[str, str] | None:
    """Section and setting by which this code puts our form out of use; None if it does not. The form itself first."""
    return min(_FORM.findall(code), key=lambda found: found[1], default=None)


def gpus_set(code: str, sections: Iterable[str], traits: Iterable[str], is_gpu: Asks) -> dict[str, str]:
    """Return the GPU resources that this code gives to one of these settings, each with its count as Python."""
    places = tuple(f"c.{section}.{trait}" for section in sections for trait in traits)
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) and ast.unparse(node).startswith(places):
            found |= _resources_given(node, is_gpu)
    return found


def gpus_of_hooks(code: str, sections: Iterable[str], is_gpu: Asks) -> Iterator[tuple[str, str, str]]:
    """Section, hook and resource of each GPU that a hook of this code gives to a server or to its pod."""
    tree = ast.parse(code)
    functions = {
        node.name: node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    places = {f"c.{section}.{hook}": (section, hook) for section in sections for hook in HOOKS}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        hook = functions.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
        for target in node.targets:
            if place := places.get(ast.unparse(target)):
                yield from ((*place, resource) for resource in sorted(_resources_given(hook, is_gpu)))


def _resources_given(tree: ast.AST, is_gpu: Asks) -> dict[str, str]:
    """Keys of dictionaries, and items that are set: not what is read, popped, deleted, or set to nothing."""
    given: list[tuple[ast.expr | None, ast.expr | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            given += zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Assign):
            given += [(each.slice, node.value) for each in node.targets if isinstance(each, ast.Subscript)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
            given += [(node.args[0], node.args[-1])] if node.args else []
    nothing = (0, "0", None)
    return {
        key.value: "" if value is None else ast.unparse(value).strip("'\"")
        for key, value in given
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_gpu(key.value)
        if not (isinstance(value, ast.Constant) and value.value in nothing)
    }


def names_our_spawner(code: str, value: str) -> bool:
    """Is this ``spawner_class`` ours, or of a class that this code makes from ours?"""
    return "GpuKubeSpawner" in code or value.strip("'\"") == "gpu"
