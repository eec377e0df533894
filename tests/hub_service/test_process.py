"""The service's life with real processes: it ends with its hub, stops on signals, and waits for its predecessor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from traitlets.config import Config

from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.hub_service import process
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.doctor.config import culling as doctor_on_culling
from tests import warm
from tests.fakes.signed import Signs
from tests.patience import patient, soon, until
from tests.ports import free_port

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import signal, subprocess, sys, time
{before}
service = subprocess.Popen([sys.executable, "-m", "hub_extensions.hub_service", "--config", sys.argv[1]])
print(service.pid, flush=True)
time.sleep(600)
"""
PATIENT_SERVICE = str(ROOT / "tests" / "fakes" / "patient_service.py")
SIGINT_IGNORED = "signal.signal(signal.SIGINT, signal.SIG_IGN)"


class Place:
    """A state folder with settings, and the processes a test started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(
            state_dir=str(folder),
            hub_secret="hub-secret-" * 4,
            api_token="api-token-" * 4,
            port=free_port(),
            offers=OfferConfig(simulate="lab-a100"),
            hub_api_url="http://127.0.0.1:9/hub/api",
        )
        self.config = folder / "service.json"
        self.settings.dump(self.config)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A process whose log is ``<name>.log``; the service itself when no command is given."""
        own = command or (sys.executable, "-m", "hub_extensions.hub_service", "--config", str(self.config))
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if key in os.environ}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = warm.Popen(
                own, cwd=self.folder, env=kept | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=log
            )
        self.started.append(process)
        return process

    def start_patient(self, name: str) -> subprocess.Popen[bytes]:
        """The service, whose orderly stop is never cut off."""
        return self.start(name, sys.executable, PATIENT_SERVICE, "--config", str(self.config))

    def log(self, name: str) -> list[dict[str, object]]:
        lines = (self.folder / f"{name}.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def said(self, name: str, words: str) -> list[dict[str, object]]:
        return [line for line in self.log(name) if words in str(line["message"])]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.settings.url}/health", timeout=patient(1)) as answer:
                return bool(json.load(answer)["ready"])
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    left: list[int] = []
    yield found
    for child in found.started:
        below = children(child.pid)
        left += [*below, *(pid for each in below for pid in children(each))]
        child.kill()
        child.wait(patient(10))
        assert child.stdout is not None
        child.stdout.close()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def start_under_a_parent(place: Place, before: str = "") -> tuple[subprocess.Popen[bytes], int]:
    parent = place.start("first", sys.executable, "-c", PARENT.format(before=before), str(place.config))
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until(place.answers, 30, f"the service answers; {place.log('first')}")
    return parent, pid


@pytest.mark.whole
def test_it_ends_with_its_parent(place: Place) -> None:
    """T14: after ``kill -9`` of the hub nothing keeps the port with an old token."""
    parent, pid = start_under_a_parent(place)
    parent.kill()
    parent.wait(patient(5))
    until(lambda: not alive(pid), 5, "the orphan ends")
    assert place.said("first", "the parent process is gone")
    assert not place.answers()


@pytest.mark.whole
def test_one_with_an_open_stream_ends_with_its_parent_too(place: Place) -> None:
    """T14: a reader of events that keeps its connection does not keep the service."""
    parent, pid = start_under_a_parent(place)
    signs = Signs(place.settings.hub_secret)
    requests.get(f"{place.settings.url}/hub/form?user=ada", auth=signs, timeout=patient(10)).raise_for_status()
    letter = signs.signer.sign("GET", f"{urlsplit(place.settings.url).path}/hub/events")
    request = urllib.request.Request(f"{place.settings.url}/hub/events", headers=dict(letter.headers))
    with urllib.request.urlopen(request, timeout=patient(10)):
        parent.kill()
        parent.wait(patient(5))
        until(lambda: not alive(pid), 5, "the orphan ends")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_in_order(place: Place, number: signal.Signals) -> None:
    service = place.start_patient("first")
    until(place.answers, 30, "the service answers")
    service.send_signal(number)
    assert service.wait(patient(5)) == 0
    assert [line["message"] for line in place.log("first")][-1] == "stopped"


