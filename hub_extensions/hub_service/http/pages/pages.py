"""The service's own pages: "Your GPU" for everybody, and the base class of all pages.

They are rendered on the server and complete without scripts. A small script only refreshes them and shows times in the
reader's time zone.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from jinja2 import Environment
from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.httputil import HTTPInputError, parse_body_arguments
from tornado.web import HTTPError, RequestHandler

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.adapters.files.page_templates import page_templates
from hub_extensions.adapters.hub.jupyterhub_api import HubAway
from hub_extensions.core.access import ApiAction, Person
from hub_extensions.core.messages import Problem, offer_texts
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.failed_starts import sentence
from hub_extensions.core.text import wording
from hub_extensions.core.text.reasons import Reason, sentence_in, translated
from hub_extensions.core.text.sentence_pieces import SentencePiece, in_pieces, plain_pieces
from hub_extensions.core.text.translation import Catalogue, halves
from hub_extensions.hub_service.http.api.base import Parts, Route
from hub_extensions.hub_service.http.api.people import form_for, leave, user_of
from hub_extensions.hub_service.http.auth import Who
from hub_extensions.hub_service.http.pages import labels
from hub_extensions.hub_service.http.pages.frame import PLACES, Frame
from hub_extensions.hub_service.http.pages.own_uses import ended_recently, own_uses

log = logging.getLogger(__name__)

REFRESH_SECONDS = 10
POLICY = (
    "default-src 'none'; style-src {}; script-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Styles, scripts and fonts come from the hub and the service; pictures in the hub's style sheet are ``data:`` URLs."""
