"""The base of all routes: authentication, limits for the body, and how errors become answers.

A handler class names its callers in `who`. `prepare` asks `Auth` before anything else happens, and before a byte of
the body is read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from jupyterhub.services.auth import HubOAuthenticated
from tornado.escape import utf8
from tornado.web import Finish, HTTPError

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway
from hub_extensions.adapters.service.signatures import SignatureVerdict
from hub_extensions.core.access import ApiAction, Person, refusal
from hub_extensions.core.messages import Problem
from hub_extensions.core.signing import ANSWER_HEADER, SignedRequest, hash_of
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.engine import Engine
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.http.api.answers import is_our_fault, problem_of
from hub_extensions.hub_service.http.api.codec import BODY_LIMIT_BYTES, BadInput, read, write
from hub_extensions.hub_service.http.auth import Auth, Forbidden, Hub, Server, SignAgain, Who
from hub_extensions.hub_service.http.limits import HUB, Connections, Refusals

log = logging.getLogger("hub_extensions.hub_service.http.api")

SLICE = 50  # number of list items that are encoded before other tasks of the event loop get a turn

T = TypeVar("T")


@dataclass
class Parts:
    """The objects that the routes work with.

    Attributes:
        engine: makes all decisions, and returns the data that routes and pages show.
        hub: the hub's API.
        auth: authenticates callers.
        prefix: the path that every route starts with, such as ``/services/gpu/``.
        base_url: the hub's base URL, for links to servers.
        help_url: the administrator's help page for students; "" for the service's own help page.
        closing: event that is set when the service stops. Answers that are streamed without an end then end.
        connections: decides which connection is closed when there are too many.
        refusals: counts refused requests, and delays answers to a flood of them.
    """

    engine: Engine
    hub: HubApi
    auth: Auth
    prefix: str
    base_url: str
    help_url: str = ""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    connections: Connections = field(default_factory=Connections)
    refusals: Refusals = field(default_factory=Refusals)


OLDER_HUB = Reason(
    "older-hub",
    "The hub's secret itself is not taken: a hub of this version signs its requests. An older hub has to be upgraded "
    "before it starts servers with a GPU.",
)


class Route(HubOAuthenticated, BoundedBody):  # type: ignore[misc]
    """A route of the service. The body of a request is read only after the caller is known, and within the limit.

    Attributes:
        who: the callers that may use the route. Each subclass sets it.
        action: the right that a person needs for the route: reading, unless a subclass sets another one.
        caller: the caller; `None` before `prepare`, and on a route that anybody may use.
        signed: the request, if the hub signed it; the answer is then signed too. `None` if the hub did not sign it.
    """

    body_bytes = BODY_LIMIT_BYTES
    body_seconds = None  # the server's own limit holds for every route
    who: ClassVar[Who]
    action: ClassVar[ApiAction] = ApiAction.READ
    caller: Hub | Server | Person | None = None

    def initialize(self, parts: Parts) -> None:
        self.parts = parts
        self.hub_auth = parts.auth.oauth
        self.signed: SignedRequest | None = None
        self._again = False

    @property
    def engine(self) -> Engine:
        return self.parts.engine

    @property
    def person(self) -> Person:
        """The calling user or service.

        Raises:
            Forbidden: the caller is the hub or a user's server.
        """
        if not isinstance(self.caller, Person):
            raise Forbidden("This is for users of the hub.")
        return self.caller

    def set_default_headers(self) -> None:
        """Set headers so that no answer is cached, sniffed or framed."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        self.clear_header("Server")

    async def prepare(self) -> None:
        """Authenticate the caller and check the announced size of the body, before anything else of a route runs."""
        stream = getattr(self.request.connection, "stream", None)
        self.parts.connections.note_request(stream)
        try:
            self._check_signature()
            if self._again:
                await self.parts.refusals.slow_down()
            else:
                self.caller = await self.authenticate()
        except (Forbidden, SignAgain):
            await self.parts.refusals.slow_down()
            raise
        self._mark_proved(stream)
        self.take_body()

    def _check_signature(self) -> None:
        """Verify the hub's signature, if there is one.

        Raises:
            Forbidden: the request is a repetition of an earlier one.
            SignAgain: the signature is outdated, so the hub has to sign the request again.
        """
        verified = self.parts.auth.verify_signature(self.request)
        if verified is None:
            return
        if verified.verdict is SignatureVerdict.REPLAYED:
            raise Forbidden("This request was sent before.")
        self.signed = verified.request
        if verified.verdict is SignatureVerdict.AGAIN:
            if self.who is not Who.HUB or self.request.method == "GET":
                raise SignAgain
            self._again = True  # raised by `body`: an answer before the whole body is read may not arrive

    async def authenticate(self) -> Hub | Server | Person | None:
        """Identify the caller by the request line and the headers.

        Returns:
            The hub, a user's server, or a person (a user or service). `None` on a route that anybody may use.

        Raises:
            Forbidden: the caller may not use the route.
        """
        return await self._admitted()

    def body(self) -> bytes:
        """Return the whole body.

        Raises:
            BadInput: it is too large.
            Forbidden: the hub signed another body.
            SignAgain: the hub's signature is outdated, so the hub has to sign the request again.
        """
        body = self.whole_body()
        if self.signed is not None and self.signed.body != hash_of(body):
            self.signed = None
            raise Forbidden("This is not the body that the hub signed.")
        if self._again:
            raise SignAgain
        return body

    def too_large(self) -> BadInput:
        message = f"The body is too large; {BODY_LIMIT_BYTES // 1024} KiB is the most."
        return BadInput(message, status=413, reason="too-large")

    def get_current_user(self) -> Person | None:
        """Return the calling user or service, for tornado and for JupyterHub's XSRF cookie.

        `None` for other callers.
        """
        return self.caller if isinstance(self.caller, Person) else None

    def not_logged_in(self) -> Person:
        """Refuse a caller without a login or token with 403; pages redirect to the login instead."""
        raise Forbidden(explain("no-access"))

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """Log faults of this service with their traceback. Errors of callers are in the access log only."""
        if is_our_fault(value):
            log.error("%s %s failed", self.request.method, self.request.path, exc_info=value)

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer with the status and `Problem` that `problem_of` returns for the exception."""
        error = kwargs.get("exc_info", (None, None, None))[1] or sys.exc_info()[1]
        status, problem = problem_of(error, status_code)
        again_after = error.again_after if isinstance(error, Refused) else None
        super().send_error(status, problem=problem, again_after=again_after, **kwargs)

    def wants_page(self) -> bool:
        """Return whether a browser shows the answer. If so, an error is answered with a page."""
        return "text/html" in self.request.headers.get("Accept", "")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error: as a page in a browser, otherwise with the `Problem` as JSON."""
        problem: Problem = kwargs["problem"]
        again_after: timedelta | None = kwargs.get("again_after")
        if status_code == 503:
            self.set_header("Retry-After", "5")
        elif again_after is not None:
            self.set_header("Retry-After", str(math.ceil(again_after.total_seconds())))
        if not self.wants_page():
            self.answer(problem, status_code)
            return
        self.set_status(status_code)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.settings["error_page"](self, problem, status_code))

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> Any:
        """Finish the answer with this last part of its body; `None` if nothing is left to send.

        An answer to the hub is signed.
        """
        if self.signed is not None and not isinstance(chunk, dict):
            self.sign(utf8(chunk or b""))
        return super().finish(chunk)

    def sign(self, body: bytes) -> None:
        """Add the signature of this answer (its status and `body`) to its headers, if the hub signed the request."""
        if self.signed is not None:
            proof = self.parts.auth.signatures.signed(self.signed, self.get_status(), body)
            self.set_header(ANSWER_HEADER, proof)

    def answer(self, value: object, status: int = 200) -> None:
        """Finish with a message as compact JSON.

        Args:
            value: a dataclass of ``core/messages``.
            status: HTTP status of the answer.
        """
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(write(value))

    async def _admitted(self) -> Hub | Server | Person | None:
        auth, headers = self.parts.auth, self.request.headers
        if self.who is Who.ANYBODY:
            return None
        if self.who is Who.HUB:
            if self.signed is not None:
                return Hub()
            if auth.is_older_hub(headers):
                log.warning("the hub's secret came in clear: a hub that is older than this service has to be upgraded")
                raise Forbidden(OLDER_HUB)
            raise Forbidden("This is for the hub, which proves itself by its signature.")
        if self.who is Who.METRICS:
            if self.signed is None and not await auth.may_read_metrics(headers):
                raise Forbidden("This needs the metrics token, or a token with access and the scope read:metrics.")
            return None
        if self.who is Who.SERVER:
            return await auth.server(headers)
        return self.allowed(await self._person(), self.action)

    def _mark_proved(self, stream: Any) -> None:
        """Record that the connection is from the hub or a user's server.

        Such a connection is not closed to make room for other clients.

        Args:
            stream: the connection.
        """
        if not isinstance(self.caller, Hub | Server):
            return
        caller = HUB if isinstance(self.caller, Hub) else self.caller
        victim: Any = self.parts.connections.prove(stream, caller)
        if victim is not None:
            victim.close()

    async def asked_of_hub(self, question: Awaitable[T]) -> T:
        """Await an answer that JupyterHub's own client gets from the hub, and return the answer.

        Args:
            question: the pending request of this client.

        Raises:
            HubAway: the hub does not answer.
        """
        try:
            return await question
        except HTTPError as problem:
            if problem.status_code >= 500:
                raise HubAway(str(problem.log_message)) from problem
            raise

    async def _person(self) -> Person:
        person = await self.asked_of_hub(self.parts.auth.person(self))
        return person if person is not None else self.not_logged_in()

    def allowed(self, person: Person, action: ApiAction, of: tuple[str, str] | None = None) -> Person:
        """Return the caller, or refuse what the caller may not do.

        Args:
            person: the caller.
            action: the right that is needed.
            of: user and server that the action concerns; `None` if it concerns no server.

        Raises:
            Forbidden: the caller may not do this.
        """
        why = refusal(person, action, of)
        if why is not None:
            raise Forbidden(why)
        return person


