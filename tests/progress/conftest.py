"""Each test has a folder of its own for progress files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the progress files; it does not exist yet."""
    for rank in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(rank, raising=False)
    monkeypatch.setenv("JUPYTERHUB_GPU_PROGRESS", str(tmp_path / "runtime" / "gpu-progress"))
    return tmp_path / "runtime" / "gpu-progress"
