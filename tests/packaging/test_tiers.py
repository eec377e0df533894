"""Which run has which test, and that programs which start warm are as those that do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from tests import ports, tiers, warm
from tests.examples import many
from tests.hubs import ROOT, until
from tests.packaging.set_up_code import copy_set_up, run
from tests.patience import patient

HERE = "tests/somewhere/test_it.py"


@pytest.mark.parametrize(
    ("tier", "marks", "older_hub", "left_out"),
    [
        ("quick", (), False, ""),
        ("quick", ("programs",), False, tiers.NOT_IN_QUICK),
        ("quick", ("needs",), False, tiers.NOT_IN_QUICK),
        ("quick", ("hub",), False, tiers.NOT_IN_QUICK),
        ("quick", ("slow",), False, tiers.NOT_IN_QUICK),
        ("usual", ("slow",), False, ""),
        ("quick", ("hub", "quick"), False, ""),
        ("quick", ("whole",), False, tiers.NOT_IN_USUAL),
        ("usual", ("programs", "needs", "hub"), False, ""),
        ("usual", ("whole",), False, tiers.NOT_IN_USUAL),
        ("usual", ("hub",), True, tiers.NOT_IN_USUAL),
        ("whole", ("whole", "hub"), True, ""),
    ],
)
def test_a_run_leaves_out_what_takes_longer_than_it_may(
    tier: str, marks: tuple[str, ...], older_hub: bool, left_out: str
) -> None:
    assert tiers.left_out(tier, marks, HERE, older_hub=older_hub) == left_out


@pytest.mark.parametrize(
    ("marks", "tier"),
    [((), "quick"), (("slow",), "usual"), (("programs", "quick"), "quick"), (("hub",), "usual"), (("whole",), "whole")],
)
def test_a_test_costs_the_smallest_run_that_has_it(marks: tuple[str, ...], tier: str) -> None:
    assert tiers.tier_of(marks) == tier


@pytest.mark.parametrize(
    ("generations", "on_61", "on_55"),
    [((), True, True), (("5.5",), False, True), (("6.1",), True, False), (("5.5", "6.1"), True, True)],
)
def test_a_test_may_be_of_one_generation_of_the_hub(generations: tuple[str, ...], on_61: bool, on_55: bool) -> None:
    assert tiers.of_another_hub(generations, older_hub=False) != on_61
    assert tiers.of_another_hub(generations, older_hub=True) != on_55


@pytest.mark.parametrize(
    ("text", "marks", "needs"),
    [
        ("def test_it(): ...", (), ()),
        ('@pytest.mark.needs("node")', ("needs",), ("node",)),
        ('pytestmark = pytest.mark.needs("kueue", "browser")', ("needs",), ("kueue", "browser")),
        ('pytestmark = pytest.mark.needs("browser", "real-node")', ("needs",), ("browser", "real-node")),
        ('pytest.param("real", marks=pytest.mark.hub)', ("hub",), ()),
        ('pytestmark = [pytest.mark.hub, pytest.mark.needs("root")]', ("hub", "needs"), ("root",)),
    ],
)
def test_a_pass_reads_each_file_of_which_it_has_a_test(
    tmp_path: Path, text: str, marks: tuple[str, ...], needs: tuple[str, ...]
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    passes = tiers.passes_of(marks, needs)
    assert not tiers.has_none(file, passes)
    assert all(tiers.has_none(file, [name]) for name in tiers.IN_A_PASS if name not in passes)


@pytest.mark.parametrize(
    ("tier", "text", "read"),
    [
        ("quick", "def test_it(): ...", True),
        ("quick", "@pytest.mark.programs\ndef test_it(): ...", True),
        ("quick", "pytestmark = pytest.mark.programs  # each\ndef test_it(): ...", False),
        ("quick", "pytestmark = [\n    pytest.mark.timeout(9),\n    pytest.mark.slow,\n]\n", False),
        ("quick", "pytestmark = pytest.mark.timeout(9)\n\n\n@pytest.mark.slow\ndef test_it(): ...", True),
        ("quick", "pytestmark = [pytest.mark.programs, pytest.mark.quick]", True),
        ("quick", "pytestmark = pytest.mark.programs\n@pytest.mark.quick\ndef test_it(): ...", True),
        ("usual", "pytestmark = pytest.mark.programs", True),
        ("usual", "pytestmark = [pytest.mark.hub, pytest.mark.whole]", False),
        ("whole", "pytestmark = [pytest.mark.hub, pytest.mark.whole]", True),
    ],
)
def test_a_tier_does_not_read_a_file_that_has_none_of_its_tests(
    tmp_path: Path, tier: str, text: str, read: bool
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert (tiers.not_read(tier, file) == "") == read


def test_each_file_is_in_one_half_of_the_quick_run() -> None:
    for file in sorted(tiers.TESTS.rglob("test_*.py")):
        assert [tiers.not_read("whole", file, half) for half in tiers.HALVES].count("") == 1


def test_the_usual_run_has_one_file_on_the_older_hub() -> None:
    assert (ROOT / tiers.IN_BOTH_GENERATIONS).exists()
    assert tiers.left_out("usual", ("hub",), tiers.IN_BOTH_GENERATIONS, older_hub=True) == ""


@pytest.mark.parametrize(("of_a_hundred", "asked", "tried"), [(100, 200, 200), (25, 200, 50), (25, 3, 1), (25, 50, 12)])
def test_the_profile_says_which_share_of_the_examples_is_tried(of_a_hundred: int, asked: int, tried: int) -> None:
    before = hypothesis.settings.default
    hypothesis.settings.register_profile("some", before, max_examples=of_a_hundred)
    hypothesis.settings.register_profile("before", before)
    try:
        hypothesis.settings.load_profile("some")
        chosen = many(asked, database=None)
    finally:
        hypothesis.settings.load_profile("before")
    assert (chosen.max_examples, chosen.deadline, chosen.database) == (tried, None, None)


def test_no_test_says_by_itself_how_many_examples_are_tried() -> None:
    written = [
        path for path in (ROOT / "tests").rglob("*.py") if re.search(r"max_examples=|deadline=None", path.read_text())
    ]
    assert {path.name for path in written} <= {"examples.py", "conftest.py", "test_tiers.py"}


LANES = """
from testing import asked_by, lanes, own_report
for tier, root in (("quick", True), ("usual", True), ("usual", False), ("whole", False), ("whole", True)):
    print(tier, root, lanes(tier, root=root))
