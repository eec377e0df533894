"""Which small mistakes in the rules would a test notice? A random sample of them is made, each in a copy of the tree.

    python -m benchmarks.mutations --count 40 --seed 1 [--near] [--only hub_extensions/core/queue/model.py]

A row for each: where, before → after, the test that failed, or NOT NOTICED. Mutated are `hub_extensions/core` and the
engine of the service. First every test runs once as it is, and which functions it runs is kept in
`.work/mutations.json`; a mutation is shown to the tests that run its function, those of the same subject first. With
`--near` these are the tests that start no program of ours. The mutated code runs where it sees no process but its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mistakes import mistakes

ROOT = Path(__file__).parents[1]
NOTES = ROOT / ".work" / "mutations.json"
AWAY = ("browser", "cluster", "contrast", "docs", "gpu", "loop")
PROGRAMS = re.compile(
    r"needs\(|real_hub|played_cluster|fake_nvml|tests\.hubs import (?!ROOT$)|-m\", \"hub_ext|subprocess", re.MULTILINE
)
LIBRARIES = (
    "alembic.command", "click.testing", "pydantic", "sqlalchemy.dialects.sqlite", "tornado.httpclient", "yaml",
)  # fmt: skip
"""Imported once, before the forks."""
RUN_SECONDS, TEST_SECONDS = 900, 90


def subjects() -> list[str]:
    """The modules that are mutated, as paths below the root."""
    folders = [ROOT / "hub_extensions" / name for name in ("core", "hub_service/engine")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in files if path.name != "__init__.py")


def test_files(near: bool) -> list[str]:
    """The files with tests of the package that need no browser, cluster or card; `near`: and start no program."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        programs = set(PROGRAMS.findall(text)) - ({"subprocess"} if "hub_service/" in name else set())
        if name.split("/")[1] not in AWAY and "hub_ext" in text + name and not (near and programs):
            found.append(name)
    return found


class Noted:
    """Inside pytest: keeps the chosen tests in their order, and tells `out` what failed or, `watching`, what ran."""

    def __init__(self, out: Path, chosen: Sequence[str] = (), watching: str = "") -> None:
        self.out, self.watching = out, watching
        self.order = {test: at for at, test in enumerate(chosen)}
        self.ran: dict[int, Any] = {}
        self.began = 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order:
            items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell({"failed": report.nodeid})

    def pytest_runtest_logstart(self) -> None:
        self.ran, self.began = {}, time.process_time()
        if self.watching:
            sys.settrace(self.entered)
            threading.settrace(self.entered)

    def entered(self, frame: Any, event: str, argument: object) -> None:
        self.ran[id(frame.f_code)] = frame.f_code  # kept, so that no other code gets its id

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tell({"failed": report.nodeid})
        elif self.watching and report.when == "call" and report.passed:
            sys.settrace(None)
            spent, root = time.process_time() - self.began, len(self.watching) + 1
            ours = [code for code in self.ran.values() if code.co_filename.startswith(self.watching)]
            ran = sorted({f"{code.co_filename[root:]}:{code.co_name}" for code in ours})
            self.tell({"test": report.nodeid, "seconds": round(spent, 3), "ran": ran})

    def tell(self, row: dict[str, Any]) -> None:
        with self.out.open("a") as out:
            out.write(json.dumps(row) + "\n")


