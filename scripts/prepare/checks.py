"""The linters and type checkers of ``scripts/test``: those of Python beside those of the panel, two at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from account import UNPRIVILEGED, is_root, own_folder
from kept import begin
from place import LOGS, NPM, ROOT, RUN, VENV, WORK
from steps import Trouble, beating, ending, pass_on, say
from table import Check

CACHE = WORK / "cache"
PANEL = NPM / "labextension"


@dataclass(frozen=True)
class Tool:
    """One check and how it is started."""

    name: str
    words: tuple[str | Path, ...]
    folder: Path


def tools() -> tuple[list[Tool], list[Tool]]:
    """The checks of Python, and those of the panel."""

    def python(name: str, *words: str | Path) -> Tool:
        return Tool(name, (VENV / "bin" / str(words[0]), *words[1:]), ROOT)

    def npm(name: str, script: str) -> Tool:
        return Tool(name, ("npm", "run", "--silent", script), PANEL)

    return (
        [
            python("ruff", "ruff", "check", "--cache-dir", CACHE / "ruff", "."),
            python("ruff format", "ruff", "format", "--check", "--cache-dir", CACHE / "ruff", "."),
            Tool("mypy", (sys.executable, "-E", "-s", "-B", Path(__file__).with_name("type_check.py")), ROOT),
            python("import-linter", "lint-imports", "--cache-dir", CACHE / "import-linter"),
        ],
        [
            npm("tsc", "build:lib"),  # goes on from the panel's build, and the panel's tests read what it leaves
            npm("eslint", "lint"),
            npm("prettier", "format:check"),
            npm("panel tests", "test:compiled"),
        ],
    )


class Checks:
    """The checks, beside something else: ``begin`` starts them, ``finish`` waits for them and says how they went.

    Python's run one after the other, and the panel's beside them. Leaving the block ends those that still run.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._running: set[str] = set()
        self._codes: dict[str, int] = {}

    def __enter__(self) -> Checks:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def begin(self, env: dict[str, str], *, nice: int = 10) -> None:
        """Start them, ``nice`` to what else runs; nothing is printed."""
        LOGS.mkdir(parents=True, exist_ok=True)
        mine = {**env, "PYTHONPATH": str(ROOT)}
        if cache := os.environ.get("JUPYTERHUB_GPU_SETUP_CACHE"):  # of all that begins with JUPYTER, this is for mypy
            mine["JUPYTERHUB_GPU_SETUP_CACHE"] = cache
        self._threads = [threading.Thread(target=self._lane, args=(lane, mine, nice), daemon=True) for lane in tools()]
        if _plain_users():
            own_folder(CACHE)
            own_folder(RUN / "home")
            mine |= {"HOME": str(RUN / "home"), "USER": "nobody", "LOGNAME": "nobody"}
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[Check]:
        """Wait for them; say each one's outcome, and what a failed one printed."""
        say("\n== Checks")
        with beating(lambda: f"Checks ({' and '.join(sorted(self._running.copy()))})"):
            for thread in self._threads:
                thread.join()
        return [_finished(tool, self._codes.get(tool.name, 1)) for lane in tools() for tool in lane]

    def _lane(self, lane: list[Tool], env: dict[str, str], nice: int) -> None:
        for tool in lane:
            if self._over.is_set():
                return
            self._running.add(tool.name)
            with _log(tool).open("wb") as log:
                try:
                    self._codes[tool.name] = self._run(tool, env, nice, log)
                except Trouble as trouble:
                    log.write(f"{trouble}\n".encode())
            self._running.discard(tool.name)

    def _run(self, tool: Tool, env: dict[str, str], nice: int, log: IO[bytes]) -> int:
        child = begin(tool.name, tool.words, tool.folder, env, log, unprivileged=_plain_users())
        with ending(child):
            _slow_down(child.pid, nice)
            while (code := child.poll()) is None and not self._over.wait(0.05):
                pass
        return 1 if code is None else code


def _plain_users() -> bool:
    """Whether root runs the checks in a clone that the plain user set up: they run as that user, with its cache."""
    mine = CACHE if CACHE.exists() else WORK
    return is_root() and {WORK.stat().st_uid, mine.stat().st_uid} == {UNPRIVILEGED}


def _slow_down(pid: int, nice: int) -> None:
    if nice == 0:
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice))
    # Linux may weigh sessions first, and what we started has one of its own; it takes one such wish in 0.1 s
    for _ in range(3):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")
            return
        time.sleep(0.15)


def _log(tool: Tool) -> Path:
    return LOGS / f"check-{tool.name.replace(' ', '-')}.log"


def _finished(tool: Tool, code: int) -> Check:
    say(f"  {tool.name}: {'failed' if code else 'passed'}")
    if code:
        pass_on(_log(tool).read_bytes() + b"\n")
    return Check(tool.name, "failed" if code else "passed", "")