STATIC = {
    "page.css": "text/css; charset=utf-8",
    "admin.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


class Page(Route):
    """A page: callers who are not logged in are redirected to the login, and errors are pages too.

    Attributes:
        framed: whether the page is shown inside the hub's own page layout (header, menu, footer).
        frame: that layout; `None` if the hub does not provide it, or the reader is not known.
    """

    who = Who.PERSON
    action = ApiAction.LIST_OWN
    framed: ClassVar[bool] = True  # the page is shown inside the hub's own page
    frame: Frame | None = None

    def set_default_headers(self) -> None:
        """Set headers with which pages may load styles and scripts of the hub and of the service only."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", POLICY.format("'self'"))
        self.set_header("Referrer-Policy", "same-origin")

    async def prepare(self) -> None:
        """Authenticate the caller, then get the hub's page layout for this reader."""
        await super().prepare()
        if self.framed and isinstance(self.caller, Person):
            await self.take_frame(self.caller.name)
            if self.caller.kind == "user":
                await self.engine.note_language(self.caller.name, self.catalogue.language)

    async def take_frame(self, name: str) -> None:
        """Get the hub's own page layout (header, menu, footer), inside which this page is shown if the hub provides it.

        Args:
            name: the user for whom the hub renders the layout.
        """
        self.frame = await self.settings["frames"].of(name, self.catalogue.language)
        if self.frame is not None and self.frame.styles:
            styles = " ".join(("'self'", *self.frame.styles))
            self.set_header("Content-Security-Policy", POLICY.format(styles))

    def not_logged_in(self) -> Person:
        """Redirect a reader without a login to the login; forms and scripts get 403."""
        navigates = self.request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        if self.request.method == "GET" and navigates and not self.request.headers.get("Authorization"):
            raise LoginNeeded
        return super().not_logged_in()

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Redirect to the login if it is missing; answer other errors with an error page."""
        if isinstance(kwargs.get("exc_info", (None, None))[1], LoginNeeded):
            self.redirect(self.get_login_url())
            return
        super().send_error(status_code, **kwargs)

    def wants_page(self) -> bool:
        """Return whether an error is answered with a page: always, unless the caller accepts JSON only."""
        return "application/json" not in self.request.headers.get("Accept", "") or super().wants_page()

    @property
    def catalogue(self) -> Catalogue:
        """The translations for the language of the reader's browser."""
        return catalogue_for(self.request.headers.get("Accept-Language", ""))

    def rendered(self, template: str, **values: Any) -> str:
        """Render a template with its own `values` and with the values that every page has."""
        person = self.caller if isinstance(self.caller, Person) else None
        return rendered(self, template, self.catalogue, person, self.frame, **values)


def error_page(handler: Route, problem: Problem, status: int) -> str:
    """Render an error as a page with a link back, inside the hub's page layout if the reader is known.

    Args:
        handler: the route in which the error occurred.
        problem: the error, as the API would answer it.
        status: HTTP status of the answer.
    """
    t = catalogue_for(handler.request.headers.get("Accept-Language", ""))
    person = handler.caller if isinstance(handler.caller, Person) else None
    frame = handler.frame if isinstance(handler, Page) else None
    if frame is None:
        handler.set_header("Content-Security-Policy", POLICY.format("'self'"))
    reason = Reason(problem.reason, problem.message, problem.params)
    message = in_pieces([reason], t) if sentence_in(reason, t) else plain_pieces(problem.message, t)
    return rendered(handler, "error.html", t, person, frame, message=message, status=status)


def rendered(
    handler: RequestHandler,
    template: str,
    t: Catalogue,
    person: Person | None = None,
    frame: Frame | None = None,
    **values: Any,
) -> str:
    """Render a template as a whole page.

    Args:
        handler: the route, or the end of a login.
        template: file name of the template.
        t: translates into the reader's language.
        person: the reader; `None` if the reader is not known.
        frame: the hub's page layout around the content; `None` for a plain layout that looks like it.
        values: the values of this template.
    """
    environment: Environment = handler.settings["pages"]
    parts: Parts = handler.parts  # type: ignore[attr-defined]  # every route and the login callback have it
    known = {"prefix": parts.prefix, "base_url": parts.base_url, "person": person, "t": t}
    return environment.get_template(template).render(
        **known,
        frame=frame or Frame(environment.get_template("plain_frame.html").render(known, places=PLACES)),
        refresh_seconds=REFRESH_SECONDS,
        now=datetime.now(timezone.utc),
        **values,
    )


class Form(Page, ABC):
    """A form that a page sends by POST.

    The caller is checked twice: by cookie or token before the body is read, and with the form's XSRF token after it.
    """

    async def authenticate(self) -> Person:
        """Return the caller by name only. Rights are checked once the form's XSRF token has been read."""
        name = await self.asked_of_hub(self.parts.auth.known_name(self))
        return self.not_logged_in() if name is None else Person(name)

    async def post(self) -> None:
        """Read the form, check the caller again, do what the form asks for, and redirect back to the page."""
        self._read_form()
        self.caller = await self._admitted()
        await self.submitted()
        self.redirect(self.back(), status=303)

    def back(self) -> str:
        """Return the address to which the browser is redirected after the form."""
        return self.parts.prefix

    @abstractmethod
    async def submitted(self) -> None:
        """Do what the submitted form asks for. Each form implements it."""

    def _read_form(self) -> None:
        request = self.request
        try:
            parse_body_arguments(
                request.headers.get("Content-Type", ""), self.body(), request.body_arguments, request.files
            )
        except HTTPInputError as error:
            raise HTTPError(400, "a form that cannot be read") from error
        for name, values in request.body_arguments.items():
            request.arguments.setdefault(name, []).extend(values)


class LoginNeeded(HTTPError):
    """The reader is not logged in, so the browser is redirected to the login."""

    def __init__(self) -> None:
        super().__init__(403, "login needed")


class YourGpu(Page):
    """GET: the user's servers, tickets (places in line) and offers; for administrators also links to their pages."""

    async def get(self) -> None:
        person, engine = self.person, self.engine
        user = user_of(person)
        form = form_for(engine, person)
        tickets, servers = engine.tickets(user), engine.servers_of(user)
        titles = {offer.id: offer.plain_name for offer in form.offers}
        uses = own_uses((await engine.usage(user, None)).uses, form.offers, self.catalogue)
        values: dict[str, Any] = {
            "form": form,
            "titles": titles,
            "ahead": {offer.id: offer_texts.ahead(offer, tickets) for offer in form.offers},
            "simulated": {offer.id for offer in form.offers if offer.simulated},
            "tickets": tickets,
            "servers": servers,
            "uses": uses,
            "ended": None if tickets or servers else ended_recently(uses, datetime.now(timezone.utc)),
            "has_default": "" in {*(each.server for each in tickets), *(each.server for each in servers)},
            "likely_as_of": min((o.wait.as_of for o in form.offers if o.wait.as_of is not None), default=None),
            "xsrf": self.xsrf_token.decode(),
            "admin": person.may(ApiAction.LIST_ALL),
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.rendered("your_gpu.html", **values))


class Help(Page):
    """GET: help for students on one screen, or a redirect to the administrator's own page."""

    async def get(self) -> None:
        if self.parts.help_url:
            self.redirect(self.parts.help_url)
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.rendered("help.html"))


