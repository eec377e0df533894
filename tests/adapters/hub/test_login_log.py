"""What the log of a hub, or of a user's server, keeps of an address with secrets in its query."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest
from tornado.log import access_log, app_log, gen_log

from hub_extensions.adapters.hub.login_log import hide_login_secrets, without_secrets

INNER = "/hub/api/oauth2/authorize?client_id=gate&state=abcdefghijkl&code_challenge=mnopqrstuvwx&response_type=code"


@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_secret_in_a_query_is_hidden_however_often_it_is_encoded(times: int) -> None:
    nested = INNER
    for _ in range(times):
        nested = quote(nested, safe="")
    line = without_secrets(f"302 GET /hub/login?next={nested}&_xsrf=x (@127.0.0.1) 1.00ms")
    assert "abcdefghijkl" not in line and "mnopqrstuvwx" not in line
    assert line.count("[secret]") == 2
    assert "client_id" in line and "response_type" in line and line.endswith("&_xsrf=x (@127.0.0.1) 1.00ms")


@pytest.mark.parametrize(
    "line",
    ["302 GET /hub/ -> /hub/login?next=%2Fhub%2F (@127.0.0.1) 0.50ms", "barcode%3D12", "GET /?barcode=12", "state=up"],
)
def test_anything_else_stays(line: str) -> None:
    assert without_secrets(line) == line


def test_a_login_that_failed_leaves_neither_its_code_nor_its_state(caplog: pytest.LogCaptureFixture) -> None:
    """As tornado and JupyterHub write of one."""
    caplog.set_level(logging.DEBUG)
    hide_login_secrets()
    summary = "GET /hub/oauth_callback?code=abcdefghijkl&state=mnopqrstuvwx (127.0.0.1)"
    gen_log.warning("%d %s: OAuth state mismatch", 400, summary)
    app_log.error("Uncaught exception %s\n%r", summary, f"HTTPServerRequest(uri='{summary.split()[1]}', version='1')")
    app_log.warning("oauth state argument %r != cookie %s=%r", "abcdefghijkl", "a-cookie", "mnopqrstuvwx")
    access_log.info("302 %s", summary)
    logging.getLogger("JupyterHub").warning("OAuth state mismatch: abcdefghijkl != mnopqrstuvwx")  # oauthenticator's
    gen_log.info("%d of them", 3)
    assert len(caplog.messages) == 6 and caplog.messages[-1] == "3 of them"
    assert "abcdefghijkl" not in caplog.text and "mnopqrstuvwx" not in caplog.text
    assert caplog.text.count("?code=[secret]&state=[secret]") == 4
    assert "version='1'" in caplog.text


def test_a_line_that_cannot_be_written_fails_nobody_who_writes_it() -> None:
    hide_login_secrets()
    for log in (app_log, gen_log):
        record = logging.makeLogRecord({"msg": "%d x", "args": ("a",)})
        assert log.filter(record), "it is left to the handlers, which report it"
        assert (record.msg, record.args) == ("%d x", ("a",))


def test_oauthlib_writes_no_code(caplog: pytest.LogCaptureFixture) -> None:
    """As JupyterHub's own log does at DEBUG, every logger's lines are taken."""
    caplog.set_level(logging.DEBUG)
    hide_login_secrets()
    logging.getLogger("oauthlib").setLevel(logging.DEBUG)  # by JupyterHub, at its start
    logging.getLogger("oauthlib.oauth2.rfc6749.grant_types.authorization_code").debug("Saving grant %r", {"code": "x"})
    assert not caplog.records
