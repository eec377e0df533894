"""The pages of the service: "Your GPU" for everybody, and what all of them have.

Server-rendered and whole without script; a small script only refreshes them and writes times in the reader's own.
Not here: the admins' pages (``admin.py``, ``audit.py``), and any number that the engine did not say.
"""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.httputil import HTTPInputError, parse_body_arguments
from tornado.web import HTTPError

from hub_extensions.adapters.catalogues import catalogue_for
from hub_extensions.core import offer_texts, wording
from hub_extensions.core.access import ApiAction, Person
from hub_extensions.core.messages import Problem
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.reasons import Reason, translated
from hub_extensions.core.translation import Catalogue, halves
from hub_extensions.hub_service.http.api.base import Parts, Route
from hub_extensions.hub_service.http.api.people import form_for, leave, user_of
from hub_extensions.hub_service.http.auth import Who
from hub_extensions.hub_service.http.pages import labels

REFRESH_SECONDS = 10
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
STATIC = {
    "page.css": "text/css; charset=utf-8",
    "admin.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


class Page(Route):
    """A page: who is not logged in is sent to the login, and errors are pages too."""

    who = Who.PERSON
    action = ApiAction.LIST_OWN

    def set_default_headers(self) -> None:
        """Pages may load their own style and script, and nothing else."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Referrer-Policy", "same-origin")

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

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The error as a page, with the way back."""
        problem: Problem = kwargs["problem"]
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_status(status_code)
        if not self._may_read:
            self.set_header("Connection", "close")
        message = translated(Reason(problem.reason, problem.message, problem.params), self.catalogue)
        self.finish(self.rendered("error.html", message=message, status=status_code))

    @property
    def catalogue(self) -> Catalogue:
        """The language that the reader's browser asks for."""
        return catalogue_for(self.request.headers.get("Accept-Language", ""))

    def rendered(self, template: str, **values: Any) -> str:
        """A template with what every page has."""
        environment: Environment = self.settings["pages"]
        return environment.get_template(template).render(
            prefix=self.parts.prefix,
            base_url=self.parts.base_url,
            person=self.caller if isinstance(self.caller, Person) else None,
            t=self.catalogue,
            refresh_seconds=REFRESH_SECONDS,
            now=datetime.now(timezone.utc),
            **values,
        )


class Form(Page):
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

    async def submitted(self) -> None:
        """What the form asks for."""
        raise NotImplementedError

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
        tickets = engine.tickets(user)
        values: dict[str, Any] = {
            "form": form,
            "titles": {offer.id: offer.title for offer in form.offers},
            "ahead": {offer.id: offer_texts.ahead(offer, tickets) for offer in form.offers},
            "simulated": {offer.id for offer in form.offers if offer.simulated},
            "tickets": tickets,
            "servers": engine.servers_of(user),
            "likely_as_of": min((o.wait.as_of for o in form.offers if o.wait.as_of is not None), default=None),
            "xsrf": self.xsrf_token.decode(),
            "admin": person.may(ApiAction.LIST_ALL),
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.rendered("your_gpu.html", **values))


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


class GiveUp(Form):
    """POST from an admin's page: give up a lease whose machine will not come back."""

    who = Who.ADMIN
    action = ApiAction.GIVE_UP

    async def submitted(self) -> None:
        """Give up."""
        await self.engine.give_up(self.get_body_argument("lease"), self.person.name)


class StaticFile(Page):
    """GET: the pages' style and script, from memory."""

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

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """What went wrong, and that one can try again."""
        t = catalogue_for(self.request.headers.get("Accept-Language", ""))
        environment: Environment = self.settings["pages"]
        template = environment.get_template("error.html")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(
            template.render(
                prefix=self.parts.prefix,
                base_url=self.parts.base_url,
                person=None,
                t=t,
                message=t("The login at the hub did not work. Open the page again to try once more."),
                status=status_code,
            )
        )


def make_environment(base_url: str) -> Environment:
    """The templates, everything escaped."""
    environment = Environment(
        loader=PackageLoader("hub_extensions.hub_service.http.pages", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def server_url(user: str, server: str) -> str:
        path = f"{base_url}user/{quote(user, safe='')}/"
        return f"{path}{quote(server, safe='')}/" if server else path

    def waiting_url(user: str, server: str) -> str:
        path = f"{base_url}hub/spawn-pending/{quote(user, safe='')}"
        return f"{path}/{quote(server, safe='')}" if server else path

    environment.globals.update(
        labels=labels,
        wording=wording,
        offer_texts=offer_texts,
        translated=translated,
        halves=halves,
        cpu=CPU,
        server_url=server_url,
        waiting_url=waiting_url,
        utc=timezone.utc,
    )
    return environment


def read_static() -> dict[str, bytes]:
    """The files of ``static/``, read once."""
    folder = files("hub_extensions.hub_service.http.pages") / "static"
    return {name: (folder / name).read_bytes() for name in STATIC}
