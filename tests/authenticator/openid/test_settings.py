"""What is wrong with the settings is a sentence at the hub's start, which names the setting and no secret."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions.authenticator.hub_setup import ProviderSettingsWrong, add_sign_on
from hub_extensions.authenticator.openid.authenticator import SingleSignOnOIDCAuthenticator
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.provider_settings import GO_ON, LEFT_OVER, NAMES, OWN, SECRET_VARIABLE

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
        ({"client_secret": {"main": "a secret"}}, "client_secret is no text and no list of them"),
        ({"client_secret": ["old", 5, "a secret"]}, "client_secret is no text and no list of them"),
        ({"username_claim": ""}, "username_claim"),
        ({"username_claim": "account..name"}, "username_claim"),
        ({"groups_claim": "realm_access."}, "groups_claim"),
        ({"ca_file": "/nowhere/ca.pem"}, "ca_file"),
        ({"ca_file": __file__}, "ca_file"),
        ({"signing_algorithms": ["RS256", "none"]}, "signing_algorithms"),
        ({"signing_algorithms": ["HS256"]}, "signing_algorithms"),
        ({"signing_algorithms": []}, "signing_algorithms"),
        ({"signing_algorithms": ["RS384"]}, "signing_algorithms"),
        ({"leeway_seconds": 3600}, "leeway_seconds"),
        ({"adopt_existing_users": "maybe"}, "adopt_existing_users"),
        ({"scope": ["openid", "offline_access"]}, "offline_access"),
        ({"scope": ["profile"]}, "scope"),
        ({"isuer": "x"}, "isuer is not a setting. Did you mean issuer?"),
        ({"admin_groups": {"admins"}, "groups_claim": ""}, "admin_groups needs the provider's groups"),
        ({"admin_groups": {"admins"}, "manage_groups": False}, "admin_groups needs the provider's groups"),
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


@pytest.mark.parametrize("resolve", [True, False])
def test_groups_of_the_hubs_own_are_refused_beside_the_providers(resolve: bool) -> None:
    c = config()
    c.JupyterHub.load_groups = {"thesis": {"users": ["ada"]}}
    with pytest.raises(ProviderSettingsWrong, match=r"c\.JupyterHub\.load_groups cannot be beside"):
        add_sign_on(c, SignOnConfig(), [], resolve=resolve)
    c.SingleSignOnOIDCAuthenticator.manage_groups = False
    add_sign_on(c, SignOnConfig(), [], resolve=resolve)


def test_a_dry_run_without_the_extra_names_what_needs_no_class() -> None:
    c = config(isuer="x")
    c.JupyterHub.authenticator_class = "single-sign-on"
    with pytest.raises(ProviderSettingsWrong, match="Did you mean issuer"):
        add_sign_on(c, SignOnConfig(), [], resolve=False)


def test_a_class_of_the_admins_own_may_have_settings_of_its_own() -> None:
    from traitlets import Unicode

    c = config(campus="north")
    c.JupyterHub.authenticator_class = type(
        "OfTheSite", (SingleSignOnOIDCAuthenticator,), {"campus": Unicode(config=True)}
    )
    add_sign_on(c, SignOnConfig(), [])
    assert c.JupyterHub.authenticator_class(config=c).campus == "north"


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("GenericOAuthenticator", "token_url", "https://login.site.example/token"),
        ("OAuthenticator", "auth_state_groups_key", "groups"),
        ("SingleSignOnOIDCAuthenticator", "enable_pkce", True),
        ("Authenticator", "auth_refresh_age", 60),
        ("OAuthenticator", "auth_refresh_strict", True),
    ],
)
def test_what_an_oauthenticator_left_over_is_remarked_on(section: str, name: str, value: object) -> None:
    c = config()
    c[section][name] = value
    notes: list[str] = []
    add_sign_on(c, SignOnConfig(), notes)
    assert notes == [f"c.{section}.{name} does nothing with single-sign-on: {LEFT_OVER[name]}."]
    assert c.JupyterHub.authenticator_class(config=c)._own_refresh_age == 300


def test_groups_that_are_not_taken_over_and_are_named_elsewhere_are_remarked_on() -> None:
    c = config(synced_groups=["thesis", "staff"], missing_groups="none")
    c.GpuOffers.groups = {"gpu-a100": ["thesis", "labs"]}
    c.OAuthenticator.allowed_groups = {"staff"}
    c.OAuthenticator.admin_groups = {"admins"}
    notes: list[str] = []
    add_sign_on(c, SignOnConfig(), notes)
    assert [note.partition(", which")[0] for note in notes] == [
        "c.SingleSignOnOIDCAuthenticator.synced_groups lacks labs",
        "c.SingleSignOnOIDCAuthenticator.synced_groups lacks admins",
    ]


def test_each_setting_that_there_is_goes_on_or_has_something_in_its_place() -> None:
    there = set(SingleSignOnOIDCAuthenticator.class_trait_names(config=True))
    assert there <= NAMES
    assert set(SingleSignOnOIDCAuthenticator.class_own_traits(config=True)) == OWN
    assert not (OWN & GO_ON or OWN & LEFT_OVER.keys() or GO_ON & LEFT_OVER.keys())
    newer = {"auth_refresh_strict", "reconcile_auth_state_hook"}  # not on JupyterHub 5.5
    assert NAMES - newer <= there
