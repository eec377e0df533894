"""A real JupyterHub with configurable-http-proxy, on free ports in a folder of its own, for tests.

    with Hub(tmp_path, config='c.JupyterHub.spawner_class = "simple"') as hub:
        hub.api("POST", "users/ada")

`start` waits until the hub answers through its proxy; `kill`, `terminate` and `interrupt` end only the hub's own
process, so that `start` afterwards is a restart in the same place; leaving the block ends everything it ever started.
Names ``ada``, ``ben``, … log in with any password (DummyAuthenticator) unless the configuration says otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from tests import secret_notes, warm
from tests.patience import patient, until
from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
SINGLEUSER = [sys.executable, str(ROOT / "tests" / "fakes" / "singleuser.py")]
USERS = ("ada", "ben", "cem", "dora", "eva", "finn", "gil", "hana")
START_SECONDS = 60.0

_BASE = """
import json, os
import jupyterhub.spawner
from tests.ports import free_port
jupyterhub.spawner.random_port = free_port  # its own is bound, closed, and given to somebody else before it is used
from tests import secret_notes
secret_notes.watch()
from jupyterhub.orm import APIToken
APIToken.rounds = 4  # of hashing a token that somebody chose: 16,384 are a tenth of what a hub of the tests computes
c = get_config()  # noqa
facts = json.loads({facts!r})
c.JupyterHub.bind_url = facts["public"]
c.JupyterHub.hub_bind_url = facts["hub"]
c.ConfigurableHTTPProxy.api_url = facts["proxy_api"]
c.ConfigurableHTTPProxy.auth_token = facts["proxy_token"]
c.ConfigurableHTTPProxy.command = facts["proxy_command"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"root-admin"}}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = facts["folder"] + "/home/{{username}}"
c.Spawner.cmd = facts["singleuser"]
c.Spawner.poll_interval = 1
c.Spawner.http_timeout = facts["http_timeout"]
c.LocalProcessSpawner.interrupt_timeout = 1
c.LocalProcessSpawner.term_timeout = 2
c.JupyterHub.log_level = "DEBUG"
c.JupyterHub.services = [{{"name": "tests", "api_token": facts["token"]}}]
c.JupyterHub.load_roles = [{{
    "name": "tests", "services": ["tests"],
    "scopes": ["admin:users", "admin:servers", "admin:groups", "list:users", "tokens", "servers", "admin:server_state",
               "read:hub", "shutdown", "read:metrics", "access:servers", "access:services"],
}}]
"""


def proxy_command() -> list[str] | None:
    """configurable-http-proxy, from the path or where the set-up and developers keep it; None: there is none."""
    places = [shutil.which("configurable-http-proxy")]
    for folder in (
        ROOT / "node_modules" / ".bin",
        ROOT / ".work" / "npm" / "node_modules" / ".bin",
    ):
        places.append(
            str(folder / "configurable-http-proxy") if (folder / "configurable-http-proxy").exists() else None
        )
    return next(([place] for place in places if place), None)


class Hub:
    """One hub. `config` is Python text, run after our own settings; `python` starts it, `warm` or as a shell would."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        *,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        warm: bool = True,
    ) -> None:
        self.folder = folder
        self.python = python
        self.port = free_port()
        self.hub_port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = secrets.token_hex(16)
        self.mark = secrets.token_hex(16)
        self.env = env or {}
        self._warm = warm
        self.process: subprocess.Popen[bytes] | None = None
        command = proxy_command()
        assert command, "configurable-http-proxy is not installed: npm ci in the root of the project brings it"
        facts = {
            "public": f"{self.url}/",
            "hub": f"http://127.0.0.1:{self.hub_port}",
            "proxy_api": f"http://127.0.0.1:{free_port()}",
            "proxy_token": self.mark,
            "proxy_command": command,
            "folder": str(folder),
            "token": self.token,
            "singleuser": SINGLEUSER,
            "http_timeout": int(patient(20)),
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "jupyterhub_config.py"
        self.config.write_text(_BASE.format(facts=json.dumps(facts)) + "\n" + config + "\n")
        self.log_file = folder / "hub.log"

    def __enter__(self) -> Hub:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- life

    def start(self, *, wait: bool = True) -> None:
        """Start it (again); with `wait` until it answers through the proxy."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        mine = ("PYTEST_XDIST_WORKER", "TEST_LANE", secret_notes.FOLDER)  # whose ports, and whose secrets
        keep = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", *mine)
        env = {key: os.environ[key] for key in keep if key in os.environ}
        node = shutil.which("node")
        folders = [str(Path(self.python).parent), *([str(Path(node).parent)] if node else []), env.get("PATH", "")]
        env |= {
            "PATH": os.pathsep.join(folders),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "HUB_TEST_MARK": self.mark,
        }
        with open(self.log_file, "ab") as log:
            self.process = (warm.Popen if self._warm else subprocess.Popen)(
                [self.python, "-m", "jupyterhub", "-f", str(self.config)],
                cwd=self.folder,
                env=env | self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            self.wait_up()

    def wait_up(self, seconds: float = START_SECONDS) -> None:
        """Wait until the hub answers through its proxy."""

        def up() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the hub ended with {self.process.returncode}:\n{self.log()[-6000:]}"
            if "JupyterHub is now running" not in self.log_since_start:
                return False
            with contextlib.suppress(requests.RequestException):
                return requests.get(f"{self.url}/hub/api/", timeout=patient(2)).ok
            return False

        self._log_start = self._log_start if hasattr(self, "_log_start") else 0
        until(up, seconds, lambda: f"the hub answers; its log ends:\n{self.log()[-3000:]}")
        self._log_start = len(self.log())

    @property
    def log_since_start(self) -> str:
        return self.log()[getattr(self, "_log_start", 0) :]

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int, seconds: float = 40.0) -> int:
        """Signal the hub's own process, and wait for its end. Returns its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(patient(seconds))

    def kill(self) -> int:
        """``kill -9`` of the hub: proxy, service and servers stay."""
        return self.signal(signal.SIGKILL)

    def terminate(self) -> int:
        return self.signal(signal.SIGTERM)

    def interrupt(self) -> int:
        return self.signal(signal.SIGINT)

    def close(self) -> None:
        """End the hub and everything it ever started, at once: how it ends by itself is what `terminate` is for."""
        deadline, kept = time.monotonic() + patient(10), False
        while time.monotonic() < deadline:
            left = list(self.processes())
            if not left:
                break
            if not kept:
                kept = True
                secret_notes.keep_command_lines(self.folder, left)
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.1)
            time.sleep(0.05)

    def processes(self) -> Iterator[int]:
        """Every live process of this hub: itself, its proxy, its services and servers and their children."""
        marks = (self.mark.encode(), f"127.0.0.1:{self.hub_port}/hub/api".encode())
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{entry}/environ").read_bytes()
                state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and any(mark in environ for mark in marks):
                    yield int(entry)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    # ---------------------------------------------------------------- talk

    def api(
        self, method: str, path: str, body: object = None, *, token: str = "", timeout: float = 30.0
    ) -> requests.Response:
        """A request to the hub's REST API, as an admin unless another `token` is given."""
        return requests.request(
            method,
            f"{self.url}/hub/api/{path}",
            json=body,
            headers={"Authorization": f"token {token or self.token}"},
            timeout=patient(timeout),
        )

    def add_users(self, *names: str) -> None:
        answer = self.api("POST", "users", {"usernames": list(names)})
        assert answer.status_code in (201, 409), answer.text

    def add_group(self, name: str, *users: str) -> None:
        answer = self.api("POST", f"groups/{quote(name)}", {"users": list(users)})
        assert answer.status_code in (201, 409), answer.text

    def token_of(self, user: str) -> str:
        """A new API token of this user, with all that the user may do."""
        answer = self.api("POST", f"users/{quote(user)}/tokens", {"note": "a test"})
        assert answer.ok, answer.text
        return str(answer.json()["token"])

    def spawn(self, user: str, options: object = None, server: str = "", *, token: str = "") -> requests.Response:
        """POST a start. 201: ready, 202: pending."""
        return self.api("POST", self._server_path(user, server), options, token=token)

    def stop_server(self, user: str, server: str = "") -> requests.Response:
        return self.api("DELETE", self._server_path(user, server))

    def server(self, user: str, server: str = "") -> dict[str, Any] | None:
        """The hub's model of one active server, None when there is none."""
        model: dict[str, Any] = self.api("GET", f"users/{user}").json()
        found: dict[str, Any] | None = model.get("servers", {}).get(server)
        return found

    def ready(self, user: str, server: str = "") -> bool:
        model = self.server(user, server)
        return bool(model and model["ready"])

    def pending(self, user: str, server: str = "") -> str:
        model = self.server(user, server)
        return str((model or {}).get("pending") or "")

    def wait_ready(self, user: str, server: str = "", seconds: float = 30.0) -> None:
        until(
            lambda: self.ready(user, server),
            seconds,
            lambda: f"{user}/{server} is ready; the hub's log ends:\n{self.log()[-3000:]}",
        )

    def environ(self, user: str, server: str = "") -> dict[str, str]:
        """The environment of a running fake server (tests/fakes/singleuser.py)."""
        path = f"/user/{user}/{server + '/' if server else ''}environ"
        answer = requests.get(self.url + path, timeout=patient(10))
        found: dict[str, str] = answer.json()["environ"]
        return found

    def progress(self, user: str, server: str = "", seconds: float = 15.0) -> Iterator[dict[str, Any]]:
        """The events of a start, until it is over or `seconds` without any news."""
        path = f"{self._server_path(user, server)}/progress"
        headers = {"Authorization": f"token {self.token}"}
        with requests.get(
            f"{self.url}/hub/api/{path}", headers=headers, stream=True, timeout=(patient(5), patient(seconds))
        ) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith(b"data: "):
                    event: dict[str, Any] = json.loads(line[6:])
                    yield event
                    if event.get("ready") or event.get("failed"):
                        return

    def login(self, name: str, password: str = "any") -> requests.Session:
        """A browser's session without a browser: cookies, and the token of its forms as a header.

        A connection for each request: the proxy (node) closes an idle one after about six seconds, and a request that
        is sent at that moment is lost. A browser sends it again, `requests` does not.
        """
        session = requests.Session()
        session.headers["Connection"] = "close"
        page = session.get(f"{self.url}/hub/login", timeout=patient(20))
        xsrf = session.cookies.get("_xsrf", path="/hub/") or ""
        answer = session.post(
            f"{self.url}/hub/login?next=%2Fhub%2Fhome",
            data={"username": name, "password": password, "_xsrf": xsrf},
            timeout=patient(20),
        )
        assert page.ok and answer.ok, answer.text
        session.headers["X-XSRFToken"] = session.cookies.get("_xsrf", path="/hub/") or ""
        return session

    @staticmethod
    def _server_path(user: str, server: str) -> str:
        return f"users/{quote(user)}/servers/{quote(server)}" if server else f"users/{quote(user)}/server"
