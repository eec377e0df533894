"""The demo: what it refuses with a sentence, what it writes, and that it leaves nothing running."""

from __future__ import annotations

import http.cookiejar
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.demo import (
    MARK,
    Demo,
    DemoOptions,
    DemoRefused,
    Ports,
    choose_gpus,
    choose_ports,
    clean_environment,
    configuration_of,
    marked,
    people,
    run,
)

ROOT = Path(__file__).resolve().parent.parent
STOPS_WITHIN_SECONDS = 15


# ------------------------------------------------------------------ without starting anything


def test_the_first_eight_people_have_first_names() -> None:
    assert people(8) == ("ada", "ben", "cleo", "dan", "eva", "finn", "gus", "hana")


def test_any_number_of_people_have_different_names() -> None:
    names = people(100)
    assert len(set(names)) == 100
    assert names[-1] == "user-100"


def test_the_hub_gets_none_of_the_callers_jupyter_settings(tmp_path: Path) -> None:
    caller = {
        "JUPYTERHUB_API_TOKEN": "x",
        "CONFIGPROXY_AUTH_TOKEN": "x",
        "JUPYTER_CONFIG_DIR": "/home/x",
        "PYTHONPATH": "/home/x",
        "IPYTHONDIR": "/home/x",
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "no_proxy": "example.org",
    }
    given = clean_environment(tmp_path, caller)
    assert given["LANG"] == "C.UTF-8"
    assert given["PATH"].endswith(":/usr/bin")
    assert given["no_proxy"] == "example.org,127.0.0.1,localhost"
    assert given[MARK] == str(tmp_path)
    assert "/home/x" not in str(given)
    assert not [name for name in given if name.startswith(("JUPYTERHUB_API", "CONFIGPROXY_", "JUPYTER_"))]


