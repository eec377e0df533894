"""What `configure(c)` adds for sign-on sessions, what it leaves alone, and what it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions.authenticator.hub_setup import AuthenticatorUnknown, add_sign_on
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.server_key import VARIABLE
from hub_extensions.spawner.config.loader import read_section, read_sections

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported
ON = SignOnConfig(enabled=True, token_cache_seconds=7)


def added(c: Config, config: SignOnConfig = ON) -> list[str]:
    notes: list[str] = []
    add_sign_on(c, config, notes)
    return notes


def test_nothing_changes_for_a_hub_that_says_nothing() -> None:
    c = Config()
    assert added(c, SignOnConfig()) == []
    assert c == Config()


@pytest.mark.parametrize(
    ("named", "base"),
    [
        (None, "PAMAuthenticator"),
        ("dummy", "DummyAuthenticator"),
        ("jupyterhub.auth.DummyAuthenticator", "DummyAuthenticator"),
        (type, "type"),
    ],
)
def test_the_authenticator_that_is_named_stands_behind_ours(named: Any, base: str) -> None:
    from jupyterhub.auth import Authenticator, DummyAuthenticator

    c = Config()
    if named is type:
        named, base = type("OfTheSite", (DummyAuthenticator,), {}), "OfTheSite"
    if named is not None:
        c.JupyterHub.authenticator_class = named
    added(c)
    made = c.JupyterHub.authenticator_class
    assert issubclass(made, Authenticator)
    assert made.__mro__[1].__name__ == "SignOnMixin"
    assert made.__mro__[2].__name__ == base
    added(c)
    assert c.JupyterHub.authenticator_class is made, "twice is once"
    c.Authenticator.admin_users = {"root"}
    c[base].auth_refresh_age = 60
    authenticator = made(config=c)
    assert authenticator.admin_users == {"root"}
    assert authenticator.auth_refresh_age == -1, "the hub asks on every request"


@pytest.mark.parametrize("named", ["nobody.Knows", "nothing", "os.path"])
def test_an_authenticator_that_cannot_be_loaded_is_named(named: str) -> None:
    c = Config()
    c.JupyterHub.authenticator_class = named
    with pytest.raises(AuthenticatorUnknown, match=named):
        added(c)


def test_scopes_roles_templates_and_the_servers_cache_are_added_to_what_is_there() -> None:
    c = Config()
    c.JupyterHub.custom_scopes = {"custom:mine": {"description": "Mine."}}
    c.JupyterHub.load_roles = [{"name": "mine", "scopes": ["list:users"]}]
    c.JupyterHub.template_paths = ["/mine"]
    c.Spawner.args = ["--debug"]
    c.Spawner.environment = {"MINE": "kept"}
    c.KubeSpawner.args = ["--HubOAuth.cache_max_age=300"]
    notes = added(c)
    added(c)
    assert set(c.JupyterHub.custom_scopes) == {"custom:mine", "custom:sign-on:list", "custom:sign-on:end"}
    assert [role["name"] for role in c.JupyterHub.load_roles] == ["mine", "sign-on-admin"]
    assert (len(c.JupyterHub.template_paths), c.JupyterHub.template_paths[0]) == (2, "/mine")
    assert c.Spawner.args == ["--debug", "--HubOAuth.cache_max_age=7"]
    assert c.KubeSpawner.args == ["--HubOAuth.cache_max_age=300"]
    [note] = notes
    assert "c.KubeSpawner.args is left alone" in note
    assert c.Spawner.environment["MINE"] == "kept"
    user = SimpleNamespace(id=1, settings={"cookie_secret": b"of the hub"})
    keys = {c.Spawner.environment[VARIABLE](SimpleNamespace(user=user, name=name)) for name in ("", "train")}
    assert len(keys) == 2, "each server has another key"
    other = Config()
    added(other, SignOnConfig(enabled=True, token_cache_seconds=None))
    assert "args" not in other.Spawner


@pytest.mark.parametrize(
    ("section", "key", "value", "word"),
    [
        ("Authenticator", "auth_refresh_age", 60, "c.Authenticator.auth_refresh_age (60)"),
        ("LDAPAuthenticator", "auth_refresh_age", 60, "c.LDAPAuthenticator.auth_refresh_age (60)"),
        ("JupyterHub", "cookie_max_age_days", 7, "cookie_max_age_days (7)"),
        ("JupyterHub", "shutdown_on_logout", True, "shutdown_on_logout"),
        ("KubeSpawner", "args", ["--HubOAuth.cache_max_age=0"], "for ever a server believes a token"),
    ],
)
def test_what_works_against_sessions_is_noted(section: str, key: str, value: object, word: str) -> None:
    c = Config()
    c[section][key] = value
    [note] = added(c)
    assert word in note


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("idle_hour", 3, "Did you mean idle_hours"),
        ("idle_hours", 0, "at least 0.1"),
        ("max_sessions", 0, "at least 1 or None"),
        ("servers_at_sign_out", "kill", "'keep', 'stop', 'stop-gpu' or 'drain'"),
        ("token_cache_seconds", 3600, "from 1 to 300"),
        ("token_cache_seconds", 0, "from 1 to 300"),
    ],
)
def test_a_wrong_setting_is_a_sentence_that_names_it(key: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=f"c.SignOn.{key}.*{said}"):
        read_section(Config(SignOn={key: value}), SignOnConfig)


def test_a_section_that_is_nearly_ours_is_named() -> None:
    with pytest.raises(ValueError, match="Did you mean SignOn"):
        read_sections(Config(SignOns={"enabled": True}))
