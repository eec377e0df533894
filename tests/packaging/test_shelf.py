"""What a finished step leaves for the next clone: taken by links, whole or not at all."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.packaging.set_up_code import ROOT, begin, copy_set_up, run
from tests.patience import patient

STEP = """
import os, signal
from pathlib import Path
import shelf
from place import WORK
from steps import NOTE, step, report
VENV = WORK / "venv"
{before}
def make():
    report("MADE")
    (VENV / "bin").mkdir()
    (VENV / "bin" / "tool").write_text("a tool\\n")
    (VENV / "bin" / "tool").chmod(0o755)
    (VENV / "relative").symlink_to("bin/tool")
step("Packages", VENV / NOTE, {inputs!r}, make, shared=True)
print("tool:", (VENV / "relative").read_text())
"""

pytestmark = pytest.mark.programs


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    return copy_set_up(tmp_path / "one"), copy_set_up(tmp_path / "another")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def set_up(clone: Path, cache: Path, before: str = "", inputs: str = "locks") -> str:
    """All that the step says in this clone."""
    output = run(clone, STEP.format(before=before, inputs=inputs), JUPYTERHUB_GPU_SETUP_CACHE=str(cache))
    assert "tool: a tool" in output, output
    return output


def test_a_fresh_clone_takes_by_links_what_another_one_made(clones: tuple[Path, Path], cache: Path) -> None:
    assert "MADE" in set_up(clones[0], cache)
    assert "MADE" not in set_up(clones[1], cache)
    one, other = (clone / ".work/venv" for clone in clones)
    assert (one / "bin/tool").samefile(other / "bin/tool")
    assert (other / "relative").readlink() == Path("bin/tool")
    assert "MADE" in set_up(clones[1], cache, inputs="other locks")


def test_the_three_used_last_are_kept(clones: tuple[Path, Path], cache: Path) -> None:
    for number in range(4):
        assert "MADE" in set_up(clones[0], cache, inputs=f"{number}")
        if number == 2:
            assert "MADE" not in set_up(clones[1], cache, inputs="0")
    assert sorted(entry.name for entry in cache.iterdir()) == ["venv.0", "venv.2", "venv.3"]


NO_LINKS = "def no(*_): raise OSError(18, 'Invalid cross-device link')\nos.link = no"


def test_where_links_cannot_be_had_files_are_copied(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache, NO_LINKS)
    assert "MADE" not in set_up(clones[1], cache, NO_LINKS)
    assert not (clones[0] / ".work/venv/bin/tool").samefile(clones[1] / ".work/venv/bin/tool")


KILLED = "linked = os.link\ndef link(*both): linked(*both); os.kill(os.getpid(), signal.SIGKILL)\nos.link = link"


def test_what_is_half_kept_or_half_taken_is_not_taken(clones: tuple[Path, Path], cache: Path) -> None:
    for clone in clones:  # the first is killed while it keeps, the second while it takes
        code = STEP.format(before=KILLED, inputs="locks")
        with begin(clone, code, JUPYTERHUB_GPU_SETUP_CACHE=str(cache)) as child:
            assert child.wait(patient(60)) == -signal.SIGKILL
        set_up(clone, cache)


GONE = """
def link(source, target):
    for entry in Path(os.environ["JUPYTERHUB_GPU_SETUP_CACHE"]).iterdir():
        entry.rename(entry.with_name(".gone"))
    raise FileNotFoundError(2, "No such file", source)
shelf._link = link
"""


def test_an_entry_that_somebody_deletes_meanwhile_is_made_anew(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache)
    assert "MADE" in set_up(clones[1], cache, GONE)


def test_a_cache_that_cannot_be_written_is_no_error(clones: tuple[Path, Path], cache: Path) -> None:
    cache.write_text("a file, not a folder")
    assert "Traceback" not in set_up(clones[0], cache)


def test_the_cache_of_somebody_else_is_left_alone(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache)
    assert "MADE" in set_up(clones[1], cache, "mine = os.geteuid()\nos.geteuid = lambda: mine + 1")


def test_without_a_cache_nothing_is_kept(clones: tuple[Path, Path], cache: Path) -> None:
    for clone in clones:
        assert "MADE" in run(clone, STEP.format(before="", inputs="locks"), JUPYTERHUB_GPU_SETUP_CACHE="")
    assert not cache.exists()


def test_the_panel_finds_its_manifests_beside_packages_that_another_clone_made(clones: tuple[Path, Path]) -> None:
    clone = clones[0]
    for name in ("labextension/package.json", "package.json", "package-lock.json", ".npmrc"):
        (clone / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / "hub_extensions" / "locale").mkdir(parents=True)
    run(clone, "from node_env import copy_panel_sources\ncopy_panel_sources()")
    npm = clone / ".work" / "npm"
    assert {file.name for file in npm.iterdir() if file.is_file()} == {"package.json", "package-lock.json", ".npmrc"}
    assert (npm / "labextension" / "package.json").exists()
