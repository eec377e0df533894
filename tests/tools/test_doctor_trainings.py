"""What doctor says inside a user's server about the progress reports of trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_extensions.progress import track, writer
from hub_extensions.tools.doctor.diagnosis import Diagnosis
from hub_extensions.tools.doctor.trainings import trainings

VARIABLE = "JUPYTERHUB_GPU_PROGRESS"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for rank in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(rank, raising=False)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gpu-progress"))
    monkeypatch.setattr(writer, "APART_SECONDS", 0.0)  # the runs of the tests are short, and follow each other
    return tmp_path / "gpu-progress"


def found(folder: Path) -> Diagnosis:
    (only,) = trainings({VARIABLE: str(folder), "JUPYTERHUB_USER": "ada"})
    return only


def test_outside_of_a_server_nothing_is_said_and_nothing_is_made(folder: Path) -> None:
    assert [*trainings({})] == []
    assert found(folder).text == "Progress reports: no training has reported yet." and not folder.exists()
    folder.mkdir(mode=0o700)
    assert found(folder).text == "Progress reports: no training has reported yet."


def test_a_server_without_the_extension_is_told_how_to_see_that() -> None:
    (only,) = trainings({"JUPYTERHUB_USER": "ada"})
    assert only.state == "warning" and VARIABLE in only.text and "extension list" in only.fix


def test_the_runs_that_are_read_are_counted_and_each_other_file_has_its_reason(folder: Path) -> None:
    for _ in range(2):
        list(track(range(3), name="mnist"))
    assert found(folder) == Diagnosis("trainings", "ok", "Progress reports: 2 runs read.")
    (folder / f"{'a' * 16}.json").symlink_to("/etc/passwd")
    said = found(folder)
    assert said.state == "warning" and said.fix
    name = f"'{'a' * 16}.json'"
    assert said.text == f"Progress reports: 2 runs read, 1 file left out: {name} (it is a symbolic link)."
    for name in "bcdef":
        (folder / f"{name * 16}.json").write_text("{}")
    assert "2 runs read, 6 files left out: " in found(folder).text and found(folder).text.endswith(" ….")


def test_a_folder_that_others_may_use_is_named_with_what_to_do(folder: Path) -> None:
    list(track(range(3)))
    folder.chmod(0o755)
    said = found(folder)
    assert said.state == "warning" and said.text.endswith(f"{folder}: others may use it (chmod 700).")
    assert "700" in said.fix
