"""The set-up of scripts/demo and scripts/test: broken off half-way, started twice, no network, an old Python."""

from __future__ import annotations

import ast
import hashlib
import http.server
import io
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from hub_extensions.tools.cli.installation import demo as demo_command
from tests.packaging.set_up_code import ROOT, begin, copy_set_up, run
from tests.patience import patient

pytestmark = pytest.mark.programs


class IndexThatAnswersAnything(http.server.BaseHTTPRequestHandler):
    """A package index with one wheel of uv whose content is not the locked one."""

    wheel, content = "", b""

    def do_GET(self) -> None:
        name = type(self).wheel
        page = f'<a href="/files/{name}#sha256=0">{name}</a>'.encode()
        page = page if self.path == "/simple/uv/" else type(self).content
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
from steps import NOTE, step, report
made = WORK / "one" / "made"
def act():
    made.write_text("half")
    report("HALF")
    {middle}
    made.write_text("whole")
step("One", WORK / "one" / NOTE, "{inputs}", act)
print("state:", made.read_text())
"""


def code_of_a_step(middle: str = "pass", inputs: str = "inputs") -> str:
    return STEP.format(middle=middle, inputs=inputs)


def test_a_step_that_was_killed_half_way_is_done_again(clone: Path) -> None:
    with begin(clone, code_of_a_step("__import__('time').sleep(60)")) as child:
        assert child.stdout is not None
        assert any("HALF" in line for line in child.stdout)
        child.send_signal(signal.SIGKILL)
    assert (clone / ".work" / "one" / "made").read_text() == "half"
    assert "state: whole" in run(clone, code_of_a_step())


def test_a_finished_step_is_not_done_twice_unless_its_inputs_changed_or_what_it_made_is_gone(clone: Path) -> None:
    assert "HALF" in run(clone, code_of_a_step())
    assert "HALF" not in run(clone, code_of_a_step())
    (clone / ".work" / "one" / "left over").touch()
    assert "HALF" in run(clone, code_of_a_step(inputs="others"))
    assert not (clone / ".work" / "one" / "left over").exists()
    shutil.rmtree(clone / ".work" / "one")
    assert "HALF" in run(clone, code_of_a_step(inputs="others"))


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


FETCH = """
from index import fetch_uv
from place import WORK
from steps import Trouble
WORK.mkdir()
try:
    fetch_uv(WORK)
    print("kept", (WORK / "uv").read_text())
except Trouble as trouble:
    WORK.rmdir()
    print(trouble)