class JsonRoute(Route):
    """A route whose requests and answers are JSON."""

    def message(self, kind: type[T]) -> T:
        """Parse the request's body as a message (a dataclass of ``core/messages``) of this kind.

        Raises:
            BadInput: the body cannot be used; the error names the field.
        """
        return read(kind, self.body())

    def messages(self, kind: type[T]) -> tuple[T, ...]:
        """Parse each line of the request's body as a message (a dataclass of ``core/messages``) of this kind.

        Raises:
            BadInput: a line cannot be used; the error names the field.
        """
        return tuple(read(kind, line) for line in self.body().splitlines() or [b""])

    async def answer_list(self, values: Sequence[object]) -> None:
        """Finish the answer with a list of messages.

        The list is encoded in parts, and other tasks of the event loop run between the parts.
        """
        parts = []
        for start in range(0, len(values), SLICE):
            parts.append(b",".join(write(value) for value in values[start : start + SLICE]))
            await asyncio.sleep(0)
        self.set_header("Content-Type", "application/json")
        self.finish(b"[" + b",".join(parts) + b"]")

    def answer_lines(self, values: Iterable[object]) -> None:
        """Finish the answer with these messages as compact JSON, one per line."""
        self.set_header("Content-Type", "application/x-ndjson")
        self.finish(b"\n".join(write(value) for value in values))

    def no_content(self) -> None:
        """Finish the answer with status 204, without a body."""
        self.set_status(204)
        raise Finish

    def only_queries(self, *known: str) -> None:
        """Refuse a request with a query argument that this route does not have.

        Args:
            known: names of the arguments that it has.

        Raises:
            BadInput: the query has another argument.
        """
        for name in self.request.query_arguments:
            if name not in known and name != "_xsrf":
                raise BadInput(f"{name!r} is not a query argument here. Known: {', '.join(known) or 'none'}.", name)
