"""``scripts/test``: set up, run the checks and the tests on both generations of JupyterHub, and say what ran.

The tests run as a plain user; started by root, those that need root run as root after the others.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from account import check_reach, for_child, is_root, own_folder
from demo import WAITING, prepare
from node_env import copy_panel_sources
from place import FAKE_NVML, NPM, ROOT, RUN, VENV, VENV_HUB5, WORK, environment
from python_env import install_package, prepare_hub5, prepare_test_packages
from steps import BEAT_SECONDS, Trouble, ending, only_one, say
from table import Check, closing_line, print_table, read_reports
from tools import prepare_browser, prepare_fake_nvml


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; `selection` goes to pytest as it is."""

    gpu: bool
    set_up_only: bool
    selection: tuple[str, ...]


def test(words: list[str]) -> int:
    """Set up, run, report. Returns the exit status: 0 when nothing failed and, with CI=true, nothing was left out."""
    ours = {"--gpu", "--set-up-only"}
    asked = Asked("--gpu" in words, "--set-up-only" in words, tuple(word for word in words if word not in ours))
    env = environment()
    if is_root():
        check_reach()
    say(f"Setting up in {WORK}")
    with only_one("set-up", WAITING):
        _prepare(env)
    if asked.set_up_only:
        say("Set up.")
        return 0
    with only_one("test", "Another run of the tests is under way in this clone; waiting for it"):
        return _run(asked, env)


def _prepare(env: dict[str, str]) -> None:
    prepare(env)
    prepare_test_packages(env)
    prepare_hub5(env)
    install_package(VENV_HUB5, env)
    env["FAKE_NVML_MISSING"] = prepare_fake_nvml(env)
    if not env["FAKE_NVML_MISSING"]:
        env["FAKE_NVML"] = str(FAKE_NVML.parent)
    browser, missing = prepare_browser(env)
    env["CHROMIUM_PATH"] = str(browser or "")
    env["CHROMIUM_MISSING"] = missing
    own_folder(RUN)
    copy_panel_sources()


def _run(asked: Asked, env: dict[str, str]) -> int:
    began = time.monotonic()
    for old in RUN.glob("report-*.jsonl"):
        old.unlink()
    own_folder(RUN / "home")
    (RUN / "home-of-root").mkdir(exist_ok=True)
    env.update(
        HUB5_PYTHON=str(VENV_HUB5 / "bin" / "python"),
        HYPOTHESIS_STORAGE_DIRECTORY=str(RUN / "hypothesis"),
        PYTHONDONTWRITEBYTECODE="1",
        TEST_GPU="1" if asked.gpu else "",
        TEST_CURRENT=str(RUN / "current"),
    )
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        env.pop(name, None)
    checks = _checks(env, selected=not asked.selection)
    if asked.selection:
        _pytest("everything", VENV, ["--collect-only", "-q", "tests"], env, quiet=True)
    passes: list[tuple[str, Path, list[str]]] = [("hub6", VENV, []), ("hub5", VENV_HUB5, ["-m", "hub"])]
    if is_root():
        passes += [("root", VENV, ["--only-root"]), ("root5", VENV_HUB5, ["--only-root", "-m", "hub"])]
    # pytest's 0, 1 and 5: all passed, some failed, none selected
    broken = [
        name for name, venv, extra in passes if _pytest(name, venv, [*extra, *asked.selection], env) not in (0, 1, 5)
    ]
    results = read_reports(RUN)
    say("")
    print_table(checks, results)
    say(f"\nTook {time.monotonic() - began:.0f} s.")
    failed = [one for one in [*checks, *results] if one.outcome == "failed"]
    left_out = [one for one in [*checks, *results] if one.outcome == "not run" and not one.allowed]
    if broken:
        say(f"pytest itself broke off in: {', '.join(broken)}.")
    strict = os.environ.get("CI", "").lower() in ("true", "1")
    if strict and left_out:
        say(f"CI=true: {len(left_out)} not run is a failure.")
    say(closing_line(checks, results))
    return 1 if failed or broken or (strict and left_out) else 0


