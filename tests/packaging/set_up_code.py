"""As much of a clone as the set-up's own code needs, and that code run in it, in a Python of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.patience import patient

ROOT = Path(__file__).parents[2]


def copy_set_up(folder: Path) -> Path:
    """``scripts`` and ``requirements`` in ``folder``, which is returned."""
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def begin(clone: Path, code: str, **more: str) -> subprocess.Popen[str]:
    """Start ``code``, which can import the modules of ``scripts/prepare``; ``more`` are environment variables."""
    start = f"import sys; sys.path.insert(0, {str(clone / 'scripts' / 'prepare')!r})\n"
    words = [sys.executable, "-I", "-B", "-u", "-c", start + code]
    return subprocess.Popen(
        words, env={**os.environ, **more}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def run(clone: Path, code: str, **more: str) -> str:
    """All that ``code`` prints."""
    with begin(clone, code, **more) as child:
        return child.communicate(timeout=patient(60))[0]


def program(path: Path, text: str) -> Path:
    """An executable ``sh`` script at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
