"""Runs a command under ``keeper.py``, so that nothing of it is left when it ends, or we do."""

from __future__ import annotations

import math
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from account import for_child
from place import LOGS, ROOT
from steps import Trouble, beating

STOP = threading.Event()
"""Set, everything that is watched is ended: how the main thread stops those that others wait for."""
STOPPED, TOO_LATE = 130, 124


def watched(
    words: Sequence[str | Path],
    folder: Path,
    env: Mapping[str, str],
    take: Callable[[bytes], object],
    *,
    nice: int = 0,
    seconds: float = math.inf,
    unprivileged: bool = False,
) -> int:
    """Run a command and give its output to ``take`` as it comes. Returns its exit status, or why it was ended.

    Raises:
        Trouble: it cannot be started.
    """
    keeper = [sys.executable, "-I", "-B", str(Path(__file__).with_name("keeper.py")), str(nice)]
    try:
        child = subprocess.Popen(
            [*keeper, *map(str, words)],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **(for_child() if unprivileged else {}),
        )
    except OSError as error:
        raise Trouble(f"{words[0]} could not be started: {error.strerror} ({error.filename}).") from None
    assert child.stdout is not None
    deadline = time.monotonic() + seconds
    try:
        while not STOP.is_set() and time.monotonic() < deadline:
            if select.select([child.stdout], [], [], 0.2)[0]:
                chunk = os.read(child.stdout.fileno(), 65536)
                if not chunk:
                    return child.wait()
                take(chunk)
            elif child.poll() is not None:
                return child.returncode
        return STOPPED if STOP.is_set() else TOO_LATE
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


def command(
    name: str,
    title: str,
    words: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path = ROOT,
    nice: int = 0,
    seconds: float = 1800.0,
) -> None:
    """Run a command of the set-up, its output in the step's log.

    Raises:
        Trouble: it failed or took too long; the text says what and where to read more.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    parts: list[bytes] = []
    with beating(title):
        code = watched(words, cwd, env, parts.append, nice=nice, seconds=seconds)
    output = b"".join(parts)
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(map(str, words))}\n".encode() + output)
    if code:
        reason = why(output.decode(errors="replace"))
        if code == TOO_LATE:
            reason = f"it was not finished after {seconds:.0f} s."
        raise Trouble(f"{title} failed: {reason} Details: {log.relative_to(ROOT)}")


_REASONS = (
    (r"No space left on device|ENOSPC", "the disk is full."),
    (r"Hash mismatch|EINTEGRITY", "a package from the index differs from the lock file."),
    (
        r"invalid peer certificate|CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER"
        r"|unable to get local issuer",
        "the registry's certificate is not trusted (settings: PIP_CERT, SSL_CERT_FILE, npm's cafile).",
    ),
    (
        r"dns error|connect error|error sending request|operation timed out|Connection refused|Network is unreachable"
        r"|Temporary failure in name resolution|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ECONNRESET",
        "the package registry did not answer (is there a network? settings: PIP_INDEX_URL, npm's registry, the proxy).",
    ),
    (r"no version of ([^\s\\]+)|Because ([^\s]+) was not found", "the package index has no fitting {0}."),
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
