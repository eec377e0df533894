"""A GPU service as a server's extension sees it: three routes, the server's own token, a state the test sets.

Not here: any decision. It keeps what it was told, and can be taken away and brought back at the same address.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hub_extensions.core.culling import CullPolicy, culling_rule
from hub_extensions.core.messages import Countdown, Keep, OfferState, ServerState, Wait
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.codec import encode
from tests.patience import patient
from tests.ports import free_port

TOKEN = "token-of-this-server"
GIB = 1024**3


def offer(
    offer_id: str, title: str, wait: Wait, *, name: str = "", free: int | None = 0, waiting: int = 0
) -> OfferState:
    return OfferState(
        id=offer_id,
        kind="mig",
        title=title,
        description="",
        pool=offer_id,
        share=1.0,
        isolation={"memory": "hardware", "fault": "hardware", "compute": "hardware", "access": "by agreement"},
        memory_bytes=None,
        memory_enforced=True,
        sm_count=None,
        sm_total=None,
        product="NVIDIA A100-PCIE-40GB",
        simulated=True,
        free=free,
        total=1,
        held=1,
        held_by_others=0,
        lost=0,
        waiting=waiting,
        wait=wait,
        name=name,
    )


def a_state(**changes: Any) -> ServerState:
    """A running server on a simulated 1g.5gb, without a countdown."""
    busy = Wait(False, None, None, None, 7800.0, explain("limits-ahead"))
    unknown = Wait(False, None, None, None, None, explain("not-known-which-free"))
    now = Wait(True, 0.0, 0.0, 0.0, 0.0, explain("one-free"))
    state = ServerState(
        user="ada",
        server="",
        offer="mig-1g.5gb",
        title="MIG 1g.5gb",
        name="Small GPU",
        uuid="MIG-00000000-0000-0000-0000-000000000001",
        share=1.0,
        memory_bytes=int(4.75 * GIB),
        memory_enforced=True,
        simulated=True,
        lease_state="running",
        countdown=None,
        keep=Keep(minutes=30, left=1, of=2),
        ends_at=datetime.now(timezone.utc) + timedelta(hours=7),
        save=False,
        warnings=(),
        waits=(
            offer("mig-2g.10gb", "MIG 2g.10gb", busy, name="Medium GPU", waiting=1),
            offer("gpu-0.5", "Half of a GPU", unknown, free=None),
            replace(offer("cpu", "CPU only", now, free=None), share=0.0),
        ),
        rule=culling_rule(CullPolicy(enabled=True)),
    )
    return replace(state, **changes)


def a_countdown(seconds: float = 540, **changes: Any) -> Countdown:
    stops = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    why = explain("idle", idle=timedelta(minutes=21))
    return replace(Countdown(stops, "idle", why, can_keep=True, warn=True), **changes)


class PanelService:
    """The fake service. `state` None answers 404; `refuse` is a (status, body) for every *keep* and *give back*;
    `redirect` an address; `odd` is what it says instead of any state; `held`: its answers to reports and questions,
    made already, are sent once this is set.

    Attributes:
        calls: (method, path) in order; `reports`: the bodies of the reports; `keeps`: how many were granted;
            `given_back`: whether each GPU that was given back was for CPU only; `extends`: how often the lifetime was
            extended; `progress` and `training_ends`: what was taken about trainings, `refused_trainings`: the paths of
            what was not, because `training_status` was not 204.
    """

    def __init__(self) -> None:
        self.state: ServerState | None = a_state()
        self.refuse: tuple[int, dict[str, Any]] | None = None
        self.redirect = ""
        self.odd = ""
        self.held: threading.Event | None = None
        self.calls: list[tuple[str, str]] = []
        self.reports: list[dict[str, Any]] = []
        self.keeps = 0
        self.given_back: list[bool] = []
        self.training_status = 204
        self.progress: list[dict[str, Any]] = []
        self.training_ends: list[dict[str, Any]] = []
        self.refused_trainings: list[str] = []
        self.extends = 0
        self._server: ThreadingHTTPServer | None = None
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/services/gpu"

    def come(self) -> PanelService:
        """Listen; after `go` at the same address again."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service._answer(self)

            def do_POST(self) -> None:
                service._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def go(self) -> None:
        """Stop listening: the service is away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = request.path.removeprefix("/services/gpu/")
        if self.redirect:
            request.send_response(307)
            request.send_header("Location", self.redirect)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if request.headers.get("Authorization") != f"token {TOKEN}":
            _send(request, 403, "{}")
            return
        self.calls.append((request.command, path))
        if path == "api/server/report":
            self.reports.append(json.loads(body))
        if path in ("api/server/progress", "api/server/training-ended"):
            if self.training_status != 204:
                self.refused_trainings.append(path)
            elif path == "api/server/progress":
                self.progress.append(json.loads(body))
            else:
                self.training_ends.append(json.loads(body))
            _send(request, self.training_status, "" if self.training_status == 204 else json.dumps({"message": "No."}))
            return
        if self.odd:
            _send(request, 200, self.odd)
            return
        if path == "api/server/give-back":
            self.given_back.append(json.loads(body)["cpu"])
        if path in ("api/server/keep", "api/server/give-back", "api/server/extend") and self.refuse is not None:
            _send(request, self.refuse[0], json.dumps(self.refuse[1]))
            return
        if path == "api/server/keep":
            self.keeps += 1
        if path == "api/server/extend":
            self.extends += 1
        if self.state is None:
            _send(request, 404, json.dumps({"message": "", "field": "", "reason": "unknown"}))
            return
        if path == "api/server/keep" and self.state.keep is not None:
            keep = replace(self.state.keep, left=self.state.keep.left - 1)
            self.state = replace(self.state, keep=keep, countdown=None)
        answer = encode(self.state)
        if self.held is not None and path in ("api/server", "api/server/report"):
            self.held.wait(patient(10))
        _send(request, 200, answer)


def _send(request: BaseHTTPRequestHandler, status: int, body: str) -> None:
    data = body.encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)
