"""How one step of the set-up runs: its stamp, its log, the line that shows it is alive, the sentence when it fails.

A step is done when its stamp carries the hash of its inputs and what it made is there; the stamp goes away before the
step begins, so a set-up that was broken off half-way is found and that step is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from place import LOGS, ROOT, STAMPS, WORK

BEAT_SECONDS = 8.0
_spoken = time.monotonic()
_line_is_open = False
_under_way: list[tuple[str | Callable[[], str], float]] = []


class Trouble(Exception):
    """Why we stop, as sentences a person can act on."""


def say(text: str) -> None:
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
        for file in _files(part):
            total.update(str(file.relative_to(ROOT)).encode() + b"\0")
            total.update(file.read_bytes() + b"\0")
    return total.hexdigest()


def _files(part: Path) -> list[Path]:
    if not part.exists():
        return []
    if part.is_file():
        return [part]
    left_out = {"node_modules", "__pycache__", "lib", ".mypy_cache", ".ruff_cache"}
    if part.name == "hub_extensions":
        left_out.add("labextension")
    found = []
    for folder, folders, names in os.walk(part):
        folders[:] = sorted(name for name in folders if name not in left_out)
        found += [Path(folder, name) for name in sorted(names) if not name.endswith((".pyc", ".tsbuildinfo"))]
    return [file for file in found if file.is_file()]


def step(name: str, title: str, inputs: str, made: Sequence[Path], act: Callable[[], None]) -> bool:
    """Do ``act`` unless its stamp says that it was done with the same inputs. Returns whether it was done now."""
    stamp = STAMPS / name
    mark = f"{inputs} {ROOT}"  # a clone that was moved is set up again
    if stamp.exists() and stamp.read_text() == mark and all(path.exists() for path in made):
        return False
    stamp.unlink(missing_ok=True)
    began = time.monotonic()
    say(f"  {title} ...")
    with beating(title):
        act()
    for path in made:
        if not path.exists():
            log = LOGS.relative_to(ROOT) / f"{name}.log"
            raise Trouble(f"{title}: {path.relative_to(ROOT)} was not made. Details: {log}")
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(mark)
    say(f"  {title}: done in {time.monotonic() - began:.0f} s")
    return True


@contextmanager
def beating(text: str | Callable[[], str]) -> Iterator[None]:
    """While the block runs, a line whenever nothing was said for ``BEAT_SECONDS``: what is under way, since when.

    Blocks may lie in each other, and beside each other in threads; the last begun speaks, and from the outermost's
    begin to its end there is no silence.
    """
    own = (text, time.monotonic())
    _under_way.append(own)
    outermost = len(_under_way) == 1
    over = threading.Event()
    thread = threading.Thread(target=_beat, args=(over,), daemon=True)
    if outermost:
        thread.start()
    try:
        yield
    finally:
        if outermost:
            over.set()
            thread.join()
        _under_way.remove(own)


def _beat(over: threading.Event) -> None:
    while not over.wait(0.2):
        if time.monotonic() - _spoken > BEAT_SECONDS:
            doing, began = _under_way[-1]
            say(f"    {doing if isinstance(doing, str) else doing()}: {time.monotonic() - began:.0f} s")


def command(
    name: str,
    title: str,
    words: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path = ROOT,
    timeout: float = 1800.0,
) -> None:
    """Run a command of the set-up, its output in the step's log. ``timeout`` in seconds.

    Raises:
        Trouble: it failed or took too long; the text says what and where to read more.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(map(str, words))}\n".encode())
        out.flush()
        begin = out.tell()
        try:
            child = subprocess.Popen(
                [str(word) for word in words],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise Trouble(f"{title}: {words[0]} could not be started ({error.strerror}).") from None
        with ending(child), beating(title):
            try:
                code = child.wait(timeout=timeout)
            except subprocess.TimeoutExpired:
                late = f"{title}: not finished after {timeout:.0f} s."
                raise Trouble(f"{late} Details: {log.relative_to(ROOT)}") from None
    if code:
        text = log.read_bytes()[begin:].decode("utf-8", "replace")
        raise Trouble(f"{title} failed: {why(text)} Details: {log.relative_to(ROOT)}")


@contextmanager
def ending(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave nothing of ``child``'s process group behind, however the block ends."""
    try:
        yield
    finally:
        for signum, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(child.pid, signum)
            except (ProcessLookupError, PermissionError):
                break
            try:
                child.wait(timeout=patience)
                if signum == signal.SIGTERM:
                    time.sleep(0.05)
            except subprocess.TimeoutExpired:
                continue


_REASONS = (
    (r"No space left on device|ENOSPC", "the disk is full."),
    (r"THESE PACKAGES DO NOT MATCH THE HASHES|EINTEGRITY", "a package from the index differs from the lock file."),
    (
        r"CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER|unable to get local issuer",
        "the registry's certificate is not trusted (settings: PIP_CERT, SSL_CERT_FILE, npm's cafile).",
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT"
        r"|ECONNRESET|NewConnectionError|ConnectTimeoutError|ProxyError|ConnectionError"
        r"|Network is unreachable|Connection refused",
        "the package registry did not answer (is there a network? settings: PIP_INDEX_URL, npm's registry, the proxy).",
    ),
    (
        r"from versions: none",
        "the package index did not answer, or lacks a package (is there a network? settings: PIP_INDEX_URL, proxy).",
    ),
    (r"No matching distribution found for ([^\s\\]+)", "the package index has no fitting {0}."),
    (r"Permission denied: '?([^'\n]+)|EACCES[^'\n]*'([^'\n]+)'", "no permission for {0}."),
)


def why(output: str) -> str:
    """The likely reason in a failed command's output, as a sentence."""
    for pattern, sentence in _REASONS:
        if match := re.search(pattern, output):
            return sentence.format(*[group for group in match.groups() if group])
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(("$", "["))]
    errors = [line for line in lines if re.search(r"error", line, re.IGNORECASE)]
    last = (errors or lines or [""])[-1]
    return (re.sub(r"//[^/@\s]+@", "//", last)[:300] or "it said nothing").rstrip(".") + "."


@contextmanager
def only_one(name: str, waiting: str) -> Iterator[None]:
    """Hold the lock ``.work/<name>.lock``; while another run holds it, say ``waiting`` and wait."""
    try:
        WORK.mkdir(exist_ok=True)
        handle = os.open(WORK / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        owner = WORK.stat().st_uid if WORK.exists() else ROOT.stat().st_uid
        raise Trouble(
            f"{WORK} cannot be written ({error.strerror}); it belongs to uid {owner} and you are uid {os.getuid()}. "
            "Run as that user, or use a clone of your own."
        ) from None
    try:
        said = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - said > BEAT_SECONDS:
                    holder = os.pread(handle, 40, 0).decode("ascii", "replace").strip() or "unknown"
                    say(f"  {waiting} (process {holder}).")
                    said = time.monotonic()
                time.sleep(0.3)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def interpreter() -> str:
    """What identifies the Python that runs this: a new one means new virtual environments."""
    return f"{sys.version} {Path(sys.executable).resolve()}"
