"""Folders of ``.work`` for the next clone, by hard links in the folder JUPYTERHUB_GPU_SETUP_CACHE, if that is set."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

KEPT = 3
UNFIT = (OSError, shutil.Error)


def take(folder: Path, inputs: str) -> bool:
    """Whether ``folder`` was replaced by the one that another clone made of the same inputs."""
    beside = folder.with_name(f"{folder.name}.new")
    try:
        for entry in _entries(folder, inputs):
            shutil.rmtree(beside, ignore_errors=True)
            shutil.copytree(entry, beside, symlinks=True, copy_function=_link)
            shutil.rmtree(folder, ignore_errors=True)
            beside.rename(folder)
            os.utime(entry)
            return True
    except UNFIT:  # somebody is deleting it: then we make our own
        shutil.rmtree(beside, ignore_errors=True)
    return False


def put(folder: Path, inputs: str) -> None:
    """Keep ``folder``, and the entries of this name that were used last; where that fails it is not kept."""
    with contextlib.suppress(*UNFIT):
        if cache := _cache():
            half = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=cache), "half")
            shutil.copytree(folder, half, symlinks=True, copy_function=_link)
            half.rename(cache / f"{folder.name}.{inputs}")
            half.parent.rmdir()
            for old in _entries(folder)[KEPT:]:
                gone = old.rename(cache / f".{old.name}")  # who is about to take it finds that it is gone
                shutil.rmtree(gone)


def _entries(folder: Path, inputs: str = "*") -> list[Path]:
    """What is kept of ``folder``, the one used last first."""
    cache = _cache()
    found = cache.glob(f"{folder.name}.{inputs}") if cache else []
    return sorted(found, key=lambda entry: entry.stat().st_mtime, reverse=True)


def _cache() -> Path | None:
    """The cache, where it is ours: who can write it runs code as us."""
    if not (named := os.environ.get("JUPYTERHUB_GPU_SETUP_CACHE")):
        return None
    cache = Path(named).absolute()
    cache.mkdir(parents=True, exist_ok=True)
    return cache if cache.stat().st_uid == os.geteuid() else None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or too many links
        shutil.copy2(source, target)