@pytest.mark.whole
def test_sigint_stops_it_even_when_it_was_inherited_as_ignored(place: Place) -> None:
    """T16: a hub that a script put into the background hands SIGINT down as ignored."""
    _, pid = start_under_a_parent(place, SIGINT_IGNORED)
    os.kill(pid, signal.SIGINT)
    until(lambda: not alive(pid), 3, "SIGINT ends it")


async def test_a_stop_that_takes_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub waits meanwhile, and after its ``kill -9`` nobody may find us."""
    assert process.STOP_SECONDS < 3
    monkeypatch.setattr(process, "STOP_SECONDS", 0.01)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    process.Lifetime(None).stop("a test")
    await soon(lambda: ended == [1])


@pytest.mark.whole
def test_a_second_one_waits_for_the_lock_says_so_once_and_takes_over(place: Place) -> None:
    """T14: the successor of a killed hub's service comes up as soon as the old one is gone."""
    first = place.start("first")
    until(place.answers, 30, "the first answers")
    second = place.start("second")
    until(lambda: place.said("second", "waiting for the lock"), 30, "the second says that it waits")
    (holder,) = [child for child in children(first.pid) if b"hub_service" in command_of(child)]
    assert f"process {holder} has it" in str(place.said("second", "waiting for the lock")[0]["message"])
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(2)
    first.kill()
    first.wait(patient(5))
    until(lambda: place.said("second", "answering at"), 10, "the second answers")
    assert len(place.said("second", "waiting for the lock")) == 1
    assert place.answers()


def test_after_a_kill_its_supervisor_starts_it_again_at_once_and_says_so(place: Place) -> None:
    """The hub would look 30 s later."""
    supervisor = place.start("first")
    until(place.answers, 30, "it answers")
    for times in (1, 2):
        (pid,) = [child for child in children(supervisor.pid) if b"hub_service" in command_of(child)]
        os.kill(pid, signal.SIGKILL)
        until(lambda n=times: len(place.said("first", "answering at")) > n, 10, "it is back")  # type: ignore[misc]
        assert place.answers() and supervisor.poll() is None
        assert len(place.said("first", "the service died of SIGKILL")) == times


def test_its_supervisor_has_none_of_its_modules() -> None:
    program = "import sys, hub_extensions.hub_service.__main__; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=True
    )
    names = set(ran.stdout.split())
    assert {name for name in names if name.startswith("hub_extensions.")} == {
        "hub_extensions.adapters",
        "hub_extensions.adapters.linux",
        "hub_extensions.adapters.linux.supervisor",
        "hub_extensions.hub_service",
        "hub_extensions.hub_service.__main__",
    }
    assert not names & {"asyncio", "tornado", "pydantic", "threading", "pathlib", "dataclasses", "logging"}


@pytest.mark.whole
def test_it_needs_neither_the_orm_of_the_hub_nor_alembic_once_its_tables_are_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gpu.sqlite"
    program = (
        "import sys\n"
        "from hub_extensions.hub_service.__main__ import import_hub_client\n"
        "import_hub_client()\n"
        "import hub_extensions.hub_service.serve\n"
        "from hub_extensions.adapters.store import Store\n"
        f"Store.open({url!r}).close()\n"
        "print(*sorted({'alembic', 'sqlalchemy.orm', 'sqlalchemy.dialects.postgresql'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program]
    found = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=True).stdout
        for _ in range(2)
    ]
    assert "alembic" in found[0], "the first one creates the tables"
    assert found[1].strip() == ""


@pytest.mark.whole
def test_it_waits_for_the_port_says_so_once_and_takes_it(place: Place) -> None:
    with socket.create_server(("127.0.0.1", place.settings.port)):
        service = place.start("first")
        until(lambda: place.said("first", "waiting for port"), 30, "it says that it waits")
        with pytest.raises(subprocess.TimeoutExpired):
            service.wait(1)
    until(place.answers, 10, "it answers")
    assert len(place.said("first", "waiting for port")) == 1


def test_one_that_waits_still_stops_on_a_signal(place: Place) -> None:
    first = place.start("first")
    until(place.answers, 30, "the first answers")
    second = place.start_patient("second")
    until(lambda: place.said("second", "waiting for the lock"), 30, "the second waits")
    second.terminate()
    assert second.wait(patient(10)) == 0
    assert first.poll() is None and place.answers()


