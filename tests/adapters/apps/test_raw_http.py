"""What an audit sees of a certificate: a real TLS server, and this machine's authorities."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hub_extensions.adapters.apps.raw_http import HttpTarget, certificate_fault
from tests.cluster.certificates import Authority
from tests.patience import patient


@asynccontextmanager
async def tls_server(folder: Path) -> AsyncIterator[int]:
    """Its certificate is for apps.example.org, by an authority of its own; the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(folder, "authority").issue("apps", "apps", addresses=["apps.example.org"]))
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_certificate_is_judged_by_this_machines_authorities_and_for_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_server(tmp_path) as port:
        places = [
            HttpTarget.of(f"https://{name}", f"127.0.0.1:{port}")
            for name in ("apps.example.org", "hub.example.org:8443")
        ]
        monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
        unknown = [await certificate_fault(place, patient(10)) for place in places]
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        known = [await certificate_fault(place, patient(10)) for place in places]
    assert {code for code, _ in unknown} <= {18, 19, 20}, unknown
    assert known[0] == (0, "")
    assert known[1][0] == 62 and "hub.example.org" in known[1][1]
    with pytest.raises(OSError):
        await certificate_fault(places[0], patient(10))
