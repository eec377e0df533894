"""The API for users, administrators and programs: offers, tickets (places in line), leases, and the OpenAPI document.

When a ticket is requested here, the service asks the hub to start a server with these offers. The spawner then asks
for admission as after a click on the spawn form.
"""

from __future__ import annotations

import asyncio

from hub_extensions.core.access import ApiAction, Person, refusal
from hub_extensions.core.messages import FormState
from hub_extensions.core.notices import LONGEST
from hub_extensions.core.offers.user_options import NOTIFY
from hub_extensions.hub_service.engine.engine import Engine
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.http.api.base import JsonRoute
from hub_extensions.hub_service.http.api.codec import BadInput
from hub_extensions.hub_service.http.api.requests import TicketAccepted, TicketRequest
from hub_extensions.hub_service.http.auth import Forbidden, Who


def form_for(engine: Engine, person: Person, server: str = "") -> FormState:
    """Return the offers that this caller may see, as the spawn form has them.

    A service is not treated as a user, even if a user has the same name.

    Args:
        engine: the part of the service that holds the state and decides.
        person: the caller.
        server: name of the server; "" is the default server.
    """
    user = person.name if person.kind == "user" else ""
    return engine.form(user, server, person.groups, person.may(ApiAction.LIST_ALL))


class Offers(JsonRoute):
    """GET: the offers (options of the spawn form), how many devices of each are free, and how long the wait is."""

    who = Who.READER

    async def get(self) -> None:
        """Answer with the offers (options of the spawn form) for the caller's own groups."""
        self.only_queries()
        self.answer(form_for(self.engine, self.person))


class TicketsRoute(JsonRoute):
    """GET: the tickets (places in line). POST: request a server."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def get(self) -> None:
        """Answer with the caller's own tickets (places in line), or with all of them for administrators."""
        self.only_queries()
        everybody = self.person.may(ApiAction.LIST_ALL)
        tickets = await self.engine.all_tickets() if everybody else self.engine.tickets(user_of(self.person))
        await self.answer_list(tickets)

    async def post(self) -> None:
        """Ask the hub to start the caller's server.

        The server's ticket (place in line) appears once the spawner has asked for admission.
        """
        wanted = self.message(TicketRequest)
        user = user_of(self.person)
        self.allowed(self.person, ApiAction.START, (user, wanted.server))
        self._check_known(wanted)
        notified = {NOTIFY: True} if wanted.notify_when_ready else {}
        await self.parts.hub.start(user, wanted.server, {"offers": list(wanted.offers), **notified})
        text = "The hub was asked to start your server. Its place in line is under api/tickets."
        self.answer(TicketAccepted(user, wanted.server, wanted.offers, text), 202)

    def _check_known(self, wanted: TicketRequest) -> None:
        form = form_for(self.engine, self.person, wanted.server)
        if form.as_of is None:
            return  # the offers are not known yet; they are checked when the spawner asks for admission
        known = [offer.id for offer in form.offers]
        for offer in wanted.offers:
            if offer not in known:
                raise BadInput(f"{offer!r} is not an offer for you. Offers: {', '.join(known)}.", "offers")


class OneTicket(JsonRoute):
    """DELETE: take a ticket (a user's place in line) out of the line."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def delete(self, ticket: str) -> None:
        """End one of the caller's own tickets (places in line), or any ticket for administrators."""
        await leave(self.engine, self.person, ticket)
        self.no_content()


class ServersRoute(JsonRoute):
    """GET: the caller's own running servers. Administrators get only their own too; `Leases` has those of all users."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def get(self) -> None:
        """Answer with the caller's running servers: the offer of each, and when it stops."""
        self.only_queries()
        await self.answer_list(self.engine.servers_of(user_of(self.person)))


class Leases(JsonRoute):
    """GET: all leases (servers' rights to their GPUs), for administrators."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        """Answer with all leases (servers' rights to their GPUs) that have not ended."""
        self.only_queries()
        await self.answer_list(await self.engine.leases())


class OneLease(JsonRoute):
    """DELETE: end a lease (right to a GPU) whose machine is lost or whose end has no proof, for administrators."""

    who = Who.ADMIN
    action = ApiAction.GIVE_UP

    async def delete(self, lease: str) -> None:
        """End a lease (right to a GPU): on a cluster by deleting its pod by force, on one machine without proof."""
        self.only_queries("why")
        await self.engine.give_up(
            lease, self.person.name, " ".join(self.get_query_argument("why", "").split())[:LONGEST]
        )
        self.no_content()


class Usage(JsonRoute):
    """GET: usage records (one server's time with a GPU each), a page at a time."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def get(self) -> None:
        """Answer with the caller's own usage records, or with all of them for administrators.

        A usage record describes one server's time with a GPU.
        """
        self.only_queries("before")
        before = self.get_query_argument("before", None)
        user = None if self.person.may(ApiAction.LIST_ALL) else user_of(self.person)
        try:
            page = await self.engine.usage(user, before)
        except ValueError:
            raise BadInput("before is not the 'next' of a page. Begin without it.", "before") from None
        self.answer(page)


class ForecastsRoute(JsonRoute):
    """GET: how accurate the wait forecasts for each pool (devices of one kind) are, for administrators."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        self.only_queries()
        self.answer(self.engine.forecasts())


class Culling(JsonRoute):
    """GET: the culling decision about each running server, and the stops that have failed, for administrators."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        """Answer with what culling decides about each running server now. Nothing is stopped."""
        self.only_queries()
        self.answer(await self.engine.culling())


class TheCluster(JsonRoute):
    """GET: the nodes of every offer, and which GPUs are not offered and why, for administrators of a cluster."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        self.only_queries()
        info = self.engine.cluster()
        if info is None:
            raise Refused(404, "There is no cluster here: servers are processes of this machine.", "", "local")
        self.answer(info)


class Description(JsonRoute):
    """GET: the OpenAPI document of this service."""

    who = Who.READER

    async def get(self) -> None:
        # from the application's settings, because the module that builds the document imports this one
        document = await asyncio.to_thread(self.settings["openapi_document"])
        self.set_header("Content-Type", "application/json")
        self.finish(document)


async def leave(engine: Engine, person: Person, ticket: str) -> None:
    """End a ticket (a place in line): the caller's own, or anybody's for administrators.

    Args:
        engine: the part of the service that holds the state and decides.
        person: the caller.
        ticket: id of the ticket.

    Raises:
        Forbidden: the ticket is the caller's own, but the token's scopes do not allow to end it.
        Refused: 404, because the ticket is another user's and the caller may not end tickets of other users.
    """
    owner = engine.owner_of(ticket)
    why = refusal(person, ApiAction.LEAVE, owner)
    own = owner is None or (person.kind == "user" and owner[0] == person.name)
    if own and why is not None:
        raise Forbidden(why)
    await engine.leave(ticket, user_of(person) if own or why is not None else None, person.name)


def user_of(person: Person) -> str:
    """Return the calling user's name.

    Raises:
        Forbidden: the caller is a service, which is never a user, whatever its name.
    """
    if person.kind != "user":
        raise Forbidden("This is for users: a service has no server and no ticket.")
    return person.name
