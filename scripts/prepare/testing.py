"""``scripts/test``: set up, run the checks and the tests on both generations of JupyterHub, and say what ran.

The tests run as a plain user; started by root, those that need root run as root after the others.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from account import check_reach, is_root, own_folder
from checks import Checks
from cluster import prepare_cluster
from demo import WAITING, prepare
from kept import STOP, watched
from node_env import copy_panel_sources
from place import FAKE_NVML, ROOT, RUN, VENV, VENV_HUB5, WORK, environment
from python_env import install_package, prepare_hub5
from steps import beating, only_one, pass_on, say
from table import GENERATIONS, Check, Result, closing_line, print_table, read_reports
from tools import prepare_browser, prepare_fake_nvml

NOW = RUN / "now"


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; `selection` goes to pytest as it is."""

    tier: str
    gpu: bool
    set_up_only: bool
    selection: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> Asked:
        """``--quick`` or ``--whole`` (else the usual tests), ``--gpu``, ``--set-up-only``, and words of pytest."""
        tier = "whole" if "--whole" in words else "quick" if "--quick" in words else "usual"
        ours = ("--quick", "--whole", "--gpu", "--set-up-only")
        return cls(tier, "--gpu" in words, "--set-up-only" in words, tuple(word for word in words if word not in ours))


@dataclass(frozen=True)
class Pass:
    """One run of pytest. `workers`: how many tests at a time."""

    name: str
    venv: Path
    words: tuple[str, ...]
    workers: int


def test(words: list[str]) -> int:
    """Set up, run, report. Returns the exit status: 0 when nothing failed and, with CI=true, nothing was left out."""
    asked = Asked.of(words)
    env = environment()
    began = time.monotonic()
    if is_root():
        check_reach()
    say(f"Setting up in {WORK}")
    with only_one("set-up", WAITING), beating("Setting up"):
        # only root's tests use the cluster; a set-up alone is also made for another who runs them
        _prepare(env, asked.tier, with_cluster=asked.tier == "whole" and (is_root() or asked.set_up_only))
    if asked.set_up_only:
        say("Set up.")
        return 0
    with only_one("test", "Another run of the tests is under way in this clone; waiting for it"):
        return _run(asked, env, began)


def _prepare(env: dict[str, str], tier: str, *, with_cluster: bool) -> None:
    prepare(env, tests=True)
    if tier != "quick":
        prepare_hub5(env)
        install_package(VENV_HUB5, env)
    env["FAKE_NVML_MISSING"] = prepare_fake_nvml(env)
    if not env["FAKE_NVML_MISSING"]:
        env["FAKE_NVML"] = str(FAKE_NVML.parent)
    browser, missing = prepare_browser(env) if tier != "quick" else (None, "")
    env["CHROMIUM_PATH"] = str(browser or "")
    env["CHROMIUM_MISSING"] = missing
    env["CLUSTER_MISSING"] = prepare_cluster(env) if with_cluster else ""
    own_folder(RUN)
    copy_panel_sources()


def _run(asked: Asked, env: dict[str, str], began: float) -> int:
    for old in RUN.glob("report-*.jsonl"):
        old.unlink()
    own_folder(RUN / "home")
    own_folder(NOW)
    (RUN / "home-of-root").mkdir(exist_ok=True)
    env.update(
        HUB5_PYTHON=str(VENV_HUB5 / "bin" / "python"),
        HYPOTHESIS_STORAGE_DIRECTORY=str(RUN / "hypothesis"),
        PYTHONDONTWRITEBYTECODE="1" if is_root() else "",  # else root's files lie in somebody's clone
        TEST_GPU="1" if asked.gpu else "",
        TEST_CLUSTER="1" if asked.tier == "whole" else "",
        TEST_PATIENCE=os.environ.get("TEST_PATIENCE", "3"),
    )
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        env.pop(name, None)
    if any(not word.startswith("-") for word in asked.selection):  # what there is besides
        _pytest(Pass("everything", VENV, ("--collect-only", "-q", "tests"), 0), (), env, pass_on=lambda _: None)
    checks, codes = _side_by_side(asked, env)
    # pytest's 0, 1 and 5: all passed, some failed, none selected
    broken = [name for name, code in codes.items() if code not in (0, 1, 5)]
    results = read_reports(RUN)
    say("")
    print_table(checks, results)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"\nTook {time.monotonic() - began:.0f} s, and {used.ru_utime + used.ru_stime:.0f} s of CPU, set-up included.")
    if asked.tier != "whole":
        say(f"This was the {asked.tier} run. ./scripts/test --whole, as root, runs everything (CONTRIBUTING.md).")
    return verdict(checks, results, broken, strict=os.environ.get("CI", "").lower() in ("true", "1"))


