"""A server's own log on one machine: what cannot be opened keeps no server from its start."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from traitlets.config import Config

from hub_extensions.spawner.local import GpuDemoSpawner


class Named:
    """The user of a spawner, as far as it is asked for here."""

    name = "ada/../eve"


def spawner(folder: Path | str) -> GpuDemoSpawner:
    made = GpuDemoSpawner(config=Config(GpuDemoSpawner={"gpu_log_folder": str(folder)}))
    made.user, made.log = Named(), logging.getLogger("own-log")
    return made


def test_a_server_writes_into_its_file_only_while_it_is_started(tmp_path: Path) -> None:
    made = spawner(tmp_path / "logs")
    with made._gpu_log_of_its_own():
        os.write(made.popen_kwargs["stderr"], b"no module named torch\n")
    assert made.popen_kwargs == {}
    [file] = (tmp_path / "logs").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("ada%2F..%2Feve.log", 0o600)
    assert made._gpu_log_tail() == "no module named torch\n"


@pytest.mark.parametrize("folder", ["/dev/null/logs", "linked"])
def test_a_log_that_cannot_be_opened_is_said_and_the_server_starts(
    folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that cannot be made, and a link in place of the file."""
    where = tmp_path if folder == "linked" else Path(folder)
    if folder == "linked":
        (tmp_path / "ada%2F..%2Feve.log").symlink_to(tmp_path / "elsewhere")
    made = spawner(where)
    with made._gpu_log_of_its_own():
        assert made.popen_kwargs == {}
    assert "gpu_log_folder" in caplog.text
    assert made._gpu_log_tail() == ""
