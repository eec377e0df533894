"""Starts and ends the programs of a demo.

All processes of a demo have the environment variable `MARK`, by which processes that were left over are found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hub_extensions.adapters.linux.procfs import send_signal, start_time

MARK = "JUPYTERHUB_GPU_DEMO"
"""Environment variable of every process of a demo, with the path of the demo's folder. By it, left-overs are found."""

LEFT_OVERS_STOP_SECONDS = 2.0
PROGRAM_STOP_SECONDS = 3.0


@contextmanager
def program(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program while the block runs, and end it afterwards.

    Args:
        words: the command.
        log: file for its output. The folder of this file is the program's working folder.
        environment: its environment variables.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            cwd=log.parent,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PROGRAM_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_marked(folder: Path, echo: Callable[[str], None], reason: str) -> None:
    """End all processes of a demo, except this one.

    Args:
        folder: the demo's folder, by which its processes are recognised.
        echo: prints a line.
        reason: why the processes are ended. If there are any, a line with this reason and their number is printed; ""
            prints no line.
    """
    if not marked(folder):
        return
    for number, name in ((signal.SIGTERM, "ended"), (signal.SIGKILL, "killed")):
        left = marked(folder)
        if left and reason:
            echo(f"{reason}: {len(left)} {name}.")
        for pid, started in left:
            send_signal(pid, started, number)
        deadline = time.monotonic() + LEFT_OVERS_STOP_SECONDS
        while marked(folder) and time.monotonic() < deadline:
            time.sleep(0.05)


def marked(folder: Path) -> list[tuple[int, int]]:
    """Return pid and start time of every live process of the demo in this folder, except this process."""
    found = []
    wanted = f"{MARK}={folder}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # another account's, or it ended meanwhile
            continue
        started = start_time(int(entry.name)) if wanted in environment else None
        if started is not None:
            found.append((int(entry.name), started))
    return found


@contextmanager
def keeping(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, have a second process end the whole demo if this process is killed.

    The second process waits for the end of its standard input, which this process keeps open as long as it lives.

    Args:
        folder: the demo's folder, by which its processes are recognised.
        environment: environment variables of the second process.
    """
    keeper = subprocess.Popen(
        [sys.executable, "-m", "hub_extensions.tools.demo.processes", str(folder)],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        keeper.kill()
        keeper.communicate()


def main(folder: Path) -> None:
    """Wait until the process that called `keeping` has ended, then end all processes of the demo.

    This is what the second process of `keeping` runs.

    Args:
        folder: the demo's folder, by which its processes are recognised.
    """
    sys.stdin.read()
    end_marked(folder, lambda text: None, "")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
