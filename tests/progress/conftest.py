"""A folder for the progress files, stand-ins for the libraries of trainings, and IPython: all anew for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from hub_extensions.progress import writer

LIBRARIES = Path(__file__).with_name("libraries")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the progress files; it does not exist yet."""
    for rank in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(rank, raising=False)
    monkeypatch.setenv("JUPYTERHUB_GPU_PROGRESS", str(tmp_path / "runtime" / "gpu-progress"))
    monkeypatch.setattr(writer, "APART_SECONDS", 0.0)  # the runs of the tests are short, and follow each other
    return tmp_path / "runtime" / "gpu-progress"


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand-ins for the libraries of trainings, behind the real ones where these are installed."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(LIBRARIES)])
    yield
    for name in list(sys.modules):
        hook = name.startswith("hub_extensions.progress.") and name != "hub_extensions.progress.writer"
        if hook or str(LIBRARIES) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """IPython as a kernel has it, with our extension loaded."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext hub_extensions.progress")
    yield shell
    InteractiveShell.clear_instance()
