"""A failed sign-in: the page that the user sees, and a line in the log. Both show the same random number, by which an
admin finds the line.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tornado import web

from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderRefused, ProviderUnusable
from hub_extensions.authenticator.openid.metrics import LOGINS_REFUSED
from hub_extensions.authenticator.requests import language_of
from hub_extensions.core.sign_on.failures import failure_of
from hub_extensions.core.sign_on.recheck import RIGHT_LOST, cause_of_error
from hub_extensions.core.sign_on.refusal import SignOnRefusal


class SignOnFailed(web.HTTPError):
    """A failed sign-in, which the user sees as a page and administrators as a line in the log.

    Attributes:
        code: what failed; a key of `FAILURES`, which has the texts of the page.
        sentence: the cause for the log.
        parameters: values for placeholders in the texts of the page, by name.
    """

    def __init__(self, code: str, log_message: str, parameters: Mapping[str, str] | None = None) -> None:
        super().__init__(failure_of(code, {}).status)
        self.code = code
        self.sentence = log_message
        self.parameters = dict(parameters or {})


def failure_for(problem: Exception | SignOnRefusal) -> SignOnFailed:
    """Convert an error of the provider's client, or a refusal of a token, to the failed sign-in that the user sees."""
    if isinstance(problem, SignOnRefusal):
        return SignOnFailed(problem.code, problem.log_message, problem.parameters)
    if isinstance(problem, ProviderAway):
        return SignOnFailed("provider-away", str(problem))
    if isinstance(problem, ProviderUnusable):
        return SignOnFailed(problem.code, str(problem))
    if isinstance(problem, ProviderRefused):
        end = cause_of_error(str(problem))
        return SignOnFailed(end.value if end in RIGHT_LOST else "code", str(problem))
    raise problem


class FailurePageMixin:
    """Mixin for a handler of the hub: shows a `SignOnFailed` as a page, and keeps the query's secrets out of logs."""

    async def show_failure(self: Any, failure: SignOnFailed) -> None:
        """Show the page of a failed sign-in, and log a line with the random number that the page shows."""
        number = secrets.token_hex(4)
        self.log.warning("sign-on refused (%s) %s: %s", number, failure.code, failure.sentence)
        LOGINS_REFUSED.labels(failure.code).inc()
        t = language_of(self)
        page = failure_of(failure.code, failure.parameters, t)
        self.set_status(page.status)
        self.set_header("Cache-Control", "no-store")
        html = await self.render_template("sign_on_failed.html", t=t, failure=page, number=number)
        self.finish(html)

    def _request_summary(self: Any) -> str:
        return f"{self.request.method} {self.request.path} ({self.request.remote_ip})"

    def log_exception(self: Any, *problem: Any) -> None:
        """Log a failed request as the hub does, but without its query, which contains the sign-on's code and state.

        Args:
            problem: type, value and traceback of the exception.
        """
        uri, self.request.uri = self.request.uri, self.request.path
        try:
            super().log_exception(*problem)  # type: ignore[misc]
        finally:
            self.request.uri = uri

    def _log(self: Any) -> None:
        """Log a request as the hub does, but without its query and the query of the address that it redirects to."""
        location = self._headers.get("Location")
        if location:
            self._headers["Location"] = urlsplit(location)._replace(query="", fragment="").geturl()
        uri, self.request.uri = self.request.uri, self.request.path
        try:
            super()._log()  # type: ignore[misc]
        finally:
            self.request.uri = uri
