"""The small wheel brings the package into a kernel's own environment, also one with an old Python."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.patience import patient
from tests.progress.files import read_run

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hub_extensions" / "progress"
OLDEST = (3, 8)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_the_syntax_is_that_of_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, str(ROOT / "scripts" / "progress-wheel.py"), str(tmp_path / "dist")]
    printed = subprocess.run(build, check=True, capture_output=True, text=True, timeout=patient(20)).stdout
    return Path(printed.strip())


def pythons() -> list[str]:
    """This Python, and the oldest one that is found on the path or that pyenv keeps."""
    kept = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv")) / "versions"
    try:
        old = [*map(str, kept.glob("3.8.*/bin/python3.8"))]
    except OSError:
        old = []
    found = [program for program in (*old, shutil.which("python3.8")) if program]
    works = [one for one in found if subprocess.run([one, "-c", ""], capture_output=True).returncode == 0]
    return [sys.executable, *works[:1]]


@pytest.mark.programs
@pytest.mark.parametrize("by_pip", [False, pytest.param(True, marks=pytest.mark.whole)])
def test_it_is_imported_without_anything_else(wheel: Path, tmp_path: Path, folder: Path, by_pip: bool) -> None:
    home = tmp_path / "site"
    if by_pip:
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--target", str(home), str(wheel)]
        subprocess.run([*install, "--python-version", "3.8", "--only-binary=:all:"], check=True, timeout=patient(60))
    else:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(home)
    assert not (home / "hub_extensions" / "__init__.py").exists()
    code = "from hub_extensions.progress import track; print(sum(track(range(5), epochs=2, name='old')))"
    for python in pythons():
        shutil.rmtree(folder, ignore_errors=True)
        environment = {**os.environ, "PYTHONPATH": str(home)}
        done = subprocess.run(
            [python, "-S", "-c", code],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=patient(20),
        )
        assert (done.stdout, done.stderr) == ("20\n", "")
        run = read_run(folder)
        assert (run["state"], run["steps"], run["total"], run["name"]) == ("done", 10, 10, "old")


@pytest.mark.programs
def test_it_never_hides_the_whole_package(wheel: Path, tmp_path: Path) -> None:
    """With both on the path, the whole package is found, in either order."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "small")
    for path in ([tmp_path / "small", ROOT], [ROOT, tmp_path / "small"]):
        code = "import hub_extensions; print(hub_extensions.__version__)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.programs
def test_two_builds_are_equal(wheel: Path, tmp_path: Path) -> None:
    again = [sys.executable, str(ROOT / "scripts" / "progress-wheel.py"), str(tmp_path / "again")]
    subprocess.run(again, check=True, capture_output=True)
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert f"hub_extensions/{PACKAGE.name}/keras.py" in archive.namelist()
    assert wheel.stat().st_size < 30_000