print(asked_by(["--quick", "-x", "--gpu", "-k", "one", "tests/core"]))
for words in (["--junitxml=out.xml", "--durations=20"], ["--junit-xml=out"], ["--junit-xml", "a/out.xml", "-x"],
              ["-x", "--junitxml", "out.xml"], ["-k", "a=b"], ["--junitxml"]):
    print(own_report(words, "hub5"))
"""


@pytest.mark.programs
def test_what_runs_beside_each_other(tmp_path: Path) -> None:
    assert run(copy_set_up(tmp_path), LANES).splitlines() == [
        "quick True [['hub6-first'], ['hub6-second']]",
        "usual True [['hub6'], ['hub5']]",
        "usual False [['hub6'], ['hub5']]",
        "whole False [['hub6'], ['hub5']]",
        "whole True [['hub6'], ['root', 'root5', 'hub5']]",
        "Namespace(tier='quick', gpu=True, set_up_only=False, selection=['-x', '-k', 'one', 'tests/core'])",
        "['--junitxml=out-hub5.xml', '--durations=20']",
        "['--junit-xml=out-hub5.xml']",
        "['--junit-xml', 'a/out-hub5.xml', '-x']",
        "['-x', '--junitxml', 'out-hub5.xml']",
        "['-k', 'a=b']",
        "['--junitxml']",
    ]


WORKERS = """
from steps import Trouble
from testing import MOST_WORKERS, workers
try:
    print(MOST_WORKERS, workers())
except Trouble as trouble:
    print(trouble)
