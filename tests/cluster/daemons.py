"""The cluster's processes: each in a session of its own, can be ended, paused and started again, and ends with us.

    with Daemons() as daemons:
        etcd = daemons.start("etcd", [program, "--…"], log=folder / "etcd.log")

Leaving the block ends all of them, the last one first, also when something in it failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.patience import patient

STOP_SECONDS = 15.0
GOES_EASY = {"GOGC": "400"}
"""Less of the collecting of garbage, for some 100 MB more: the tests' control planes are small and live for minutes."""


class DaemonEnded(Exception):
    """A daemon ended though it should run, or did not do in time what it is there for; with the end of its log."""


class Daemon:
    """One process; ``start`` after ``stop`` or ``kill`` starts the same command again."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.argv = [str(word) for word in argv]
        self.log = log
        self._env = {**GOES_EASY, **(os.environ if env is None else env)}
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process's id; None when none was started."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether it runs (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it. It ends when the one who started it does, even if that one is killed."""
        if self.alive:
            raise RuntimeError(f"{self.name} runs already")
        with_us = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [*with_us, *self.argv],
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, patience: float = STOP_SECONDS) -> None:
        """End it as an admin would (SIGTERM); what has not ended after ``patience`` seconds is killed."""
        if not self.alive:
            return self._leave_nothing()
        assert self._process is not None
        self.resume()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=patient(patience))
        return self._leave_nothing()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        self._leave_nothing()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its connections stay open and nobody answers on them."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def until(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for ``ready``.

        Raises:
            DaemonEnded: it ended meanwhile, or it was not ready after ``seconds``; with the end of its log.
        """
        deadline = time.monotonic() + patient(seconds)
        while not (alive := self.alive) or not ready():
            if not alive:
                raise DaemonEnded(f"{self.name} ended: {self.last_words()}")
            if time.monotonic() > deadline:
                raise DaemonEnded(f"{self.name}: not {what} within {seconds:g} s: {self.last_words()}")
            time.sleep(0.05)

    def last_words(self, lines: int = 8) -> str:
        """The end of its log."""
        if not self.log.exists():
            return "it wrote no log"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            assert self._process is not None
            self._process.send_signal(number)

    def _leave_nothing(self) -> None:
        """SIGKILL to what is left of its session's process group, and collect it."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # nothing of it is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=patient(STOP_SECONDS))


class Daemons:
    """Several of them, ended in reverse."""

    def __init__(self) -> None:
        self._all: list[Daemon] = []

    def __enter__(self) -> Daemons:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, name: str, argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> Daemon:
        """Start one more."""
        daemon = Daemon(name, argv, log, env)
        self._all.append(daemon)
        daemon.start()
        return daemon

    def stop(self) -> None:
        """End all, the last one first; one that does not end keeps no other from ending.

        Raises:
            RuntimeError: some could not be ended, with their names.
        """
        left: list[str] = []
        while self._all:
            daemon = self._all.pop()
            try:
                daemon.stop()
            except (OSError, subprocess.SubprocessError) as error:
                left.append(f"{daemon.name} ({error})")
        if left:
            raise RuntimeError(f"could not be ended: {', '.join(left)}")

    def dead(self) -> list[Daemon]:
        """Those that ended by themselves."""
        return [daemon for daemon in self._all if not daemon.alive]