def lanes(tier: str, *, root: bool) -> list[list[Pass]]:
    """What runs beside each other: the passes of a plain user, and those of root."""
    tests = workers(tier)
    plain = [Pass("hub6", VENV, (f"--tier={tier}",), tests)]
    if tier == "quick":
        return [plain]
    older = Pass("hub5", VENV_HUB5, (f"--tier={tier}", "-m", "hub"), tests)
    if tier == "usual":
        return [plain, [replace(older, workers=1)]]  # one file: beside the others
    plain.append(older)
    if not root:
        return [plain]
    plain = [replace(one, workers=min(tests, 3)) for one in plain]  # root's tests run beside them
    of_root = (f"--tier={tier}", "--only-root")
    # a control plane for each worker is enough for two cores
    return [plain, [Pass("root", VENV, of_root, 2), Pass("root5", VENV_HUB5, (*of_root, "-m", "hub"), 2)]]


def _side_by_side(asked: Asked, env: dict[str, str]) -> tuple[list[Check], dict[str, int]]:
    """The checks and every lane at once; the first lane speaks as it goes on, the others when a pass is over."""
    codes: dict[str, int] = {}
    errors: list[BaseException] = []

    def lane(passes: Sequence[Pass], number: int) -> None:
        try:
            for one in passes:
                said: list[bytes] = []
                mine = {**env, "TEST_LANE": str(number)}
                codes[one.name] = _pytest(one, asked.selection, mine, said.append if number else pass_on)
                pass_on(b"".join(said))
        except BaseException as error:  # noqa: BLE001  (told by the main thread)
            errors.append(error)
            STOP.set()

    planned = lanes(asked.tier, root=is_root())
    threads = [threading.Thread(target=lane, args=(passes, number)) for number, passes in enumerate(planned)]
    with Checks() as checks, beating(lambda: f"Tests{_current()}"):
        checks.begin(env, nice=0 if asked.tier == "quick" else 10)
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
            done = checks.finish()
        finally:
            STOP.set()
            for thread in threads:
                thread.join()
    if errors:
        raise errors[0]
    return done, codes


def verdict(checks: list[Check], results: list[Result], broken: list[str], *, strict: bool) -> int:
    """Say how it went, the closing line last. Returns the exit status; with ``strict`` "not run" is a failure."""
    both = [*checks, *results]
    left_out = [one for one in both if one.outcome == "not run" and not one.allowed] if strict else []
    if broken:
        say(f"pytest itself broke off in: {', '.join(broken)}.")
    if left_out:
        say(f"CI=true: {len(left_out)} not run is a failure.")
    say(closing_line(checks, results))
    return 1 if broken or left_out or any(one.outcome == "failed" for one in both) else 0


def workers(tier: str) -> int:
    """How many tests run at a time: most of a test that starts programs is waiting, so more than there are cores."""
    most = 4 if tier == "quick" else 5  # each worker reads all tests first
    return int(os.environ.get("TEST_WORKERS") or max(2, min(most, 2 * len(os.sched_getaffinity(0)) + 1)))


def own_report(words: Sequence[str], name: str) -> list[str]:
    """The words of pytest for this pass: a file for junit is one file a pass."""
    begin = "--junitxml="
    return [f"{word.removesuffix('.xml')}-{name}.xml" if word.startswith(begin) else word for word in words]


def _pytest(one: Pass, selection: Sequence[str], env: dict[str, str], pass_on: Callable[[bytes], object]) -> int:
    as_root = one.name.startswith("root")
    counting = one.name == "everything"
    now = NOW / one.name
    own_folder(now)
    for old in now.iterdir():
        old.unlink()
    mine = {
        **env,
        "TEST_REPORT": str(RUN / f"report-{one.name}.jsonl"),
        "TEST_CURRENT": str(now),
        "PATH": os.pathsep.join([str(one.venv / "bin"), env["PATH"]]),
        "VIRTUAL_ENV": str(one.venv),
        "HOME": str(RUN / ("home-of-root" if as_root else "home")),
        **({} if not is_root() or as_root else {"USER": "nobody", "LOGNAME": "nobody"}),
    }
    begin = [one.venv / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider", "--color=no"]
    begin += [] if counting else ["-rfE", "-n", str(one.workers), "--dist", "loadscope", "--no-loadscope-reorder"]
    title = "Counting the tests"
    if not counting:
        title = f"Tests on {GENERATIONS[one.name]}{', as root' if as_root else ''}"
    pass_on(f"\n== {title}\n".encode())
    words = [*begin, *one.words, *own_report(selection, one.name)]
    return watched(title, words, ROOT, mine, pass_on, unprivileged=is_root() and not as_root)


def _current() -> str:
    try:
        running = sorted({file.read_text(encoding="utf-8") for file in NOW.glob("*/*")} - {""})
    except OSError:
        return ""
    return f" ({' and '.join(running)})" if running else ""
