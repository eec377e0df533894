"""``doctor --config`` of a hub whose people sign in at a provider: what is wrong, and what an older way left over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hub_extensions.core.sign_on.provider_settings import SECRET_VARIABLE
from hub_extensions.tools.cli import main
from hub_extensions.tools.doctor import config as doctor_config

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported

SIGN_ON = """c.JupyterHub.authenticator_class = "single-sign-on"
c.SingleSignOnOIDCAuthenticator.client_id = "hub"
c.SingleSignOnOIDCAuthenticator.issuer = "https://login.site.example/realms/uni"
"""


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask about a configuration with these lines; what is said, by the check's name."""
    monkeypatch.delenv("JUPYTERHUB_CRYPT_KEY", raising=False)
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)

    def examine(more: str = "") -> dict[str, dict[str, str]]:
        path = tmp_path / "jupyterhub_config.py"
        path.write_text(
            f"c = get_config()\nc.GpuService.state_dir = {str(tmp_path / 'gpu-state')!r}\n"
            f'c.GpuOffers.simulate = "lab-a100"\n{SIGN_ON}{more}\nfrom hub_extensions import configure\nconfigure(c)\n'
        )
        result = CliRunner().invoke(main, ["doctor", "--json", "--config", str(path)], catch_exceptions=False)
        return {each["check"]: each for each in json.loads(result.output)}

    return examine


def test_what_genericoauthenticator_left_over_is_named_with_what_is_there_instead(examined: Any) -> None:
    lines = (
        'c.GenericOAuthenticator.token_url = "https://login.site.example/token"\n'
        'c.GenericOAuthenticator.auth_state_groups_key = "groups"\nc.OAuthenticator.allowed_users = {"ada"}'
    )
    said = examined(lines)["config"]
    assert said["state"] == "warning"
    assert (
        "c.GenericOAuthenticator.token_url does nothing with single-sign-on: the provider's document, found by issuer, "
        "says it."
    ) in said["text"]
    assert "c.GenericOAuthenticator.auth_state_groups_key does nothing" in said["text"]
    assert "allowed_users" not in said["text"]


def test_rights_that_rest_on_a_claim_which_may_be_left_out_are_a_warning(examined: Any) -> None:
    lines = 'c.OAuthenticator.admin_groups = {"hub-admins"}\nc.SingleSignOnOIDCAuthenticator.groups_claim = "roles"'
    said = examined(lines)["config"]
    assert said["state"] == "warning"
    assert (
        "c.OAuthenticator.admin_groups rests on the claim 'roles', which Entra ID, Okta and Keycloak leave"
        in said["text"]
    )
    assert (
        "rests on"
        not in examined(f'{lines}\nc.SingleSignOnOIDCAuthenticator.missing_groups = "none"')["config"]["text"]
    )


@pytest.mark.parametrize(
    ("line", "check", "text"),
    [
        ("c.SingleSignOnOIDCAuthenticator.isuer = 'x'", "config", "isuer is not a setting. Did you mean issuer?"),
        ("c.SingleSignOnOIDCAuthenticator.issuer = 'http://login.site.example'", "config", "begin with https://"),
        ("c.JupyterHub.load_groups = {'thesis': {'users': []}}", "config", "cannot be beside groups"),
        ("c.SingleSignOnOIDCAuthenticator.leeway_seconds = 'long'", "sign-on", "leeway_seconds"),
        ("c.SingleSignOnOIDCAuthenticator.signing_algorithms = ['HS256']", "sign-on", "signing_algorithms"),
    ],
)
def test_a_setting_with_which_the_hub_would_not_start_is_a_problem(
    examined: Any, line: str, check: str, text: str
) -> None:
    said = examined(line)[check]
    assert said["state"] == "problem"
    assert text in said["text"]


def test_what_only_the_hubs_environment_brings_is_no_problem_here(
    examined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examined()["sign-on"]["state"] == "warning"
    assert SECRET_VARIABLE in examined()["sign-on"]["text"]
    monkeypatch.setenv(SECRET_VARIABLE, "a secret")
    assert "JUPYTERHUB_CRYPT_KEY" in examined()["sign-on"]["text"]
    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "0" * 64)
    found = examined()
    assert (found["sign-on"]["state"], found["config"]["state"]) == ("ok", "ok")
    assert found["sign-on"]["text"] == "People sign in at https://login.site.example/realms/uni."


def test_a_python_without_the_extra_says_what_to_install(examined: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_config, "find_spec", lambda name: None)
    said = examined()["sign-on"]
    assert said["text"] == "single-sign-on needs oauthenticator and jwt, which this Python has not."
    assert "sign-on]" in said["fix"]
