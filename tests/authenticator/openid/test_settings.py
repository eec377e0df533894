"""What is wrong with the settings is a sentence at the hub's start, which names the setting and no secret."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions.authenticator.hub_setup import ProviderSettingsWrong, add_sign_on
from hub_extensions.authenticator.openid.authenticator import SECRET_VARIABLE, SingleSignOnOIDCAuthenticator
from hub_extensions.core.sign_on import SignOnConfig

GOOD = {"issuer": "https://login.site.example/realms/uni/", "client_id": "hub", "client_secret": "a secret"}


def config(**changed: Any) -> Config:
    c = Config()
    c.JupyterHub.authenticator_class = SingleSignOnOIDCAuthenticator
    c.SingleSignOnOIDCAuthenticator.update({**GOOD, **changed})
    c.CryptKeeper.keys = ["0" * 64]
    return c


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"issuer": ""}, "issuer is not set"),
        ({"issuer": "http://login.site.example"}, "issuer has to begin with https://"),
        ({"issuer": "login"}, "issuer is no address"),
        ({"issuer": "https://login.site.example?x=1"}, "issuer has a query"),
        ({"client_id": ""}, "client_id is not set"),
        ({"client_secret": ""}, "client_secret is not set"),
        ({"client_secret": ["a", "b", "c"]}, "client_secret"),
        ({"client_secret": 5}, "client_secret"),
        ({"signing_algorithms": ["RS256", "none"]}, "signing_algorithms"),
        ({"signing_algorithms": ["HS256"]}, "signing_algorithms"),
        ({"signing_algorithms": []}, "signing_algorithms"),
        ({"signing_algorithms": ["RS384"]}, "signing_algorithms"),
        ({"leeway_seconds": 3600}, "leeway_seconds"),
        ({"adopt_existing_users": "maybe"}, "adopt_existing_users"),
        ({"scope": ["openid", "offline_access"]}, "offline_access"),
        ({"scope": ["profile"]}, "scope"),
        ({"isuer": "x"}, "no setting 'isuer'"),
    ],
)
def test_each_wrong_setting_is_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ProviderSettingsWrong, match="SingleSignOnOIDCAuthenticator") as problem:
        add_sign_on(config(**changed), SignOnConfig(), [])
    assert words in str(problem.value)
    assert "a secret" not in str(problem.value)


def test_a_hub_without_a_key_for_its_tokens_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTERHUB_CRYPT_KEY", raising=False)
    c = config()
    del c["CryptKeeper"]
    with pytest.raises(ProviderSettingsWrong, match="JUPYTERHUB_CRYPT_KEY"):
        add_sign_on(c, SignOnConfig(), [])


@pytest.mark.parametrize("changed", [{}, {"client_secret": ["old", "new"]}, {"issuer": "http://127.0.0.1:8080"}])
def test_sessions_come_with_it_by_themselves(changed: dict[str, Any]) -> None:
    c = config(**changed)
    add_sign_on(c, SignOnConfig(), [])
    assert c.JupyterHub.authenticator_class is not SingleSignOnOIDCAuthenticator
    assert issubclass(c.JupyterHub.authenticator_class, SingleSignOnOIDCAuthenticator)


def test_the_secret_comes_from_the_environment_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "old one\nnew one\n")
    assert SingleSignOnOIDCAuthenticator().client_secret == ["old one", "new one"]


def test_every_setting_has_a_help_text() -> None:
    traits = SingleSignOnOIDCAuthenticator.class_own_traits(config=True)
    assert {"issuer", "groups_claim", "ca_file"} <= set(traits)
    assert all(trait.help for trait in traits.values())
