"""The linters and type checkers of ``scripts/test``: those of Python beside those of the panel, two at a time."""

from __future__ import annotations

from account import UNPRIVILEGED, is_root, own_folder
from lanes import Job
from place import NPM, ROOT, RUN, WORK

PYTHON = {
    "ruff": "ruff check --cache-dir .work/cache/ruff .",
    "ruff format": "ruff format --check --cache-dir .work/cache/ruff .",
    "mypy": "mypy --cache-dir .work/cache/mypy",
    "import-linter": "lint-imports --cache-dir .work/cache/import-linter",
}
PANEL = {
    "tsc": "npm run --silent build:lib",  # goes on from the panel's build, and the panel's tests read what it leaves
    "eslint": "npm run --silent lint",
    "prettier": "npm run --silent format:check",
    "panel tests": "npm run --silent test:compiled",
}


def checks(*, nice: int) -> list[list[Job]]:
    """The checks of Python, and those of the panel; ``nice`` to what else runs."""
    env = {"PYTHONPATH": str(ROOT)}
    # root checks a clone that the plain user set up: as that user, with its cache
    plain = is_root() and WORK.stat().st_uid == UNPRIVILEGED
    if plain:
        own_folder(WORK / "cache")
        env |= {"HOME": str(RUN / "home"), "USER": "nobody", "LOGNAME": "nobody"}
    return [
        [Job(name, tuple(words.split()), folder, env, nice=nice, unprivileged=plain) for name, words in lane.items()]
        for lane, folder in ((PYTHON, ROOT), (PANEL, NPM / "labextension"))
    ]
