"""The set-up of scripts/demo and scripts/test: broken off half-way, started twice, no network, an old Python."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.set_up_code import ROOT, begin, copy_set_up, run
from tests.patience import patient

pytestmark = pytest.mark.programs


class IndexThatAnswersAnything(http.server.BaseHTTPRequestHandler):
    """A package index with one pip wheel whose content is not the locked one."""

    wheel = ""

    def do_GET(self) -> None:
        name = type(self).wheel
        page = f'<a href="/files/{name}">{name}</a>'.encode() if self.path == "/simple/pip/" else b"not a wheel"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copy_set_up(tmp_path)


@pytest.fixture
def index() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), IndexThatAnswersAnything)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    server.shutdown()
    server.server_close()


STEP = """
from pathlib import Path
from place import WORK
from steps import step, say
made = WORK / "made"
def act():
    WORK.mkdir(exist_ok=True)
    made.write_text("half")
    say("HALF")
    {middle}
    made.write_text("whole")
step("one", "One", "inputs", [made], act)
print("state:", made.read_text())
"""


def test_a_step_that_was_killed_half_way_is_done_again(clone: Path) -> None:
    with begin(clone, STEP.format(middle="sys.stdin.read() if False else __import__('time').sleep(60)")) as child:
        assert child.stdout is not None
        assert any("HALF" in line for line in child.stdout)
        child.send_signal(signal.SIGKILL)
    assert (clone / ".work" / "made").read_text() == "half"
    assert "state: whole" in run(clone, STEP.format(middle="pass"))


def test_a_finished_step_is_not_done_twice_unless_what_it_made_is_gone(clone: Path) -> None:
    assert "HALF" in run(clone, STEP.format(middle="pass"))
    assert "HALF" not in run(clone, STEP.format(middle="pass"))
    (clone / ".work" / "made").unlink()
    assert "HALF" in run(clone, STEP.format(middle="pass"))


def test_a_second_set_up_waits_for_the_first_and_says_so(clone: Path) -> None:
    hold = "from steps import only_one\nwith only_one('set-up', 'Another set-up runs'):\n    print('mine')\n    input()"
    words = [
        sys.executable,
        "-I",
        "-B",
        "-u",
        "-c",
        f"import sys; sys.path.insert(0, {str(clone / 'scripts/prepare')!r})\n{hold}",
    ]
    with subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None and first.stdin is not None
        assert first.stdout.readline() == "mine\n"
        with begin(clone, hold.replace("    input()", "    pass")) as second:
            assert second.stdout is not None
            assert f"Another set-up runs (process {first.pid})" in second.stdout.readline()
            first.stdin.write("\n")
            first.stdin.flush()
            assert second.stdout.readline() == "mine\n"


def test_pip_is_taken_only_with_the_locked_hash(clone: Path, index: str) -> None:
    lock = (clone / "requirements" / "bootstrap.txt").read_text()
    version = next(line for line in lock.splitlines() if line.startswith("pip==")).split("==")[1].split()[0]
    IndexThatAnswersAnything.wheel = f"pip-{version}-py3-none-any.whl"
    fetch = (
        "from index import fetch_pip\nfrom steps import Trouble\nfrom place import WORK\n"
        "try:\n    print('kept', fetch_pip(WORK).name)\nexcept Trouble as trouble:\n    print(trouble)"
    )
    settings = {"PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "no_proxy": "127.0.0.1"}
    assert "differs from requirements/bootstrap.txt" in run(clone, fetch, **settings)
    good = hashlib.sha256(b"not a wheel").hexdigest()
    (clone / "requirements" / "bootstrap.txt").write_text(f"pip=={version} \\\n    --hash=sha256:{good}\n")
    assert f"kept pip-{version}-py3-none-any.whl" in run(clone, fetch, **settings)


def test_an_index_that_does_not_answer_is_a_sentence_without_its_password(clone: Path, free_port: int) -> None:
    fetch = "from index import fetch_pip\nfrom steps import Trouble\nfrom place import WORK\n"
    fetch += "try:\n    fetch_pip(WORK)\nexcept Trouble as trouble:\n    print(trouble)"
    address = f"http://somebody:geheim@127.0.0.1:{free_port}/simple"
    said = run(clone, fetch, PIP_INDEX_URL=address, PIP_FIND_LINKS="", no_proxy="127.0.0.1")
    assert "did not answer" in said
    assert "geheim" not in said and "Traceback" not in said


def test_what_could_change_our_hub_is_not_passed_on_and_what_the_registries_need_is(clone: Path) -> None:
    code = "from place import environment\nprint(sorted(environment().items()))"
    said = run(
        clone, code, JUPYTERHUB_API_TOKEN="x1", CONFIGPROXY_AUTH_TOKEN="x2", PYTHONPATH="/x3", JUPYTER_PATH="/x4",
        PIP_INDEX_URL="https://packages.test/simple", npm_config_registry="https://npm.test", https_proxy="http://proxy.test",
    )  # fmt: skip
    assert not [word for word in ("x1", "x2", "/x3", "/x4") if word in said]
    assert "https://packages.test/simple" in said and "https://npm.test" in said and "http://proxy.test" in said


def test_a_python_that_is_too_old_is_a_sentence(clone: Path, tmp_path: Path) -> None:
    old = tmp_path / "bin"
    old.mkdir()
    (old / "python3").write_text('#!/bin/sh\necho "/usr/bin/python3 is Python 3.8"\nexit 1\n')
    (old / "python3").chmod(0o755)
    for tool in ("sh", "dirname"):
        (old / tool).symlink_to(shutil.which(tool) or "/nowhere")
    finder = clone / "scripts" / "find-python.sh"
    finder.write_text(finder.read_text().replace("/usr/bin/python3 /usr/local/bin/python3", ""))
    done = subprocess.run(
        [clone / "scripts" / "demo"],
        env={"PATH": str(old)},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("No Python from 3.10 to 3.14 can be used here: /usr/bin/python3 is Python 3.8.")


@pytest.mark.parametrize("script", ["demo", "test", "find-python.sh"])
def test_the_commands_are_posix_sh(script: str) -> None:
    shell = shutil.which("dash") or "sh"
    assert subprocess.run([shell, "-n", ROOT / "scripts" / script], check=False, timeout=patient(20)).returncode == 0


@pytest.mark.needs("root")
def test_a_clone_that_is_closed_to_others_is_refused_before_anything_starts(clone: Path) -> None:
    (clone / "setup.py").write_text("#")
    clone.chmod(0o700)
    code = "from account import check_reach\nfrom steps import Trouble\n"
    code += "try:\n    check_reach()\nexcept Trouble as trouble:\n    print(trouble)"
    assert "cannot reach this clone" in run(clone, code)
    assert not (clone / ".work").exists()


def test_the_closing_line_counts_what_ran_and_the_table_says_why_not(clone: Path, tmp_path: Path) -> None:
    report = tmp_path / "reports"
    report.mkdir()
    (report / "report-everything.jsonl").write_text(
        '{"kind": "collected", "test": "tests/a.py::one", "hub": true}\n'
        '{"kind": "collected", "test": "tests/a.py::two", "hub": false}\n'
    )
    (report / "report-hub6.jsonl").write_text(
        '{"kind": "collected", "test": "tests/a.py::one", "hub": true}\n'
        '{"kind": "result", "test": "tests/a.py::one", "outcome": "passed", "reason": "", "allowed": false}\n'
    )
    code = (
        f"from pathlib import Path\nfrom table import *\nresults = read_reports(Path({str(report)!r}))\n"
        "checks = [Check('ruff', 'failed', '')]\nprint_table(checks, results)\nprint(closing_line(checks, results))"
    )
    said = run(clone, code)
    assert said.splitlines()[-1] == "1 passed, 1 failed, 2 skipped"
    assert "tests/a.py (hub 5.5), 1: not selected" in said
