"""The linters and type checkers of ``scripts/test``: those of Python beside those of the panel, two at a time."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from kept import begin
from place import LOGS, NPM, ROOT, VENV, WORK
from steps import beating, ending, pass_on, say
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
            python("mypy", "mypy", "--cache-dir", CACHE / "mypy"),
            python("import-linter", "lint-imports", "--cache-dir", CACHE / "import-linter"),
        ],
        [
            npm("tsc", "check"),
            npm("eslint", "lint"),
            npm("prettier", "format:check"),
            npm("panel tests", "test"),
        ],
    )


def not_selected() -> list[Check]:
    """The checks, when only some tests were asked for."""
    return [Check(tool.name, "not run", "not selected") for lane in tools() for tool in lane]


def run_checks(env: dict[str, str]) -> list[Check]:
    """Run them all; say each one's outcome, and what a failed one printed."""
    say("\n== Checks")
    LOGS.mkdir(parents=True, exist_ok=True)
    done: dict[str, Check] = {}
    lanes = [list(lane) for lane in tools()]
    running: dict[int, tuple[Tool, Popen[bytes]]] = {}

    def under_way() -> str:
        return "Checks (" + " and ".join(tool.name for tool, _ in running.values()) + ")"

    with ExitStack() as stack, beating(under_way):
        while any(lanes) or running:
            for number, lane in enumerate(lanes):
                if lane and number not in running:
                    tool = lane.pop(0)
                    with _log(tool).open("wb") as log:
                        child = begin(tool.name, tool.words, tool.folder, {**env, "PYTHONPATH": str(ROOT)}, log)
                    stack.enter_context(ending(child))
                    running[number] = (tool, child)
            for number, (tool, child) in list(running.items()):
                if (code := child.poll()) is not None:
                    del running[number]
                    done[tool.name] = _finished(tool, code)
            time.sleep(0.05)
    return [done[tool.name] for lane in tools() for tool in lane]


def _log(tool: Tool) -> Path:
    return LOGS / f"check-{tool.name.replace(' ', '-')}.log"


def _finished(tool: Tool, code: int) -> Check:
    say(f"  {tool.name}: {'failed' if code else 'passed'}")
    if code:
        pass_on(_log(tool).read_bytes() + b"\n")
    return Check(tool.name, "failed" if code else "passed", "")
