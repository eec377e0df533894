"""What a finished step leaves for the next clone: taken by links, whole, and not written to through a link."""

from __future__ import annotations

import json
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.set_up_code import begin, copy_set_up, run

STEP = """
import os
from pathlib import Path
import shelf
from place import WORK
from steps import step, say
VENV = WORK / "venv"
{before}
def make():
    say("MADE")
    (VENV / "bin").mkdir(parents=True)
    (VENV / "bin" / "tool").write_text(f"#!{{VENV}}/bin/python\\n")
    (VENV / "bin" / "tool").chmod(0o755)
    (VENV / "bin" / "python").symlink_to(VENV / "lib")
    (VENV / "lib").write_text("a library\\n")
    (VENV / "old.pyc").write_bytes(b"\\0" + str(WORK).encode())
    (VENV / "relative").symlink_to("lib")
def act():
    shelf.taken_or_made("venv", {inputs!r}, [VENV], make, link={link})
step("venv", "Packages", {inputs!r}, [VENV / "lib"], act)
print("library:", (VENV / "lib").read_text())
"""

pytestmark = pytest.mark.programs


@pytest.fixture
def clones(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two, at short paths: pip writes scripts of long ones in another way, so those are not kept."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="two-") as short:
        yield copy_set_up(Path(short, "one")), copy_set_up(Path(short, "another-one"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def set_up(clone: Path, cache: Path, before: str = "", inputs: str = "locks", *, link: bool = True) -> str:
    """All that the step says in this clone."""
    return run(clone, STEP.format(before=before, inputs=inputs, link=link), JUPYTERHUB_GPU_SETUP_CACHE=str(cache))


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob("venv/*"), key=lambda one: one.stat().st_mtime)


def test_a_fresh_clone_takes_by_links_what_another_one_made(clones: tuple[Path, Path], cache: Path) -> None:
    assert "MADE" in set_up(clones[0], cache)
    said = set_up(clones[1], cache)
    assert "MADE" not in said
    assert "library: a library" in said
    one, other = (clone / ".work/venv" for clone in clones)
    assert (one / "lib").samefile(other / "lib")
    assert (other / "relative").readlink() == Path("lib")


def test_what_names_its_clone_is_written_anew_and_not_through_the_link(clones: tuple[Path, Path], cache: Path) -> None:
    for clone in clones:
        set_up(clone, cache)
    for clone in clones:
        tool = clone / ".work/venv/bin/tool"
        assert tool.read_text() == f"#!{clone}/.work/venv/bin/python\n"
        assert stat.S_IMODE(tool.stat().st_mode) == 0o755
        assert (tool.parent / "python").readlink() == clone / ".work/venv/lib"
        assert tool.stat().st_nlink == 1


def test_other_inputs_are_made_anew_and_the_three_used_last_are_kept(clones: tuple[Path, Path], cache: Path) -> None:
    for number in range(4):
        assert "MADE" in set_up(clones[0], cache, "__import__('shutil').rmtree(VENV, ignore_errors=True)", f"{number}")
        if number == 2:
            assert "MADE" not in set_up(clones[1], cache, inputs="0")
    assert sorted(entry.name[-1] for entry in entries(cache)) == ["0", "2", "3"]


def test_an_entry_that_was_written_to_through_a_link_is_thrown_away(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache)
    (clones[0] / ".work/venv/lib").write_text("changed\n")
    said = set_up(clones[1], cache)
    assert "MADE" in said
    assert "library: a library" in said
    assert "was written to after it was kept" in said


def test_what_is_copied_may_be_written_to(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache, link=False)
    (clones[0] / ".work/venv/lib").write_text("changed\n")
    said = set_up(clones[1], cache, link=False)
    assert "MADE" not in said
    assert "library: a library" in said


NO_LINKS = "def no(*_): raise OSError(18, 'Invalid cross-device link')\nos.link = no"


def test_where_links_cannot_be_had_files_are_copied(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache, NO_LINKS)
    assert "MADE" not in set_up(clones[1], cache, NO_LINKS)
    assert not (clones[0] / ".work/venv/lib").samefile(clones[1] / ".work/venv/lib")


KILLED = "import signal\nshelf.json.dumps = lambda _: os.kill(os.getpid(), signal.SIGKILL)"


def test_an_entry_that_is_half_written_is_not_taken(clones: tuple[Path, Path], cache: Path) -> None:
    code = STEP.format(before=KILLED, inputs="locks", link=True)
    with begin(clones[0], code, JUPYTERHUB_GPU_SETUP_CACHE=str(cache)) as child:
        assert child.wait(60) == -signal.SIGKILL
    assert entries(cache) != []
    assert "MADE" in set_up(clones[1], cache)
    (whole,) = [entry for entry in entries(cache) if not entry.name.startswith(".")]
    assert json.loads((whole / "about.json").read_text())["work"] == f"{clones[1]}/.work"


def test_an_entry_that_cannot_be_read_is_no_error_and_leaves_nothing(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache)
    (entries(cache)[0] / "about.json").write_text("{")
    assert "library: a library" in set_up(clones[1], cache)
    assert sorted(path.name for path in (clones[1] / ".work").iterdir()) == ["stamps", "venv"]


def test_an_entry_that_somebody_began_to_delete_is_not_taken(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache)
    next(entries(cache)[0].rglob("old.pyc")).unlink()
    said = set_up(clones[1], cache)
    assert "MADE" in said
    assert "lacks files" in said
    assert [path.name for path in entries(cache)[0].parent.iterdir()] == [entries(cache)[0].name]


def test_a_cache_that_cannot_be_written_is_no_error(clones: tuple[Path, Path], cache: Path) -> None:
    cache.write_text("a file, not a folder")
    said = set_up(clones[0], cache)
    assert "library: a library" in said
    assert "Traceback" not in said


def test_the_cache_of_somebody_else_is_left_alone(clones: tuple[Path, Path], cache: Path) -> None:
    set_up(clones[0], cache)
    assert "MADE" in set_up(clones[1], cache, "mine = os.geteuid()\nos.geteuid = lambda: mine + 1")


def test_without_a_cache_nothing_is_kept(clones: tuple[Path, Path], cache: Path) -> None:
    for clone in clones:
        assert "MADE" in run(clone, STEP.format(before="", inputs="locks", link=True), JUPYTERHUB_GPU_SETUP_CACHE="")
    assert not cache.exists()