"""


def test_uv_is_taken_only_with_the_locked_hash(clone: Path, index: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("uv-7.7.data/scripts/uv", "a program")
    IndexThatAnswersAnything.content = content.getvalue()
    libc = "manylinux_2_17" if platform.libc_ver()[0] == "glibc" else "musllinux_1_1"
    IndexThatAnswersAnything.wheel = f"uv-7.7-py3-none-{libc}_{platform.machine()}.whl"
    lock = clone / "requirements" / "bootstrap.txt"
    lock.write_text(f"uv==7.7 \\\n    --hash=sha256:{'0' * 64}\n")
    settings = {"PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "no_proxy": "127.0.0.1"}
    assert "differs from requirements/bootstrap.txt" in run(clone, FETCH, **settings)
    lock.write_text(f"uv==7.7 \\\n    --hash=sha256:{hashlib.sha256(content.getvalue()).hexdigest()}\n")
    assert run(clone, FETCH, **settings) == "kept a program\n"


def test_uv_is_taken_from_a_folder_that_find_links_names(clone: Path, tmp_path: Path) -> None:
    libc = "manylinux_2_17" if platform.libc_ver()[0] == "glibc" else "musllinux_1_1"
    wheel = tmp_path / f"uv-7.7-py3-none-{libc}_{platform.machine()}.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("uv-7.7.data/scripts/uv", "a program")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (clone / "requirements" / "bootstrap.txt").write_text(f"uv==7.7 \\\n    --hash=sha256:{digest}\n")
    assert run(clone, FETCH, PIP_FIND_LINKS=str(tmp_path), PIP_NO_INDEX="1") == "kept a program\n"


def test_an_index_that_does_not_answer_is_a_sentence_without_its_password(clone: Path, free_port: int) -> None:
    address = f"http://somebody:geheim@127.0.0.1:{free_port}/simple"
    output = run(clone, FETCH, PIP_INDEX_URL=address, PIP_FIND_LINKS="", no_proxy="127.0.0.1")
    assert "did not answer" in output
    assert "geheim" not in output and "Traceback" not in output


def test_what_pip_is_told_about_the_index_uv_is_told_too(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.test/simple\nextra-index-url =\n  https://b.test\n"
    )
    code = "from index import uv_settings\nprint(uv_settings())"
    settings = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_CERT": "/ours.pem", "PIP_INDEX_URL": ""}
    told = ast.literal_eval(
        run(clone, code, **settings, PIP_FIND_LINKS=f"{tmp_path} /nowhere", PIP_PROXY="http://p.test")
    )
    assert told["UV_DEFAULT_INDEX"] == "https://a.test/simple"
    assert told["UV_INDEX"] == "https://b.test"
    assert told["UV_FIND_LINKS"] == str(tmp_path), "uv breaks off where a folder is not there; pip does not"
    assert told["SSL_CERT_FILE"] == "/ours.pem"
    assert told["HTTPS_PROXY"] == "http://p.test"
    assert "UV_DEFAULT_INDEX" not in run(clone, code, **settings, UV_DEFAULT_INDEX="https://own.test")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("error: Request failed after 3 retries\n  cause: dns error", "the package registry did not answer"),
        ("error: Failed to download\n  cause: Hash mismatch for `a==1`", "differs from the lock file"),
        ("  cause: invalid peer certificate: UnknownIssuer", "certificate is not trusted"),
        ("error: Failed to write\n  cause: No space left on device (os error 28)", "the disk is full"),
        ("  cause: Because a was not found in the package registry and", "the package index has no fitting a."),
        ("npm error code ENOTFOUND\nnpm error network request", "the package registry did not answer"),
        ("npm error something else\n", "npm error something else."),
    ],
)
def test_why_a_step_failed_is_one_sentence(clone: Path, output: str, reason: str) -> None:
    assert reason in run(clone, f"from kept import why\nprint(why({output!r}))")


def test_what_could_change_our_hub_is_not_passed_on_and_what_the_registries_need_is(clone: Path) -> None:
    code = "from place import environment\nprint(sorted(environment().items()))"
    output = run(
        clone, code, JUPYTERHUB_API_TOKEN="x1", CONFIGPROXY_AUTH_TOKEN="x2", PYTHONPATH="/x3", JUPYTER_PATH="/x4",
        PIP_INDEX_URL="https://packages.test/simple", npm_config_registry="https://npm.test", https_proxy="http://proxy.test",
    )  # fmt: skip
    assert not [word for word in ("x1", "x2", "/x3", "/x4") if word in output]
    assert "https://packages.test/simple" in output and "https://npm.test" in output and "http://proxy.test" in output


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


@pytest.mark.whole
@pytest.mark.parametrize(("script", "option"), [("demo", "--layout"), ("test", "--whole")])
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_printed_at_once_and_sets_nothing_up(clone: Path, script: str, option: str, word: str) -> None:
    done = asked_for_help(clone, script, word)
    assert (done.returncode, done.stderr) == (0, "") and f"./scripts/{script}" in done.stdout and option in done.stdout
    assert not (clone / ".work").exists()


@pytest.mark.needs("root")
@pytest.mark.parametrize("script", ["demo", "test"])
def test_root_gets_the_help_of_a_clone_that_is_closed_to_others(clone: Path, script: str) -> None:
    clone.chmod(0o700)
    done = asked_for_help(clone, script, "--help")
    assert (done.returncode, done.stderr) == (0, "") and "--help" in done.stdout
    assert not (clone / ".work").exists()


def asked_for_help(clone: Path, script: str, word: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "scripts" / script, word], capture_output=True, text=True, timeout=patient(60), check=False
    )


def test_the_help_of_the_demo_names_the_options_of_its_command(clone: Path) -> None:
    """--sso of the script sets up what ``--sso`` and ``--apps`` of the command are given."""
    options = {name for option in demo_command.params for name in option.opts} - {"--apps"}
    listed = set(re.findall(r"(?m)^  (?:-h, )?(--[a-z]+)", asked_for_help(clone, "demo", "--help").stdout))
    assert listed == {*options, "--help"}


@pytest.mark.needs("root")
def test_a_clone_that_is_closed_to_others_is_refused_before_anything_starts(clone: Path) -> None:
    (clone / "setup.py").write_text("#")
    clone.chmod(0o700)
    code = "from account import check_reach\nfrom steps import Trouble\n"
    code += "try:\n    check_reach()\nexcept Trouble as trouble:\n    print(trouble)"
    assert "cannot reach this clone" in run(clone, code)
    assert not (clone / ".work").exists()


@pytest.mark.whole
def test_bytecode_is_made_once_and_as_pytest_reads_it(tmp_path: Path) -> None:
    (test := tmp_path / "test_it.py").write_text("def test_it():\n    assert [1] == [2]\n")
    (broken := tmp_path / "test_broken.py").write_text("def")
    words = [sys.executable, ROOT / "scripts" / "prepare" / "bytecode.py", tmp_path / "package", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patient(60), check=True)
    assert done.stdout == done.stderr == ""
    (made,) = (tmp_path / "__pycache__").glob("*-pytest-*.pyc")
    before = made.stat()
    assert rewrite._read_pyc(test, made) is not None
    broken.unlink()
    run_again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, test]
    told = subprocess.run(run_again, capture_output=True, text=True, timeout=patient(60), check=False, cwd=tmp_path)
    assert "assert [1] == [2]" in told.stdout
    assert (made.stat().st_ino, made.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


# ------------------------------------------------------------------ the cluster's programs

BUILDS = """
import os, pathlib, sys, time
here, word = pathlib.Path(__file__).parent, sys.argv[1]
if word in ("--cache", "--missing"):
    print({"--cache": here, "--missing": os.environ["MISSING"]}[word])
