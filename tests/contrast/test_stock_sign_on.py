"""What a stock JupyterHub does at a sign-out and at a refresh: the faults that our sessions have to pass, pinned.

A change here means that JupyterHub has been mended, or has broken elsewhere. Ours: ``tests/authenticator``.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import jwt
import pytest
import requests

from tests.authenticator.signed_hub import copy_of, home
from tests.fakes.oidc_provider import private_key
from tests.hubs import Hub
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.whole]
JUPYTERHUB = int(version("jupyterhub").split(".")[0])

ASKS_A_PROVIDER = """
from pathlib import Path
from jupyterhub.auth import DummyAuthenticator
class AsksAProvider(DummyAuthenticator):
    refresh_pre_spawn = True
    async def refresh_user(self, user, handler=None):
        with Path("asked").open("a") as asked:
            asked.write(f"{user.name} {handler.request.path} {hasattr(handler, '_jupyterhub_user')}\\n")
        return not Path(f"disabled-{user.name}").exists()
    def check_allowed(self, username, model=None):
        return not Path(f"out-{username}").exists()
c.JupyterHub.authenticator_class = AsksAProvider
c.Authenticator.allow_all = False
"""
EVERY_TIME = "c.Authenticator.auth_refresh_age = -1"


def test_a_copied_cookie_of_a_stock_hub_goes_on_to_work_after_the_sign_out(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        ada = hub.login("ada")
        copy = copy_of(ada)
        ada.get(f"{hub.url}/hub/logout", timeout=patient(20))
        assert home(hub, ada) == 302
        assert home(hub, copy) == 200
        # nor does it take a sign-out from a provider
        form = {"logout_token": "of a provider"}
        assert requests.post(f"{hub.url}/hub/logout", data=form, timeout=patient(20)).status_code == 403
        believed_after_its_end(hub)


def believed_after_its_end(hub: Hub) -> None:
    """What a server knows of a token that the hub has deleted; a cache without an age, as ``0`` reads, is for ever."""
    from jupyterhub.services.auth import HubAuth

    token = hub.token_of("ada")
    (made,) = hub.api("GET", "users/ada/tokens").json()["api_tokens"]
    servers = [HubAuth(api_url=f"{hub.url}/hub/api", api_token=hub.token, cache_max_age=age) for age in (300, 0)]
    assert [each.user_for_token(token)["name"] for each in servers] == ["ada", "ada"]
    hub.api("DELETE", f"users/ada/tokens/{made['id']}").raise_for_status()
    assert [each.user_for_token(token)["name"] for each in servers] == ["ada", "ada"]
    assert servers[0].user_for_token(token, use_cache=False) is None
    for each in servers:
        each.cache.timestamps = dict.fromkeys(each.cache.timestamps, time.monotonic() - 86_400)
    assert [each.user_for_token(token) is None for each in servers] == [True, False]


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


def test_a_stock_hubs_refresh_asks_little_and_ends_nothing(tmp_path: Path) -> None:
    with Hub(tmp_path, f"{ASKS_A_PROVIDER}\n{EVERY_TIME}") as hub:
        ada, ben = hub.login("ada"), hub.login("ben")
        token, folder = hub.token_of("ben"), hub.folder
        assert ben.get(f"{hub.url}/hub/spawn", timeout=patient(60)).ok
        hub.wait_ready("ben")
        asked = (folder / "asked").read_text().splitlines()
        # once a request, so that the refresh before a start is none; 5.5 does not say who asks
        assert asked.count(f"ben /hub/spawn {JUPYTERHUB >= 6}") == 1
        # who is let in no more is not asked about again
        (folder / "out-ada").touch()
        assert home(hub, ada) == 200
        assert len((folder / "asked").read_text().splitlines()) > len(asked)
        with pytest.raises(AssertionError):
            hub.login("ada")
        # a no keeps the browser out, and ends neither the server nor, from 6 on, tokens
        (folder / "disabled-ben").touch()
        assert home(hub, ben) == 302
        assert hub.ready("ben")
        assert hub.api("GET", "user", token=token).status_code == (200 if JUPYTERHUB >= 6 else 403)


def test_a_stock_hub_6_answers_500_to_a_start_whose_refresh_fails(tmp_path: Path) -> None:
    with Hub(tmp_path, ASKS_A_PROVIDER) as hub:
        ada = hub.login("ada")
        (hub.folder / "disabled-ada").touch()
        answer = ada.get(f"{hub.url}/hub/spawn", timeout=patient(30))
        found = (answer.status_code, "'_token_authenticated'" in hub.log())
        assert found == ((500, True) if JUPYTERHUB >= 6 else (403, False))


def test_a_stock_hub_that_asks_nobody_again_does_not_ask_before_a_start_either() -> None:
    from jupyterhub.handlers import BaseHandler

    user = object()
    handler = SimpleNamespace(authenticator=SimpleNamespace(auth_refresh_age=0, refresh_pre_spawn=True))
    assert asyncio.run(BaseHandler.refresh_auth(handler, user, force=True)) is user


def test_a_stock_oauthenticator_believes_an_id_token_that_nobody_signed() -> None:
    from oauthenticator.generic import GenericOAuthenticator

    stock = GenericOAuthenticator(client_id="hub", userdata_from_id_token=True)
    claims = {"iss": "https://another.example", "aud": "hub", "exp": time.time() + 60, "preferred_username": "ada"}
    forged = jwt.encode(claims, private_key("of-a-stranger", "RS256"), algorithm="RS256")
    assert asyncio.run(stock.token_to_user({"id_token": forged}))["preferred_username"] == "ada"
