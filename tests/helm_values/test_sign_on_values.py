"""The values of single sign-on: over the base, worked out for four providers, they are clean and load our class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub_extensions.authenticator.openid.authenticator import SingleSignOnOIDCAuthenticator
from hub_extensions.core.sign_on.provider_settings import NAMES, SECRET_VARIABLE
from hub_extensions.tools.helm_check.check import CheckOptions, check
from hub_extensions.tools.helm_check.helm import read_manifests
from hub_extensions.tools.helm_check.model import Finding
from tests.helm_values.chart_config import extra_config, hub_config
from tests.helm_values.rendering import OVERLAYS, over_chart, read

FOLDER = OVERLAYS / "examples" / "sign-on"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
MANIFEST = OVERLAYS / "manifests" / "sign-on.yaml"
BASE = [OVERLAYS / name for name in ("gpu.yaml", "own-images.yaml", "sign-on.yaml")]
OTHERS = [[], ["service-deployment.yaml"], ["restricted.yaml", "postgres.yaml"]]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration that a hub of these files has after ``configure(c)``, as the chart's image would start it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SECRET_VARIABLE, "a secret")

    def configured(files: list[Path]) -> Any:
        values = over_chart(*read(*files))
        config = hub_config(values, namespace="jhub", release="jhub", tokens={"gpu": "x" * 64}, version="4.4.0")
        config.CryptKeeper.keys = ["0f" * 32]  # as the chart makes it
        for name, code in extra_config(values):
            exec(compile(code, name, "exec"), {"c": config})
        return config

    return configured


@pytest.mark.programs
@pytest.mark.parametrize("example", [None, *EXAMPLES], ids=lambda file: file.stem if file else "as it is")
def test_a_hub_of_these_values_has_our_authenticator_with_its_settings(
    hub: Any, example: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [*BASE, *([example] if example else [])]
    config = hub(files)
    assert "does nothing" not in capsys.readouterr().err
    made = config.JupyterHub.authenticator_class
    assert issubclass(made, SingleSignOnOIDCAuthenticator)
    authenticator = made(config=config)
    assert authenticator.settings_problem() == ""
    given = read(files[-1])[0]["hub"]["config"]["SingleSignOnOIDCAuthenticator"]
    assert set(given) <= NAMES
    assert {name: getattr(authenticator, name) for name in given} == {
        name: set(value) if isinstance(getattr(authenticator, name), set) else value for name, value in given.items()
    }
    assert authenticator.client_secret == ["a secret"]


def test_there_are_four_examples_and_the_readme_has_each() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [file.stem for file in EXAMPLES] == ["entra-id", "keycloak", "okta", "plain-provider"]
    assert all(f"[{file.name}]({file.name})" in text for file in EXAMPLES)


def beside_placeholders(findings: Sequence[Finding]) -> list[Finding]:
    """The names in the examples are still to be written."""
    return [each for each in findings if each.rule != "placeholder"]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
@pytest.mark.parametrize("others", OTHERS, ids="+".join)
def test_every_example_is_clean_with_what_goes_with_it(example: Path, others: list[str]) -> None:
    files = [*BASE, *(OVERLAYS / name for name in others), example]
    assert beside_placeholders(check(CheckOptions([str(file) for file in files])).findings) == []


@pytest.mark.parametrize("apart", [False, True])
def test_the_manifest_opens_the_way_that_values_have_closed(tmp_path: Path, apart: bool) -> None:
    shut = tmp_path / "shut.yaml"
    shut.write_text(
        "hub: {networkPolicy: {egressAllowRules: {nonPrivateIPs: false}, egress: [{ports: [{port: 6443}]}]}}\n"
    )
    more = [OVERLAYS / "service-deployment.yaml"] if apart else []
    files = [str(file) for file in (*BASE, *more, EXAMPLES[0], shut)]
    shipped = OVERLAYS / "manifests" / ("service-deployment" if apart else "")
    (found,) = beside_placeholders(check(CheckOptions(files, [shipped])).findings)
    assert (found.rule, found.key) == ("network", "hub.networkPolicy.egressAllowRules.nonPrivateIPs")
    assert "the provider where people sign in" in found.text
    assert beside_placeholders(check(CheckOptions(files, [shipped, MANIFEST])).findings) == []


def test_the_manifest_lets_the_hub_out_and_nobody_in() -> None:
    (policy,) = read_manifests([MANIFEST])
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "jupyterhub", "component": "hub"}}
    assert [rule["ports"] for rule in policy["spec"]["egress"]] == [[{"protocol": "TCP", "port": 443}]]


def test_no_file_has_a_secret_and_the_variable_comes_from_one() -> None:
    for file in [*BASE, *EXAMPLES]:
        config = read(file)[0]["hub"].get("config", {})
        assert not [section for section, settings in config.items() if "client_secret" in settings]
    variable = yaml.safe_load(BASE[-1].read_text(encoding="utf-8"))["hub"]["extraEnv"][SECRET_VARIABLE]
    assert variable == {"valueFrom": {"secretKeyRef": {"name": "jupyterhub-gpu-sign-on", "key": "client-secret"}}}


@pytest.mark.parametrize(
    "more",
    [
        "{hub: {config: {OAuthenticator: {client_secret: hunter2}}}}",
        "{hub: {config: {SingleSignOnOIDCAuthenticator: {client_secret: [hunter2, hunter2]}}}}",
        "{hub: {config: {SingleSignOnOIDCAuthenticator: {issuer: 'https://ada:hunter2@login.site.example'}}}}",
        "{hub: {config: {SingleSignOnOIDCAuthenticator: {oauth_callback_url: 'https://ada:hunter2@hub.example/'}}}}",
        "{hub: {config: {CryptKeeper: {keys: [hunter2]}}}}",
        "{hub: {extraEnv: {JUPYTERHUB_SIGN_ON_CLIENT_SECRET: hunter2}}}",
    ],
)
def test_what_is_found_does_not_repeat_a_secret(tmp_path: Path, more: str) -> None:
    (tmp_path / "more.yaml").write_text(more)
    found = check(CheckOptions([*(str(file) for file in BASE), str(tmp_path / "more.yaml")])).findings
    assert found
    assert "hunter2" not in repr([(each.text, each.fix) for each in found])
