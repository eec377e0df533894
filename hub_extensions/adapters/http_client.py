"""The HTTP client of every process of this package.

``AsyncHTTPClient()`` creates a client of the class that the process has configured. The zero-to-jupyterhub chart, and
every hub that has pycurl, configure curl's, which cannot limit the size of an answer in tornado before 6.6 and fails
with a TypeError if a limit is given. It also ignores a resolver, the limit of the buffer and the check of the account
that listens at the address. Therefore this package always creates tornado's own client, which no other code in the
process uses.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tornado.simple_httpclient import SimpleAsyncHTTPClient

from hub_extensions.adapters.linux.listeners import VerifyingTCPClient

HttpClient: TypeAlias = SimpleAsyncHTTPClient

MAX_BYTES = 100 * 1024 * 1024  # tornado's own default


def http_client(
    *,
    at_once: int = 10,
    max_bytes: int = MAX_BYTES,
    max_buffered: int = MAX_BYTES,
    account: int | None = None,
    **defaults: Any,
) -> HttpClient:
    """Create a client of the running loop; the caller closes it.

    Args:
        at_once: the number of requests that run at the same time; further ones wait.
        max_bytes: the longest answer; a longer one is an error.
        max_buffered: how many bytes of an answer are read ahead.
        account: refuse a listener on this machine that runs under another account (uid); `None` to accept any.
        defaults: arguments of ``HTTPRequest`` that apply to each request, unless the request sets them.
    """
    client = HttpClient(
        force_instance=True,
        max_clients=at_once,
        max_body_size=max_bytes,
        max_buffer_size=max_buffered,
        defaults=defaults,
    )
    if account is not None:
        client.tcp_client.close()
        client.tcp_client = VerifyingTCPClient(account)
    return client
