"""What the admin's own Python in values sets: ``hub.extraConfig``, and ``hub.extraFiles`` that are configuration.

It is read as text and never run, so a value that is computed stays unknown. Not here: where these pieces stand beside
our `configure(c)` (``helm_check/rules/hub.py``).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping

from hub_extensions.tools.helm_check.model import Path, Release

IS_CONFIGURATION = re.compile(r"/usr/local/etc/jupyterhub/jupyterhub_config\.d/[^/]+\.py")
"""A file that the chart's hub runs, after ``hub.config`` and before ``hub.extraConfig``."""


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


def names_our_spawner(code: str, value: str) -> bool:
    """Is this ``spawner_class`` ours, or of a class that this code makes from ours?"""
    return "GpuKubeSpawner" in code or value.strip("'\"") == "gpu"
