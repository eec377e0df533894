"""What a check knows is lent to the next clone: by a copy, of one that passed, from a folder of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.set_up_code import ROOT
from tests.patience import patient

pytestmark = pytest.mark.programs
CHECK = "cat known/* 2>/dev/null; mkdir -p known; echo {clone} >>known/it; exit {code}"


def check(clone: Path, kept: Path | str, *, code: int = 0) -> str:
    """What the check knew in this clone when it began."""
    clone.mkdir(exist_ok=True)
    program = ROOT / "scripts" / "prepare" / "with_cache.py"
    shell = ["/bin/sh", "-c", CHECK.format(clone=clone.name, code=code)]
    words = [sys.executable, "-I", "-B", str(program), "known", str(kept), *shell]
    done = subprocess.run(words, cwd=clone, capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "check-knows"


def test_the_next_clone_begins_with_what_one_knew_that_passed_and_each_goes_on_alone(
    tmp_path: Path, kept: Path
) -> None:
    assert check(tmp_path / "bad", kept, code=3) == ""
    assert check(tmp_path / "one", kept) == ""
    assert check(tmp_path / "two", kept) == "one\n"
    assert check(tmp_path / "one", kept) == "one\n"
    assert check(tmp_path / "three", kept) == "one\n"
    assert [entry.name for entry in kept.parent.iterdir()] == [kept.name]
    os.utime(kept, (0, 0))
    check(tmp_path / "two", kept)
    assert check(tmp_path / "four", kept) == "one\ntwo\ntwo\n"
    assert [entry.name for entry in kept.parent.iterdir()] == [kept.name]


def test_where_nothing_is_to_be_lent_or_it_cannot_be_the_check_runs_all_the_same(tmp_path: Path, kept: Path) -> None:
    kept.parent.rmdir()
    for place in ("-", kept):
        check(tmp_path / "one", place)
    assert not kept.parent.exists()
