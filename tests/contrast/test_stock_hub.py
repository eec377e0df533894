"""What a stock JupyterHub does with servers that wait for a GPU: the faults ours has to pass, pinned.

A change here means that JupyterHub has been mended (then a workaround of ours can go) or has broken elsewhere.
The spawner of these tests waits inside ``start``, as any spawner does whose machine is full. Ours beside each of them:
``tests/spawner/test_real_hub.py`` under the same T number.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
import requests

from tests.hubs import Hub, free_port, until
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.whole]
JUPYTERHUB = int(version("jupyterhub").split(".")[0])

WAITS = """
import asyncio, os, time
from jupyterhub.spawner import SimpleLocalProcessSpawner
CHOICES = {"cpu": "", "gpu": "0"}

class Waits(SimpleLocalProcessSpawner):
    def note(self, text):
        with open("notes", "a") as file:
            file.write(f"{self.user.name} {text}\\n")

    async def start(self):
        if CHOICES[(self.user_options or {}).get("profile", "gpu")] == "":
            return await super().start()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.note("cancelled")
            raise

    async def stop(self, now=False):
        self.note("stop")
        return await super().stop(now=now)

c.JupyterHub.spawner_class = Waits
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0.2}
"""


def notes(hub: Hub) -> str:
    path = hub.folder / "notes"
    return path.read_text() if path.exists() else ""


def test_five_waits_that_time_out_end_a_stock_hub(tmp_path: Path) -> None:
    """T1."""
    with Hub(tmp_path, WAITS + "c.Spawner.start_timeout = 1\nc.Spawner.consecutive_failure_limit = 5") as hub:
        names = [f"u{n}" for n in range(5)]
        hub.add_users(*names)
        for name in names:
            hub.spawn(name)
        until(lambda: not hub.running, 20, "the hub has ended")
        assert "Aborting due to 5 consecutive spawn failures" in hub.log()


def test_waiters_fill_the_limit_of_a_stock_hub_for_everybody(tmp_path: Path) -> None:
    """T2."""
    with Hub(tmp_path, WAITS + "c.JupyterHub.concurrent_spawn_limit = 2") as hub:
        hub.add_users("ada", "ben", "cem")
        hub.spawn("ada")
        hub.spawn("ben")
        assert hub.spawn("cem", {"profile": "cpu"}).status_code == 429


def test_a_killed_stock_hub_forgets_who_waited(tmp_path: Path) -> None:
    """T3: and its waiting page has nobody to ask any more."""
    with Hub(tmp_path, WAITS) as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        assert hub.pending("ada") == "spawn"
        hub.kill()
        hub.start()
        assert hub.pending("ada") == ""
        assert hub.api("GET", "users/ada/server/progress").status_code in (400, 404)


def test_a_stop_and_the_end_of_a_stock_hub_look_the_same_to_a_waiter(tmp_path: Path) -> None:
    """T4: the same CancelledError, and no stop() in either case."""
    with Hub(tmp_path, WAITS) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ada")
        hub.spawn("ben")
        hub.stop_server("ada")
        assert notes(hub) == "ada cancelled\n"
        hub.terminate()
        assert notes(hub) == "ada cancelled\nben cancelled\n"


def test_a_stock_hub_says_ready_to_whoever_follows_a_start_that_is_stopped(tmp_path: Path) -> None:
    """For a second after the cancel it takes the server for ready: the page goes to a server that is not there."""
    with Hub(tmp_path, WAITS) as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        events = hub.progress("ada")
        next(events)
        with ThreadPoolExecutor() as pool:
            stop = pool.submit(hub.stop_server, "ada")
            assert any(event.get("ready") for event in events)
            assert stop.result().ok


def test_a_stock_hub_shows_no_reason_of_a_refusal(tmp_path: Path) -> None:
    """T5: "Spawn failed", and nothing after it."""
    refuses = """
from tornado import web
try:
    from jupyterhub.spawner import SpawnException
    refusal = SpawnException("all GPUs are busy", reason="gpu-busy")
