"""What finished steps leave for the next clone, in the folder JUPYTERHUB_GPU_SETUP_CACHE; without it, nothing.

An entry, ``<cache>/<name>/<key>``, holds folders of ``.work``; a clone takes them by hard links. Nothing that a clone
writes afterwards may reach another one: a file that names its clone is never linked but written anew, and an entry with
a file that is younger than the entry itself was written to through a link, and is thrown away.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from place import WORK
from steps import say

ABOUT = "about.json"
KEPT = 3
ABANDONED_SECONDS = 24 * 3600
LONGEST = 90  # a longer path does not fit into the first line of a script, and pip writes that line in another way


class Unfit(Exception):
    """An entry that must not be taken, or folders that must not be kept."""


def taken_or_made(
    name: str, inputs: str, folders: Sequence[Path], make: Callable[[], None], *, link: bool = True
) -> None:
    """Take ``folders`` from the shelf, else ``make`` them and put them there. Without ``link`` they are copied."""
    if not take(name, inputs, folders, link=link):
        make()
        put(name, inputs, folders, link=link)


def take(name: str, inputs: str | None, folders: Sequence[Path], *, link: bool = True) -> bool:
    """Whether ``folders`` were replaced by those of the entry; of the one used last where ``inputs`` is None."""
    shelf = _shelf(name)
    found = [] if shelf is None else _entries(shelf) if inputs is None else [shelf / _key(inputs)]
    if not found or not found[0].exists():
        return False
    new = [folder.with_name(f"{folder.name}.new") for folder in folders]
    try:
        about = json.loads((found[0] / ABOUT).read_text(encoding="utf-8"))
        carry, count = _taking(found[0], about, link=link), 0
        for folder, beside in zip(folders, new, strict=True):
            _remove(beside)
            beside.parent.mkdir(parents=True, exist_ok=True)
            count += _walk(found[0] / folder.relative_to(WORK), beside, carry, about["work"])
        if count != about["count"]:
            raise Unfit(f"{found[0]} lacks files")
        for folder, beside in zip(folders, new, strict=True):
            _remove(folder)
            beside.rename(folder)
        os.utime(found[0])
    except (OSError, ValueError, KeyError, Unfit) as error:
        for beside in new:
            _remove(beside)
        say(f"  Not taken from the cache: {error}.")
        if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):
            _drop(found[0])
        return False
    return True


def put(name: str, inputs: str, folders: Sequence[Path], *, link: bool = True) -> None:
    """Keep ``folders`` unless they are kept already; where that fails they are not kept, and that is all."""
    shelf = _shelf(name)
    if shelf is None or (shelf / _key(inputs)).exists():
        return
    half = None
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=".half-", dir=shelf))
        naming: list[str] = []
        count = 0
        for folder in folders:
            beside = half / folder.relative_to(WORK)
            beside.parent.mkdir(parents=True, exist_ok=True)
            count += _walk(folder, beside, _putting(half, naming, link=link), str(WORK))
        about = {"work": str(WORK), "naming": naming, "count": count, "made": time.time_ns()}
        (half / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        half.rename(shelf / _key(inputs))
    except (OSError, Unfit) as error:
        say(f"  Not kept in the cache: {error}.")
    finally:
        if half is not None:
            _remove(half)
    _tidy(shelf)


def _key(inputs: str) -> str:
    return f"{platform.machine()}-{platform.libc_ver()[0] or sys.platform}-{inputs}"


def _shelf(name: str) -> Path | None:
    """The folder of this step's entries, where there is a cache that is ours: who can write it runs code as us."""
    named = os.environ.get("JUPYTERHUB_GPU_SETUP_CACHE")
    if not named or len(str(WORK)) > LONGEST or any(sign.isspace() for sign in str(WORK)):
        return None
    cache = Path(named).absolute()
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if cache.stat().st_uid == os.geteuid():
            return cache / name
    return None


def _walk(source: Path, target: Path, carry: Callable[[str, str], None], work: str) -> int:
    """Make ``target`` like ``source``; files go through ``carry``, links into the clone with ``work`` are bent to ours.

    Returns how many there were.
    """
    count = 0
    target.mkdir()
    with os.scandir(source) as entries:
        for one in entries:
            to = os.path.join(target, one.name)
            if one.is_symlink():
                os.symlink(os.readlink(one.path).replace(work, str(WORK)), to)
            elif one.is_dir():
                count += _walk(Path(one.path), Path(to), carry, work)
                continue
            else:
                carry(one.path, to)
            count += 1
    return count


def _taking(entry: Path, about: dict[str, Any], *, link: bool) -> Callable[[str, str], None]:
    naming = {str(entry / name) for name in about["naming"]}
    old, new, made = about["work"].encode(), str(WORK).encode(), about["made"]

    def carry(source: str, target: str) -> None:
        if os.stat(source).st_mtime_ns > made:
            raise Unfit(f"{source} was written to after it was kept")
        if source in naming:
            Path(target).write_bytes(Path(source).read_bytes().replace(old, new))
            shutil.copymode(source, target)
        else:
            _link(source, target, link=link)

    return carry


def _putting(half: Path, naming: list[str], *, link: bool) -> Callable[[str, str], None]:
    ours = str(WORK).encode()

    def carry(source: str, target: str) -> None:
        # Python sets the path in a .pyc right itself; what is copied (mypy's cache) knows what to do with paths
        if not link or source.endswith(".pyc") or ours not in (content := Path(source).read_bytes()):
            _link(source, target, link=link)
            return
        if b"\0" in content:
            raise Unfit(f"{source} names its clone and is no text")
        naming.append(os.path.relpath(target, half))
        shutil.copy2(source, target)

    return carry


def _link(source: str, target: str, *, link: bool) -> None:
    if link:
        with contextlib.suppress(OSError):  # another file system, or too many links
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _entries(shelf: Path) -> list[Path]:
    """Whole entries, the one used last first."""
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for one in shelf.iterdir():
            with contextlib.suppress(OSError):
                if not one.name.startswith("."):
                    found.append((one.stat().st_mtime, one))
    return [path for _, path in sorted(found, reverse=True)]


def _tidy(shelf: Path) -> None:
    for old in _entries(shelf)[KEPT:]:
        _drop(old)
    for half in shelf.glob(".half-*"):
        with contextlib.suppress(OSError):
            if time.time() - half.stat().st_mtime > ABANDONED_SECONDS:
                _remove(half)


def _drop(entry: Path) -> None:
    """Remove an entry; it loses its name first, so that nobody takes what is left of it."""
    with contextlib.suppress(OSError):
        nameless = Path(tempfile.mkdtemp(prefix=".half-", dir=entry.parent))
        entry.rename(nameless / "old")
        _remove(nameless)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
