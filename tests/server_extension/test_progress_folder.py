"""Which files of the folder of progress files are read, and which are left out with a line of the log."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.server_extension.progress_folder import ProgressFolder, folder_in
from tests.core.forecast.test_progress_file import a_file

LOGGER = "hub_extensions.server_extension.progress_folder"


@pytest.fixture
def folder(tmp_path: Path) -> ProgressFolder:
    folder = ProgressFolder(tmp_path / "runtime" / "gpu-progress")
    assert folder.read(now()) == ()
    return folder


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, LOGGER):
        yield caplog


def now() -> datetime:
    return datetime.now(timezone.utc)


def content(number: int, **changes: Any) -> str:
    at = time.time()
    return json.dumps(a_file(run=f"{number:016x}", at=at, started=at - 60, **changes))


def write(folder: ProgressFolder, number: int, text: str | None = None, **changes: Any) -> Path:
    """Put a file there as the writer does: as a whole."""
    file = folder.path / f"{number:016x}.json"
    new = folder.path / f".{number:016x}.new"
    new.write_text(content(number, **changes) if text is None else text)
    new.rename(file)
    return file


def read(folder: ProgressFolder) -> list[str]:
    return sorted(file.run.run[-2:] for file in folder.read(now()))


def test_the_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = ProgressFolder(tmp_path / "a" / "b")
        assert folder.read(now()) == ()
    finally:
        os.umask(before)
    assert folder.path.stat().st_mode & 0o7777 == 0o700
    folder.path.rmdir()
    assert folder.read(now()) == ()
    assert folder.path.is_dir()


def test_the_folder_is_in_the_runtime_directory_unless_the_environment_names_one(tmp_path: Path) -> None:
    assert folder_in({}, "/run/jupyter") == Path("/run/jupyter/gpu-progress")
    assert folder_in({"JUPYTERHUB_GPU_PROGRESS": "/tmp/there"}, "/run/jupyter") == Path("/tmp/there")
    for none in ("", "relative", "../up"):
        assert folder_in({"JUPYTERHUB_GPU_PROGRESS": none}, "/run/jupyter") == Path("/run/jupyter/gpu-progress")


def test_files_are_read_and_read_again_when_they_are_replaced(folder: ProgressFolder) -> None:
    write(folder, 1)
    write(folder, 2, steps=5)
    assert read(folder) == ["01", "02"]
    write(folder, 2, steps=6)
    assert sorted(file.run.steps for file in folder.read(now())) == [6, 70]
    (folder.path / f"{1:016x}.json").unlink()
    assert read(folder) == ["02"]


def spoil(folder: ProgressFolder, kind: str) -> None:
    """Put something that is left out where a file should be."""
    file = folder.path / f"{7:016x}.json"
    match kind:
        case "70 KiB":
            file.write_text(content(7, more="x" * 70 * 1024))
        case "4 KiB and a byte":
            file.write_text(content(7).ljust(4097 + len('"mnist"')))
        case "16 MiB, sparse":
            file.write_text(content(7))
            os.truncate(file, 2**24)
        case "a link to /etc/passwd":
            file.symlink_to("/etc/passwd")
        case "a link to a good file":
            good = folder.path / "good"
            good.write_text(content(7))
            file.symlink_to(good)
        case "a dangling link":
            file.symlink_to("nowhere")
        case "a pipe":
            os.mkfifo(file)
        case "a socket":
            here = os.getcwd()
            os.chdir(folder.path)  # a socket's path is short
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(file.name)
            os.chdir(here)
        case "a folder":
            file.mkdir()
        case "not to be read":
            file.write_text(content(7))
            file.chmod(0)
        case "groups of 1e308":
            file.write_text(content(7, groups=[1e308, 1.0]))
        case "negative groups":
            file.write_text(content(7, groups=[-1]))
        case "groups of text":
            file.write_text(content(7, groups=["text"]))
        case "deep nesting":
            file.write_text("[" * 4000)
        case "another run's id":
            file.write_text(content(8))
        case "half of it":
            file.write_text(content(7)[:60])
        case "nothing":
            file.touch()


KINDS = [
    "70 KiB",
    "4 KiB and a byte",
    "16 MiB, sparse",
    "a link to /etc/passwd",
    "a link to a good file",
    "a dangling link",
    "a pipe",
    "a socket",
    "a folder",
    "groups of 1e308",
    "negative groups",
    "groups of text",
    "deep nesting",
    "another run's id",
    "half of it",
    "nothing",
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_trusted_is_left_out_with_one_line_of_the_log(
    folder: ProgressFolder, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(folder, kind)
    write(folder, 1)
    for _ in range(3):
        assert read(folder) == ["01"]
        write(folder, 1)
    assert len(caplog.records) == 1, caplog.text
    assert f"{7:016x}.json" in caplog.text
    assert "root:" not in caplog.text


def test_a_file_of_which_the_user_may_not_read_anything_is_left_out(folder: ProgressFolder) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    spoil(folder, "not to be read")
    assert read(folder) == []


@pytest.mark.needs("root")
def test_a_file_of_another_account_is_left_out(folder: ProgressFolder, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(write(folder, 7), 65534, -1)
    write(folder, 1)
    assert read(folder) == ["01"]
    assert "somebody else" in caplog.text


@pytest.mark.needs("root")
def test_a_folder_of_another_account_is_not_read(folder: ProgressFolder, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, 1)
    os.chown(folder.path, 65534, -1)
    assert read(folder) == []
    assert "somebody else" in caplog.text


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o755, 0o777, 0o1777])
def test_a_folder_that_others_may_use_is_not_read(
    folder: ProgressFolder, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, 1)
    assert read(folder) == ["01"]
    folder.path.chmod(mode)
    assert read(folder) == read(folder) == []
    assert caplog.text.count("chmod 700") == 1
    folder.path.chmod(0o700)
    assert read(folder) == ["01"]


@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
@pytest.mark.timeout(20)
def test_what_stands_where_the_folder_should_be_is_not_read(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    real = ProgressFolder(tmp_path / "real")
    assert read(real) == []
    write(real, 1)
    other = ProgressFolder(tmp_path / "other")
    match kind:
        case "link":
            other.path.symlink_to(real.path)
        case "file":
            other.path.touch()
        case "pipe":
            os.mkfifo(other.path)
    assert read(other) == read(other) == []
    assert len(caplog.records) == 1


def test_a_name_in_the_log_has_no_line_breaks_and_an_end(
    folder: ProgressFolder, caplog: pytest.LogCaptureFixture
) -> None:
    (folder.path / ("a\nERROR forged \u202e" + "x" * 150 + ".json")).touch()
    assert read(folder) == []
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert "\u202e" not in record.getMessage()
    assert len(record.getMessage()) < 200


def test_temporary_files_are_passed_over_in_silence(folder: ProgressFolder, caplog: pytest.LogCaptureFixture) -> None:
    for name in (f".{1:016x}.json", f"{1:016x}.json.new", "notes.txt"):
        (folder.path / name).write_text("{")
    assert read(folder) == []
    assert not caplog.records


def test_of_many_files_the_20_newest_are_read(folder: ProgressFolder, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(30):
        os.utime(write(folder, number), (time.time() - 1000 + number,) * 2)
    assert read(folder) == sorted(f"{number:02x}" for number in range(10, 30))
    write(folder, 40)
    assert read(folder) == sorted(f"{number:02x}" for number in (*range(11, 30), 40))
    assert len(caplog.records) == 1


def test_newer_files_do_not_push_out_a_run_that_goes_on(folder: ProgressFolder) -> None:
    """A run with slow steps writes seldom, and a loop inside it leaves a file for each of its rounds."""
    here = {"pid": os.getpid(), "born": procfs.start_time(os.getpid())}
    for number, changes in ((1, here), (2, {**here, "state": "done"}), (3, {"pid": 2**31 - 1, "born": 1})):
        os.utime(write(folder, number, **changes), (time.time() - 1000,) * 2)
    assert read(folder) == ["01", "02", "03"]
    for number in range(16, 46):
        write(folder, number, state="done")
    assert len(read(folder)) == 20
    assert "01" in read(folder)
    assert not {"02", "03"} & set(read(folder))
    write(folder, 1, **here, state="done")
    assert "01" in read(folder)
    for number in range(50, 70):
        write(folder, number, state="done")
    read(folder)
    assert "01" not in read(folder)


def test_runs_that_were_never_ended_leave_room_for_new_ones(folder: ProgressFolder) -> None:
    here = {"pid": os.getpid(), "born": procfs.start_time(os.getpid())}
    for number in range(20):
        os.utime(write(folder, number, **here), (time.time() - 1000 + number,) * 2)
    assert len(read(folder)) == 20
    for number in range(32, 52):
        write(folder, number, state="done")
    assert read(folder) == sorted(f"{number:02x}" for number in (*range(10, 20), *range(42, 52)))


def test_an_old_file_that_is_replaced_is_read_again(folder: ProgressFolder) -> None:
    """A run can be silent for longer than ten minutes and go on."""
    os.utime(write(folder, 1, steps=5), (time.time() - 3600,) * 2)
    os.utime(folder.path, (time.time() - 3600,) * 2)
    assert [file.run.steps for file in folder.read(now())] == [5]
    assert [file.run.steps for file in folder.read(now())] == [5]
    write(folder, 1, steps=6)
    assert [file.run.steps for file in folder.read(now())] == [6]


@pytest.mark.slow
def test_a_look_is_cheap(folder: ProgressFolder) -> None:
    """At most 5 ms with 20 files that change, and with 10,000 of which one does."""

    def look() -> float:
        began = time.thread_time()
        folder.read(now())
        return (time.thread_time() - began) * 1000

    for number in range(20):
        write(folder, number)
    look()
    assert sorted(look() for _ in range(20))[10] <= 5.0
    found = []
    for _ in range(20):
        for number in range(20):
            write(folder, number)
        found.append(look())
    assert sorted(found)[10] <= 5.0, found
    text = content(0)
    for number in range(100, 10_100):
        file = folder.path / f"{number:016x}.json"
        file.write_text(text)
        os.utime(file, (time.time() - 3600,) * 2)
    look()
    found = []
    for number in range(20):
        write(folder, number)
        found.append(look())
    assert sorted(found)[10] <= 5.0, found
