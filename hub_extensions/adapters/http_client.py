"""The one way to make an HTTP client on tornado's loop.

``AsyncHTTPClient(…)`` makes a client of the class that the process has configured. The zero-to-jupyterhub chart, and
every hub that has pycurl, configure curl's, which has no limit of an answer's size in tornado before 6.6 and ends with
a TypeError where one is given. It ignores a resolver, the limit of a buffer and the proof of who listens as well. So
every client of ours is tornado's own, whatever is configured, and is shared with nobody.
Not here: requests of tools without a loop (``plain_request.py``), and the streams (``service_connection.py``).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tornado.simple_httpclient import SimpleAsyncHTTPClient

from hub_extensions.adapters.linux.listeners import ProvingClient

HttpClient: TypeAlias = SimpleAsyncHTTPClient

MOST_BYTES = 100 * 1024 * 1024
"""Tornado's own limit."""


def http_client(
    *,
    at_once: int = 10,
    most_bytes: int = MOST_BYTES,
    most_buffered: int = MOST_BYTES,
    account: int | None = None,
    **defaults: Any,
) -> HttpClient:
    """A client of the running loop; who made it closes it.

    Args:
        at_once: so many requests run at the same time, the others wait.
        most_bytes: an answer that is longer is an error.
        most_buffered: so many bytes of an answer are read ahead.
        account: nothing is said to a listener on this machine of another account (uid); None: who listens is not asked.
        defaults: of each request, as ``HTTPRequest`` takes them.
    """
    client = HttpClient(
        force_instance=True,
        max_clients=at_once,
        max_body_size=most_bytes,
        max_buffer_size=most_buffered,
        defaults=defaults,
    )
    if account is not None:
        client.tcp_client.close()
        client.tcp_client = ProvingClient(account)
    return client
