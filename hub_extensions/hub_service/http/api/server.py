"""The routes for the extension in a user's server: its state, its reports, *Keep*, and giving its GPU back.

*Keep* protects a server for a while from being stopped as idle. User and server come from the token's scope alone, so
no request can name another server.
"""

from __future__ import annotations

from hub_extensions.core.messages import GiveBack, Progress, Report, TrainingEnded
from hub_extensions.hub_service.http.api.base import JsonRoute
from hub_extensions.hub_service.http.api.codec import BadInput
from hub_extensions.hub_service.http.auth import Forbidden, Server, Who


class ServerRoute(JsonRoute):
    """A route that a user's server calls with its own token."""

    who = Who.SERVER

    @property
    def server(self) -> Server:
        """The server to which the token of the request belongs."""
        if not isinstance(self.caller, Server):
            raise Forbidden("This needs the server's own token.")
        return self.caller


class OwnServer(ServerRoute):
    """GET: what the panel in this server shows: its GPU, limits, warnings and when it stops."""

    async def get(self) -> None:
        """Answer with the server's state; 404 while the service does not know this server."""
        state = await self.engine.state_for_server(self.server.user, self.server.server)
        if state is None:
            raise BadInput("The GPU service does not know this server yet.", status=404, reason="unknown-server")
        self.answer(state)


class OwnReport(ServerRoute):
    """POST: a report of the server's extension."""

    async def post(self) -> None:
        """Store the report about the server's activity, and answer with the server's state.

        A report can protect the server from being stopped as idle, but never cause that stop.
        """
        self.answer(await self.engine.report(self.server.user, self.server.server, self.message(Report)))


class OwnProgress(ServerRoute):
    """POST: when this server expects to be done with its GPU."""

    async def post(self) -> None:
        """Store the estimate, from which the waits of other users are computed.

        An estimate that is older than the last one, or from before the server's start, is ignored. A server may send
        one per second; a request that comes sooner is refused with 429.
        """
        await self.engine.progress(self.server.user, self.server.server, self.message(Progress))
        self.no_content()


class OwnGiveBack(ServerRoute):
    """POST: give this server's GPU back."""

    async def post(self) -> None:
        """Stop the server. If the request asks for it, the server is started again without a GPU."""
        wanted = self.message(GiveBack)
        self.answer(await self.engine.give_back(self.server.user, self.server.server, wanted.cpu))


class OwnKeep(ServerRoute):
    """POST: protect this server from a stop for a while. How often a user may do so is limited."""

    async def post(self) -> None:
        """Protect the server and answer with its state. The request's body is empty or an empty object."""
        self.answer(await self.engine.keep(self.server.user, self.server.server))


class OwnExtend(ServerRoute):
    """POST: put off the end of this server's lifetime. How often is limited, and the GPU has to be in use."""

    async def post(self) -> None:
        """Extend the lifetime and answer with the server's state. The request's body is empty or an empty object."""
        self.answer(await self.engine.extend(self.server.user, self.server.server))


class OwnTrainingEnded(ServerRoute):
    """POST: a training in this server has ended, and its user wishes a notice by mail or webhook."""

    async def post(self) -> None:
        """Send the notice. A repeated request for the same run is accepted and changes nothing."""
        await self.engine.training_ended(self.server.user, self.server.server, self.message(TrainingEnded))
        self.no_content()
