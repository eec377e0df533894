"""The apps of ``demo --sso``: the catalogue that the demo writes is one a hub takes, and the planted fault is one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions.authenticator.openid.authenticator import SingleSignOnOIDCAuthenticator
from hub_extensions.core.sign_on.apps import check_catalogue
from hub_extensions.gate.settings import GateSettings
from hub_extensions.tools.demo import DemoRefused, apps
from hub_extensions.tools.demo.apps import DemoApps
from hub_extensions.tools.demo.configuration import configuration_of
from hub_extensions.tools.demo.plan import Demo, Ports
from hub_extensions.tools.demo.proxy import DemoProxy
from hub_extensions.tools.demo.sign_in import SignInService

pytestmark = pytest.mark.slow


def behind(folder: Path) -> DemoApps:
    return DemoApps(folder / "apps", folder / "environment", folder / "gpu-state", 6, 7, 8, 9)


def configured(folder: Path) -> Any:
    """The hub's configuration, as the demo writes it and as a hub reads it; the gate's settings are written."""
    there = behind(folder)
    there.folder.mkdir()
    there.token_file.write_text("a" * 64)
    service = SignInService(folder / "sso", 5, "mig-2g.10gb", "a secret", "a key")
    demo = Demo(folder, Ports(1, 2, 3, 4, 5, 6, 7, 8, 9), ("ada",), "lab-a100", "p" * 12, "q" * 32, service, there)
    c = Config()
    text = configuration_of(demo)
    exec(compile(text, "jupyterhub_config.py", "exec"), {"get_config": lambda: c})
    assert "a" * 64 not in text and "a secret" not in text
    return c


def test_the_hub_takes_the_catalogue_and_each_group_opens_its_own_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SIGN_ON_CLIENT_SECRET", "x")
    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "0" * 64)
    c = configured(tmp_path)
    gate = GateSettings.load(tmp_path / "gpu-state" / "gate.json")
    assert not [each for each in check_catalogue(gate.catalogue, gate.hub_url, gate.url) if not each.is_warning]
    assert issubclass(c.JupyterHub.authenticator_class, SingleSignOnOIDCAuthenticator)
    opens = {role["name"]: role.get("groups") for role in c.JupyterHub.load_roles}
    assert (opens["app-tensorboard"], opens["app-dask"]) == (["course"], ["thesis"])
    services = {each["name"]: each for each in c.JupyterHub.services}
    assert {"gate", "tensorboard", "dask", "auditor"} <= set(services)
    assert not [name for name, each in services.items() if each.get("url") and name != "gpu"]
    hosts = {each.where.split("//")[1] for each in gate.catalogue}
    assert hosts == {"tensorboard.localhost:6/", "dask.localhost:6/"}, "browsers lead them here; none is the hub's"


@pytest.mark.parametrize(
    ("kind", "asks"), [("nginx", r"auth_request /_gate/check/(\w+);"), ("caddy", r"uri \S+/(\w+) ")]
)
def test_the_planted_fault_takes_out_the_check_of_one_app_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, asks: str
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SIGN_ON_CLIENT_SECRET", "x")
    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "0" * 64)
    configured(tmp_path)
    proxy = DemoProxy(kind, kind, str(tmp_path), str(behind(tmp_path).gate_file), unprotected="tensorboard")
    right, wrong = proxy.configuration(has_fault=False), proxy.configuration(has_fault=True)
    assert sorted(re.findall(asks, right)) == ["dask", "tensorboard"]
    assert re.findall(asks, wrong) == ["dask"]
    assert wrong.count("{") == wrong.count("}")
    assert [line for line in wrong.splitlines() if line not in right.splitlines()] == []


def test_a_fault_that_cannot_be_planted_is_not_left_half_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SIGN_ON_CLIENT_SECRET", "x")
    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "0" * 64)
    configured(tmp_path)
    taken = []

    def reload(words: object, **_: object) -> subprocess.CompletedProcess[str]:
        taken.append((tmp_path / "proxy.conf").read_text())
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", reload)
    monkeypatch.setattr("hub_extensions.tools.demo.proxy.ANSWERS_IN_SECONDS", 0.0)
    made = DemoProxy("nginx", "nginx", str(tmp_path), str(behind(tmp_path).gate_file), unprotected="tensorboard")
    with pytest.raises(DemoRefused, match="did not change in time"):
        made.change(has_fault=True)
    assert taken == [made.configuration(has_fault=each) for each in (True, False)]


def test_apps_that_are_not_there_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DemoRefused, match=r"There are no apps in .*\./scripts/demo --sso"):
        apps.check_programs(tmp_path)
