"""``scripts/demo``: set up what the demo needs, then become ``jupyterhub-gpu demo``."""

from __future__ import annotations

import os
from pathlib import Path

from account import UNPRIVILEGED, become_unprivileged, check_reach, is_root, own_folder
from node_env import prepare_node, prepare_npm, prepare_panel
from place import VENV, WORK, environment
from python_env import install_package, prepare_test_packages, prepare_venv
from steps import beating, only_one, say

WAITING = "Another set-up runs in this clone; waiting for it"


def prepare(env: dict[str, str], *, tests: bool = False) -> None:
    """Everything the demo needs, or the tests too, below ``.work``; quick when nothing changed."""
    whole = prepare_venv(env, tests=tests)
    if tests:
        prepare_test_packages(env, taken=whole)
    prepare_node(env)
    prepare_npm(env)
    prepare_panel(env)
    install_package(VENV, env)


def demo(words: list[str]) -> None:
    """Set up and start the demo in place of this process; ``words`` are its own options."""
    env = environment()
    if is_root():
        check_reach()
    if not {"-h", "--help"} & set(words):
        say(f"Setting up in {WORK}")
    with only_one("set-up", WAITING), beating("Setting up"):
        prepare(env)
    folder = named_folder(words)
    if folder is None:
        folder = WORK / "demo" / "state"
        words = [*words, "--dir", str(folder)]
    if is_root():
        owned = folder.parent if folder.is_relative_to(WORK) else folder
        own_folder(owned)
        become_unprivileged()
        env.update(USER="nobody", LOGNAME="nobody", HOME=str(owned), SHELL="/bin/sh")
        say(f"Started by root: the hub and its servers run under uid {UNPRIVILEGED}.")
    program = str(VENV / "bin" / "jupyterhub-gpu")
    os.execve(program, [program, "demo", *words], env)


def named_folder(words: list[str]) -> Path | None:
    """The state folder that ``--dir`` names."""
    for place, word in enumerate(words):
        if word == "--dir" and place + 1 < len(words):
            return Path(words[place + 1]).absolute()
        if word.startswith("--dir="):
            return Path(word[len("--dir=") :]).absolute()
    return None
