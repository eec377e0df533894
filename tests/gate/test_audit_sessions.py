"""The session that an audit's account gets at the gate, as a browser has one."""

from __future__ import annotations

import pytest

from hub_extensions.adapters.apps.audit_accounts import AuditGate, HubDeclined
from hub_extensions.core.sign_on.audit import AUDIT_PATH
from hub_extensions.gate.gate import SECURE_COOKIE
from tests.fakes.gate_hub import CLIENT_SECRET, GateHub
from tests.gate.gate_browser import ENDED_SECRET, FETCH, MLFLOW, Standing, request, send


async def test_an_account_of_an_audit_gets_a_session_and_nobody_else(standing: Standing, hub: GateHub) -> None:
    hub.add_user("gpu-audit-1", MLFLOW.scope)
    at = AuditGate(f"http://127.0.0.1:{standing.port}", CLIENT_SECRET)
    cookie = await at.session_for(hub.token_for("gpu-audit-1"))
    browser = standing.browser()
    browser.jars["apps.example.org"] = {SECURE_COOKIE: cookie}
    assert (await browser.check(**FETCH)).status == 200
    assert (await browser.check("dask", **FETCH)).status == 403
    browser.jars["apps.example.org"] = {SECURE_COOKIE: await at.session_for(hub.token_for("gpu-audit-1"), True)}
    assert (await browser.check(**FETCH)).status == 401, "its life was over when it was given"
    hub.add_user("gpu-audit-2", kind="service")
    for token, why in ((hub.token_for("ada"), "403"), (hub.token_for("gpu-audit-2"), "400"), ("of-nobody", "400")):
        with pytest.raises(HubDeclined, match=f"gives no session: {why}"):
            await at.session_for(token)
    with pytest.raises(HubDeclined, match="no answer"):
        await AuditGate(f"http://127.0.0.1:{standing.port}", ENDED_SECRET).session_for(hub.token_for("gpu-audit-1"))
    hub.fault = "500"
    with pytest.raises(HubDeclined, match="503"):
        await at.session_for(hub.token_for("gpu-audit-1"))
    await standing.gate.sessions.tidy()
    assert len(standing.gate.sessions) == 1
    body = b'{"token": "x"}'
    unsigned = await send(standing.port, request("POST", AUDIT_PATH, [("Host", "127.0.0.1")], body))
    assert unsigned.status == 404