@pytest.mark.whole
def test_a_missing_settings_file_is_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hub_extensions.hub_service", "--config", str(tmp_path / "no.json")]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=patient(60)
    )
    assert ran.returncode == 78
    assert "cannot be read" in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.whole
def test_a_policy_file_that_cannot_be_used_stops_the_start_with_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("rules:\n  - name: course\n    idle: 20\n")
    culling = CullPolicy(policy_file=str(tmp_path / "policy.yaml"))
    made = Settings(state_dir=str(tmp_path), hub_secret="s" * 16, api_token="t" * 16, culling=culling)
    made.dump(tmp_path / "service.json")
    command = [sys.executable, "-m", "hub_extensions.hub_service", "--config", str(tmp_path / "service.json")]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=patient(60)
    )
    assert ran.returncode == 78 and "Traceback" not in ran.stderr
    assert "c.GpuCulling.policy_file" in ran.stderr
    assert "policy.yaml: line 3: idle: it has no unit: write 20 min, 20 h or 20 d" in ran.stderr
    (finding,) = (each for each in doctor_on_culling(Config(), made) if each.check == "policy")
    assert finding.state == "problem" and "line 3: idle" in finding.text


def test_no_secret_is_in_the_log_of_a_whole_life(place: Place) -> None:
    service = place.start("first")
    until(place.answers, 30, "the service answers")
    service.terminate()
    service.wait(patient(5))
    text = (place.folder / "first.log").read_text()
    assert place.settings.hub_secret not in text
    assert place.settings.api_token not in text


def test_a_damaged_store_is_refused_in_a_sentence_and_an_emptied_one_is_warned_of(place: Place) -> None:
    first = place.start("first")
    until(lambda: list(place.folder.glob("gpu.copy-*.sqlite")), 30, "a copy of the store was made")
    until(place.answers, 30, "it answers")
    first.terminate()
    first.wait(patient(30))
    (copy,) = place.folder.glob("gpu.copy-*.sqlite")
    assert copy.stat().st_mode & 0o777 == 0o600
    file = place.folder / "gpu.sqlite"
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    damaged = place.start("damaged")
    until(lambda: asked(place, "health")[0] == 503, 30, "it answers with the reason")
    assert "is damaged" in json.loads(asked(place, "health")[2])["store"]
    damaged.terminate()
    assert damaged.wait(patient(10)) == 0
    line = place.said("damaged", "is damaged")[0]
    assert str(file) in str(line["message"]) and "store restore" in str(line["message"])
    assert "Traceback" not in (place.folder / "damaged.log").read_text()
    file.write_bytes(b"")
    place.start("emptied")
    until(place.answers, 30, "it answers")
    assert len(place.said("emptied", f"{file} (database_url) is empty or gone")) == 1


def asked(place: Place, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, Retry-After and body of the answer at the service's address."""
    request = urllib.request.Request(f"{place.settings.url}/{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=patient(5)) as answer:
            return answer.status, "", answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers.get("Retry-After", ""), refused.read().decode()
    except OSError as problem:
        return 0, "", str(problem)


@pytest.mark.whole
def test_a_store_that_cannot_be_opened_is_answered_with_its_reason_until_it_can(place: Place) -> None:
    database = place.folder / "gpu.sqlite"
    database.write_bytes(b"this is no database" * 100)
    database.chmod(0o600)
    service = place.start("unopened")
    until(lambda: asked(place, "health")[0] == 503, 30, "it answers")
    status, again, body = asked(place, "health")
    health = json.loads(body)
    assert (status, again, health["ready"]) == (503, "5", False)
    assert "gpu.sqlite" in health["store"], health
    for path in ("", "api/offers", "hub/tickets", "api/server/report"):
        status, again, body = asked(place, path)
        assert (status, again, json.loads(body)["message"]) == (503, "5", health["store"]), path
    assert "GPU-palvelu" in asked(place, "", Accept="text/html", **{"Accept-Language": "fi"})[2]
    assert len(place.said("unopened", "gpu.sqlite")) == 1, "it is said once, not at each attempt"
    database.unlink()
    until(place.answers, 30, "it goes on by itself")
    service.terminate()
    assert service.wait(patient(20)) == 0
