"""The linters and type checkers of ``scripts/test``: those of Python beside those of the panel, two at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from account import UNPRIVILEGED, is_root, own_folder
from lanes import Job
from place import NPM, ROOT, RUN, WORK
from steps import digest, interpreter

MYPY = ".work/cache/mypy"
PYTHON = {
    "ruff": "ruff check --cache-dir .work/cache/ruff .",
    "ruff format": "ruff format --check --cache-dir .work/cache/ruff .",
    "mypy": f"mypy --cache-dir {MYPY}",
    "import-linter": "lint-imports --cache-dir .work/cache/import-linter",
}
PANEL = {
    "tsc": "npm run --silent build:lib",  # goes on from the panel's build, and the panel's tests read what it leaves
    "eslint": "npm run --silent lint",
    "prettier": "npm run --silent format:check",
    "panel tests": "npm run --silent test:compiled",
}

OF_THE_PANEL = ("labextension", "hub_extensions/locale", "package.json", "package-lock.json")
"""What those of the panel read; while it stays as it is they are not run again (those of Python have caches)."""


def checks(*, nice: int) -> list[list[Job]]:
    """The checks of Python, and those of the panel; ``nice`` to what else runs."""
    env = {"PYTHONPATH": str(ROOT)}
    # root checks a clone that the plain user set up: as that user, with its cache
    plain = is_root() and WORK.stat().st_uid == UNPRIVILEGED
    if plain:
        own_folder(WORK / "cache")
        env |= {"HOME": str(RUN / "home"), "USER": "nobody", "LOGNAME": "nobody"}
    kept = WORK / "passed"
    own_folder(kept)
    inputs = digest(interpreter(), *(ROOT / name for name in OF_THE_PANEL))

    def job(name: str, words: str, folder: Path, **more: Any) -> Job:
        return Job(name, tuple(words.split()), folder, env, nice=nice, unprivileged=plain, **more)

    return [
        [job(name, f"{_lending(MYPY)} {words}" if name == "mypy" else words, ROOT) for name, words in PYTHON.items()],
        [
            job(name, words, NPM / "labextension", note=kept / name.replace(" ", "-"), inputs=inputs)
            for name, words in PANEL.items()
        ],
    ]


def _lending(folder: str) -> str:
    """The first words of a check that begins with what another clone knew: mypy has 40 s of CPU to learn it anew."""
    named = os.environ.get("JUPYTERHUB_GPU_SETUP_CACHE")
    kept = str(Path(named).absolute() / f"{Path(folder).name}-knows") if named else "-"
    return f"{sys.executable} -I -B {Path(__file__).with_name('with_cache.py')} {folder} {kept}"
