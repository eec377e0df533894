"""POST gpu/sign-on/recheck: after a session has ended, this server asks the hub again about everybody who uses it.

The hub reports only that some session (a browser that is signed in) has ended. The server drops the hub's cached
answers, so the next request of each page is checked again. It also checks the token of each open WebSocket at once and
closes those that the hub refuses. Kernels and terminals go on.

Each WebSocket of any part of the server (kernels, terminals, the panel, collaboration, proxied apps) is put on a list
when it opens, because Tornado does not keep such a list and ``close_all_connections`` leaves WebSockets open. Searching
all objects in memory instead would block a JupyterLab server for 60 ms.
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
SIGNED_OUT = 4401  # the code of a WebSocket that was closed because its session had ended
TRIES_AFTER_SECONDS = (0.0, 0.5, 2.0)
"""Pauses before each try to ask the hub about a token. If it never answers, the WebSocket is closed."""


class Recheck:
    """Asks the hub again whether the users of open connections may still use this server, one round at a time.

    Args:
        hub_auth: returns JupyterHub's `HubAuth` of this server; `None` without a hub.
    """

    def __init__(self, hub_auth: Callable[[], Any]) -> None:
        self._hub_auth = hub_auth
        self._lock = asyncio.Lock()

    async def run(self) -> int:
        """Forget the hub's cached answers, and ask the hub about the token of each open WebSocket.

        A WebSocket is closed if the hub refuses its token, or does not answer about the token in several attempts.

        Returns:
            The number of WebSockets that were closed.
        """
        async with self._lock:
            hub_auth = self._hub_auth()
            if hub_auth is None:
                return 0
            hub_auth.cache.clear()
            by_token: dict[str, list[WebSocketHandler]] = {}
            for handler in open_websockets():
                by_token.setdefault(str(hub_auth.get_token(handler) or ""), []).append(handler)
            # each is closed after its own answer, so a slow one delays no other
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
        return False  # the hub did not grant access here, so it cannot revoke it
    for pause in TRIES_AFTER_SECONDS:
        await asyncio.sleep(pause)
        try:
            answer: Awaitable[Mapping[str, object] | None] = hub_auth.user_for_token(token, use_cache=False, sync=False)
            return await answer is None
        except web.HTTPError as error:
            log.debug("The hub does not answer about a token: %s", error)
    return True


def open_websockets() -> list[WebSocketHandler]:
    """Return every open WebSocket of this process that was opened after the call of `note_websockets`."""
    return [each for each in _noted if each.ws_connection is not None]


_noted: WeakSet[WebSocketHandler] = WeakSet()


def note_websockets() -> None:
    """Wrap Tornado's handler so that each WebSocket that opens from now on is in the list of `open_websockets`.

    A second call has no effect.
    """
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
    """POST gpu/sign-on/recheck, which only the hub may call.

    The hub signs the request with this server's own token or key, and sends neither of them.
    """

    def initialize(self, recheck: Recheck) -> None:
        self._recheck = recheck

    async def prepare(self) -> None:  # type: ignore[override]  # as Jupyter Server has it
        """Check the signature before any byte of a body is read; this route works without a login."""
        if not self._is_signed():
            raise web.HTTPError(403)
        BoundedBody.take_body(self)

    def check_xsrf_cookie(self) -> None:
        """Skip the check, because this route uses no cookie."""

    def _is_signed(self) -> bool:
        header = self.request.headers.get("Authorization", "")
        secrets = (os.environ.get(name, "") for name in ("JUPYTERHUB_API_TOKEN", VARIABLE))
        return any(request_of(each, "POST", str(self.request.uri), header) is not None for each in secrets)

    @allow_unauthenticated
    async def post(self) -> None:
        await self._recheck.run()
        self.set_status(204)
        self.finish()
