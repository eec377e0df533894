"""The pages of the service: "Your GPU" for everybody, and what all of them have.

Server-rendered and whole without script; a small script only refreshes them and writes times in the reader's own.
Not here: the admins' pages (``admin.py``, ``audit.py``), and any number that the engine did not say.
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
from hub_extensions.hub_service.http.pages.own_uses import ended_lately, own_uses

log = logging.getLogger(__name__)

REFRESH_SECONDS = 10
POLICY = (
    "default-src 'none'; style-src {}; script-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Style, scripts and letters are the hub's and ours; the pictures in the hub's style stand in it as ``data:``."""
STATIC = {
    "page.css": "text/css; charset=utf-8",
    "admin.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


class Page(Route):
    """A page: who is not logged in is sent to the login, and errors are pages too."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN
    framed: ClassVar[bool] = True
    """It is shown, in a frame of the hub's."""
    frame: Frame | None = None

    def set_default_headers(self) -> None:
        """Pages may load the hub's and their own style and script, and nothing else."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", POLICY.format("'self'"))
        self.set_header("Referrer-Policy", "same-origin")

    async def prepare(self) -> None:
        """As every route, and what the hub's own pages look like to this reader."""
        await super().prepare()
        if self.framed and isinstance(self.caller, Person):
            await self.take_frame(self.caller.name)
            if self.caller.kind == "user":
                await self.engine.hear_language(self.caller.name, self.catalogue.language)

    async def take_frame(self, name: str) -> None:
        """Stand in the hub's own page, where the hub gives it."""
        self.frame = await self.settings["frames"].of(name, self.catalogue.language)
        if self.frame is not None and self.frame.styles:
            styles = " ".join(("'self'", *self.frame.styles))
            self.set_header("Content-Security-Policy", POLICY.format(styles))

    def not_logged_in(self) -> Person:
        """The login for somebody who looks at a page; 403 for forms and scripts."""
        navigates = self.request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        if self.request.method == "GET" and navigates and not self.request.headers.get("Authorization"):
            raise LoginNeeded
        return super().not_logged_in()

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """A missing login is a redirect, the rest are error pages."""
        if isinstance(kwargs.get("exc_info", (None, None))[1], LoginNeeded):
            self.redirect(self.get_login_url())
            return
        super().send_error(status_code, **kwargs)

    def wants_page(self) -> bool:
        """A page is one for whoever does not say otherwise."""
        return "application/json" not in self.request.headers.get("Accept", "") or super().wants_page()

    @property
    def catalogue(self) -> Catalogue:
        """The language that the reader's browser asks for."""
        return catalogue_for(self.request.headers.get("Accept-Language", ""))

    def rendered(self, template: str, **values: Any) -> str:
        """A template with what every page has."""
        person = self.caller if isinstance(self.caller, Person) else None
        return rendered(self, template, self.catalogue, person, self.frame, **values)


def error_page(handler: Route, problem: Problem, status: int) -> str:
    """What went wrong as a page, with the way back; in the hub's frame where the reader is known."""
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
    """A page in its frame; without one of the hub's in the plain one."""
    environment: Environment = handler.settings["pages"]
    parts: Parts = handler.parts  # type: ignore[attr-defined]  # of every route, and of the login's end
    known = {"prefix": parts.prefix, "base_url": parts.base_url, "person": person, "t": t}
    return environment.get_template(template).render(
        **known,
        frame=frame or Frame(environment.get_template("plain_frame.html").render(known, places=PLACES)),
        refresh_seconds=REFRESH_SECONDS,
        now=datetime.now(timezone.utc),
        **values,
    )


class Form(Page, ABC):
    """POST from a page. The caller is judged twice: by cookie or token before the body, with the form's proof after."""

    async def judged(self) -> Person:
        """Somebody whom the hub knows; what he may do is asked once the form's own proof (XSRF) is read."""
        name = await self.asked_of_hub(self.parts.auth.known_name(self))
        return self.not_logged_in() if name is None else Person(name)

    async def post(self) -> None:
        """Read the form, ask again who it is, and do it; back to the page afterwards."""
        self._read_form()
        self.caller = await self._admitted()
        await self.submitted()
        self.redirect(self.back(), status=303)

    def back(self) -> str:
        """Where it leads afterwards."""
        return self.parts.prefix

    @abstractmethod
    async def submitted(self) -> None:
        """What the form asks for."""

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
    """Nobody is logged in, and a browser can be."""

    def __init__(self) -> None:
        super().__init__(403, "login needed")


class YourGpu(Page):
    """GET: one's own servers, places in line and the offers; for admins the machine as a whole."""

    async def get(self) -> None:
        """The page."""
        person, engine = self.person, self.engine
        user = user_of(person)
        form = form_for(engine, person)
        tickets, servers = engine.tickets(user), engine.servers_of(user)
        titles = {offer.id: offer.plain_name for offer in form.offers}
        uses = own_uses((await engine.usage(user, None)).uses, titles, self.catalogue)
        values: dict[str, Any] = {
            "form": form,
            "titles": titles,
            "ahead": {offer.id: offer_texts.ahead(offer, tickets) for offer in form.offers},
            "simulated": {offer.id for offer in form.offers if offer.simulated},
            "tickets": tickets,
            "servers": servers,
            "uses": uses,
            "ended": None if tickets or servers else ended_lately(uses, datetime.now(timezone.utc)),
            "has_default": "" in {*(each.server for each in tickets), *(each.server for each in servers)},
            "likely_as_of": min((o.wait.as_of for o in form.offers if o.wait.as_of is not None), default=None),
            "xsrf": self.xsrf_token.decode(),
            "admin": person.may(ApiAction.LIST_ALL),
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.rendered("your_gpu.html", **values))


class Help(Page):
    """GET: what a student needs to know, on one screen; or the admin's own page of it."""

    async def get(self) -> None:
        """The page."""
        if self.parts.help_url:
            self.redirect(self.parts.help_url)
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.rendered("help.html"))


