"""What is taken for use of a server, row by row: the stock culler, ours for a GPU, ours for CPU only, on real servers.

Each row has two real JupyterLabs of a real hub behind a real configurable-http-proxy, one with a GPU and one without,
and the same is done to both. The whole runs twice: as JupyterHub is shipped, and with a hub that hears nothing of its
proxy. The GPUs are simulated, and in use as their server's kernels compute. Nobody is stopped: the stock culler is
asked by its own arbiter hook, ours by its dry run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

from playwright.async_api import Browser, async_playwright
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.hubs import until
from tests.loop.place import Place
from tests.machine_needs import CHROMIUM_FLAGS, chromium

LIMIT, REPORTED, WINDOW = 150, 5, 210
"""Seconds: idle for longer is stale, and no start takes so long; a server reports itself so often; so long nothing is
done, of which a new kernel is at rest in all but the first half minute."""
IDLE_BELOW = 2
"""Percent. What computes here needs about 10 % of a core, so that ten of them leave room for the rest."""
COMPUTE = "import time\nwhile True:\n    sum(range(200_000)); time.sleep(0.05){more}"
TOKEN = "0123456789abcdef0123456789abcdef"
SAYS_SO = "; print(time.time())"
ARBITER = """
import json
def hook(inactive, inactive_limit, server):
    with open({file!r}, "a") as out:
        out.write(json.dumps([server["url"], inactive.total_seconds()]) + "\\n")
    return False
