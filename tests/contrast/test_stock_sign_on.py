"""What a stock JupyterHub does at a sign-out and at a refresh: the faults that our sessions have to pass, pinned.

A change here means that JupyterHub has been mended, or has broken elsewhere. Ours: ``tests/authenticator``.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import requests

from tests.authenticator.signed_hub import copy_of, home
from tests.hubs import Hub
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.whole]
JUPYTERHUB = int(version("jupyterhub").split(".")[0])

ASKS_A_PROVIDER = """
from jupyterhub.auth import DummyAuthenticator
class AsksAProvider(DummyAuthenticator):
    refresh_pre_spawn = True
    async def refresh_user(self, user, handler=None):
        return False
c.JupyterHub.authenticator_class = AsksAProvider
"""


def test_a_copied_cookie_of_a_stock_hub_goes_on_to_work_after_the_sign_out(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        ada = hub.login("ada")
        copy = copy_of(ada)
        ada.get(f"{hub.url}/hub/logout", timeout=patient(20))
        assert home(hub, ada) == 302
        assert home(hub, copy) == 200


def test_a_stock_hub_keeps_the_session_id_that_was_there_before_the_sign_in(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        known = "known-to-a-stranger"
        browser = requests.Session()
        browser.headers["Connection"] = "close"
        browser.cookies.set("jupyterhub-session-id", known, path="/")
        browser.get(f"{hub.url}/hub/login", timeout=patient(20))
        xsrf = browser.cookies.get("_xsrf", path="/hub/") or ""
        data = {"username": "ada", "password": "any", "_xsrf": xsrf}
        browser.post(f"{hub.url}/hub/login", data=data, timeout=patient(20), allow_redirects=False)
        assert home(hub, browser) == 200
        assert [each.value for each in browser.cookies if each.name == "jupyterhub-session-id"] == [known]


def test_a_stock_hub_6_answers_500_to_a_start_whose_refresh_fails(tmp_path: Path) -> None:
    with Hub(tmp_path, ASKS_A_PROVIDER) as hub:
        ada = hub.login("ada")
        answer = ada.get(f"{hub.url}/hub/spawn", timeout=patient(30))
        found = (answer.status_code, "'_token_authenticated'" in hub.log())
        assert found == ((500, True) if JUPYTERHUB >= 6 else (403, False))
