"""A WebSocket ends by itself where the proxy ends any: Caddy's ``stream_timeout``, Envoy's ``max_stream_duration``."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.fakes.apps_host import ADA, AppsHost
from tests.fakes.real_proxies import RealProxy
from tests.gate.proxies.raw_requests import SOCKET
from tests.patience import patient

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.needs("fetched-proxies")]
SECONDS = 2


@pytest.mark.parametrize(("word", "minutes", "seconds"), [("caddy", "15m", "2s"), ("envoy", "900s", "2s")])
def test_an_open_websocket_is_closed_when_its_time_is_over(
    word: str, minutes: str, seconds: str, tmp_path: Path
) -> None:
    host = AppsHost()
    proxy = RealProxy(word, tmp_path, host)
    assert minutes in proxy.text
    proxy.text = proxy.text.replace(minutes, seconds)
    host.start(proxy.apps)
    lines = ("GET /apps/echo/socket HTTP/1.1", f"Host: 127.0.0.1:{proxy.port}", *SOCKET, f"Cookie: {ADA}")
    try:
        proxy.start()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=patient(20)) as connection:
            connection.sendall("\r\n".join((*lines, f"Origin: http://127.0.0.1:{proxy.port}", "", "")).encode())
            assert b" 101 " in connection.recv(65536)
            began = time.monotonic()
            while connection.recv(65536):
                pass
            lasted = time.monotonic() - began
        print(f"{word}: a WebSocket with an end after {SECONDS} s was closed after {lasted:.1f} s")
        assert lasted > SECONDS / 2, "it was not closed at once, for another reason"
    finally:
        proxy.stop()
        host.stop()
