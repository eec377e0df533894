"""What counts as use of a server: seen by a real configurable-http-proxy and by the server itself, over 100 s.

A hub takes the later of both. Every case has a real server of its own behind the one proxy, with our extension (but for
the page without us), and all cases run at the same time. Times are UTC; "moved" is what a culler would see.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, async_playwright
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from tests.browser.lab import PATIENCE_MS, UUID, choose
from tests.fakes.proxy import Proxy
from tests.fakes.user_server import LOGIN_TOKEN, WITH_US, UserServer
from tests.machine_needs import CHROMIUM_FLAGS, built_panel, chromium

SETTLE_SECONDS = 8.0
RESOURCE_USAGE = "api/metrics/v1"
HEADERS = {"Authorization": f"token {LOGIN_TOKEN}"}


class World:
    """The proxy, a browser, and what is to be closed at the end."""

    def __init__(self, proxy: Proxy, browser: Browser, stack: AsyncExitStack) -> None:
        self.proxy = proxy
        self.browser = browser
        self.stack = stack
        self.heard = 0

    async def listen(self, server: UserServer, path: str) -> None:
        """A websocket through the proxy that reads, and answers pings as every browser does."""

        def hear(message: str | bytes | None) -> None:
            self.heard += message is not None

        address = f"{self.proxy.url.replace('http', 'ws', 1)}{server.base_url}{path}"
        request = HTTPRequest(address, headers=dict(HEADERS), request_timeout=30)
        connection = await websocket_connect(request, on_message_callback=hear)
        self.stack.callback(connection.close)

    async def poll(self, server: UserServer, path: str, seconds: float = 1.0) -> None:
        """Ask through the proxy, again and again."""

        async def ask() -> None:
            while True:
                address = f"{self.proxy.url}{server.base_url}{path}"
                await AsyncHTTPClient().fetch(HTTPRequest(address, headers=dict(HEADERS), request_timeout=30))
                await asyncio.sleep(seconds)

        task = asyncio.create_task(ask())
        self.stack.callback(task.cancel)

    async def open_lab(self, server: UserServer, *, with_panel: bool) -> None:
        """JupyterLab in a browser, nothing touched; with us, the panel is open."""
        context = await self.browser.new_context(viewport={"width": 1180, "height": 760})
        self.stack.push_async_callback(context.close)
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(f"{self.proxy.url}{server.base_url}lab?reset&token={LOGIN_TOKEN}")
        await page.locator("#jp-main-dock-panel").wait_for()
        panel = page.locator("#jupyterhub-gpu-panel")
        if not with_panel:
            assert await panel.count() == 0, "we are in the page that is to be without us"
            return
        if not await panel.is_visible():
            await page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]').click()
        await panel.wait_for()


async def nothing(world: World, server: UserServer) -> None:
    """Nobody is there."""


async def panel_alone(world: World, server: UserServer) -> None:
    await world.listen(server, "gpu/live")


async def events_alone(world: World, server: UserServer) -> None:
    await world.listen(server, "api/events/subscribe")


async def notebook(world: World, server: UserServer) -> None:
    status, kernel = await asyncio.to_thread(server.request, "api/kernels", "POST")
    assert status == 201, kernel
    await world.listen(server, "gpu/live")
    await world.listen(server, f"api/kernels/{kernel['id']}/channels?session_id=idle")


async def polled(world: World, server: UserServer) -> None:
    await world.poll(server, "api/kernels")


async def polled_untracked(world: World, server: UserServer) -> None:
    await world.poll(server, "api/kernels?no_track_activity=1")


async def polled_by_peer(world: World, server: UserServer) -> None:
    await world.poll(server, RESOURCE_USAGE, 5.0)


async def lab_without(world: World, server: UserServer) -> None:
    await world.open_lab(server, with_panel=False)


async def lab_with(world: World, server: UserServer) -> None:
    await world.open_lab(server, with_panel=True)


@dataclass(frozen=True)
class Case:
    """What is done to one server. `asked`: whether proxy and server may move; None: printed only."""

    name: str
    does: Callable[[World, UserServer], Awaitable[None]]
    asked: tuple[bool | None, bool | None]
    us: bool = True
    peer: bool = False


CASES = (
    Case("nobody", nothing, (False, False)),
    Case("our panel's connection, alone", panel_alone, (False, False)),
    Case("Jupyter Server's event stream, alone", events_alone, (False, False)),
    Case("an idle kernel's websocket, beside our panel's", notebook, (True, None)),
    Case("asked every 1 s", polled, (True, True)),
    Case("the same with no_track_activity=1", polled_untracked, (True, False)),
    Case("asked every 5 s, as jupyter-resource-usage does", polled_by_peer, (True, True), us=False, peer=True),
    Case("an open JupyterLab page without us", lab_without, (None, None), us=False),
    Case("an open JupyterLab page with our panel open", lab_with, (None, None)),
)


def main() -> None:
    """Start everything, wait, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.activity", description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="a Python with jupyter-resource-usage, for its own polling")
    parser.add_argument("--seconds", type=float, default=100.0, help="how long is watched (100)")
    told = parser.parse_args()
    path = chromium()
    assert path, "no browser: install chromium"
    cases = [case for case in CASES if told.peers or not case.peer]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        servers = []
        for number, case in enumerate(cases):
            servers.append(start(folder / f"case{number}", number, case, told.peers or sys.executable))
            stack.callback(servers[-1].stop)
        routes = {server.base_url.rstrip("/"): f"http://127.0.0.1:{server.port}" for server in servers}
        with Proxy(folder, routes) as proxy:
            lines, heard = asyncio.run(watch(cases, servers, proxy, path, told.seconds))
    print(
        f"{told.seconds:.0f} s each, at the same time; load average {os.getloadavg()[0]:.2f}; {heard} messages heard\n"
    )
    head = ["", "proxy before", "proxy after", "moved", "server before", "server after", "moved", "as asked"]
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    for line in [head, ["-" * width for width in widths], *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def start(directory: Path, number: int, case: Case, peers: str) -> UserServer:
    """A server with a simulated MIG device; JupyterLab finds the built panel, or is told to leave us out."""
    extensions = directory / "share" / "labextensions"
    extensions.mkdir(parents=True)
    choose(directory, "notification", {"fetchNews": "false", "checkForUpdates": False})
    if case.us:
        (extensions / "jupyterhub-gpu").symlink_to(built_panel())
    else:
        (directory / "config" / "labconfig").mkdir(parents=True, exist_ok=True)
        left_out = json.dumps({"disabledExtensions": {"jupyterhub-gpu": True}})
        (directory / "config" / "labconfig" / "page_config.json").write_text(left_out)
    environ = {
        "JUPYTER_PATH": str(directory / "share"),
        "JUPYTERHUB_GPU_LEASE": "lease-of-the-benchmark",
        "JUPYTERHUB_GPU_SIMULATED": "lab-a100",
        "CUDA_VISIBLE_DEVICES": UUID,
    }
    with_us = WITH_US if case.us else dict.fromkeys(WITH_US, False)
    python = peers if case.peer else sys.executable
    return UserServer(directory, environ, base_url=f"/user/case{number}/", extensions=with_us, python=python)


async def watch(
    cases: list[Case], servers: list[UserServer], proxy: Proxy, path: str, seconds: float
) -> tuple[list[list[str]], int]:
    """The lines of the table, and how many messages all websockets heard."""
    async with async_playwright() as playwright, AsyncExitStack() as stack:
        browser = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        stack.push_async_callback(browser.close)
        world = World(proxy, browser, stack)
        for case, server in zip(cases, servers, strict=True):
            await case.does(world, server)
        await asyncio.sleep(SETTLE_SECONDS)  # what opening brings is over
        before = [await asyncio.to_thread(seen, proxy, server) for server in servers]
        await asyncio.sleep(seconds)
        after = [await asyncio.to_thread(seen, proxy, server) for server in servers]
        return [line(*row) for row in zip(cases, before, after, strict=True)], world.heard


def seen(proxy: Proxy, server: UserServer) -> tuple[str, str]:
    """Last activity as the proxy has it, and as the server has it; asking moves neither."""
    return proxy.last_activity(server.base_url.rstrip("/")), server.last_activity()


def line(case: Case, before: tuple[str, str], after: tuple[str, str]) -> list[str]:
    cells = [case.name]
    moved = [then != now for then, now in zip(before, after, strict=True)]
    for number in (0, 1):
        cells += [before[number][11:23], after[number][11:23], "yes" if moved[number] else "no"]
    kept = all(asked is None or asked == found for asked, found in zip(case.asked, moved, strict=True))
    return [*cells, "-" if case.asked == (None, None) else "yes" if kept else "NO"]


if __name__ == "__main__":
    main()
