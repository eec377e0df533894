"""``scripts/test``: set up, run the checks and the tests on both generations of JupyterHub, and say what ran.

The tests run as a plain user; started by root, those that need root run as root beside them. What was not run, and why,
each run of pytest says itself (``tests/report.py``).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from account import check_reach, for_owner, is_root, own_folder
from checks import checks
from cluster import preparing_cluster
from demo import WAITING, prepare
from lanes import Job, Over, run_lanes
from node_env import copy_panel_sources, prepare_sso
from place import ROOT, RUN, VENV, VENV_HUB5, WORK, environment
from python_env import install_package, prepare_venv
from release import prepare_release
from steps import Trouble, beating, only_one, pass_on, report
from tools import prepare_browser, prepare_compiler, prepare_demo_apps, prepare_proxies
from unsteady import Totals, tests_to_try_again, totals_of

FINE = (0, 5)
"""pytest's exit statuses "all passed" and "none selected"."""
MOST_WORKERS = 5
"""For more the tests have no ports (``tests/ports.py``)."""
ROOM_IN_MEMORY = 4 << 30
"""Bytes. The whole run keeps less than a quarter of it."""
JUNIT = ("--junitxml", "--junit-xml")


def asked_by(words: Sequence[str]) -> argparse.Namespace:
    """``--quick`` or ``--whole`` (else the usual tests), ``--gpu``, ``--set-up-only``; `selection`: words of pytest.

    ``--help`` prints and exits.
    """
    parser = argparse.ArgumentParser(
        prog="./scripts/test",
        description="Run the checks and the tests. What they need goes into ./.work. All other words go to pytest.",
        allow_abbrev=False,
    )
    tiers = {
        "quick": "the checks, and what starts no program",
        "whole": "everything; as root also on a Kubernetes cluster (CONTRIBUTING.md)",
    }
    for tier, text in tiers.items():
        parser.add_argument(f"--{tier}", dest="tier", action="store_const", const=tier, default="usual", help=text)
    parser.add_argument("--gpu", action="store_true", help="also what needs a real card")
    parser.add_argument("--set-up-only", action="store_true", help="make what the tests need, and run none")
    asked, selection = parser.parse_known_args(words)
    asked.selection = selection
    return asked


def test(words: list[str]) -> int:
    """Set up, run, report. Returns the exit status: 0 when nothing failed and, with CI=true, nothing was left out."""
    asked = asked_by(words)
    env = environment()
    began = time.monotonic()
    if is_root():
        check_reach()
    report(f"Setting up in {WORK}")
    with only_one("set-up", WAITING), beating("Setting up"):
        # only root's tests use the cluster; a set-up alone is also made for another who runs them
        _prepare(env, asked.tier, with_cluster=asked.tier == "whole" and (is_root() or asked.set_up_only))
    if asked.set_up_only:
        report("Set up.")
        return 0
    with only_one("test", "Another run of the tests is under way in this clone; waiting for it"):
        return _run(asked, env, began)


def _prepare(env: dict[str, str], tier: str, *, with_cluster: bool) -> None:
    with preparing_cluster(env, wanted=with_cluster):
        prepare(env, "test")
        if tier != "quick":
            prepare_sso(env)
            prepare_venv(VENV_HUB5, "hub5", env)
            install_package(VENV_HUB5, env)
        env["C_COMPILER_MISSING"] = prepare_compiler(env)
        env["PROXIES_MISSING"] = prepare_proxies(env) if tier == "whole" else ""
        env["DEMO_APPS_MISSING"] = prepare_demo_apps(env) if tier == "whole" else ""
        if tier == "whole":
            prepare_release(env)
        browser, missing = prepare_browser(env) if tier != "quick" else (None, "")
        env["CHROMIUM_PATH"] = str(browser or "")
        env["CHROMIUM_MISSING"] = missing
    own_folder(RUN)
    copy_panel_sources()


