"""The front page of the apps' host: the user's apps, servers and places in line, and a button *Sign out*.

It is rendered on the server and works without scripts. A browser without a session is redirected to the sign-in. The
`Gate` is in the application's setting ``gate``. ``core/sign_on/portal.py`` decides what is shown.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from tornado.web import RequestHandler

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.adapters.files.page_templates import page_templates
from hub_extensions.adapters.hub.person_sources import PersonSources
from hub_extensions.core.messages import offer_texts
from hub_extensions.core.sign_on.portal import AppHealth, portal_of
from hub_extensions.core.text import wording
from hub_extensions.core.text.reasons import translated
from hub_extensions.core.text.translation import Catalogue
from hub_extensions.gate.health import HealthWatch

START = "/_gate/start?next=%2F"
SIGN_OUT = "/_gate/sign-out"


@dataclass(frozen=True)
class PortalParts:
    """The objects that the front page needs.

    Attributes:
        health: the health of the apps.
        sources: where the user's servers and tickets (places in the line) are fetched: hub and GPU service.
        hub_url: public address of the hub, ending in ``/hub/``.
        has_sessions: the hub has a page *my sessions*, because ``c.SignOn`` is configured.
    """

    health: HealthWatch
    sources: PersonSources
    hub_url: str
    has_sessions: bool


def portal_routes(parts: PortalParts) -> list[Any]:
    """Return the handlers of the front page."""
    return [(r"/", PortalPage, {"parts": parts, "pages": _environment(parts.hub_url), "style": _style()})]


class PortalPage(RequestHandler):
    """Handler of ``GET /`` on the apps' host: the front page."""

    def initialize(self, parts: PortalParts, pages: Environment, style: str) -> None:
        self.parts, self.pages, self.style = parts, pages, style

    def set_default_headers(self) -> None:
        """Set headers that allow only the page's own style and images of its host, and forbid caching and framing."""
        for name, value in (
            ("Content-Security-Policy", _policy()),
            ("Referrer-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
            ("Vary", "Cookie, Accept-Language"),
        ):
            self.set_header(name, value)
        self.clear_header("Server")

    async def get(self) -> None:
        gate = self.settings["gate"]
        session = await gate.session_of(self.request)
        if session is None:
            self._not_signed_in()
            return
        now = datetime.now(timezone.utc)
        apps, away_since = gate.apps_open_to(session), gate.answers.away_since
        if away_since is not None and not apps:
            self._show("portal_away.html", 503, seconds=(now - away_since).total_seconds())
            return
        sources = await self.parts.sources.of(gate.token_of(session))
        portal = portal_of(session.user, apps, self.parts.health.states, sources, now)
        self._show("portal.html", 200, portal=portal, now=now)

    def _not_signed_in(self) -> None:
        if self.request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate":
            self.redirect(START)
            return
        self._show("portal_sign_in.html", 401)

    def _show(self, template: str, status: int, **values: Any) -> None:
        t = catalogue_for(self.request.headers.get("Accept-Language", ""))
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(
            self.pages.get_template(template).render(
                t=t,
                style=self.style,
                start=START,
                sign_out=SIGN_OUT,
                hub_url=self.parts.hub_url,
                has_sessions=self.parts.has_sessions,
                **values,
            )
        )


def health_text(health: AppHealth, now: datetime, t: Catalogue) -> tuple[str, str]:
    """Return a symbol and a text for an app's health. Pages always show both.

    Args:
        health: whether the app answers, and since when it does not.
        now: the present time.
        t: the reader's catalogue (the texts in one language).
    """
    if health.state == "unknown":
        return "?", t("not known")
    if health.state == "up":
        return "●", t("up")
    if health.since is None:
        return "○", t("down")
    return "○", t("down for %1", wording.about((now - health.since).total_seconds(), t))


def remaining_text(ends: datetime, now: datetime, t: Catalogue) -> str:
    """Return in how much time a server stops, such as ``stops in 2 hours``.

    A time of day is not used, because the user's time zone is not known.

    Args:
        ends: when the server stops.
        now: the present time.
        t: the reader's catalogue (the texts in one language).
    """
    return t("stops in %1", wording.about(max(0.0, (ends - now).total_seconds()), t))


def _style() -> str:
    return (files("hub_extensions.gate") / "templates" / "portal.css").read_text(encoding="utf-8")


def _policy() -> str:
    """Return the Content-Security-Policy of the front page. The style is part of the page, and is allowed by its hash.

    The policy does not restrict forms, because browsers apply ``form-action`` to redirects too, and *Sign out*
    redirects to the hub and on to its provider.
    """
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"


@cache
def _environment(hub_url: str) -> Environment:
    return page_templates(
        "hub_extensions.gate",
        hub_url.removesuffix("hub/"),
        offer_texts=offer_texts,
        translated=translated,
        about=wording.about,
        health_text=health_text,
        remaining_text=remaining_text,
    )
