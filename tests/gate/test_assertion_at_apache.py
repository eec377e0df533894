"""An app that checks assertions by the gate's published keys, with nothing of ours: Apache's mod_auth_openidc."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import jwt
import pytest
import requests

from hub_extensions.adapters.provider.assertions import AssertionSigner, KeyFolder, rotate
from hub_extensions.adapters.provider.forged_assertions import forged_assertions, true_assertions
from hub_extensions.core.sign_on.identity_headers import ASSERTION, CallerIdentity
from tests.fakes.apache import checking_assertions
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import MLFLOW, ORIGIN, Standing
from tests.patience import patient

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.needs("apache")]


async def test_an_assertion_for_another_app_or_an_old_one_opens_nothing(
    standing: Standing, hub: GateHub, tmp_path: Path
) -> None:
    ada, keys = standing.browser(), f"http://127.0.0.1:{standing.port}/_gate/jwks.json"
    await ada.sign_in()
    own, of_dask = [(await ada.check(app))[ASSERTION] for app in ("mlflow", "dask")]
    folder, identity = standing.gate.settings.folder, CallerIdentity("ada", ("lab",))
    old = AssertionSigner(KeyFolder(folder), ORIGIN, timedelta(minutes=-5)).sign(identity, MLFLOW.name)
    elsewhere = AssertionSigner(KeyFolder(folder), "https://other.example.org", timedelta(minutes=1)).sign(
        identity, MLFLOW.name
    )
    (tmp_path / "other").mkdir()
    foreign = AssertionSigner(KeyFolder(tmp_path / "other"), ORIGIN, timedelta(minutes=1)).sign(identity, MLFLOW.name)
    head, _, rest = own.partition(".")
    unsigned = "eyJhbGciOiJub25lIn0." + rest.rpartition(".")[0] + "."
    forged = [
        *forged_assertions(MLFLOW.name, ORIGIN, str(jwt.get_unverified_header(own)["kid"])),
        *true_assertions(MLFLOW.name, ORIGIN, KeyFolder(folder).all()[0]),
    ]

    def opens(app: str, assertion: str) -> int:
        sent = (
            {ASSERTION: assertion, "Authorization": f"Bearer {own}"}
            if assertion
            else {"Authorization": f"Bearer {own}"}
        )
        return requests.get(app, headers=sent, timeout=patient(20)).status_code

    with checking_assertions(tmp_path / "apache", keys, MLFLOW.name, ORIGIN) as app:
        assert await asyncio.to_thread(opens, app, own) == 200
        for refused in (of_dask, old, elsewhere, foreign, unsigned, f"{head}.{rest[:-4]}AAAA", "", "x"):
            assert await asyncio.to_thread(opens, app, refused) in (401, 403), refused
        for way, refused in forged:
            assert await asyncio.to_thread(opens, app, refused) in (401, 403), way
        rotate(KeyFolder(folder))  # the next key was published before it signs
        standing.gate.refresh_keys()
        other = standing.browser()
        await other.sign_in()
        assert await asyncio.to_thread(opens, app, (await other.check())[ASSERTION]) == 200