def _checks(env: dict[str, str], *, selected: bool) -> list[Check]:
    cache = WORK / "cache"
    tools = VENV / "bin"
    npm = NPM / "labextension"
    wanted: list[tuple[str, list[str | Path], Path]] = [
        ("ruff", [tools / "ruff", "check", "--cache-dir", cache / "ruff", "."], ROOT),
        ("mypy", [tools / "mypy", "--cache-dir", cache / "mypy"], ROOT),
        ("import-linter", [tools / "lint-imports", "--cache-dir", cache / "import-linter"], ROOT),
        ("tsc", ["npm", "run", "--silent", "check"], npm),
        ("eslint", ["npm", "run", "--silent", "lint"], npm),
        ("prettier", ["npm", "run", "--silent", "format:check"], npm),
    ]
    if any((ROOT / "labextension" / "tests").glob("*")):
        wanted.append(("panel's own tests", ["npm", "run", "--silent", "test"], npm))
    if not selected:
        return [Check(name, "not run", "not selected") for name, _, _ in wanted]
    done = []
    for name, words, folder in wanted:
        output: list[bytes] = []
        code = _watched(name, words, folder, {**env, "PYTHONPATH": str(ROOT)}, output.append)
        say(f"  {name}: {'passed' if code == 0 else 'failed'}")
        if code:
            sys.stdout.write(b"".join(output).decode("utf-8", "replace") + "\n")
        done.append(Check(name, "failed" if code else "passed", ""))
    return done


def _pytest(name: str, venv: Path, words: Sequence[str], env: dict[str, str], *, quiet: bool = False) -> int:
    report = RUN / f"report-{name}.jsonl"
    as_root = name.startswith("root")
    begin = [
        venv / "bin" / "python",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--color=no",
        "-ra" if not quiet else "-q",
    ]
    mine = {
        **env,
        "TEST_REPORT": str(report),
        "PATH": os.pathsep.join([str(venv / "bin"), env["PATH"]]),
        "VIRTUAL_ENV": str(venv),
        "HOME": str(RUN / ("home-of-root" if as_root else "home")),
        **({} if not is_root() or as_root else {"USER": "nobody", "LOGNAME": "nobody"}),
    }
    if not quiet:
        say(f"\n== {name}: {' '.join(words) or 'all tests'}")
    return _watched(
        f"tests ({name})",
        [*begin, *words],
        ROOT,
        mine,
        (lambda _: None) if quiet else _echo,
        unprivileged=is_root() and not as_root,
    )


def _echo(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _watched(
    name: str,
    words: Sequence[str | Path],
    folder: Path,
    env: dict[str, str],
    take: Callable[[bytes], object],
    *,
    unprivileged: bool = False,
) -> int:
    """Run a command, pass its output on, and say that it still runs whenever it is silent. Returns its exit status."""
    try:
        child = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **(for_child() if unprivileged else {}),
        )
    except OSError as error:
        raise Trouble(f"{name} could not be started: {error.strerror} ({words[0]}).") from None
    began = spoken = time.monotonic()
    with ending(child), selectors.DefaultSelector() as selector:
        assert child.stdout is not None
        selector.register(child.stdout, selectors.EVENT_READ)
        while child.poll() is None:
            if selector.select(timeout=0.5):
                chunk = os.read(child.stdout.fileno(), 65536)
                if not chunk:
                    break
                take(chunk)
                if take is _echo:
                    spoken = time.monotonic()
            if time.monotonic() - spoken > BEAT_SECONDS:
                spoken = time.monotonic()
                say(f"    {name}: {spoken - began:.0f} s{_current(env)}")
        os.set_blocking(child.stdout.fileno(), False)
        while chunk := child.stdout.read() or b"":
            take(chunk)
        return child.wait()


def _current(env: dict[str, str]) -> str:
    try:
        return ", in " + Path(env["TEST_CURRENT"]).read_text().strip()
    except (OSError, KeyError):
        return ""
