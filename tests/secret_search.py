"""At the end of a run of pytest: no secret that any of its tests made stands in anything that the run left.

`tests/secret_notes.py` notes them. All files below the tests' folders are searched at once, by `grep -F`: logs of hubs,
services, gates and servers, databases as they are on the disk, pages and command lines that were kept; and what tests
printed. One that is found is named by its kind and the file, and fails the run.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import secret_notes
from tests.secret_notes import FOLDER

WINDOW = 40
"""So many characters of a long secret are looked for: its end, which in a signed token is the signature."""
BY_PURPOSE = (
    (
        "jupyterhub_config.py",
        ("client secret", "client_secret in a form"),
    ),  # a test's own: an admin's would have it from the environment
    ("gate.json", ("client_secret in a form", "between gate and hub")),  # the gate is a client of the hub
    ("secrets.json", ("client_secret in a form",)),  # so is the service: its token is made once and kept
    ("service.json", ("client_secret in a form",)),  # and read by the service, also where the hub is away
    ("jpserver-*", ("client_secret in a form",)),  # JupyterLab's own way in, which is this server's token
)
"""Files that have to hold a secret of these kinds, and which their account alone can read. Any other kind is found."""
OUTPUT = "output"


@dataclass(frozen=True)
class Found:
    """What a search had, and the findings."""

    secrets: int = 0
    files: int = 0
    bytes: int = 0
    findings: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """For the summary."""
        size = f"{self.files} files ({self.bytes:,} bytes)"
        return [f"secrets: {self.secrets} searched in {size}, {len(self.findings)} found", *self.findings]


FOUND = pytest.StashKey[Found]()
NOTES = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """The process above the workers makes the folder; workers, and what they start, have it from the environment."""
    if not hasattr(config, "workerinput"):
        folder = Path(tempfile.mkdtemp(prefix="secrets-"))
        folder.chmod(0o1777)  # users' servers of some tests have accounts of their own
        os.environ[FOLDER] = str(folder)
        config.stash[NOTES] = folder
        config.pluginmanager.register(Printed(folder / OUTPUT))


class Printed:
    """Keeps what tests printed and logged; why one failed is its own affair."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        if report.sections:
            with self._file.open("a", encoding="utf-8", errors="replace") as output:
                output.writelines(f"\n{report.nodeid}\n{text}" for _, text in report.sections)


@pytest.fixture(scope="session", autouse=True)
def _searched_place(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where this worker's tests have their files."""
    with open(Path(os.environ[FOLDER], "places"), "a", encoding="utf-8") as places:
        places.write(f"{tmp_path_factory.getbasetemp()}\n")


def found(config: pytest.Config) -> Found:
    """The search of this run, made once. A worker has none: it has a summary too, which nobody sees."""
    if NOTES not in config.stash:
        return Found()
    if FOUND not in config.stash:
        folder = config.stash[NOTES]
        places = folder / "places"
        texts = set(places.read_text(encoding="utf-8").splitlines()) if places.exists() else set()
        config.stash[FOUND] = search(secret_notes.read_notes(folder), [folder / OUTPUT, *map(Path, sorted(texts))])
        shutil.rmtree(folder, ignore_errors=True)
    return config.stash[FOUND]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A secret that somebody could read is a failure of the run."""
    fine = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if found(session.config).findings and session.exitstatus in fine:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was searched, and what stands where it may not."""
    for line in found(config).lines:
        terminalreporter.write_line(line, red=line.startswith("readable:"))


def search(secrets: Mapping[str, str], places: Iterable[Path]) -> Found:
    """`secrets`: each with its kind. `places`: files and folders, of which one may hold another."""
    files = {file: size for place in places for file, size in _files(place)}
    windows = {window: kind for secret, kind in secrets.items() for window in _windows(secret)}
    findings = [
        f"readable: {kind} in {file}"
        for file in _with_one(windows, files)
        for kind in sorted(_kinds_in(file, windows))
        if not _by_purpose(file, kind)
    ]
    return Found(len(secrets), len(files), sum(files.values()), tuple(findings))


def _windows(secret: str) -> set[str]:
    """As it is, and as it stands in an address."""
    return {secret[-WINDOW:], quote(secret, safe="")[-WINDOW:]}


def _files(place: Path) -> Iterator[tuple[str, int]]:
    """Plain files with their sizes; no link is followed."""
    if place.is_file():
        yield str(place), place.stat().st_size
    for folder, _, names in os.walk(place):
        for name in names:
            file = os.path.join(folder, name)
            with suppress(OSError):  # something that lives on takes it away meanwhile
                status = os.lstat(file)
                if stat.S_ISREG(status.st_mode):
                    yield file, status.st_size


def _with_one(windows: Iterable[str], files: Iterable[str]) -> list[str]:
    """The files in which one of the texts stands."""
    texts = [each for each in windows if "\n" not in each]
    names = [each for each in files if "\n" not in each]
    if not texts or not names:
        return []
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".patterns") as patterns:
        patterns.write("\n".join(texts) + "\n")
        patterns.flush()
        done = subprocess.run(
            ["xargs", "-0", "grep", "-laF", "--no-messages", "-f", patterns.name, "--", os.devnull],
            input="\0".join(names).encode(errors="surrogateescape"),
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    if done.returncode not in (0, 123):  # 123: some grep found nothing, or could not read a file
        raise RuntimeError(f"the search for secrets broke off: {done.stderr.decode(errors='replace')[-500:]}")
    return sorted(done.stdout.decode(errors="surrogateescape").splitlines())


def _by_purpose(file: str, kind: str) -> bool:
    path = Path(file)
    kinds = next((kinds for name, kinds in BY_PURPOSE if fnmatchcase(path.name, name)), ())
    return kind in kinds and (path.name == "jupyterhub_config.py" or not _is_open(path))


def _is_open(path: Path) -> bool:
    """Another account may read it: its folder lets them in (JupyterLab closes that of its files), and it itself."""
    may_enter = path.parent.stat().st_mode & 0o011
    may_read = path.stat().st_mode >> 2 & 0o011
    return bool(may_enter & may_read)


def _kinds_in(file: str, windows: Mapping[str, str]) -> set[str]:
    text = Path(file).read_bytes().decode("utf-8", "replace")
    return {kind for window, kind in windows.items() if window in text}
