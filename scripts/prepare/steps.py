"""How one step of the set-up is done, the line that shows it is alive, and what keeps two runs apart.

A step is done when the note that it leaves carries the hash of its inputs; the note goes away before the step begins,
so a set-up that was broken off half-way is found and that step is done again. (uv alone would not find it: killed while
it installs, it leaves packages that lack files, and takes them for installed.)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from place import ROOT, WORK
from shelf import put, take

NOTE = ".made-of"
BEAT_SECONDS = 8.0
_spoken = time.monotonic()
_line_is_open = False
_under_way: list[tuple[str | Callable[[], str], float]] = []


class Trouble(Exception):
    """Why we stop, as sentences a person can act on."""


def report(text: str) -> None:
    """One line to the person, at once."""
    global _spoken, _line_is_open
    print(("\n" if _line_is_open else "") + text, flush=True)
    _spoken, _line_is_open = time.monotonic(), False


def pass_on(output: bytes) -> None:
    """What a command printed, as it is. Only a finished line counts as a sign of life."""
    global _spoken, _line_is_open
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
    if b"\n" in output:
        _spoken = time.monotonic()
    if output:
        _line_is_open = not output.endswith(b"\n")


def digest(*parts: str | Path) -> str:
    """A hash of texts, files and whole folders (names and contents; built and cached files left out)."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(part.encode() + b"\0")
            continue
        for file in [part] if part.is_file() else _files(part):
            total.update(str(file.relative_to(ROOT)).encode() + b"\0")
            total.update(file.read_bytes() + b"\0")
    return total.hexdigest()


def _files(part: Path) -> Iterator[Path]:
    left_out = {"node_modules", "__pycache__", "lib", ".mypy_cache", ".ruff_cache"}
    if part.name == "hub_extensions":
        left_out.add("labextension")
    for folder, folders, names in os.walk(part):
        folders[:] = sorted(name for name in folders if name not in left_out)
        found = (Path(folder, name) for name in sorted(names) if not name.endswith((".pyc", ".tsbuildinfo")))
        yield from (file for file in found if file.is_file())


def interpreter() -> str:
    """What identifies the Python that runs this, and its machine: another one means new virtual environments."""
    return f"{sys.version} {Path(sys.executable).resolve()} {platform.machine()} {platform.libc_ver()}"


def noted(note: Path) -> str:
    """The inputs of which the step with this note was done; empty where it was not."""
    return note.read_text(encoding="ascii") if note.exists() else ""


def step(
    title: str, note: Path, inputs: str, act: Callable[[], None], *, anew: bool = True, shared: bool = False
) -> None:
    """Do ``act`` unless ``note`` says that it was done with the same inputs.

    ``anew``: the folder of the note is emptied before. ``shared``: it is taken from another clone where it can be.
    """
    if noted(note) == inputs:
        return
    note.unlink(missing_ok=True)
    began = time.monotonic()
    report(f"  {title} ...")
    with beating(title):
        if not (shared and take(note.parent, inputs)):
            if anew:
                shutil.rmtree(note.parent, ignore_errors=True)
            note.parent.mkdir(parents=True, exist_ok=True)
            act()
            note.write_text(inputs, encoding="ascii")
            if shared:
                put(note.parent, inputs)
    report(f"  {title}: done in {time.monotonic() - began:.0f} s")


@contextmanager
def beating(text: str | Callable[[], str]) -> Iterator[None]:
    """While the block runs, a line whenever nothing was said for ``BEAT_SECONDS``: what is under way, since when.

    Blocks may lie in each other, and beside each other in threads; the last begun speaks.
    """
    own = (text, time.monotonic())
    if not _clock.is_alive():
        _clock.start()
    _under_way.append(own)
    try:
        yield
    finally:
        _under_way.remove(own)


def _beat() -> None:
    while True:
        time.sleep(0.2)
        with suppress(IndexError):
            if time.monotonic() - _spoken > BEAT_SECONDS:
                doing, began = _under_way[-1]
                report(f"    {doing if isinstance(doing, str) else doing()}: {time.monotonic() - began:.0f} s")


_clock = threading.Thread(target=_beat, daemon=True)


@contextmanager
def only_one(name: str, waiting: str) -> Iterator[None]:
    """Hold the lock ``.work/<name>.lock``; while another run holds it, say ``waiting`` and wait."""
    try:
        WORK.mkdir(exist_ok=True)
        lock = (WORK / f"{name}.lock").open("a+", encoding="ascii")
    except OSError as error:
        owner = (WORK if WORK.exists() else ROOT).stat().st_uid
        raise Trouble(
            f"{WORK} cannot be written ({error.strerror}); it belongs to uid {owner} and you are uid {os.getuid()}. "
            "Run as that user, or use a clone of your own."
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            waiting += f" (process {lock.read() or 'unknown'})"
            report(f"  {waiting}.")
            with beating(waiting):
                fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