except ImportError:
    refusal = web.HTTPError(400, "all GPUs are busy")

class Refuses(Waits):
    async def start(self):
        raise refusal

c.JupyterHub.spawner_class = Refuses
"""
    with Hub(tmp_path, WAITS + refuses) as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada").text
        assert "Spawn failed" in page
        assert "all GPUs are busy" not in page


def test_five_unknown_choices_by_rest_end_a_stock_hub(tmp_path: Path) -> None:
    """T6: any user with a token can do that."""
    with Hub(tmp_path, WAITS + "c.Spawner.consecutive_failure_limit = 5") as hub:
        hub.add_users("ada")
        for _ in range(5):
            hub.spawn("ada", {"profile": "zzz"})
        until(lambda: not hub.running, 20, "the hub has ended")


def test_the_stock_waiting_page_of_a_named_server_stops_the_default_one(tmp_path: Path) -> None:
    """T9: JupyterHub 5 has no button there at all."""
    with Hub(tmp_path, WAITS) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"profile": "gpu"}, "exam")
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada/exam").text
        assert ("api.stop_server(user" in page) == (JUPYTERHUB >= 6)
        assert "stop_named_server" not in page


def test_a_start_timeout_raised_too_late_ends_the_wait_without_a_word(tmp_path: Path) -> None:
    """T10."""
    late = """
class Late(Waits):
    async def start(self):
        self.start_timeout = 3600  # the hub has read it already
        return await super().start()

c.JupyterHub.spawner_class = Late
c.Spawner.start_timeout = 1
"""
    with Hub(tmp_path, WAITS + late) as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        last = list(hub.progress("ada"))[-1]
        assert last["message"] == "Spawn failed: "


def test_the_narrow_scope_to_start_servers_is_not_on_every_hub(tmp_path: Path) -> None:
    """T13: JupyterHub 5 does not start with it; `servers` is on both."""
    role = 'c.JupyterHub.load_roles.append({"name": "starter", "scopes": ["start:servers"], "services": ["tests"]})'
    hub = Hub(tmp_path, WAITS + role)
    try:
        hub.start(wait=False)
        if JUPYTERHUB >= 6:
            hub.wait_up()
            assert hub.running
        else:
            until(lambda: not hub.running, 30, "the hub has given up")
            assert "start:servers" in hub.log()
    finally:
        hub.close()


def test_a_managed_service_outlives_a_killed_stock_hub_and_keeps_its_port(tmp_path: Path) -> None:
    """T14: its successor cannot listen."""
    port = free_port()
    service = f"""
c.JupyterHub.services.append({{
    "name": "plain", "url": "http://127.0.0.1:{port}",
    "command": [{sys.executable!r}, "-m", "http.server", "{port}", "--bind", "127.0.0.1"],
}})
"""
    with Hub(tmp_path, WAITS + service) as hub:
        hub.kill()
        assert requests.get(f"http://127.0.0.1:{port}/", timeout=patient(5)).ok
        hub.start(wait=False)
        until(lambda: "Address already in use" in hub.log(), 40, "the successor has failed")


def test_a_stock_hub_stops_its_services_before_the_servers(tmp_path: Path) -> None:
    """T15: a release at stop() that needs the service fails."""
    port = free_port()
    text = f"""
import socket

class AsksAtStop(Waits):
    async def stop(self, now=False):
        with socket.socket() as probe:
            self.note("refused" if probe.connect_ex(("127.0.0.1", {port})) else "answered")
        return await super().stop(now=now)

c.JupyterHub.spawner_class = AsksAtStop
c.JupyterHub.services.append({{
    "name": "plain", "url": "http://127.0.0.1:{port}",
    "command": [{sys.executable!r}, "-m", "http.server", "{port}", "--bind", "127.0.0.1"],
}})
"""
    with Hub(tmp_path, WAITS + text) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"profile": "cpu"})
        hub.wait_ready("ada")
        hub.terminate()
        assert "ada refused" in notes(hub)


def test_a_service_of_a_stock_hub_in_the_background_is_deaf_to_its_first_signal(tmp_path: Path) -> None:
    """T16: a script's ``&`` has SIGINT ignored, the service inherits that, and the hub's end waits for it."""
    port = free_port()
    text = f"""
