"""A hub and its proxy as a browser meets them, played: which page stands at which address is the test's to say.

The pages are our own templates and the stock ones, in a bare ``page.html``. It shows in seconds what a real hub shows
only when it is killed in the right hundredth of one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
from jupyterhub._data import DATA_FILES_PATH

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.core.text.translation import ENGLISH, Catalogue, halves
from hub_extensions.spawner.pages.overview import NotRunningView, failed_view
from hub_extensions.spawner.pages.spawn_form import TEMPLATES
from tests.patience import patient

PAGE = """<!DOCTYPE html><title>{% block title %}{% endblock %}</title>
<script>window.require = function () {};</script>
{% block meta %}{% endblock %}{% block stylesheet %}{% endblock %}
{% block main %}{% endblock %}{% block script %}{% endblock %}"""
QUICK = "const later = setTimeout; window.setTimeout = (call, wait) => later(call, Math.min(wait, 100));"
"""A script that makes every pause of a page short."""
HUB = {"X-JupyterHub-Version": "6.1.0", "Content-Type": "text/html; charset=utf-8"}
PENDING = "/hub/spawn-pending/ben"
IN_LINE = {
    "message": "You are 1st in line for MIG 1g.5gb.",
    "gpu": {"state": "waiting", "position": 1, "offer_title": "MIG 1g.5gb", "at": "2026-01-05T10:00:00Z"},
}


class PlayedHub:
    """Ben's server, its pages and its hub.

    Attributes:
        to_script, to_window: the page that a script reads, and that the window gets: ``waiting``, ``ready`` (a
            redirect), ``kept``, ``unknown``, ``none``,
            ``stopping``, ``failed``, or ``proxy`` (503 without a hub).
        server_ready: what the hub's API says of the server.
        pending: whether a start is pending, which the stream of events tells.
    """

    def __init__(self) -> None:
        self.to_script = self.to_window = "waiting"
        self.server_ready = False
        self.pending = True
        self.looks: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True

    def __enter__(self) -> PlayedHub:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pending = False
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def page(self, name: str) -> tuple[int, dict[str, str], str]:
        if name == "proxy":
            return 503, {}, "Service Unavailable"
        if name == "ready":
            return 302, {**HUB, "Location": "/user/ben/"}, ""
        if name == "waiting":
            return 200, HUB, _render("spawn_pending.html", progress_url="/hub/api/users/ben/server/progress")
        if name == "stopping":
            return 200, HUB, _render("stop_pending.html")
        if name == "failed":
            return 500, HUB, _render("not_running.html", failed=True, failed_message="The disk is <full>.")
        return 200, HUB, _render("not_running.html", place="" if name == "none" else name)


class _Handler(BaseHTTPRequestHandler):
    hub: PlayedHub

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.split("?")[0]
        if path == PENDING or path.startswith("/hub/user/"):
            window = self.headers.get("Sec-Fetch-Mode") == "navigate"
            name = hub.to_window if window else hub.to_script
            hub.looks += [] if window else [name]
            self.answer(*hub.page(name))
        elif path == "/hub/api/users/ben":
            pending = "spawn" if hub.pending else None
            server = {"ready": hub.server_ready, "pending": pending, "started": "x", "url": "/user/ben/"}
            self.answer(200, HUB, json.dumps({"servers": {"": server} if hub.server_ready or hub.pending else {}}))
        elif path.endswith("/progress"):
            self.stream()
        else:
            self.answer(200 if path == "/user/ben/" or path.endswith("/health") else 404, {}, path)

    def stream(self) -> None:
        """What a start says of itself, to its end."""
        self.answer(200, {"Content-Type": "text/event-stream"}, _event(IN_LINE))
        while self.hub.pending:
            time.sleep(0.05)
        if self.hub.server_ready:
            self.wfile.write(_event({"ready": True, "progress": 100, "message": ""}).encode())

    def answer(self, status: int, headers: dict[str, str], body: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Nothing: a test says what went wrong."""


def _event(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _render(name: str, *, place: str = "", **more: Any) -> str:
    """As JupyterHub renders it: asynchronously, ours before its own."""

    async def gpu_not_running(hub_message: str, t: Catalogue) -> NotRunningView:
        return NotRunningView(place, failed_view((), "", hub_message, UserOptions((OfferId("mig-1g.5gb"),))))

    spawner = SimpleNamespace(
        name="",
        gpu_page={"event": None, "gpu": {}, "wants_gpu": True, "options": {}},
        gpu_not_running=gpu_not_running,
        gpu_catalogue=lambda static_url: ENGLISH,
        gpu_halves=halves,
    )
    user = SimpleNamespace(name="ben", escaped_name="ben", spawners={"": spawner})
    stock = jinja2.FileSystemLoader(Path(DATA_FILES_PATH, "templates"))
    loaders = [
        jinja2.DictLoader({"page.html": PAGE}),
        jinja2.PrefixLoader({"templates": stock}, "/"),
        jinja2.FileSystemLoader(TEMPLATES),
        stock,
    ]
    template = jinja2.Environment(loader=jinja2.ChoiceLoader(loaders), autoescape=True, enable_async=True).get_template(
        name
    )
    names = {"user": user, "spawner": spawner, "server_name": "", "base_url": "/hub/", "spawn_url": "/hub/spawn/ben"}
    return asyncio.run(template.render_async(**names, **more))


def at_server(page: Any) -> None:
    page.wait_for_url("**/user/ben/", timeout=patient(20_000))
