"""The tornado application: the routes below the service's prefix, and the objects they work with."""

from __future__ import annotations

import re

from tornado.routing import URLSpec
from tornado.web import Application

from hub_extensions.adapters.files.json_log import log_request
from hub_extensions.hub_service.http.api.base import Parts
from hub_extensions.hub_service.http.api.routes import ROUTES
from hub_extensions.hub_service.http.api.status import HealthRoute
from hub_extensions.hub_service.http.auth import VerifyingOAuth, cookie_secret
from hub_extensions.hub_service.http.limits import BoundedServer
from hub_extensions.hub_service.http.openapi import document_text
from hub_extensions.hub_service.http.pages.admin import ADMIN_PAGES
from hub_extensions.hub_service.http.pages.audit import Audit, AuditFile
from hub_extensions.hub_service.http.pages.frame import Frames
from hub_extensions.hub_service.http.pages.pages import (
    Help,
    KeepOn,
    Leave,
    LoginCallback,
    Nowhere,
    StaticFile,
    YourGpu,
    error_page,
    make_environment,
    read_static,
)
from hub_extensions.hub_service.setup.settings import SERVICE_NAME

HEALTH_ANYWHERE = r"/healthz"
"""Readiness for the kubelet, independent of the hub's base URL. The hub's proxy does not route there."""
LOGIN_SECONDS = 60  # how long a login is cached before the hub is asked again

PAGES = (
    ("", YourGpu),
    ("audit", Audit),
    (r"audit\.csv", AuditFile),
    ("help", Help),
    ("leave", Leave),
    ("keep", KeepOn),
    (r"static/([a-z.]+)", StaticFile),
    ("oauth_callback", LoginCallback),
    *ADMIN_PAGES,
)


def make_app(parts: Parts) -> Application:
    """Create the tornado application with every route below `parts.prefix`."""
    prefix = re.escape(parts.prefix)
    given = {"parts": parts}
    specs = [URLSpec(f"{prefix}{address.pattern}", address.handler, given) for address in ROUTES]
    specs += [URLSpec(f"{prefix}{path}", handler, given) for path, handler in PAGES]
    specs.append(URLSpec(HEALTH_ANYWHERE, HealthRoute, given))
    return Application(
        specs,
        default_handler_class=Nowhere,
        default_handler_args=given,
        cookie_secret=cookie_secret(parts.auth.hub_secret),
        log_function=log_request,
        pages=make_environment(parts.base_url),
        frames=Frames(parts.hub),
        error_page=error_page,
        static_files=read_static(),
        openapi_document=document_text,
        receipts={},
    )


def make_server(parts: Parts) -> BoundedServer:
    """Create the HTTP server for all routes of the service."""
    return BoundedServer(make_app(parts), connections=parts.connections, proves=parts.auth.proves)


def make_oauth(*, prefix: str, api_url: str, token: str, account: int | None = None) -> VerifyingOAuth:
    """Create the client for logins. The hub sets these values in the environment of a service that it starts.

    Args:
        prefix: the path that every route starts with.
        api_url: address of the hub's API.
        token: the service's own API token.
        account: the uid that has to listen at the hub's address, if the hub is on this machine; `None` to accept any.
    """
    oauth = VerifyingOAuth(
        base_url=prefix,
        api_url=api_url,
        api_token=token,
        oauth_client_id=f"service-{SERVICE_NAME}",
        access_scopes={"access:services", f"access:services!service={SERVICE_NAME}"},
        cache_max_age=LOGIN_SECONDS,
        hub_prefix=prefix.removesuffix(f"services/{SERVICE_NAME}/") + "hub/",
        allow_token_in_url=False,
    )
    oauth.account = account
    return oauth