"""


@pytest.mark.programs
@pytest.mark.parametrize(
    ("asked", "printed"),
    [
        ("5", f"{ports.A_LANE} 5"),
        ("1", f"{ports.A_LANE} 1"),
        ("6", "TEST_WORKERS is a number from 1 to 5 (more share their ports), and not '6'."),
        ("0", "TEST_WORKERS is a number from 1 to 5 (more share their ports), and not '0'."),
        ("many", "TEST_WORKERS is a number from 1 to 5 (more share their ports), and not 'many'."),
    ],
)
def test_no_more_workers_than_have_ports_of_their_own(tmp_path: Path, asked: str, printed: str) -> None:
    assert run(copy_set_up(tmp_path), WORKERS, TEST_WORKERS=asked).strip() == printed


def test_workers_of_both_lanes_and_their_hubs_have_different_ports() -> None:
    environments = [
        {"PYTEST_XDIST_WORKER": f"gw{worker}", "TEST_LANE": str(lane), **hub}
        for worker in range(ports.A_LANE)
        for lane in range(2)
        for hub in ({}, {"HUB_TEST_MARK": "one"})
    ]
    assert sorted(map(ports.part, environments)) == list(range(ports.PARTS))
    assert ports.part({}) == 0 and ports.part({"PYTEST_XDIST_WORKER": "gw9"}) == ports.PARTS - 2


@pytest.mark.parametrize("environ", [{"PYTEST_XDIST_WORKER": "gw5", "TEST_LANE": "0"}, {"PYTEST_XDIST_WORKER": "gw10"}])
def test_a_worker_that_would_share_the_ports_of_another_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match=r"there are ports for \d+ workers at a time.*TEST_WORKERS"):
        ports.part(environ)


# ------------------------------------------------------------------ warm programs

WORDS = [sys.executable, "-m", "jupyter_server", "--version"]


@pytest.mark.programs
def test_a_warm_program_is_the_callers_child_with_its_own_words_and_environment(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MARK": "of this test"}
    words = [sys.executable, str(ROOT / "tests" / "fakes" / "singleuser.py"), "word"]
    port = "http://127.0.0.1:0/"
    with warm.Popen(words, env=env | {"JUPYTERHUB_SERVICE_URL": port}, cwd=tmp_path, start_new_session=True) as child:
        try:
            place = Path(f"/proc/{child.pid}")
            until(lambda: b"MARK=of this test\0" in (place / "environ").read_bytes(), 10, "it shows its environment")
            assert (place / "cmdline").read_bytes().rstrip(b"\0").split(b"\0") == [word.encode() for word in words]
            assert os.readlink(place / "cwd") == str(tmp_path)
            assert os.getsid(child.pid) == child.pid
            assert (place / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
        finally:
            child.terminate()
        assert child.wait(patient(10)) == -15
    assert child.warm


@pytest.mark.whole
@pytest.mark.programs
def test_a_warm_program_prints_and_ends_as_a_cold_one() -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}
    for words in (WORDS, [*WORDS[:3], "--ServerApp.port=none"], [*WORDS[:3], "list"]):
        output = []
        for popen in (warm.Popen, subprocess.Popen):
            with popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
                output.append((child.communicate(timeout=patient(60))[0], child.returncode))
        assert output[0] == output[1]


@pytest.mark.programs
@pytest.mark.parametrize(
    "words", [["sleep", "0"], [sys.executable, "-c", ""], ["/usr/bin/env", "true"]], ids=["sleep", "code", "other"]
)
def test_what_no_nursery_holds_starts_as_usual(words: list[str]) -> None:
    with warm.Popen(words) as child:
        assert child.wait(patient(30)) == 0
    assert not child.warm


@pytest.mark.whole
@pytest.mark.programs
def test_a_program_with_other_import_paths_starts_as_usual(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with warm.Popen(WORDS, env=env, stdout=subprocess.DEVNULL) as child:
        assert child.wait(patient(60)) == 0
    assert not child.warm


@pytest.mark.whole
@pytest.mark.programs
def test_the_second_program_with_other_library_paths_is_forked_and_has_them(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(tmp_path)}
    begun = []
    for _ in range(2):
        with warm.Popen(WORDS, env=env, stdout=subprocess.DEVNULL) as child:
            assert child.wait(patient(60)) == 0
        begun.append(child.warm)
    assert begun == [False, True]


OWNER = """
import sys
from tests import warm
with warm.Popen([sys.executable, "-m", "jupyter_server", "--version"], env={"PYTHONPATH": sys.argv[1]}) as child:
    child.wait()
print(warm._nursery.pid, flush=True)
"""


@pytest.mark.whole
@pytest.mark.programs
def test_a_nursery_ends_with_its_owner() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", OWNER, str(ROOT)]
    output = subprocess.run(words, env=env, capture_output=True, timeout=patient(100))
    pid = int(output.stdout.split()[-1])
    until(lambda: not Path(f"/proc/{pid}").exists(), 30, "the nursery has ended")
