"""POST gpu/sign-on/recheck: the hub says that a session ended somewhere; this server asks it again about everybody.

It is told nothing else. Cached answers of the hub are forgotten, so the next request of each page asks; and the token
behind each open WebSocket is asked about at once: what the hub refuses is closed. Kernels and terminals live on.
Each WebSocket is noted as it opens, whosever it is (kernels, terminals, the panel, collaboration, proxied apps):
Tornado keeps no list of them, and ``close_all_connections`` leaves them open. To look for them among all objects in
memory takes 60 ms of a JupyterLab server's processor, in which it does nothing else.
Not here: which session ended, and why (the hub knows).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any
from weakref import WeakSet

from jupyter_server.auth.decorator import allow_unauthenticated
from tornado import web
from tornado.websocket import WebSocketHandler

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.core.sign_on.server_key import VARIABLE
from hub_extensions.core.signing import request_of
from hub_extensions.server_extension.routes import PanelHandler

log = logging.getLogger(__name__)

PATH = "/gpu/sign-on/recheck"
SIGNED_OUT = 4401
"""The code of a WebSocket that was closed because its session had ended."""
TRIES_AFTER_SECONDS = (0.0, 0.5, 2.0)
"""A hub that does not answer is asked again; after that who is behind a WebSocket is not known, so it is closed."""


class Recheck:
    """Asks the hub again, once at a time. `hub_auth`: JupyterHub's own part of this server; None: there is no hub."""

    def __init__(self, hub_auth: Callable[[], Any]) -> None:
        self._hub_auth = hub_auth
        self._lock = asyncio.Lock()

    async def run(self) -> int:
        """How many WebSockets were closed."""
        async with self._lock:
            hub_auth = self._hub_auth()
            if hub_auth is None:
                return 0
            hub_auth.cache.clear()
            by_token: dict[str, list[WebSocketHandler]] = {}
            for handler in open_websockets():
                by_token.setdefault(str(hub_auth.get_token(handler) or ""), []).append(handler)
            # each is closed at its own answer: a slow one keeps no other open
            closed = sum(await asyncio.gather(*(_close_if_refused(hub_auth, *each) for each in by_token.items())))
            if closed:
                log.info("%s WebSockets were closed: their session has ended", closed)
            return closed


async def _close_if_refused(hub_auth: Any, token: str, handlers: Sequence[WebSocketHandler]) -> int:
    if not await _is_refused(hub_auth, token):
        return 0
    for handler in handlers:
        handler.close(SIGNED_OUT, "signed out")
    return len(handlers)


async def _is_refused(hub_auth: Any, token: str) -> bool:
    if not token:
        return False  # not let in by the hub, so the hub does not take it back
    for pause in TRIES_AFTER_SECONDS:
        await asyncio.sleep(pause)
        try:
            answer: Awaitable[Mapping[str, object] | None] = hub_auth.user_for_token(token, use_cache=False, sync=False)
            return await answer is None
        except web.HTTPError as error:
            log.debug("The hub does not answer about a token: %s", error)
    return True


def open_websockets() -> list[WebSocketHandler]:
    """Every WebSocket of this process that is open, of those that opened after `note_websockets`."""
    return [each for each in _noted if each.ws_connection is not None]


_noted: WeakSet[WebSocketHandler] = WeakSet()


def note_websockets() -> None:
    """From now on each WebSocket that opens in this process is noted; a second call changes nothing."""
    opens = WebSocketHandler.get
    if getattr(opens, "notes_websockets", False):
        return

    @wraps(opens)
    async def noted(handler: WebSocketHandler, *args: Any, **kwargs: Any) -> None:
        _noted.add(handler)
        await opens(handler, *args, **kwargs)

    noted.notes_websockets = True  # type: ignore[attr-defined]
    WebSocketHandler.get = noted  # type: ignore[assignment, method-assign]


class RecheckHandler(PanelHandler):
    """The route. The hub proves who it is by the server's own token or the key that it gave it, and sends neither."""

    def initialize(self, recheck: Recheck) -> None:
        """What it speaks for."""
        self._recheck = recheck

    async def prepare(self) -> None:  # type: ignore[override]  # as Jupyter Server has it
        """Nobody is signed in here: a signature is asked for before a byte of a body."""
        if not self._is_signed():
            raise web.HTTPError(403)
        BoundedBody.take_body(self)

    def check_xsrf_cookie(self) -> None:
        """No cookie counts here, so there is nothing to forge."""

    def _is_signed(self) -> bool:
        header = self.request.headers.get("Authorization", "")
        secrets = (os.environ.get(name, "") for name in ("JUPYTERHUB_API_TOKEN", VARIABLE))
        return any(request_of(each, "POST", str(self.request.uri), header) is not None for each in secrets)

    @allow_unauthenticated
    async def post(self) -> None:
        """See the class."""
        await self._recheck.run()
        self.set_status(204)
        self.finish()
