"""The table of the service's JSON routes: address, handler, and the messages of each method.

The application and the OpenAPI document are both built from it, so they always have the same routes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hub_extensions.core.access import ApiAction
from hub_extensions.core.messages import (
    Ask,
    ClusterInfo,
    CullingView,
    DrainState,
    Ended,
    ForecastReport,
    FormState,
    GiveBack,
    Health,
    LeaseInfo,
    Progress,
    Report,
    ServerState,
    SignedOut,
    Started,
    Stopped,
    TicketInfo,
    TicketStatus,
    TrainingEnded,
    UsagePage,
    UserOverview,
    WithoutSessions,
)
from hub_extensions.core.sign_on.ended_sessions import EndedSessions
from hub_extensions.hub_service.http.api import hub, people, server, status
from hub_extensions.hub_service.http.api.base import JsonRoute
from hub_extensions.hub_service.http.api.requests import TicketAccepted, TicketRequest

ID = "[0-9A-Za-z_-]{1,64}"  # the id of a ticket or lease, as a pattern that is valid in Python and in JSON Schema


@dataclass(frozen=True)
class Method:
    """One HTTP method of a route, as the OpenAPI document describes it.

    Attributes:
        does: the summary in the OpenAPI document, one sentence.
        takes, gives: types of the request's body and of the answer; `None` without a body.
        many: whether the answer is a list of `gives`.
        status: HTTP status of a successful answer.
        media: content type of a body that is not JSON.
        query: pairs of name and description, one for each query argument.
        needed: names of the query arguments that a request must have.
        errors: HTTP statuses of refusals besides 403 and 500.
        action: the right that a person needs for this method; `None` if it is the handler's own `action`.
    """

    does: str
    takes: type[Any] | None = None
    gives: type[Any] | None = None
    many: bool = False
    status: int = 200
    media: str = "application/json"
    query: tuple[tuple[str, str], ...] = ()
    needed: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    action: ApiAction | None = None


@dataclass(frozen=True)
class Address:
    """One route of the service.

    Attributes:
        path: the path below the service's prefix; ``{name}`` stands for one segment.
        handler: the tornado handler.
        methods: name of the HTTP method, in lower case -> its messages.
    """

    path: str
    handler: type[JsonRoute]
    methods: dict[str, Method]

    @property
    def pattern(self) -> str:
        """The path of this route as a regular expression for tornado."""
        return re.sub(r"\{(ticket|lease)\}", f"({ID})", self.path)


FORM_QUERY = (
    ("user", "whose form"),
    ("server", "for which server; empty is the default server"),
    ("group", "a group of the user; repeated"),
    ("admin", "1: the user is an admin"),
)
BODY = (400, 413)

ROUTES: tuple[Address, ...] = (
    Address(
        "health",
        status.HealthRoute,
        {
            "get": Method(
                "Ready or not; more for the hub, and for a token with the scope read:hub.", gives=Health, errors=(503,)
            )
        },
    ),
    Address(
        "metrics",
        status.MetricsRoute,
        {"get": Method("Counts and states for Prometheus.", media="text/plain", errors=(503,))},
    ),
    Address(
        "api/openapi.json",
        people.Description,
        {"get": Method("This document.", media="application/json", errors=(503,))},
    ),
    Address(
        "api/offers",
        people.Offers,
        {"get": Method("The offers: what is free, and how long the wait is.", gives=FormState, errors=(400, 503))},
    ),
    Address(
        "api/tickets",
        people.TicketsRoute,
        {
            "get": Method("One's own tickets; all of them for admins.", gives=TicketInfo, many=True, errors=(400, 503)),
            "post": Method(
                "Ask the hub to start the caller's server with one of these offers.",
                takes=TicketRequest,
                gives=TicketAccepted,
                status=202,
                errors=(*BODY, 409, 429, 502, 503),
                action=ApiAction.START,
            ),
        },
    ),
    Address(
        "api/tickets/{ticket}",
        people.OneTicket,
        {
            "delete": Method(
                "Leave the line: one's own ticket, any for admins.",
                status=204,
                errors=(404, 503),
                action=ApiAction.LEAVE,
            )
        },
    ),
    Address(
        "api/servers",
        people.ServersRoute,
        {
            "get": Method(
                "One's own running servers: the offer of each, and when it stops.",
                gives=ServerState,
                many=True,
                errors=(400, 503),
            )
        },
    ),
    Address(
        "api/leases",
        people.Leases,
        {"get": Method("Who holds what, for admins.", gives=LeaseInfo, many=True, errors=(400, 503))},
    ),
    Address(
        "api/leases/{lease}",
        people.OneLease,
        {
            "delete": Method(
                "Give a lease up whose machine will not come back, or of whose end there is no proof, for admins.",
                status=204,
                query=(("why", "the admin's reason; needed on one machine, where no pod is deleted"),),
                errors=(400, 404, 409, 502, 503),
            )
        },
    ),
    Address(
        "api/usage",
        people.Usage,
        {
            "get": Method(
                "What was used, a page of 1,000 at a time, what ended last first: one's own; all of it for admins.",
                gives=UsagePage,
                query=(("before", "`next` of the page before; without it the first page"),),
                errors=(400, 503),
            )
        },
    ),
    Address(
        "api/forecasts",
        people.ForecastsRoute,
        {
            "get": Method(
                "How good the wait forecasts were, by pool, for admins.", gives=ForecastReport, errors=(400, 503)
            )
        },
    ),
    Address(
        "api/culling",
        people.Culling,
        {
            "get": Method(
                "What would happen to each running server, by which rule and evidence, for admins.",
                gives=CullingView,
                errors=(400, 503),
            )
        },
    ),
    Address(
        "api/cluster",
        people.TheCluster,
        {
            "get": Method(
                "From which nodes every offer is, and what was left out and why, for admins of a cluster.",
                gives=ClusterInfo,
                errors=(400, 404, 503),
            )
        },
    ),
    Address(
        "api/server",
        server.OwnServer,
        {
            "get": Method(
                "What the service knows about the server whose token this is.", gives=ServerState, errors=(404, 503)
            )
        },
    ),
    Address(
        "api/server/report",
        server.OwnReport,
        {
            "post": Method(
                "What the server's extension sees.", takes=Report, gives=ServerState, errors=(*BODY, 404, 503)
            )
        },
    ),
    Address(
        "api/server/progress",
        server.OwnProgress,
        {
            "post": Method(
                "When this server expects to be done with its GPU, once per second at most.",
                takes=Progress,
                status=204,
                errors=(*BODY, 429, 503),
            )
        },
    ),
    Address(
        "api/server/training-ended",
        server.OwnTrainingEnded,
        {
            "post": Method(
                "A training in this server has ended: its user is notified, once for each run.",
                takes=TrainingEnded,
                status=204,
                errors=(*BODY, 404, 409, 429, 503),
            )
        },
    ),
    Address(
        "api/server/keep",
        server.OwnKeep,
        {"post": Method("Keep this server on, within its budget.", gives=ServerState, errors=(404, 409, 503))},
    ),
    Address(
        "api/server/extend",
        server.OwnExtend,
        {
            "post": Method(
                "Put off the end of this server's lifetime, within its budget.",
                gives=ServerState,
                errors=(404, 409, 503),
            )
        },
    ),
    Address(
        "api/server/give-back",
        server.OwnGiveBack,
        {
            "post": Method(
                "Give this server's GPU back: it stops, or comes back without one.",
                takes=GiveBack,
                gives=ServerState,
                errors=(*BODY, 404, 409, 503),
            )
        },
    ),
    Address(
        "hub/tickets",
        hub.HubTickets,
        {"post": Method("Spawners ask for admission, one a line.", takes=Ask, gives=TicketStatus, errors=(*BODY, 503))},
    ),
    Address(
        "hub/tickets/{ticket}/started",
        hub.HubTicketStarted,
        {"post": Method("The process runs, or its server is ready.", Started, TicketStatus, errors=(*BODY, 404, 503))},
    ),
    Address(
        "hub/tickets/{ticket}/ended",
        hub.HubTicketEnded,
        {"post": Method("A confirmed stop, or a failed start.", takes=Ended, status=204, errors=(*BODY, 404, 503))},
    ),
    Address(
        "hub/stopped",
        hub.HubStopped,
        {"post": Method("The hub stopped a server.", takes=Stopped, status=204, errors=(*BODY, 503))},
    ),
    Address(
        "hub/signed-out",
        hub.HubSignedOut,
        {
            "post": Method(
                "The user of a server was signed out: it stops in time.",
                takes=SignedOut,
                gives=DrainState,
                errors=(*BODY, 503),
            )
        },
    ),
    Address(
        "hub/without-session",
        hub.HubWithoutSession,
        {
            "post": Method(
                "Whose account may not be there any more: their servers are kept while they work.",
                takes=WithoutSessions,
                status=204,
                errors=(*BODY, 503),
            )
        },
    ),
    Address(
        "hub/sessions-ended",
        hub.HubSessionsEnded,
        {
            "post": Method(
                "Sessions of a user ended: what is remembered of that user's logins is forgotten.",
                takes=EndedSessions,
                status=204,
                errors=BODY,
            )
        },
    ),
    Address(
        "hub/form",
        hub.HubForm,
        {
            "get": Method(
                "What one user's form needs.", None, FormState, query=FORM_QUERY, needed=("user",), errors=(400,)
            )
        },
    ),
    Address(
        "hub/overview",
        hub.HubOverview,
        {
            "get": Method(
                "Where one user stands: what waits, starts, runs and failed.",
                None,
                UserOverview,
                query=(("user", "whose"),),
                needed=("user",),
                errors=(400,),
            )
        },
    ),
    Address(
        "hub/culling",
        hub.HubCulling,
        {"get": Method("What would happen to each running server, by which rule and evidence.", gives=CullingView)},
    ),
    Address(
        "hub/events",
        hub.HubEvents,
        {
            "get": Method(
                "One line for every live ticket, then one for every change; an empty line every 5 s.",
                gives=TicketStatus,
                media="application/x-ndjson",
            )
        },
    ),
)
