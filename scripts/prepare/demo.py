"""``scripts/demo``: set up what the demo needs, then become ``jupyterhub-gpu demo``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from account import UNPRIVILEGED, become_unprivileged, check_reach, is_root, own_folder
from node_env import prepare_node, prepare_npm, prepare_panel, prepare_sso
from place import APPS, SSO, VENV, WORK, environment
from python_env import install_package, prepare_apps, prepare_sign_on, prepare_venv
from steps import beating, only_one, report

WAITING = "Another set-up runs in this clone; waiting for it"


def prepare(env: dict[str, str], lock: str) -> None:
    """Everything below ``.work`` that the demo needs, with the packages of ``lock``; quick when nothing changed."""
    prepare_venv(VENV, lock, env)
    prepare_node(env)
    prepare_npm(env)
    prepare_panel(env)
    install_package(VENV, env)


def asked_by(words: list[str]) -> argparse.Namespace:
    """The options that concern the set-up; the command of the demo reads them all. ``--help`` prints and exits."""
    parser = argparse.ArgumentParser(
        prog="./scripts/demo",
        description="Run a JupyterHub on this machine to try everything. What it needs goes into ./.work; Ctrl-C "
        "stops it. It listens on 127.0.0.1 only, and all demo users share one Unix account: for trying, not for use.",
        allow_abbrev=False,
    )
    parser.add_argument("--port", metavar="N", help="port of the hub, 8000 by default; 0 takes a free one")
    parser.add_argument(
        "--dir", metavar="FOLDER", type=Path, help="where its state is kept, .work/demo/state by default"
    )
    parser.add_argument("--users", metavar="N", help="how many people there are, 8 by default")
    parser.add_argument("--layout", help="GPUs to simulate: lab-a100, two-whole, mixed, or a YAML file")
    parser.add_argument("--clean", action="store_true", help="start anew: delete what an earlier demo left")
    parser.add_argument(
        "--sso", action="store_true", help="a sign-in service instead of passwords, and two apps behind it"
    )
    return parser.parse_known_args(words)[0]


def demo(words: list[str]) -> None:
    """Set up and start the demo in place of this process; ``words`` are its own options."""
    asked = asked_by(words)
    env = environment()
    if is_root():
        check_reach()
    report(f"Setting up in {WORK}")
    has_sso = asked.sso
    with only_one("set-up", WAITING), beating("Setting up"):
        prepare(env, "demo")
        if has_sso:
            prepare_sign_on(VENV, env)
            prepare_sso(env)
            prepare_apps(env)
    words = [each for each in words if each != "--sso"] + (["--sso", str(SSO), "--apps", str(APPS)] if has_sso else [])
    folder = (asked.dir or WORK / "demo" / "state").absolute()
    if is_root():
        owned = folder.parent if folder.is_relative_to(WORK) else folder
        own_folder(owned)
        become_unprivileged()
        env.update(USER="nobody", LOGNAME="nobody", HOME=str(owned), SHELL="/bin/sh")
        report(f"Started by root: the hub and its servers run under uid {UNPRIVILEGED}.")
    program = str(VENV / "bin" / "jupyterhub-gpu")
    os.execve(program, [program, "demo", *words, *([] if asked.dir else ["--dir", str(folder)])], env)