c.IdleCuller.cull_arbiter_hook = hook
"""


class Server:
    """One user's server, reached through the proxy."""

    def __init__(self, place: Place, user: str, name: str, token: str, stack: AsyncExitStack) -> None:
        self.user, self.name = user, name
        self.url = f"{place.hub.url}/user/{user}/{name + '/' if name else ''}"
        self.hub = f"{place.hub.url}/hub"
        self.headers = {"Authorization": f"token {token}"}
        self.stack = stack

    async def ask(self, path: str, method: str = "GET", body: object = None) -> bytes:
        """One request; a status of 400 and above raises."""
        data = None if body is None else json.dumps(body)
        url = path if "://" in path else self.url + path
        request = HTTPRequest(url, method=method, headers=self.headers, body=data, request_timeout=60)
        return (await AsyncHTTPClient().fetch(request)).body

    async def poll(self, path: str, seconds: float) -> None:
        """From now on, again and again."""

        async def again() -> None:
            while True:
                await self.ask(path)
                await asyncio.sleep(seconds)

        self.stack.callback(asyncio.ensure_future(again()).cancel)

    async def connect(self, path: str) -> WebSocketClientConnection:
        """A websocket that answers pings, as every browser does."""
        url = f"{self.url.replace('http', 'ws', 1)}{path}"
        request = HTTPRequest(url, headers=self.headers, request_timeout=60)
        return await websocket_connect(request, on_message_callback=lambda _: None)

    async def kernel(self) -> WebSocketClientConnection:
        """A new kernel, by the websocket of a notebook."""
        kernel = json.loads(await self.ask("api/kernels", "POST", {}))
        return await self.connect(f"api/kernels/{kernel['id']}/channels")

    async def run(self, code: str) -> WebSocketClientConnection:
        """A cell of a new kernel runs."""
        socket = await self.kernel()
        await asyncio.sleep(3)
        header = {
            "msg_id": uuid4().hex,
            "msg_type": "execute_request",
            "session": "s",
            "username": "",
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await socket.write_message(json.dumps(message))
        await asyncio.sleep(1)
        return socket

    async def terminal(self, command: str) -> None:
        """A command runs in a terminal, and its page is closed."""
        name = json.loads(await self.ask("api/terminals", "POST", {}))["name"]
        socket = await self.connect(f"terminals/websocket/{name}")
        await asyncio.sleep(2)
        await socket.write_message(json.dumps(["stdin", command + "\r"]))
        await asyncio.sleep(1)
        socket.close()


Does = Callable[[Server, Browser], Awaitable[object]]


async def silent_closed(server: Server, _: Browser) -> None:
    (await server.run(COMPUTE.format(more=""))).close()


async def printing_closed(server: Server, _: Browser) -> None:
    (await server.run(COMPUTE.format(more=SAYS_SO))).close()


async def silent_open(server: Server, _: Browser) -> None:
    server.stack.callback((await server.run(COMPUTE.format(more=""))).close)


async def idle_closed(server: Server, _: Browser) -> None:
    (await server.run("1 + 1")).close()


async def idle_open(server: Server, _: Browser) -> None:
    server.stack.callback((await server.run("1 + 1")).close)


async def visible(server: Server, browser: Browser) -> None:
    context = await browser.new_context(extra_http_headers=server.headers)
    server.stack.push_async_callback(context.close)
    page = await context.new_page()
    await page.goto(server.url + "lab", timeout=120_000)
    await page.locator("#jp-main-dock-panel").wait_for(timeout=120_000)


async def polled_status(server: Server, _: Browser) -> None:
    await server.poll("api/status", 5)


async def polled_ours(server: Server, _: Browser) -> None:
    await server.poll("gpu/snapshot", 5)


async def polled(server: Server, _: Browser) -> None:
    await server.poll("api/kernels", 5)


async def panel(server: Server, _: Browser) -> None:
    server.stack.callback((await server.connect("gpu/live")).close)


async def terminal_silent(server: Server, _: Browser) -> None:
    await server.terminal(in_terminal(""))


async def terminal_printing(server: Server, _: Browser) -> None:
    await server.terminal(in_terminal(SAYS_SO))


async def forged(server: Server, _: Browser) -> None:
    ahead = (datetime.now(timezone.utc) + timedelta(minutes=58)).isoformat()
    body = {"last_activity": ahead, "servers": {server.name: {"last_activity": ahead}}}
    await server.ask(f"{server.hub}/api/users/{server.user}/activity", "POST", body)


def in_terminal(more: str) -> str:
    """The simulated GPU counts a program by the mark of a kernel; NVIDIA's driver counts all."""
    first, _, loop = COMPUTE.format(more=more).partition("\n")
    return f"JPY_PARENT_PID=1 python3 -c 'exec(\"{first}\\n{loop}\")'".replace("\n ", "\\n ")


ROWS: Mapping[str, Does] = {
    "busy kernel, no output, tab closed": silent_closed,
    "busy kernel, prints, tab closed": printing_closed,
    "busy kernel, no output, websocket open": silent_open,
    "idle kernel, tab closed": idle_closed,
    "idle kernel, background tab (websocket only)": idle_open,
    "visible idle JupyterLab, our panel in it": visible,
    "something polls /api/status": polled_status,
    "something polls our handler (untracked)": polled_ours,
    "something polls /api/kernels (tracked)": polled,
    "our panel's connection alone": panel,
    "terminal, silent training, tab closed": terminal_silent,
    "terminal, training that prints, tab closed": terminal_printing,
    "forged POST to the activity URL": forged,
}


ServerKey = tuple[str, str]


@dataclass(frozen=True)
class Verdicts:
    """Servers (user, name) that each culler would stop. `age`: what the stock culler counts, in seconds."""

    age: Mapping[ServerKey, float]
    ours: frozenset[ServerKey]


def config(interval: int) -> str:
    return f"""
c.JupyterHub.last_activity_interval = {interval}
c.Spawner.environment["JUPYTERHUB_ACTIVITY_INTERVAL"] = "{REPORTED}"
c.Spawner.start_timeout = 300
c.Spawner.http_timeout = 300
c.GpuCulling.idle_minutes = {LIMIT / 60}
c.GpuCulling.cpu_idle_minutes = {LIMIT / 60}
c.GpuCulling.warn_minutes = {LIMIT / 120}
c.GpuCulling.grace_minutes = 0
c.GpuCulling.idle_below_percent = {IDLE_BELOW}
c.GpuCulling.unopened_minutes = None
c.GpuCulling.lifetime_hours = None
c.GpuQueue.max_starting = 4
c.JupyterHub.services.append({{"name": "stock", "api_token": {TOKEN!r}}})
c.JupyterHub.load_roles.append({{
    "name": "stock", "services": ["stock"],
    "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
}})
"""


def layout() -> str:
    card = "  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n"
    return f'title: "A card for each row"\ngpus:\n{card * len(ROWS)}'


def one_run(folder: Path, python: str, interval: int) -> Verdicts:
    """A hub of its own, all rows at once."""
    place = Place(folder, layout=layout(), config=config(interval))
    with place.open():
        users = [f"row{number}" for number in range(len(ROWS))]
        place.hub.add_users(*users)
        servers = [(user, name) for user in users for name in ("", "cpu")]
        for user, name in servers:
            place.hub.spawn(user, {"offer": name or "gpu"}, name)
        for user, name in servers:
            place.hub.wait_ready(user, name, seconds=400)
        return asyncio.run(judged(place, users, folder, python))


async def judged(place: Place, users: list[str], folder: Path, python: str) -> Verdicts:
    """Do what each row says to both of its servers, wait, and ask both cullers while all that is open is still open."""
    path = chromium()
    assert path, "no browser: install chromium"
    async with async_playwright() as playwright, AsyncExitStack() as stack:
        browser = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        stack.push_async_callback(browser.close)
        tokens = {user: await asyncio.to_thread(place.hub.token_of, user) for user in users}
        rows = list(zip(users, ROWS.values(), strict=True))
        servers = (
            (does, Server(place, user, name, tokens[user], stack)) for user, does in rows for name in ("", "cpu")
        )
        await asyncio.gather(*(does(server, browser) for does, server in servers))
        await asyncio.sleep(WINDOW)
        return await asyncio.to_thread(lambda: Verdicts(stock_ages(place, folder, python), ours(place)))


def stock_ages(place: Place, folder: Path, python: str) -> Mapping[ServerKey, float]:
    """What the stock culler asks its arbiter about each server."""
    asked, config_file = folder / "asked", folder / "idle_culler_config.py"
    config_file.write_text(ARBITER.format(file=str(asked)))
    words = [python, "-m", "jupyterhub_idle_culler", f"--url={place.hub.url}/hub/api", f"--timeout={LIMIT}"]
    env = {"PATH": os.environ["PATH"], "JUPYTERHUB_API_TOKEN": TOKEN}
    culler = subprocess.Popen([*words, "--cull-every=86400"], cwd=folder, env=env)
    try:
        until(lambda: asked.exists() and asked.read_text().count("\n") >= 2 * len(ROWS), 60, "it has asked about all")
    finally:
        culler.kill()
        culler.wait()
    found = {}
    for line in asked.read_text().splitlines():
        url, seconds = json.loads(line)
        _, _, user, name, *_ = [*url.split("/"), ""]
        found[user, name] = seconds
    return found


def ours(place: Place) -> frozenset[ServerKey]:
    """Whom we would stop now, by the dry run that admins read."""
    answer = place.service("hub/culling")
    answer.raise_for_status()
    servers = answer.json()["servers"]
    assert len(servers) == 2 * len(ROWS), f"{len(servers)} servers are known"
    return frozenset((each["user"], each["server"]) for each in servers if each["action"] == "stop")


def main(python: str) -> None:
    """Both runs, and the table."""
    heads = ("", "stock", "ours, GPU", "ours, CPU only", "stock, deaf", "ours, GPU, deaf", "ours, CPU only, deaf")
    print(f"{WINDOW} s with nothing else, limit {LIMIT} s; deaf: the hub hears nothing of its proxy")
    cells = []
    for interval in (REPORTED, 0):
        with tempfile.TemporaryDirectory() as folder:
            verdicts = one_run(Path(folder), python, interval)
        cells.append([row(verdicts, f"row{number}") for number in range(len(ROWS))])
        print(*cells[-1], sep="\n", flush=True)
    print("| " + " | ".join(heads) + " |\n" + "| --- " * len(heads) + "|")
    for name, with_proxy, deaf in zip(ROWS, *cells, strict=True):
        print("| " + " | ".join((name, *with_proxy, *deaf)) + " |")


def row(verdicts: Verdicts, user: str) -> list[str]:
    """Stock decides about both servers alike; where it does not, both are shown. Its age is the greater one."""
    ages = [verdicts.age[user, name] for name in ("", "cpu")]
    stock = {"STOPPED" if age >= LIMIT else "kept" for age in ages}
    return [
        f"{' and '.join(sorted(stock))} ({max(ages):.0f} s)",
        *("STOPPED" if (user, name) in verdicts.ours else "kept" for name in ("", "cpu")),
    ]