class Copy:
    """A copy of the tree, and runs of pytest in it. Libraries are imported here once: every run is a fork."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.out, self.writes = folder / "tree", folder / "out", 0
        ignored = shutil.ignore_patterns(".git", ".work", "node_modules", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, self.tree, ignore=ignored, symlinks=True)
        for plugin in importlib.metadata.entry_points(group="pytest11"):
            plugin.load()
        for name in LIBRARIES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def write(self, name: str, text: str) -> None:
        """So that no compiled file of the one before passes for this one's."""
        self.writes += 1
        (self.tree / name).write_text(text)
        os.utime(self.tree / name, (1e9 + self.writes, 1e9 + self.writes))

    def run(self, files: Sequence[str], chosen: Sequence[str] = (), watch: bool = False) -> list[dict[str, Any]]:
        """What pytest told; a run that was stopped says so."""
        self.out.unlink(missing_ok=True)
        pid = os.fork()
        if not pid:
            self._inside(files, chosen, watch)
        given_up = time.monotonic() + (7200 if watch else RUN_SECONDS)
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            time.sleep(0.05)
            if time.monotonic() > given_up:
                os.killpg(pid, signal.SIGKILL)
                ended = os.waitpid(pid, 0)
                break
        rows = [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []
        code = os.waitstatus_to_exitcode(ended[1])
        return rows if watch or code in (0, 1, 5) or rows else [{"failed": f"the run was broken off ({code})"}]

    def _inside(self, files: Sequence[str], chosen: Sequence[str], watch: bool) -> None:
        os.setsid()
        os.chdir(self.tree)
        quiet = os.open(self.out.with_suffix(".log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ["PYTHONPATH"] = str(self.tree)
        os.environ.pop("TEST_REPORT", None)
        sys.path[:] = [str(self.tree), *(each for each in sys.path if each not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.split(".")[0] in ("benchmarks", "hub_extensions", "tests")]:
            del sys.modules[name]
        import hypothesis

        found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # the smallest example is of no use here
        few = {"max_examples": 5} if watch else {}  # enough to see what runs
        hypothesis.settings.register_profile("found", derandomize=True, database=None, phases=found, **few)
        hypothesis.settings.load_profile("found")
        noted = Noted(self.out, chosen, str(self.tree) if watch else "")
        options = f"-q -p no:cacheprovider -p no:xdist --timeout={TEST_SECONDS}".split() + ([] if watch else ["-x"])
        code = pytest.main([*options, *files], plugins=[noted])
        sys.stdout.flush()
        os._exit(int(code))


def known_tests(tree: Copy, files: Sequence[str], notes: Path) -> dict[str, dict[str, Any]]:
    """For every test that passes: how long it takes, and what it runs. Files that did not change are not run again."""
    kept = json.loads(notes.read_text()) if notes.exists() else {}
    for file in files:
        now = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
        if kept.get(file, {}).get("file") != now:
            rows = tree.run([file], watch=True)
            for row in rows:
                if "failed" in row:
                    print(f"fails as it is, so it is not asked: {row['failed']}")
            kept[file] = {"file": now, "tests": {row["test"]: row for row in rows if "test" in row}}
            notes.parent.mkdir(exist_ok=True)
            notes.write_text(json.dumps(kept))
    return {test: row for file in files for test, row in kept[file]["tests"].items()}


def asked(tests: dict[str, dict[str, Any]], subject: str, function: str) -> list[str]:
    """The tests that run this function, or anything of the module: of the same subject first, then the quick ones."""
    runs = f"{subject}:{function}"
    name, package = Path(subject).stem, Path(subject).parent.name
    found = []
    for test, row in tests.items():
        file = test.split("::")[0]
        text = "" if function else (ROOT / file).read_text()
        reads = f".{name} import" in text or f".{package} import" in text
        if runs in row["ran"] or reads or (not function and any(each.startswith(runs) for each in row["ran"])):
            own = name in Path(file).stem or Path(file).parent.name == package
            found.append((name not in Path(file).stem, not own, row["seconds"], test))
    return [test for *_, test in sorted(found)]


def noticed(tree: Copy, chosen: Sequence[str]) -> str:
    """The test that fails, or "". A few first: most mistakes are noticed by them."""
    for some in (chosen[:12], chosen[12:]):
        files = list(dict.fromkeys(test.split("::")[0] for test in some))
        rows = tree.run(files, some) if some else []
        if failed := next((row["failed"] for row in rows if "failed" in row), ""):
            return str(failed)
    return ""


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:87] + "..."


def main() -> None:
    """Make the sample, ask the tests, print the rows."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.mutations")
    options.add_argument("--count", type=int, default=40)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--near", action="store_true", help="only tests that start no program")
    options.add_argument("--only", help="mutate this file only")
    options.add_argument("--list", action="store_true", help="print the sample, try nothing")
    chosen = options.parse_args()
    names = [chosen.only] if chosen.only else subjects()
    made = [(name, each) for name in names for each in mistakes((ROOT / name).read_text())]
    sample = random.Random(chosen.seed).sample(made, min(chosen.count, len(made)))
    if chosen.list:
        for name, each in sample:
            print(f"{name}:{each.line}  {short(each.before)}  →  {short(each.after)}")
        return
    if not os.environ.get("ALONE"):  # a mutated rule may signal the wrong processes
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        alone += [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
        command = [*alone, sys.executable, "-m", "benchmarks.mutations", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=os.environ | {"ALONE": "1"}, cwd=ROOT).returncode)
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Copy(Path(folder))
        tests = known_tests(tree, test_files(chosen.near), NOTES)
        for name, each in sample:
            source = (ROOT / name).read_text()
            tree.write(name, each.of(source))
            by = noticed(tree, asked(tests, name, each.function))
            tree.write(name, source)
            count += bool(by)
            row = f"{name}:{each.line}  {short(each.before)}  →  {short(each.after)}"
            print(f"{row}  {'noticed by ' + by if by else 'NOT NOTICED'}", flush=True)
    print(f"{count} of {len(sample)} noticed ({100 * count / max(1, len(sample)):.0f} %)")


if __name__ == "__main__":
    main()
