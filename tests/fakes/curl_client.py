"""A stand-in for curl's HTTP client, which the zero-to-jupyterhub chart's hub configures for its whole process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

NAME = "tests.fakes.curl_client.CurlAsOfTheChart"


class CurlAsOfTheChart(AsyncHTTPClient):
    """Takes the settings that curl's client takes in tornado 6.5, and reaches nobody."""

    def initialize(self, max_clients: int = 10, defaults: dict[str, Any] | None = None) -> None:
        super().initialize(defaults=defaults)

    def fetch_impl(self, request: HTTPRequest, callback: Callable[[HTTPResponse], None]) -> None:
        callback(HTTPResponse(request, 599, error=HTTPClientError(599, "curl's client was asked")))


@contextmanager
def curl_configured() -> Iterator[None]:
    """Within it the process has configured this class, as with the chart's own line."""
    AsyncHTTPClient.configure(NAME)
    try:
        yield
    finally:
        AsyncHTTPClient.configure(None)  # type: ignore[arg-type]