class Leave(Form):
    """POST from the page: leave the line (own tickets; any for admins)."""

    async def submitted(self) -> None:
        """Leave."""
        await leave(self.engine, self.person, self.get_body_argument("ticket"))


class KeepOn(Form):
    """POST from the page: keep one of one's own servers on."""

    async def submitted(self) -> None:
        """Keep."""
        own = (user_of(self.person), self.get_body_argument("server", ""))
        self.allowed(self.person, ApiAction.KEEP, own)
        await self.engine.keep(*own)


class Nowhere(Page):
    """Every address without a route: a page for people. Nothing is said about what might be there."""

    who = Who.ANYBODY

    async def prepare(self) -> None:
        """404 for everybody; who is known reads it in the hub's frame."""
        await self.parts.refusals.slow_down()
        if self.wants_page():
            with contextlib.suppress(HubAway, HTTPError):
                if name := await self.asked_of_hub(self.parts.auth.known_name(self)):
                    await self.take_frame(name)
        raise HTTPError(404)

    def wants_page(self) -> bool:
        """Programs call what is not there as often as people do."""
        return Route.wants_page(self)


class StaticFile(Page):
    """GET: the pages' style and script, from memory."""

    framed = False

    def not_logged_in(self) -> Person:
        """No login for a style sheet."""
        return Route.not_logged_in(self)

    async def get(self, name: str) -> None:
        """One of the few files there are."""
        body: bytes | None = self.settings["static_files"].get(name)
        if body is None:
            raise HTTPError(404)
        self.set_header("Content-Type", STATIC[name])
        self.set_header("Cache-Control", "private, max-age=300")
        self.finish(body)


class LoginCallback(HubOAuthCallbackHandler):  # type: ignore[misc]
    """The end of a login at the hub: JupyterHub's own handler, with our error page for what goes wrong."""

    def initialize(self, parts: Parts) -> None:
        """Called by tornado for each request."""
        self.parts = parts
        self.hub_auth = parts.auth.oauth

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """Never with the address, which has code and state of a login."""
        fault = None if isinstance(value, HTTPError) else value
        log.warning("%s %s failed: %s", self.request.method, self.request.path, value, exc_info=fault)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """What went wrong, and that one can try again."""
        t = catalogue_for(self.request.headers.get("Accept-Language", ""))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        message = [SentencePiece(t("The login at the hub did not work. Open the page again to try once more."))]
        self.finish(rendered(self, "error.html", t, message=message, status=status_code))


@cache
def make_environment(base_url: str) -> Environment:
    """The templates, everything escaped; compiled once, also where a process makes a second application."""

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
    """The files of ``static/``, read once."""
    folder = files("hub_extensions.hub_service.http.pages") / "static"
    return {name: (folder / name).read_bytes() for name in STATIC}