c.JupyterHub.services.append({{
    "name": "plain", "url": "http://127.0.0.1:{port}",
    "command": [{sys.executable!r}, "-m", "http.server", "{port}", "--bind", "127.0.0.1"],
}})
"""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    hub = Hub(tmp_path, WAITS + text, warm=False)
    try:
        hub.start()
        signal.signal(signal.SIGINT, before)
        began = time.monotonic()
        hub.signal(signal.SIGTERM, 90)
        assert time.monotonic() - began > 9
    finally:
        signal.signal(signal.SIGINT, before)
        hub.close()


def test_a_child_that_left_its_session_survives_the_stop_of_a_stock_server(tmp_path: Path) -> None:
    """T17: with a GPU it keeps the memory."""
    with Hub(tmp_path, WAITS + 'c.Spawner.environment = {"FAKE_SINGLEUSER_FORK": "1"}') as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"profile": "cpu"})
        hub.wait_ready("ada")
        hub.stop_server("ada")
        until(lambda: hub.server("ada") is None)
        left = [pid for pid in hub.processes() if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(left) == 1


def test_a_stock_hub_ends_a_stranger_that_got_the_pid_of_a_server(tmp_path: Path) -> None:
    """T17: after a restart ``kill(pid, 0)`` is all it asks."""
    with Hub(tmp_path, WAITS + "c.JupyterHub.cleanup_servers = False\nc.Spawner.http_timeout = 1") as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"profile": "cpu"})
        hub.wait_ready("ada")
        pid = hub.server("ada")["state"]["pid"]  # type: ignore[index]
        hub.kill()
        os.kill(pid, signal.SIGKILL)
        stranger = subprocess.Popen(["sleep", "60"])
        try:
            with sqlite3.connect(hub.folder / "jupyterhub.sqlite") as db:
                db.execute("update spawners set state = ? where state like '%pid%'", (f'{{"pid": {stranger.pid}}}',))
            hub.start()
            assert stranger.wait(patient(20)) != 0
        finally:
            stranger.kill()
            stranger.wait()


TLS_SERVICE = """
import http.server, os, ssl
server = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), http.server.SimpleHTTPRequestHandler)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=os.environ["JUPYTERHUB_SSL_CLIENT_CA"])
context.load_cert_chain(os.environ["JUPYTERHUB_SSL_CERTFILE"], os.environ["JUPYTERHUB_SSL_KEYFILE"])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
INTERNAL_SSL = """
import sys
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = "certificates"
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
service = {{"name": "tls", "url": "https://127.0.0.1:{port}", "environment": {{"PORT": "{port}"}}}}
service["command"] = [sys.executable, "-c", {program!r}]
service.update({timeout})
c.JupyterHub.services = [*c.JupyterHub.services, service]
"""


def test_a_stock_hub_ends_where_a_service_of_its_own_listens_with_the_certificate_it_made(tmp_path: Path) -> None:
    """So ours listens by plain HTTP, also with internal_ssl: 6.1 asks with a context that is for listeners only."""
    timeout = {"timeout": 2} if JUPYTERHUB >= 6 else {}  # a field that 5.5 does not know
    hub = Hub(tmp_path, INTERNAL_SSL.format(port=free_port(), program=TLS_SERVICE, timeout=timeout), warm=False)
    if JUPYTERHUB < 6:
        with hub:
            assert "Cannot create a client socket" not in hub.log()
        return
    with pytest.raises(AssertionError, match="the hub ended with 1"), hub:
        pass
    assert "Cannot create a client socket with a PROTOCOL_TLS_SERVER context" in hub.log()
    assert "Cannot connect to tls service managed" in hub.log()