def _run(asked: argparse.Namespace, env: dict[str, str], began: float) -> int:
    for old in (*RUN.glob("*.now"), *RUN.glob("*.json")):
        old.unlink()
    own_folder(RUN / "home")
    (RUN / "home-of-root").mkdir(exist_ok=True)
    env.update(
        HUB5_PYTHON=str(VENV_HUB5 / "bin" / "python"),
        HYPOTHESIS_STORAGE_DIRECTORY=str(RUN / "hypothesis"),
        PYTHONDONTWRITEBYTECODE="1",
        TEST_GPU="1" if asked.gpu else "",
        TEST_CLUSTER="1" if asked.tier == "whole" else "",
        TEST_PATIENCE=os.environ.get("TEST_PATIENCE", "3"),
        **_short_lived(),
    )
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        env.pop(name, None)
    _make_bytecode(env)
    tests = [
        [_pass(name, lane, asked, env["PATH"]) for name in names]
        for lane, names in enumerate(lanes(asked.tier, root=is_root(), part=bool(asked.selection)))
    ]
    linters = checks(nice=0 if asked.tier == "quick" else 10)
    passes = [job for lane in tests for job in lane]
    over = run_lanes([*tests, *linters], env, _current)
    unsteady = _try_again(passes, over, asked, env)
    report("\n== Checks")
    counts = [_check(job, over[job.name]) for lane in linters for job in lane]
    counts += [_totals(job, over[job.name], unsteady.get(job.name, ())) for job in passes]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report(
        f"\nTook {time.monotonic() - began:.0f} s, and {used.ru_utime + used.ru_stime:.0f} s of CPU, set-up included."
    )
    if asked.tier != "whole":
        report(f"This was the {asked.tier} run. ./scripts/test --whole, as root, runs everything (CONTRIBUTING.md).")
    passed, failed, left_out = map(sum, zip(*counts, strict=True))
    report(f"{passed} passed, {failed} failed, {left_out} skipped")
    return 1 if failed or any(over[job.name].code not in FINE for job in passes if job.name not in unsteady) else 0


