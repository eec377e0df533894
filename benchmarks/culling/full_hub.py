"""A real hub and proxy with 5,000 servers that run: rows of the hub's database, one small program that answers for all.

The hub finds them at its start as it would after a restart, asks each whether it is up, and gives each its route. A
stop takes 5 s. Not here: what is measured.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import requests
from jupyterhub import orm

from tests.hubs import ROOT, Hub, until
from tests.loop.place import Place, parent_of
from tests.ports import free_port

IDLE = 40
"""So many servers of each culler are to be stopped."""
STOP_SECONDS = 5.0
STOCK_IDLE_SECONDS = 3600
ONE_GPU = 'title: "One card"\ngpus:\n  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n'
CONFIG = """
import asyncio
from hub_extensions.spawner.local import GpuDemoSpawner

class Row(GpuDemoSpawner):
    async def poll(self):
        return None

    async def stop(self, now=False):
        await asyncio.sleep({stop_seconds})

c.JupyterHub.log_level = "INFO"
c.JupyterHub.init_spawners_timeout = 600
c.JupyterHub.last_activity_interval = 86400  # or every route that is made at the start counts as use
c.Spawner.poll_interval = 30
c.Spawner.http_timeout = 600
c.GpuCulling.enabled = True
c.GpuCulling.cpu_idle_minutes = None
c.GpuCulling.policy_file = {policy_file!r}
for name, token in {tokens!r}.items():
    c.JupyterHub.services.append({{"name": name, "api_token": token}})
c.JupyterHub.load_roles.append({{
    "name": "stock", "services": ["stock"],
    "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
}})
c.JupyterHub.load_roles.append({{
    "name": "narrow", "services": ["narrow"], "scopes": ["list:users", "read:users", "read:servers"],
}})
"""
LAST = """
c.JupyterHub.spawner_class = Row
next(role for role in c.JupyterHub.load_roles if role["name"] == "gpu-service")["services"].append("ours")
"""
"""After ``configure(c)``: a second service that may do what ours may, so that one look of it can be measured apart.

``narrow`` lacks a right that our list needs: it reads JupyterHub's own, as the service does of a hub without ours.
"""
NOBODY = "rules:\n  - {name: nobody, groups: [ours-idle], never: true}\n"
OURS = "rules:\n  - {name: short, groups: [ours-idle], cpu_idle: 60 s, warn: 30 s}\n"


@dataclass(frozen=True)
class Request:
    """One line of the hub's log: when it was answered, how long it took, who asked for what."""

    at: float
    seconds: float
    who: str
    method: str
    path: str


LINE = re.compile(
    r"^\[. (?P<at>\S+ \S+) JupyterHub log:\d+\] \d+ (?P<method>[A-Z]+) (?P<path>\S+) \((?P<who>[^@]*)@[^)]*\) "
    r"(?P<ms>[\d.]+)ms",
    re.M,
)


class FullHub:
    """The hub, with `servers` running; our service runs beside it unless `still`."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.servers = servers
        self.policy = folder / "policy.yaml"
        self.policy.write_text(NOBODY)
        self.tokens = {name: os.urandom(16).hex() for name in ("stock", "ours", "narrow")}
        config = CONFIG.format(stop_seconds=STOP_SECONDS, policy_file=str(self.policy), tokens=self.tokens)
        self.place = Place(folder / "hub", layout=ONE_GPU, lab=False, config=config, warm=False)
        self.hub: Hub = self.place.hub
        with self.hub.config.open("a") as file:
            file.write(LAST)
        self._answering: subprocess.Popen[bytes] | None = None

    @contextmanager
    def open(self) -> Iterator[FullHub]:
        """With all its servers up, and known to our service."""
        port = free_port()
        fill(self.hub.folder / "jupyterhub.sqlite", self.servers, port)
        env = os.environ | {"JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}/", "PYTHONPATH": str(ROOT)}
        answering = subprocess.Popen([sys.executable, "-c", ANSWERS, str(port)], env=env)
        try:
            self.hub.start(wait=False)
            self.hub.wait_up(600)
            self.hub.add_group("ours-idle", *(f"ours-{n}" for n in range(IDLE)))
            self.place.wait_service(300)
            until(lambda: self.adopted() >= self.servers, 300, lambda: f"{self.adopted()} adopted")
            yield self
        finally:
            self.hub.close()
            answering.kill()
            answering.wait()

    def adopted(self) -> int:
        """How many servers our service knows."""
        store = self.place.state / "gpu.sqlite"
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as kept:
            return int(kept.execute("SELECT count(*) FROM gpu_server_facts").fetchone()[0])

    def processor_seconds(self) -> float:
        """Of the hub's own process, since its start."""
        assert self.hub.process is not None
        fields = Path(f"/proc/{self.hub.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def requests(self, who: str, since: int) -> list[Request]:
        """What `who` asked of the hub since the log was so long (`mark`)."""
        with self.hub.log_file.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        found = (
            Request(
                datetime.strptime(line["at"], "%Y-%m-%d %H:%M:%S.%f").timestamp(),
                float(line["ms"]) / 1000,
                line["who"],
                line["method"],
                line["path"],
            )
            for line in LINE.finditer(text)
        )
        return [each for each in found if each.who == who]

    def mark(self) -> int:
        """How long the log is now."""
        return self.hub.log_file.stat().st_size

    @contextmanager
    def still(self) -> Iterator[None]:
        """Our service and its parent do nothing meanwhile."""
        child = self.place.service_pid()
        both = (parent_of(child), child)
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in both:
                os.kill(pid, signal.SIGCONT)


class Others(threading.Thread):
    """Somebody else's requests through the proxy, ten a second: how long each took."""

    def __init__(self, full: FullHub) -> None:
        super().__init__(daemon=True)
        self._url = f"{full.hub.url}/hub/api/users/other-0"
        self._headers = {"Authorization": f"token {full.hub.token}"}
        self._over = threading.Event()
        self.taken: list[float] = []

    def run(self) -> None:
        with requests.Session() as session:
            while not self._over.wait(0.1):
                began = time.monotonic()
                session.get(self._url, headers=self._headers, timeout=60).raise_for_status()
                self.taken.append(time.monotonic() - began)

    def __enter__(self) -> Others:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def fill(database: Path, servers: int, port: int) -> None:
    """Users with a server each, ready since a day; who is idle for the stock culler was active two hours ago."""
    database.parent.mkdir(parents=True, exist_ok=True)
    session = orm.new_session_factory(f"sqlite:///{database}")()
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    names = [f"{kind}-{n}" for kind in ("ours", "stock") for n in range(IDLE)]
    names += [f"other-{n}" for n in range(servers - len(names))]
    for name in names:
        active = now - timedelta(seconds=2 * STOCK_IDLE_SECONDS if name.startswith("stock-") else 0)
        user = orm.User(name=name, created=now, last_activity=active)
        server = orm.Server(proto="http", ip="127.0.0.1", port=port, base_url=f"/user/{name}/")
        started = now - timedelta(days=1)
        session.add(orm.Spawner(user=user, server=server, name="", state={}, started=started, last_activity=active))
    session.commit()
    session.close()


ANSWERS = """
import asyncio, sys
from tornado.web import Application, RequestHandler

class Up(RequestHandler):
    def get(self):
        self.set_header("X-JupyterHub-Version", "")
    head = get

async def main():
    Application([(".*", Up)], log_function=lambda _: None).listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()

asyncio.run(main())
"""
