"""The virtual environments below ``.work``: packages from the lock files, and our own package built from this tree."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from index import fetch_pip
from place import BUILD, NPM, ROOT, VENV, VENV_HUB5, WORK
from shelf import take, taken_or_made
from steps import Trouble, command, digest, interpreter, step

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


def prepare_venv(env: Mapping[str, str], *, tests: bool) -> bool:
    """``.work/venv``: what the demo needs. Returns whether, for ``tests``, what they need was taken with it."""
    inputs = digest(interpreter(), LOCKS / "demo.txt", LOCKS / "bootstrap.txt")

    def make() -> None:
        _create(VENV, env)
        _install(VENV, "demo", env)

    whole = False

    def act() -> None:
        nonlocal whole
        whole = tests and take("test-packages", _test_inputs(), [VENV])
        if not whole:
            taken_or_made("venv", inputs, [VENV], make)

    step("venv", "Python packages", inputs, [VENV / "bin" / "jupyterhub", VENV / "bin" / "jupyter-builder"], act)
    return whole


def _test_inputs() -> str:
    return digest(interpreter(), LOCKS / "demo.txt", LOCKS / "bootstrap.txt", LOCKS / "test.txt")


def prepare_test_packages(env: Mapping[str, str], *, taken: bool) -> None:
    """What the tests and the checks need, beside the demo's, in the same environment; ``taken``: it is there."""
    inputs = _test_inputs()
    made = [VENV / "bin" / name for name in ("pytest", "ruff", "mypy", "lint-imports", "playwright")]

    def make() -> None:
        _install(VENV, "test", env)

    def act() -> None:
        if taken:
            return
        if (VENV / "bin" / "jupyterhub-gpu").exists():
            make()  # the demo was here before: what has our own package in it is not for other clones
        else:
            taken_or_made("test-packages", inputs, [VENV], make)

    step("test-packages", "Python packages of the tests", inputs, made, act)


def prepare_hub5(env: Mapping[str, str]) -> None:
    """``.work/venv-hub5``: the older JupyterHub that is supported too."""
    inputs = digest(interpreter(), LOCKS / "hub5.txt", LOCKS / "bootstrap.txt")

    def make() -> None:
        _create(VENV_HUB5, env)
        _install(VENV_HUB5, "hub5", env)

    made = [VENV_HUB5 / "bin" / "pytest"]
    title = "Python packages with JupyterHub 5.5"
    step("venv-hub5", title, inputs, made, lambda: taken_or_made("venv-hub5", inputs, [VENV_HUB5], make))


def install_package(venv: Path, env: Mapping[str, str]) -> None:
    """Our package with the built panel, as a wheel, into ``venv``."""
    wheel_inputs = digest(interpreter(), *(ROOT / name for name in PACKED), (WORK / "stamps" / "panel").read_text())
    step("wheel", "The package", wheel_inputs, [WORK / "wheel"], lambda: _build_wheel(env))

    def act() -> None:
        wheel = next(iter((WORK / "wheel").glob("*.whl")), None)
        if wheel is None:
            raise Trouble("The package's wheel is missing. Remove .work/wheel and start again.")
        words = ["install", "--no-deps", "--no-index", "--force-reinstall", wheel]
        command(f"install-{venv.name}", "The package", [venv / "bin" / "python", "-m", "pip", *words], env=env)

    venv_inputs = (WORK / "stamps" / venv.name).read_text()
    made = [venv / "bin" / "jupyterhub-gpu", venv / "share/jupyter/labextensions/jupyterhub-gpu/package.json"]
    step(f"install-{venv.name}", f"The package in {venv.name}", digest(wheel_inputs, venv_inputs), made, act)


def _build_wheel(env: Mapping[str, str]) -> None:
    for folder in (BUILD, WORK / "wheel"):
        shutil.rmtree(folder, ignore_errors=True)
    for name in PACKED:
        source, target = ROOT / name, BUILD / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "labextension", "*.pyc"))
        elif source.exists():
            shutil.copy2(source, target)
    shutil.copytree(NPM / "hub_extensions" / "labextension", BUILD / "hub_extensions" / "labextension")
    words = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", WORK / "wheel", BUILD]
    command("wheel", "The package", [VENV / "bin" / "python", "-m", "pip", *words], env=env)


def _create(venv: Path, env: Mapping[str, str]) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    if all((spec := importlib.util.find_spec(name)) and spec.origin for name in ("venv", "ensurepip")):
        command(venv.name, "Virtual environment", [sys.executable, "-I", "-m", "venv", venv], env=env)
        return
    # Debian and Ubuntu leave venv or ensurepip out unless python3-venv is installed
    tool = WORK / "virtualenv"
    if not (tool / "virtualenv" / "__main__.py").exists():
        pip = fetch_pip(WORK / "downloads")
        words = [
            "install",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--no-deps",
            "--target",
            tool,
            "-r",
            LOCKS / "bootstrap.txt",
        ]
        with_pip = {**env, "PYTHONPATH": str(pip)}
        command(venv.name, "virtualenv", [sys.executable, "-s", "-m", "pip", *words], env=with_pip)
    words = [
        "-m",
        "virtualenv",
        "--no-download",
        "--no-periodic-update",
        "--app-data",
        WORK / "cache" / "virtualenv",
        venv,
    ]
    command(venv.name, "Virtual environment", [sys.executable, "-s", *words], env={**env, "PYTHONPATH": str(tool)})


def _install(venv: Path, lock: str, env: Mapping[str, str]) -> None:
    words = ["install", "--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", LOCKS / f"{lock}.txt"]
    command(lock, "Python packages", [venv / "bin" / "python", "-m", "pip", *words], env=env)