def test_a_taken_port_is_a_sentence_that_names_another(free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        with pytest.raises(DemoRefused, match=rf"Port {free_port} is taken.*--port {free_port + 1}"):
            choose_ports(free_port)


def test_the_chosen_ports_are_all_different() -> None:
    ports = choose_ports(0)
    assert len({ports.public, ports.hub, ports.proxy, ports.service}) == 4


def test_an_unknown_layout_is_a_sentence_that_lists_the_known() -> None:
    with pytest.raises(DemoRefused, match=r"--layout lab-b200: .*lab-a100"):
        choose_gpus("lab-b200")


def test_a_layout_file_is_found_from_any_folder(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('title: "One card"\ngpus:\n  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n')
    assert choose_gpus(str(file)) == (str(file), f"The GPUs are simulated (layout {file}).")


def test_the_written_configuration_is_one_python_can_read_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "demo" {x}'
    demo = Demo(folder, Ports(1, 2, 3, 4), ("ada",), "lab-a100", "p" * 12, "q" * 32)
    text = configuration_of(demo)
    compile(text, "jupyterhub_config.py", "exec")
    assert "for trying, not for use" in text
    assert "127.0.0.1" in text
    assert "0.0.0.0" not in text
    assert "allow-root" not in text


@pytest.mark.needs("root")
def test_root_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """T18: as root, every demo user would have a root shell."""
    with pytest.raises(DemoRefused, match="does not run as root"):
        run(DemoOptions(folder=tmp_path / "demo", port=0), lambda text: None)
    assert not (tmp_path / "demo").exists()


# ------------------------------------------------------------------ a real one


@dataclass
class PlainAccount:
    """Runs the command line as an account that is not root, in a folder it owns."""

    folder: Path

    def popen(self, *words: str) -> subprocess.Popen[str]:
        command = [*self._drop(), sys.executable, "-m", "hub_extensions.cli", *words]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        env.pop("JUPYTERHUB_API_TOKEN", None)
        return subprocess.Popen(
            command, env=env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.popen(*words)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def left_over(self, mark: Path) -> subprocess.Popen[bytes]:
        """T17: what a user started with `nohup`: it ignores SIGTERM and has a session of its own."""
        program = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        )
        env = {**os.environ, MARK: str(mark)}
        command = [*self._drop(), sys.executable, "-c", program]
        child = subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    def _drop(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        nobody = pwd.getpwnam("nobody").pw_uid
        drop = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
        os.chown(self.folder, nobody, nobody)
        again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import jupyterhub'], check=True)"
        reachable = subprocess.run([*drop, sys.executable, "-c", again], capture_output=True, check=False)
        if reachable.returncode == 0:
            return drop
        # This Python lies in a folder that only root may read: one right is kept, to read it.
        right = "+dac_read_search"
        return [*drop, "--bounding-set", "-all," + right, "--inh-caps", "-all," + right, "--ambient-caps", right]


@pytest.fixture
def account() -> Iterator[PlainAccount]:
    folder = Path(tempfile.mkdtemp(prefix="demo-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield PlainAccount(folder)
    for pid, _ in marked(folder / "demo"):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def until(what: Callable[[], Any], seconds: float, process: subprocess.Popen[str] | None = None) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended: {process.stdout.read() if process.stdout else ''}")
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


class Visitor:
    """Somebody with a browser's cookies."""

    def __init__(self, facts: dict[str, Any], name: str, password: str) -> None:
        self.url = facts["url"]
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies)
        )
        self.open("/hub/login")
        form = {"username": name, "password": password, "_xsrf": self.xsrf()}
        self.home = self.open("/hub/login", urllib.parse.urlencode(form).encode())

    def xsrf(self) -> str:
        return next(str(cookie.value) for cookie in self.cookies if cookie.name == "_xsrf" and cookie.path == "/hub/")

    def open(self, path: str, data: bytes | None = None, kind: str = "application/x-www-form-urlencoded") -> str:
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind})
        with self.opener.open(request, timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def api(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        text = self.open(f"/hub/api{path}?_xsrf={urllib.parse.quote(self.xsrf())}", data, "application/json")
        return json.loads(text) if text else None


def server_of(visitor: Visitor, user: str) -> dict[str, Any]:
    found: dict[str, Any] = visitor.api(f"/users/{user}")["servers"].get("", {})
    return found


def test_a_demo_runs_the_loop_survives_its_own_death_and_leaves_nothing(account: PlainAccount) -> None:
    """T16: it is started from a background process whose SIGINT a shell may have ignored, and stops all the same."""
    folder = account.folder / "demo"
    words = ("demo", "--port", "0", "--dir", str(folder), "--users", "2", "--layout", "lab-a100")
    first = account.popen(*words)
    facts = until(lambda: _facts(folder), 120, first)
    assert facts["users"] == ["ada", "ben"]
    assert facts["admin"] == "admin"
    assert facts["url"].startswith("http://127.0.0.1:")
    for name in ("demo.json", "passwords.json", "jupyterhub_config.py"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600

    code, said = account.run(*words)
    assert (code, said.count("\n")) == (2, 1)
    assert "A demo runs in" in said

    first.kill()  # the hub runs on, nobody stops it
    first.communicate()
    assert marked(folder)
    second = account.popen(*words)
    again = until(lambda: _facts(folder, newer_than=facts), 120, second)
    assert again["password"] == facts["password"]

    ada = Visitor(again, "ada", again["password"])
    assert "for trying, not for use" in ada.home
    ada.api("/users/ada/server", {"offer": "mig-2g.10gb"})
    until(lambda: server_of(ada, "ada").get("ready"), 60, second)
    devices = {_variable(pid, "CUDA_VISIBLE_DEVICES") for pid, _ in marked(folder)} - {None}
    assert len(devices) == 1
    assert devices.pop().startswith("MIG-")
    child = account.left_over(folder)

    began = time.monotonic()
    second.send_signal(signal.SIGINT)
    said, _ = second.communicate(timeout=STOPS_WITHIN_SECONDS + 5)
    assert second.returncode == 0, said
    assert time.monotonic() - began < STOPS_WITHIN_SECONDS
    assert not marked(folder), said
    with child:
        assert child.wait(timeout=1) is not None
    assert "Traceback" not in said


def test_a_folder_that_holds_other_things_is_left_alone(account: PlainAccount) -> None:
    folder = account.folder / "thesis"
    folder.mkdir()
    (folder / "chapter-1.txt").write_text("years of work")
    folder.chmod(0o777)
    if os.geteuid() != 0:
        code, said = account.run("demo", "--port", "0", "--dir", str(folder), "--clean")
    else:
        os.chown(account.folder, 0, 0)
        code, said = account.run("demo", "--port", "0", "--dir", str(folder), "--clean")
    assert code == 2
    assert "is not a demo's" in said or "another account" in said
    assert (folder / "chapter-1.txt").read_text() == "years of work"


def _facts(folder: Path, newer_than: dict[str, Any] | None = None) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    except FileNotFoundError:
        return None
    return None if found == newer_than else found


def _variable(pid: int, name: str) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [entry for entry in environment if entry.startswith(name.encode() + b"=")]
    return found[0].decode().split("=", 1)[1] if found else None
