"""``scripts/test``: set up, run the checks and the tests on both generations of JupyterHub, and say what ran.

The tests run as a plain user; started by root, those that need root run as root after the others.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from account import check_reach, is_root, own_folder
from checks import not_selected, run_checks
from cluster import prepare_cluster
from demo import WAITING, prepare
from kept import watched
from node_env import copy_panel_sources
from place import FAKE_NVML, ROOT, RUN, VENV, VENV_HUB5, WORK, environment
from python_env import install_package, prepare_hub5, prepare_test_packages
from steps import beating, only_one, pass_on, say
from table import GENERATIONS, Check, Result, closing_line, print_table, read_reports
from tools import prepare_browser, prepare_fake_nvml

NOW = RUN / "now"


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; `selection` goes to pytest as it is."""

    gpu: bool
    with_cluster: bool
    set_up_only: bool
    selection: tuple[str, ...]


def test(words: list[str]) -> int:
    """Set up, run, report. Returns the exit status: 0 when nothing failed and, with CI=true, nothing was left out."""
    ours = ("--gpu", "--with-cluster", "--set-up-only")
    asked = Asked(*(word in words for word in ours), tuple(word for word in words if word not in ours))
    env = environment()
    began = time.monotonic()
    if is_root():
        check_reach()
    say(f"Setting up in {WORK}")
    with only_one("set-up", WAITING), beating("Setting up"):
        # only root's tests use the cluster; a set-up alone is also made for another who runs them
        _prepare(env, with_cluster=asked.with_cluster and (is_root() or asked.set_up_only))
    if asked.set_up_only:
        say("Set up.")
        return 0
    with only_one("test", "Another run of the tests is under way in this clone; waiting for it"):
        return _run(asked, env, began)


def _prepare(env: dict[str, str], *, with_cluster: bool) -> None:
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
        TEST_CLUSTER="1" if asked.with_cluster else "",
        TEST_CURRENT=str(NOW),
    )
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        env.pop(name, None)
    checks = not_selected() if asked.selection else run_checks(env)
    if asked.selection:
        _pytest("everything", VENV, ["--collect-only", "-q", "tests"], env)
    side_by_side = ["-n", str(workers()), "--dist", "loadscope", "--no-loadscope-reorder"]
    passes: list[tuple[str, Path, list[str]]] = [
        ("hub6", VENV, side_by_side),
        ("hub5", VENV_HUB5, [*side_by_side, "-m", "hub"]),
    ]
    if is_root():
        passes += [("root", VENV, ["--only-root"]), ("root5", VENV_HUB5, ["--only-root", "-m", "hub"])]
    # pytest's 0, 1 and 5: all passed, some failed, none selected
    broken = [
        name for name, venv, extra in passes if _pytest(name, venv, [*extra, *asked.selection], env) not in (0, 1, 5)
    ]
    results = read_reports(RUN)
    say("")
    print_table(checks, results)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"\nTook {time.monotonic() - began:.0f} s, and {used.ru_utime + used.ru_stime:.0f} s of CPU, set-up included.")
    return verdict(checks, results, broken, strict=os.environ.get("CI", "").lower() in ("true", "1"))


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


def workers() -> int:
    """How many tests run at a time: one a core, but two at least, for most of a test is waiting, and four at most."""
    return max(2, min(4, len(os.sched_getaffinity(0))))


def _pytest(name: str, venv: Path, words: Sequence[str], env: dict[str, str]) -> int:
    quiet = name == "everything"
    as_root = name.startswith("root")
    mine = {
        **env,
        "TEST_REPORT": str(RUN / f"report-{name}.jsonl"),
        "PATH": os.pathsep.join([str(venv / "bin"), env["PATH"]]),
        "VIRTUAL_ENV": str(venv),
        "HOME": str(RUN / ("home-of-root" if as_root else "home")),
        **({} if not is_root() or as_root else {"USER": "nobody", "LOGNAME": "nobody"}),
    }
    begin = [venv / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q" if quiet else "-rfE"]
    title = "Counting the tests" if quiet else f"Tests on {GENERATIONS[name]}{', as root' if as_root else ''}"
    say(f"\n== {title}")
    for old in NOW.iterdir():
        old.unlink()
    with beating(lambda: title + _current()):
        return watched(
            title,
            [*begin, *words],
            ROOT,
            mine,
            (lambda _: None) if quiet else pass_on,
            unprivileged=is_root() and not as_root,
        )


def _current() -> str:
    try:
        running = sorted({file.read_text(encoding="utf-8") for file in NOW.iterdir()} - {""})
    except OSError:
        return ""
    return f" ({' and '.join(running)})" if running else ""
