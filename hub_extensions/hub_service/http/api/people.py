"""The API for users, admins and programs: offers, tickets, leases, and the description of all this.

A ticket by API means: ask the hub, for that user, to start a server with these offers; its spawner then asks for
admission as after a click on the form.
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
    """The offers as this caller may see them; a service is no user, whatever its name."""
    user = person.name if person.kind == "user" else ""
    return engine.form(user, server, person.groups, person.may(ApiAction.LIST_ALL))


class Offers(JsonRoute):
    """GET: the offers with what is free and how long the wait is."""

    who = Who.READER

    async def get(self) -> None:
        """For the caller's own groups."""
        self.only_queries()
        self.answer(form_for(self.engine, self.person))


class TicketsRoute(JsonRoute):
    """GET: the line. POST: ask for a server."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def get(self) -> None:
        """One's own tickets; all of them for admins."""
        self.only_queries()
        everybody = self.person.may(ApiAction.LIST_ALL)
        tickets = await self.engine.all_tickets() if everybody else self.engine.tickets(user_of(self.person))
        await self.answer_list(tickets)

    async def post(self) -> None:
        """Ask the hub to start the caller's server; its ticket appears as soon as the hub has asked."""
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
            return  # what there is is not known yet; the spawner asks again
        known = [offer.id for offer in form.offers]
        for offer in wanted.offers:
            if offer not in known:
                raise BadInput(f"{offer!r} is not an offer for you. Offers: {', '.join(known)}.", "offers")


class OneTicket(JsonRoute):
    """DELETE: leave the line."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def delete(self, ticket: str) -> None:
        """One's own ticket; any for admins."""
        await leave(self.engine, self.person, ticket)
        self.no_content()


class ServersRoute(JsonRoute):
    """GET: one's own running servers, whoever asks: the admins' list of all is `leases`."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def get(self) -> None:
        """On which offer each is, and when it stops."""
        self.only_queries()
        await self.answer_list(self.engine.servers_of(user_of(self.person)))


class Leases(JsonRoute):
    """GET: who holds what (admins)."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        """All leases that are not ended."""
        self.only_queries()
        await self.answer_list(await self.engine.leases())


class OneLease(JsonRoute):
    """DELETE: give a lease up whose machine will not come back, or of whose end there is no proof (admins)."""

    who = Who.ADMIN
    action = ApiAction.GIVE_UP

    async def delete(self, lease: str) -> None:
        """Its pod is deleted by force; on one machine the lease ends by the admin's word."""
        self.only_queries("why")
        await self.engine.give_up(
            lease, self.person.name, " ".join(self.get_query_argument("why", "").split())[:LONGEST]
        )
        self.no_content()


class Usage(JsonRoute):
    """GET: what was used, a page at a time."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    async def get(self) -> None:
        """One's own records; all of them for admins."""
        self.only_queries("before")
        before = self.get_query_argument("before", None)
        user = None if self.person.may(ApiAction.LIST_ALL) else user_of(self.person)
        try:
            page = await self.engine.usage(user, before)
        except ValueError:
            raise BadInput("before is not the 'next' of a page. Begin without it.", "before") from None
        self.answer(page)


class Forecasts(JsonRoute):
    """GET: how good the wait forecasts were, by pool (admins)."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        """The last 50 busy episodes of each pool."""
        self.only_queries()
        self.answer(self.engine.forecasts())


class Culling(JsonRoute):
    """GET: what would happen to each running server, and the stops that have failed (admins)."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        """Decided at this very moment; nothing is done."""
        self.only_queries()
        self.answer(await self.engine.culling())


class TheCluster(JsonRoute):
    """GET: the cluster: from which nodes every offer is, what was left out and why (admins)."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    async def get(self) -> None:
        """The cluster as it was seen last."""
        self.only_queries()
        info = self.engine.cluster()
        if info is None:
            raise Refused(404, "There is no cluster here: servers are processes of this machine.", "", "local")
        self.answer(info)


class Description(JsonRoute):
    """GET: the OpenAPI document of this service."""

    who = Who.READER

    async def get(self) -> None:
        # built from the route table, which has this handler in it
        document = await asyncio.to_thread(self.settings["openapi_document"])
        self.set_header("Content-Type", "application/json")
        self.finish(document)


async def leave(engine: Engine, person: Person, ticket: str) -> None:
    """End a place in line: one's own, or anybody's.

    Raises:
        Forbidden: it is one's own, and the token is for less. Refused: 404: there is none of the caller's.
    """
    owner = engine.owner_of(ticket)
    why = refusal(person, ApiAction.LEAVE, owner)
    own = owner is None or (person.kind == "user" and owner[0] == person.name)
    if own and why is not None:
        raise Forbidden(why)
    await engine.leave(ticket, user_of(person) if own or why is not None else None, person.name)


def user_of(person: Person) -> str:
    """The user who calls.

    Raises:
        Forbidden: it is a service, which is nobody's user, whatever its name.
    """
    if person.kind != "user":
        raise Forbidden("This is for users: a service has no server and no ticket.")
    return person.name