def _short_lived() -> dict[str, str]:
    """Where the tests keep what they delete: in memory, where a commit takes 0.05 ms and not 4."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM_IN_MEMORY
    return {"TMPDIR": str(memory)} if roomy and "TMPDIR" not in os.environ else {}


def _make_bytecode(env: Mapping[str, str]) -> None:
    """See ``bytecode.py``. Where it cannot be made, each worker makes its own, and says what is wrong."""
    words = [VENV / "bin" / "python", Path(__file__).with_name("bytecode.py"), ROOT / "hub_extensions", ROOT / "tests"]
    subprocess.run(words, env=dict(env), stderr=subprocess.DEVNULL, check=False, **for_owner(ROOT))


def _try_again(
    passes: Sequence[Job], over: Mapping[str, Over], asked: argparse.Namespace, env: dict[str, str]
) -> dict[str, Sequence[str]]:
    """Run the tests that failed in CI once more, alone. Pass -> its tests, where all of them passed then."""
    if env.get("CI", "").lower() not in ("true", "1"):
        return {}
    first = {job.name: totals_of(RUN, job.name) for job in passes if over[job.name].code in (*FINE, 1)}
    steady: dict[str, Sequence[str]] = {}
    for name, tests in tests_to_try_again(first, len(passes)).items():
        report(f"\nOnce more, alone: {', '.join(tests)}")
        lane = int(next(job for job in passes if job.name == name).env["TEST_LANE"])
        job = _pass(name, lane, asked, env["PATH"], again=tests)
        done = run_lanes([[job]], {**env, "CI": ""}, _current)[job.name]
        second = totals_of(RUN, job.name)
        if done.code == 0 and second == Totals(passed=len(tests)):
            steady[name] = tests
    return steady


def lanes(tier: str, *, root: bool, part: bool = False) -> list[list[str]]:
    """The runs of pytest: the longest, and beside it those on the older hub and those of root, which begin first.

    The quick run is in two halves (``tests/tiers.py``), unless only a `part` of it was asked for.
    """
    if tier == "quick":
        return [["hub6"]] if part else [["hub6-first"], ["hub6-second"]]
    return [["hub6"], [*(["root", "root5"] if root and tier == "whole" else []), "hub5"]]


def workers() -> int:
    """How many tests run at a time: most of a test that starts programs is waiting, so more than there are cores."""
    asked = os.environ.get("TEST_WORKERS") or str(max(2, min(MOST_WORKERS, 2 * len(os.sched_getaffinity(0)))))
    if not asked.isdecimal() or not 1 <= int(asked) <= MOST_WORKERS:
        raise Trouble(f"TEST_WORKERS is a number from 1 to {MOST_WORKERS} (more share their ports), and not {asked!r}.")
    return int(asked)


def own_report(words: Sequence[str], name: str) -> list[str]:
    """The words of pytest for this pass: a file for junit is one file a pass. pytest takes its name in four ways."""
    own: list[str] = []
    for word in words:
        option, equals, file = word.partition("=")
        if own and own[-1] in JUNIT:
            own.append(_of_pass(word, name))
        else:
            own.append(f"{option}={_of_pass(file, name)}" if equals and option in JUNIT else word)
    return own


def _of_pass(file: str, name: str) -> str:
    return f"{file.removesuffix('.xml')}-{name}.xml"


def _pass(name: str, lane: int, asked: argparse.Namespace, path: str, again: Sequence[str] = ()) -> Job:
    """`again`: only these tests, one after the other."""
    as_root, older = name.startswith("root"), name.endswith("5")
    full_name = f"{name}-again" if again else name
    venv = VENV_HUB5 if older else VENV
    beside_root = asked.tier == "whole" and is_root() and not as_root
    number = workers()
    if beside_root:
        number = min(number, 3)
    elif lane:
        number = 2 if as_root else 1  # a control plane for each is enough for two cores; the older hub has one file
    begin = (venv / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-rfE")
    half = name.partition("-")[2]
    if asked.tier == "quick":  # nothing to wait for
        spread: tuple[str, ...] = (f"--half={half}",) if half else ()
    else:
        spread = ("-n", str(number), "--dist", "loadscope", "--no-loadscope-reorder")
    selection = [*own_report(asked.selection, full_name), *again, *(["-n", "0"] if again else [])]
    chosen = {"--only-root": as_root, "--without-root": beside_root, "--only-hub": older}
    env = {
        "TEST_LANE": str(lane),
        "TEST_TOTALS": str(RUN / f"{full_name}.json"),
        "TEST_CURRENT": str(RUN / f"{name}.now"),
        "PATH": os.pathsep.join([str(venv / "bin"), path]),
        "VIRTUAL_ENV": str(venv),
        "HOME": str(RUN / ("home-of-root" if as_root else "home")),
        **({"USER": "nobody", "LOGNAME": "nobody"} if is_root() and not as_root else {}),
    }
    words = (*begin, f"--tier={asked.tier}", *spread, *(word for word in chosen if chosen[word]), *selection)
    which = f"{', as root' if as_root else ''}{f', the {half} half' if half else ''}"
    title = f"Tests on hub {'5.5' if older else '6.1'}{which}"
    return Job(full_name, words, env=env, title=title, loud=lane == 0, unprivileged=is_root() and not as_root)


def _check(job: Job, over: Over) -> tuple[int, int, int]:
    report(f"  {job.name}: {'failed' if over.code else 'passed'}{', and nothing changed since' if over.before else ''}")
    if over.code:
        pass_on(over.output + b"\n")
    return int(over.code == 0), int(over.code != 0), 0


def _totals(job: Job, over: Over, unsteady: Sequence[str] = ()) -> tuple[int, int, int]:
    """Passed, failed, not run, as ``tests/report.py`` counted. `unsteady`: the failed ones, where all passed alone."""
    totals = totals_of(RUN, job.name)
    if over.code not in (*FINE, 1) or totals is None:
        report(f"pytest itself broke off in: {job.title}.")
    totals = totals or Totals()
    for test in totals.failed:
        report(
            f"Unsteady: {test} ({job.title}) failed, and passed when it ran once more, alone: mend it."
            if unsteady
            else f"Failed: {test} ({job.title})"
        )
    return totals.passed + len(unsteady), len(totals.failed) - len(unsteady), totals.not_run


def _current() -> str:
    try:
        told = [file.read_text(errors="replace").strip() for file in sorted(RUN.glob("*.now"))]
        running = " and ".join(filter(None, told))
    except OSError:
        running = ""
    return f"Tests ({running})" if running else "Tests and checks"
