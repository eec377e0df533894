"""Commands run as an account that is not root, whoever runs the tests: a demo and a hub have to work so."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from tests import patience

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class PlainAccount:
    """An account that is not root, with a folder that it owns.

    Attributes:
        drop: what a command line begins with, so that it runs as this account.
    """

    folder: Path
    drop: tuple[str, ...]

    def popen(
        self,
        *command: str,
        start_new_session: bool = False,
        variables: Mapping[str, str] | None = None,
        output: int | IO[str] = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start it in the folder, with the checkout importable and no hub's variables.

        What it starts inherits `output`: whoever reads a pipe to its end waits for those too.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "CONFIGPROXY"))}
        env = {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "HOME": str(self.folder), **(variables or {})}
        return subprocess.Popen(
            [*self.drop, *command],
            env=env,
            cwd=self.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=start_new_session,
        )


@contextmanager
def plain_account() -> Iterator[PlainAccount]:
    """The account that runs the tests, or `nobody` where that is root. The folder is deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="plain-", dir="/tmp"))
    try:
        yield PlainAccount(folder, _drop(folder) if os.geteuid() == 0 else ())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drop(folder: Path) -> tuple[str, ...]:
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(folder, nobody, nobody)
    drop = ("setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups")
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import jupyterhub'], check=True)"
    if subprocess.run([*drop, sys.executable, "-c", again], capture_output=True, check=False).returncode == 0:
        return drop
    # This Python lies in a folder that only root may read: one right is kept, to read it.
    right = "+dac_read_search"
    return (*drop, "--bounding-set", "-all," + right, "--inh-caps", "-all," + right, "--ambient-caps", right)


def until(what: Callable[[], T], seconds: float, process: subprocess.Popen[str] | None = None) -> T:
    """As in tests/patience.py; what the process said is in the error if it ends before."""

    def look() -> T:
        if not (found := what()) and process is not None and process.poll() is not None:
            raise AssertionError(f"it ended: {process.stdout.read() if process.stdout else ''}")
        return found

    return patience.until(look, seconds)
