"""What the hub's access log keeps of an address in another's query."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest

from hub_extensions.authenticator.hub_log import keep_secrets_out, without_nested_secrets

INNER = "/hub/api/oauth2/authorize?client_id=gate&state=abcdefghijkl&code_challenge=mnopqrstuvwx&response_type=code"


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_secret_in_a_nested_query_is_hidden_however_often_it_is_encoded(times: int) -> None:
    nested = INNER
    for _ in range(times):
        nested = quote(nested, safe="")
    line = without_nested_secrets(f"302 GET /hub/login?next={nested}&_xsrf=x (@127.0.0.1) 1.00ms")
    assert "abcdefghijkl" not in line and "mnopqrstuvwx" not in line
    assert line.count("[secret]") == 2
    assert "client_id" in line and "response_type" in line and line.endswith("&_xsrf=x (@127.0.0.1) 1.00ms")


@pytest.mark.parametrize("line", ["302 GET /hub/ -> /hub/login?next=%2Fhub%2F (@127.0.0.1) 0.50ms", "barcode%3D12"])
def test_anything_else_stays(line: str) -> None:
    assert without_nested_secrets(line) == line


def test_oauthlib_writes_no_code(caplog: pytest.LogCaptureFixture) -> None:
    """As JupyterHub's own log does at DEBUG, every logger's lines are taken."""
    caplog.set_level(logging.DEBUG)
    keep_secrets_out()
    logging.getLogger("oauthlib").setLevel(logging.DEBUG)  # by JupyterHub, at its start
    logging.getLogger("oauthlib.oauth2.rfc6749.grant_types.authorization_code").debug("Saving grant %r", {"code": "x"})
    assert not caplog.records
