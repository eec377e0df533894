"""The panel in a real JupyterLab, told by the test what the server's extension would say over its websocket.

Honest for what a person sees, and fast: every state of the panel is one message. Not here: the messages themselves
(``states.py``), and whether the server sends them (``test_panel.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, Route, WebSocketRoute

from hub_extensions.core.messages import Push
from hub_extensions.server_extension.codec import encode
from tests.browser.lab import open_lab
from tests.fakes.user_server import UserServer
from tests.machine_needs import TREE

LIVE = re.compile(r"/gpu/live")
PANEL = "#jupyterhub-gpu-panel"
SIDE_BAR = 33
"""How wide JupyterLab's bar of tabs beside the panel is, at most."""

OURS = ("#jupyterhub-gpu-panel", ".jp-gpu-Status")
WORDS_OF_AXE = """([ours, runOnly]) => axe.run(ours, {
  resultTypes: ['violations'], ...(runOnly.length ? {runOnly} : {})}).then(
  found => found.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.target}: ${node.failureSummary} in ${node.html}`)))"""


class LivePage:
    """One JupyterLab page; `push` says something on its connection, `makes` is said to every connection first.

    Attributes:
        refuses: connections are closed at once, as by a server that is gone.
        connections: how many the page made. asked: what it asked the hub, which stands in for a server that is gone.
    """

    def __init__(self, page: Page, server: UserServer) -> None:
        self.page, self.server = page, server
        self.makes: Callable[[], Push] | None = None
        self.refuses = False
        self.connections = 0
        self.asked: list[str] = []
        self._socket: WebSocketRoute | None = None
        page.route_web_socket(LIVE, self._connected)

    def open(self) -> Locator:
        """The panel, open; without a word of the server yet."""
        return open_lab(self.page, self.server)

    @property
    def panel(self) -> Locator:
        return self.page.locator(PANEL)

    def show(self, makes: Callable[[], Push]) -> None:
        """Tell this now, and to every connection that comes."""
        self.makes = makes
        self.push(makes())

    def push(self, push: Push) -> None:
        assert self._socket is not None, "the page has not connected"
        self._socket.send(encode(push))

    def hang_up(self) -> None:
        """The server is gone."""
        self.refuses = True
        assert self._socket is not None
        self._socket.close()

    def stop_server(self) -> None:
        """The server is stopped: its connections end, and the hub answers in its place."""

        def answer(route: Route) -> None:
            self.asked.append(route.request.url)
            route.fulfill(status=424, json={"message": "JupyterHub server no longer running at /user/ada/."})

        self.page.route("**/user/ada/**", answer)
        self.hang_up()

    def start_server(self) -> None:
        """It runs again, and the page learns of it without a minute's wait, as when its network is there again."""
        self.page.unroute_all()
        self.page.route_web_socket(LIVE, self._connected)
        self.refuses = False
        self.page.evaluate("window.dispatchEvent(new Event('online'))")

    def widen(self, pixels: int) -> None:
        """Drag the edge of the right sidebar until the panel is so wide."""
        box = self._box()
        edge = box["x"] - 2
        middle = box["y"] + 300
        self.page.mouse.move(edge, middle)
        self.page.mouse.down()
        self.page.mouse.move(edge + box["width"] - pixels, middle, steps=4)
        self.page.mouse.up()
        self.page.wait_for_function(
            f"Math.abs(document.querySelector('{PANEL}').getBoundingClientRect().width - {pixels}) < 3"
        )

    def findings(self, axe: str, *rules: str, of: str = "") -> list[str]:
        """What axe finds in the panel and the status bar's item, or in this; by all of its rules or by these."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe)
        found: list[str] = self.page.evaluate(WORDS_OF_AXE, [[of] if of else list(OURS), list(rules)])
        return found

    def cut_off(self) -> list[str]:
        """The words of the panel that do not fit into its width, or into their own box."""
        found: list[str] = self.page.evaluate(
            f"""() => [...document.querySelectorAll('{PANEL}, {PANEL} :is(p, span, button, dd, dt, li, h3, td)')]
              .filter(element => !element.closest('.jp-gpu-Heard') && element.scrollWidth > element.clientWidth + 1
                && getComputedStyle(element).display !== 'inline')
              .map(element => element.className + ': ' + element.textContent)"""
        )
        return found

    def _box(self) -> Any:
        box = self.panel.bounding_box()
        assert box is not None
        return box

    def _connected(self, socket: WebSocketRoute) -> None:
        self.connections += 1
        if self.refuses:
            socket.close()
            return
        self._socket = socket
        if self.makes is not None:
            socket.send(encode(self.makes()))


def axe_source() -> str:
    """axe-core as npm installed it: in the tree, or below ``.work``."""
    for place in (TREE, TREE / ".work" / "npm"):
        file = place / "node_modules" / "axe-core" / "axe.min.js"
        if file.exists():
            return file.read_text()
    raise AssertionError("axe-core is not installed: npm ci")
