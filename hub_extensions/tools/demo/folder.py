"""The folder with the whole state of a demo. It is locked while a demo runs in it, and emptied on request."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.processes import end_marked


def own_folder(folder: Path, *, clean: bool) -> Path:
    """Create the folder of a demo if it does not exist, and return its path.

    Args:
        clean: delete everything in it except the lock.

    Raises:
        DemoRefused: the folder belongs to another account, or has files that are not a demo's.
    """
    folder = folder.expanduser().resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as problem:
        raise DemoRefused(
            f"The folder {folder} cannot be made ({problem.strerror}). Choose another one: --dir."
        ) from None
    if owner != os.geteuid():
        raise DemoRefused(f"The folder {folder} belongs to another account (uid {owner}). Choose another one: --dir.")
    known = (folder / "demo.lock").exists()
    if not known and any(folder.iterdir()):
        raise DemoRefused(f"The folder {folder} holds other files and is not a demo's. Choose another one: --dir.")
    if clean and known:
        with locked(folder):
            end_marked(folder, lambda text: None, "")
            for entry in folder.iterdir():
                _remove(entry)
    folder.chmod(0o700)
    (folder / "homes").mkdir(mode=0o700, exist_ok=True)
    return folder


def _remove(entry: Path) -> None:
    if entry.name == "demo.lock":
        return
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while the block runs, so that only one demo uses the folder.

    The lock also ends if this process is killed, because child processes do not inherit it.

    Raises:
        DemoRefused: another demo has the lock.
    """
    with (folder / "demo.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoRefused(f"A demo runs in {folder} already. Stop it, or choose another folder: --dir.") from None
        yield
