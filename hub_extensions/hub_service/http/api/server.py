"""The routes of a user's server: its own state, its own report, its own *keep*, giving its GPU back.

User and server come from the token's scope alone: nothing a server sends can name another one.
"""

from __future__ import annotations

from hub_extensions.core.messages import GiveBack, Progress, Report
from hub_extensions.hub_service.http.api.base import JsonRoute
from hub_extensions.hub_service.http.api.codec import BadInput
from hub_extensions.hub_service.http.auth import Forbidden, Server, Who


class ServerRoute(JsonRoute):
    """A route for one server's own token."""

    who = Who.SERVER

    @property
    def server(self) -> Server:
        """The server whose token this is."""
        if not isinstance(self.caller, Server):
            raise Forbidden("This needs the server's own token.")
        return self.caller


class OwnServer(ServerRoute):
    """GET: what the service knows about this server."""

    async def get(self) -> None:
        """The state; 404 while the service knows no such server."""
        state = self.engine.server_state(self.server.user, self.server.server)
        if state is None:
            raise BadInput("The GPU service does not know this server yet.", status=404, reason="unknown-server")
        self.answer(state)


class OwnReport(ServerRoute):
    """POST: what the server's extension sees."""

    async def post(self) -> None:
        """Note it; it can only protect this server."""
        self.answer(await self.engine.report(self.server.user, self.server.server, self.message(Report)))


class OwnProgress(ServerRoute):
    """POST: when this server expects to be done with its GPU."""

    async def post(self) -> None:
        """Note it for the waits of others; one that is older than the last, or of before its start, changes nothing."""
        self.engine.progress(self.server.user, self.server.server, self.message(Progress))
        self.no_content()


class OwnGiveBack(ServerRoute):
    """POST: give this server's GPU back."""

    async def post(self) -> None:
        """It stops, or comes back without a GPU."""
        wanted = self.message(GiveBack)
        self.answer(await self.engine.give_back(self.server.user, self.server.server, wanted.cpu))


class OwnKeep(ServerRoute):
    """POST: keep this server on, within its budget."""

    async def post(self) -> None:
        """Without a body, or with an empty object."""
        self.answer(await self.engine.keep(self.server.user, self.server.server))