elif word == "good":
    while not (here / "beside").exists():  # the other steps go on meanwhile
        time.sleep(0.02)
elif word == "bad":
    sys.exit("bad cannot be built: no room")
else:
    (here / "began").write_text(str(os.getpid()))
    time.sleep(600)
"""
BESIDE = """
import os, time
from cluster import preparing_cluster
from place import ROOT
from steps import Trouble
here, env = ROOT / "tests/cluster/programs", dict(os.environ)
try:
    with preparing_cluster(env, wanted=os.environ["MISSING"] != "unwanted"):
        print("OTHERS", env["CLUSTER_MISSING"])
        {block}
    print("FOLDER", env["JUPYTERHUB_GPU_CLUSTER"] == str(here), "WHY", env["CLUSTER_MISSING"])
except Trouble as trouble:
    print("ENDED", trouble)
"""
GO_ON = '(here / "beside").touch()'


@pytest.fixture
def with_programs(clone: Path) -> Path:
    folder = clone / "tests" / "cluster" / "programs"
    folder.mkdir(parents=True)
    (folder / "build.py").write_text(BUILDS)
    return clone


@pytest.mark.whole
@pytest.mark.parametrize(
    ("missing", "last"),
    [
        ("", "FOLDER True WHY"),
        ("good", "FOLDER True WHY"),
        ("good bad never", "FOLDER True WHY bad (2 of 3) failed: bad cannot be built: no room."),
        ("unwanted", "FOLDER False WHY"),
    ],
)
def test_the_clusters_programs_are_built_beside_the_other_steps(with_programs: Path, missing: str, last: str) -> None:
    lines = run(with_programs, BESIDE.format(block=GO_ON), MISSING=missing, JUPYTERHUB_GPU_CLUSTER="").splitlines()
    assert lines[-1].strip() == last
    assert ("bad (2 of 3) failed" in "\n".join(lines[:-1])) == ("bad" in missing), "it is said at once"


def test_a_step_that_fails_ends_the_build_beside_it(with_programs: Path) -> None:
    wait_and_fail = 'exec("while not (here / \'began\').exists(): time.sleep(0.02)"); raise Trouble("No network.")'
    printed = run(with_programs, BESIDE.format(block=wait_and_fail), MISSING="never", JUPYTERHUB_GPU_CLUSTER="")
    assert printed.splitlines()[-1] == "ENDED No network."
    assert "failed" not in printed, "who was ended did not fail"
    pid = (with_programs / "tests/cluster/programs/began").read_text()
    assert not Path("/proc", pid).exists()
