"""The search for secrets at the end of a run: what was planted is found, in whatever was left, and fails the run."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.hubs import ROOT
from tests.patience import patient
from tests.secret_notes import FOLDER, NotedSet, note, read_notes
from tests.secret_search import search

TOKEN = "head.body." + "sign-ature" * 12
SECRET = "planted, with signs: ä+/&="
SECRETS = {TOKEN: "id token", SECRET: "client secret", "0123456789abcdef": "code"}


def in_a_log(folder: Path) -> None:
    (folder / "hub.log").write_text(f"GET /hub/logout?hint={TOKEN} 200\n")


def in_an_address(folder: Path) -> None:
    (folder / "proxy.log").write_text(f"GET /?client_secret={quote(SECRET, safe='')}\n")


def in_a_database(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "jupyterhub.sqlite")) as database:
        database.execute("create table kept (value text)")
        database.execute("insert into kept values (?)", [SECRET])
        database.commit()


def deep_in_many_bytes(folder: Path) -> None:
    (folder / "home" / "ada" / ".cache").mkdir(parents=True)
    (folder / "home" / "ada" / ".cache" / "page").write_bytes(b"\0\xff" * 500_000 + b"0123456789abcdef" + b"\xfe")


@pytest.mark.programs
@pytest.mark.parametrize("plant", [in_a_log, in_an_address, in_a_database, deep_in_many_bytes])
def test_one_secret_that_stands_somewhere_is_found(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    (tmp_path / "service.log").write_text("nothing of it\n" * 1000)
    assert search(SECRETS, [tmp_path]).findings == ()
    plant(tmp_path)
    (finding,) = search(SECRETS, [tmp_path]).findings
    assert finding.startswith("readable: ") and any(f" {kind} in " in finding for kind in SECRETS.values())
    assert not any(secret in finding for secret in SECRETS)


@pytest.mark.programs
@pytest.mark.parametrize(
    ("folder", "name", "mode", "secret", "found"),
    [
        (0o755, "secrets.json", 0o600, "client_secret in a form", 0),
        (0o755, "secrets.json", 0o640, "client_secret in a form", 1),  # others of its group could read it
        (0o755, "secrets.json", 0o600, "code", 1),  # another kind has nothing to do there
        (0o755, "secrets.txt", 0o600, "client_secret in a form", 1),
        (0o700, "jpserver-7-open.html", 0o644, "client_secret in a form", 0),
        (0o711, "jpserver-7-open.html", 0o644, "client_secret in a form", 1),  # who knows its name reads it
        (0o700, "hub.log", 0o600, "client_secret in a form", 1),  # a log is for admins, and no secret's place
    ],
)
def test_a_settings_file_may_hold_what_it_has_to_for_its_account_alone(
    tmp_path: Path, folder: int, name: str, mode: int, secret: str, found: int
) -> None:
    tmp_path.chmod(folder)
    (tmp_path / name).write_text(TOKEN)
    (tmp_path / name).chmod(mode)
    assert len(search({TOKEN: secret}, [tmp_path]).findings) == found


def test_what_is_noted_is_read_again_and_short_values_are_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    given = NotedSet("code")
    given.add("first-first-first")
    given |= {"second-second-second", "short"}
    note("cookie", "third-third-third")
    assert given == {"first-first-first", "second-second-second", "short"}
    assert read_notes(tmp_path) == {
        "first-first-first": "code",
        "second-second-second": "code",
        "third-third-third": "cookie",
    }


RUN = """
from tests.secret_notes import note

def test_one():
    note("code", "a-secret-of-this-run")
    note("cookie", "another-one-of-this-run")

def test_two(tmp_path):
    (tmp_path / "hub.log").write_text("GET /?code=a-secret-of-this-run")

def test_three():
    print("another-one-of-this-run")
"""


@pytest.mark.whole
@pytest.mark.programs
def test_a_run_fails_though_its_tests_pass(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(RUN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.secret_search", "-p", "tests.report", "-p", "tests.costs",
         "-p", "no:cacheprovider", "-q", "-c", os.devnull,
         "--rootdir", tmp_path, "--basetemp", tmp_path / "run", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TEST_TOTALS": str(tmp_path / "totals"), "CI": ""},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "secrets: 2 searched in 2 files (" in done.stdout and ", 2 found" in done.stdout
    findings = {line for line in done.stdout.splitlines() if line.startswith("readable")}
    assert {line.partition(" in ")[0] for line in findings} == {"readable: code", "readable: cookie"}
    totals = json.loads((tmp_path / "totals").read_text())
    assert (totals["passed"], totals["failed"]) == (3, [])
    assert set(totals["refused by ci"]) == findings, "no second try of a test makes the run green"
    assert "of-this-run" not in done.stdout