class Leave(Form):
    """POST from a page: take a ticket (place in line) out of the line; other users' tickets for administrators only."""

    async def submitted(self) -> None:
        await leave(self.engine, self.person, self.get_body_argument("ticket"))


class KeepOn(Form):
    """POST from the page: protect one of the caller's own servers from the next stop for a while."""

    async def submitted(self) -> None:
        own = (user_of(self.person), self.get_body_argument("server", ""))
        self.allowed(self.person, ApiAction.KEEP, own)
        await self.engine.keep(*own)


class Nowhere(Page):
    """A 404 page for every address without a route. It does not reveal what might be there."""

    who = Who.ANYBODY

    async def prepare(self) -> None:
        """Answer 404 to everybody; a known reader sees it inside the hub's page layout."""
        await self.parts.refusals.slow_down()
        if self.wants_page():
            with contextlib.suppress(HubAway, HTTPError):
                if name := await self.asked_of_hub(self.parts.auth.known_name(self)):
                    await self.take_frame(name)
        raise HTTPError(404)

    def wants_page(self) -> bool:
        """Return whether the caller is a browser. Programs request unknown addresses too, and get JSON."""
        return Route.wants_page(self)


class StaticFile(Page):
    """GET: a style sheet or script of the pages, from memory."""

    framed = False

    def not_logged_in(self) -> Person:
        """Refuse a reader without a login with 403, because a login page is not a style sheet or script."""
        return Route.not_logged_in(self)

    async def get(self, name: str) -> None:
        """Answer with the style sheet or script of this name in ``static/``."""
        body: bytes | None = self.settings["static_files"].get(name)
        if body is None:
            raise HTTPError(404)
        self.set_header("Content-Type", STATIC[name])
        self.set_header("Cache-Control", "private, max-age=300")
        self.finish(body)


class LoginCallback(HubOAuthCallbackHandler):  # type: ignore[misc]
    """The route to which the hub redirects after a login: JupyterHub's own handler with our error page."""

    def initialize(self, parts: Parts) -> None:
        self.parts = parts
        self.hub_auth = parts.auth.oauth

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """Log a failed login without its address, which contains the login's code and state."""
        fault = None if isinstance(value, HTTPError) else value
        log.warning("%s %s failed: %s", self.request.method, self.request.path, value, exc_info=fault)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer a failed login with a page: the login failed and can be tried again."""
        t = catalogue_for(self.request.headers.get("Accept-Language", ""))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        message = [SentencePiece(t("The login at the hub did not work. Open the page again to try once more."))]
        self.finish(rendered(self, "error.html", t, message=message, status=status_code))


@cache
def make_environment(base_url: str) -> Environment:
    """Return the Jinja2 environment of the pages' templates, with autoescape.

    It is created once for all applications of this process.

    Args:
        base_url: the hub's base URL, for links to the spawn form.
    """

    def start_url(offer: str, user: str = "", server: str = "") -> str:
        named = f"/{quote(user, safe='')}/{quote(server, safe='')}" if server else ""
        return f"{base_url}hub/spawn{named}?{urlencode({'opt-offer': offer})}"

    return page_templates(
        "hub_extensions.hub_service.http.pages",
        base_url,
        labels=labels,
        sentence=sentence,
        wording=wording,
        with_moments=labels.with_moments,
        offer_texts=offer_texts,
        translated=translated,
        in_pieces=in_pieces,
        plain_pieces=plain_pieces,
        halves=halves,
        cpu=CPU,
        start_url=start_url,
        utc=timezone.utc,
    )


def read_static() -> dict[str, bytes]:
    """Read the files of ``static/`` into memory: name -> content."""
    folder = files("hub_extensions.hub_service.http.pages") / "static"
    return {name: (folder / name).read_bytes() for name in STATIC}
