"""Runs a check that keeps what it knows in a folder, and lends that folder to the next clone.

``python with_cache.py FOLDER KEPT COMMAND …``: where FOLDER is not there, it begins as a copy of KEPT. Where the check
passed, and KEPT is not there or a day old, KEPT becomes a copy of FOLDER. KEPT "-": nothing is lent. The exit status is
the check's. They are copies since such a cache is written in place. The folder of KEPT has to be ours: who can write
there runs code as us.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DAY = 24 * 3600.0
UNFIT = (OSError, shutil.Error)


def begin(folder: Path, kept: Path) -> None:
    """What another clone knew."""
    if not folder.exists() and kept.is_dir():
        with contextlib.suppress(*UNFIT):
            folder.parent.mkdir(parents=True, exist_ok=True)
            half = Path(tempfile.mkdtemp(dir=folder.parent), "half")
            shutil.copytree(kept, half)
            half.rename(folder)
            half.parent.rmdir()


def keep(folder: Path, kept: Path) -> None:
    """For the next clone; where that fails it is not kept."""
    if kept.is_dir() and time.time() - kept.stat().st_mtime < DAY:
        return
    with contextlib.suppress(*UNFIT):
        half = Path(tempfile.mkdtemp(prefix=f".{kept.name}.", dir=kept.parent), "half")
        shutil.copytree(folder, half)
        os.utime(half)
        if kept.is_dir():
            kept.rename(half.with_name("old"))
        half.rename(kept)
        shutil.rmtree(half.parent)


def main(words: list[str]) -> int:
    """See the file's first lines."""
    folder, kept, command = Path(words[0]), Path(words[1]), words[2:]
    is_ours = words[1] != "-" and kept.parent.is_dir() and kept.parent.stat().st_uid == os.geteuid()
    if is_ours:
        begin(folder, kept)
    code = subprocess.run(command, check=False).returncode
    if is_ours and code == 0:
        keep(folder, kept)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
