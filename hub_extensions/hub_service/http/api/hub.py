"""The hub's routes: its spawners ask for admission, report how a start went, and follow changes.

The hub's signature authorises these requests. The service sends no request back to the hub for that, because the hub
polls its spawners before it listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

from tornado.iostream import StreamClosedError

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.messages import Ask, Ended, SignedOut, Started, Stopped, TicketStatus, WithoutSessions
from hub_extensions.core.sign_on.ended_sessions import EndedSessions
from hub_extensions.hub_service.http.api.base import JsonRoute, Parts
from hub_extensions.hub_service.http.api.codec import BadInput, write
from hub_extensions.hub_service.http.auth import Forbidden, Who

log = logging.getLogger("hub_extensions.hub_service.http.api")

HEARTBEAT_SECONDS = 5.0
READER_SECONDS = 10.0
"""A reader of events that does not accept a line for this long is dropped; it reconnects and gets all live tickets."""


class HubTickets(JsonRoute):
    """POST: spawners ask whether their servers may start now, one request per line."""

    who = Who.HUB

    async def post(self) -> None:
        """Find or create the ticket (place in line) of each server, and answer with their statuses.

        The answers are in the order of the requests, one per line.
        """
        self.answer_lines(await self.engine.ask_all(self.messages(Ask)))


class HubTicketStarted(JsonRoute):
    """POST: the server of an admitted ticket (place in line) has a process, or is ready."""

    who = Who.HUB

    async def post(self, ticket: str) -> None:
        """Record the server's process, or end the ticket (place in line) because the server is ready.

        Answer with the ticket's status.
        """
        self.answer(await self.engine.started(ticket, self.message(Started)))


class HubTicketEnded(JsonRoute):
    """POST: a try to start a server has ended, because it was cancelled or because it failed."""

    who = Who.HUB

    async def post(self, ticket: str) -> None:
        """End the ticket (the user's place in line), unless the hub has begun another try to start the server."""
        await self.engine.ended(ticket, self.message(Ended))
        self.no_content()


class HubStopped(JsonRoute):
    """POST: the hub stopped a server. The service would notice it by itself, but later."""

    who = Who.HUB

    async def post(self) -> None:
        """Record that the server was stopped, and check at once whether its device is free."""
        await self.engine.stopped(self.message(Stopped))
        self.no_content()


class HubSignedOut(JsonRoute):
    """POST: the user of a server was signed out, so the server has to stop."""

    who = Who.HUB

    async def post(self) -> None:
        """Plan the stop of the server, if it holds a GPU, and answer with the time until it stops.

        A repeated request gets the time that is left.
        """
        self.answer(await self.engine.signed_out(self.message(SignedOut)))


class HubWithoutSession(JsonRoute):
    """POST: all users without a sign-in session, for whom nobody can check whether the account still exists."""

    who = Who.HUB

    async def post(self) -> None:
        """Store the list of all users without a sign-in session.

        A server of such a user runs as long as it is busy. The button *Keep* no longer protects it from being stopped
        as idle.
        """
        await self.engine.without_session(self.message(WithoutSessions))
        self.no_content()


class HubSessionsEnded(JsonRoute):
    """POST: sessions of a user have ended at the hub, so cached logins and tokens of that user are invalid."""

    who = Who.HUB

    async def post(self) -> None:
        """Drop all cached logins and tokens of the user whose sessions have ended."""
        self.parts.auth.forget(self.message(EndedSessions).user)
        self.no_content()


class PageRoute(JsonRoute):
    """A route from which the hub gets the data for one of its own pages."""

    who = Who.HUB

    async def note_language(self, user: str) -> None:
        """Store the page's language for mails to this user.

        If somebody other than this user reads the page, the hub sends no language, and nothing is stored.
        """
        if language := self.request.headers.get("Accept-Language", ""):
            await self.engine.note_language(user, catalogue_for(language).language)


class HubForm(PageRoute):
    """GET: everything that the spawn form of one user needs."""

    async def get(self) -> None:
        """Answer with the offers and the other values of the spawn form (`FormState`).

        Query: user, server, group (repeated), admin (0 or 1). Header: the language of the page.
        """
        self.only_queries("user", "server", "group", "admin")
        admin = self.get_query_argument("admin", "0")
        if admin not in ("0", "1"):
            raise BadInput(f"admin is {admin!r}; it has to be 0 or 1.", "admin")
        user = self.get_query_argument("user")
        groups = tuple(self.get_query_arguments("group"))
        await self.note_language(user)
        self.answer(self.engine.form(user, self.get_query_argument("server", ""), groups, admin == "1"))


class HubOverview(PageRoute):
    """GET: one user's tickets (places in line), servers, and failed starts."""

    async def get(self) -> None:
        """Answer with the user's tickets (places in line), servers and failed starts (`UserOverview`).

        Query: user. Header: the language of the page.
        """
        self.only_queries("user")
        user = self.get_query_argument("user")
        await self.note_language(user)
        self.answer(self.engine.overview(user))


class HubCulling(JsonRoute):
    """GET: the culling decision about each running server, for the command ``jupyterhub-gpu cull --dry-run``."""

    who = Who.HUB

    async def get(self) -> None:
        """Answer with what culling decides about each running server now. Nothing is stopped."""
        self.only_queries()
        self.answer(await self.engine.culling())


class HubEvents(JsonRoute):
    """GET: one line of JSON for every live ticket (place in line), then one for every change of a ticket's status.

    Empty lines are sent while nothing happens. Each line begins with its signature and a space. The answer ends only
    when the reader disconnects or does not read, or the service stops.
    """

    who = Who.HUB

    def initialize(self, parts: Parts) -> None:
        super().initialize(parts)
        self._gone = asyncio.Event()

    def on_connection_close(self) -> None:
        self._gone.set()
        super().on_connection_close()

    async def get(self) -> None:
        """Send the statuses of tickets (places in line), line by line, until the reader disconnects or does not read.

        The stream ends also when the service stops.
        """
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("X-Accel-Buffering", "no")
        changes = cast("AsyncGenerator[TicketStatus, None]", self.engine.changes())
        ends = {asyncio.create_task(_wait_for(event)) for event in (self._gone, self.parts.closing)}
        try:
            self.sign(b"")
            await asyncio.wait_for(self.flush(), READER_SECONDS)
            await self._relay(changes, ends)
        except (asyncio.TimeoutError, TimeoutError):
            log.warning("a reader of events does not read: dropped")
            self.detach().close()
        except StreamClosedError:
            # the reader went away in the middle of a line: it will be back
            pass
        finally:
            for end in ends:
                end.cancel()
            await changes.aclose()

    async def _relay(self, changes: AsyncGenerator[TicketStatus, None], ends: set[asyncio.Task[None]]) -> None:
        upcoming: asyncio.Future[TicketStatus] = asyncio.ensure_future(anext(changes))
        self._lines = 0
        try:
            while True:
                watched: set[asyncio.Future[Any]] = {upcoming, *ends}
                await asyncio.wait(watched, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if any(end.done() for end in ends):
                    return
                line = b""
                if upcoming.done():
                    line = write(upcoming.result())
                    upcoming = asyncio.ensure_future(anext(changes))
                self.write(self._signed(line) + b"\n")
                await asyncio.wait_for(self.flush(), READER_SECONDS)
        except StopAsyncIteration:
            # the engine has closed
            return
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    def _signed(self, line: bytes) -> bytes:
        if self.signed is None:
            raise Forbidden("This is for the hub, which proves itself by its signature.")
        signed = self.parts.auth.signatures.signed_line(self.signed, self._lines, line)
        self._lines += 1
        return signed


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
