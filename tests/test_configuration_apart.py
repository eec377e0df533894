"""`configure(c)` for a service that the hub does not start, and where hub and proxy reach a service."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions import configure
from hub_extensions.configuration import ROLE_NAME, SERVICE_SCOPES, SETTINGS_SCOPE, dry_run, settings_of
from hub_extensions.hub_service.setup.addresses import reached_at
from hub_extensions.hub_service.setup.service_info import hub_secret_of
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.doctor.service import secret_apart

TOKEN = "0123456789abcdef" * 4
URL = "http://jupyterhub-gpu:8191"


@pytest.fixture
def c(tmp_path: Path) -> Config:
    config = Config()
    config.GpuService.state_dir = str(tmp_path / "gpu-state")
    return config


@pytest.fixture
def apart(c: Config) -> Config:
    c.GpuService.started_by_hub = False
    c.GpuService.url = URL
    c.JupyterHub.services = [{"name": "gpu", "api_token": TOKEN}]
    return c


def gpu_service(config: Config) -> dict[str, Any]:
    (found,) = [service for service in config.JupyterHub.services if service["name"] == "gpu"]
    return dict(found)


# ------------------------------------------------------------------ the service's address


def test_a_service_that_listens_everywhere_is_reached_at_the_pods_own_address(c: Config) -> None:
    c.GpuService.host = "0.0.0.0"
    configure(c)
    origin = reached_at("0.0.0.0", 8191)[0]
    assert "0.0.0.0" not in origin
    assert gpu_service(c)["url"] == origin
    assert c.GpuSpawnerMixin.gpu_service_url == f"{origin}/services/gpu"
    there = Settings.load(Path(c.GpuService.state_dir) / "service.json")
    assert (there.host, there.url, there.servers_url) == ("0.0.0.0", *2 * (f"{origin}/services/gpu",))


def test_an_address_of_the_admins_own_wins(c: Config) -> None:
    c.GpuService.host = "0.0.0.0"
    c.GpuService.url = "http://hub-gpu:9000/"
    configure(c)
    assert gpu_service(c)["url"] == "http://hub-gpu:9000"
    assert c.GpuSpawnerMixin.gpu_service_url == "http://hub-gpu:9000/services/gpu"


def test_a_machine_without_an_address_is_a_note(
    c: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.machine.invalid")
    c.GpuService.host = "0.0.0.0"
    configure(c)
    assert gpu_service(c)["url"] == "http://127.0.0.1:8191"
    assert "no.such.machine.invalid" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["jupyterhub-gpu:8191", "http://a:b@gpu:1", "http://gpu:8191/services", "http://"])
def test_a_wrong_address_is_named(c: Config, url: str) -> None:
    c.GpuService.url = url
    with pytest.raises(ValueError, match=r"^c\.GpuService\.url cannot be used.*http://jupyterhub-gpu:8191"):
        configure(c)
    assert not Path(c.GpuService.state_dir).exists()


# ------------------------------------------------------------------ a service apart


def test_the_hub_starts_no_service_apart_and_writes_nothing(apart: Config) -> None:
    apart.GpuCulling.idle_minutes = 45
    configure(apart)
    service = gpu_service(apart)
    assert "command" not in service
    assert (service["url"], service["api_token"], service["oauth_no_confirm"]) == (URL, TOKEN, True)
    assert service["info"]["settings"]["culling"]["idle"] == "PT45M"
    assert not Path(apart.GpuService.state_dir).exists()
    assert apart.GpuSpawnerMixin.gpu_service_url == f"{URL}/services/gpu"
    assert apart.GpuSpawnerMixin.gpu_hub_secret == hub_secret_of(TOKEN)


def test_its_role_may_read_what_the_hub_tells_it_and_nobody_elses_does(apart: Config, c: Config) -> None:
    configure(apart)
    (role,) = [role for role in apart.JupyterHub.load_roles if role["name"] == ROLE_NAME]
    assert role["scopes"] == [*SERVICE_SCOPES, SETTINGS_SCOPE]
    assert SETTINGS_SCOPE == "read:services!service=gpu"
    assert SETTINGS_SCOPE not in SERVICE_SCOPES


def test_no_secret_is_in_what_the_hub_tells(apart: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    apart.GpuService.database_url = "postgresql://gpu:database-word@db/gpu"
    monkeypatch.setenv("JUPYTERHUB_GPU_PROMETHEUS_TOKEN", "prometheus-word")
    configure(apart)
    info = gpu_service(apart)["info"]
    assert info["needs"] == ["JUPYTERHUB_GPU_DATABASE_URL", "JUPYTERHUB_GPU_PROMETHEUS_TOKEN"]
    text = json.dumps(info)
    for word in (TOKEN, hub_secret_of(TOKEN), "database-word", "prometheus-word"):
        assert word not in text


def test_a_secret_of_the_environment_stands_in_for_the_one_made_from_the_token(
    apart: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_GPU_SHARED_SECRET", "shared-word-long-enough")
    configure(apart)
    assert apart.GpuSpawnerMixin.gpu_hub_secret == "shared-word-long-enough"
    assert secret_apart(apart, settings_of(apart).shared_secret) == "shared-word-long-enough"
    info = gpu_service(apart)["info"]
    assert info["needs"] == ["JUPYTERHUB_GPU_SHARED_SECRET"]
    assert "shared-word" not in json.dumps(info)


def test_secrets_may_come_by_the_environment_for_a_service_of_the_hub_too(
    c: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_GPU_DATABASE_URL", "postgresql://gpu@db/gpu")
    configure(c)
    there = Settings.load(Path(c.GpuService.state_dir) / "service.json")
    assert there.database_url == "postgresql://gpu@db/gpu"


def test_configuring_a_service_apart_twice_changes_nothing_and_takes_new_settings(apart: Config) -> None:
    apart.JupyterHub.services[0]["info"] = {"mine": 1}
    configure(apart)
    once = json.dumps(apart, default=str)
    configure(apart)
    assert json.dumps(apart, default=str) == once
    apart.GpuService.url = "http://elsewhere:8191"
    apart.GpuQueue.max_waiting = 7
    apart.GpuSpawnerMixin.clear()
    configure(apart)
    service = gpu_service(apart)
    assert service["url"] == "http://elsewhere:8191"
    assert (service["info"]["mine"], service["info"]["settings"]["queue"]["max_waiting"]) == (1, 7)


def test_looking_needs_no_token_but_a_place_for_one(apart: Config) -> None:
    apart.JupyterHub.services = [{"name": "gpu"}]
    assert settings_of(apart).connect_url == URL
    with dry_run() as notes:
        configure(apart)
    assert not [note for note in notes if "token" in note]
    apart.JupyterHub.services = []
    with pytest.raises(ValueError, match=r"hub\.services\.gpu"):
        settings_of(apart)


@pytest.mark.parametrize("services", [[], [{"name": "gpu"}], [{"name": "gpu", "api_token": "short"}]])
def test_without_a_token_for_both_it_says_where_to_put_one(apart: Config, services: list[dict[str, str]]) -> None:
    apart.JupyterHub.services = services
    with pytest.raises(ValueError, match=r"^c\.GpuService\.started_by_hub is False.*`hub\.services\.gpu: \{\}`"):
        configure(apart)


def test_without_an_address_it_says_what_one_looks_like(apart: Config) -> None:
    apart.GpuService.url = ""
    with pytest.raises(ValueError, match=r"^c\.GpuService\.url is empty.*http://jupyterhub-gpu:8191"):
        configure(apart)


def test_a_command_beside_it_and_subdomains_are_notes(apart: Config, capsys: pytest.CaptureFixture[str]) -> None:
    apart.JupyterHub.services[0]["command"] = ["sleep", "9"]
    apart.JupyterHub.subdomain_host = "https://hub.example"
    configure(apart)
    said = capsys.readouterr().err
    assert "Take the command out" in said and "subdomain_host" in said


# ------------------------------------------------------------------ wrong keys of our spawners


@pytest.mark.parametrize(
    ("chosen", "section", "key", "nearest"),
    [
        ("gpu", "GpuKubeSpawner", "mem_limt", "mem_limit"),
        ("gpu", "GpuKubeSpawner", "gpu_shm_sise", "gpu_shm_size"),
        ("hub_extensions.spawner.kube.GpuKubeSpawner", "GpuKubeSpawner", "start_timeoutt", "start_timeout"),
        ("gpu", "GpuSpawnerMixin", "gpu_service_timeout_second", "gpu_service_timeout_seconds"),
        ("our.own.Spawner", "GpuSpawnerMixin", "gpu_service_timeout_second", "gpu_service_timeout_seconds"),
        (None, "GpuLocalSpawner", "http_timeot", "http_timeout"),
        ("gpu-demo", "GpuDemoSpawner", "home_dir_templat", "home_dir_template"),
        ("gpu", "GpuKubeSpawner", "xyzzy", ""),
    ],
)
def test_a_wrong_key_of_a_spawner_is_named_before_anything_is_changed(
    c: Config, chosen: str | None, section: str, key: str, nearest: str
) -> None:
    if chosen:
        c.JupyterHub.spawner_class = chosen
    c[section][key] = "1"
    before = json.dumps(c, default=str)
    with pytest.raises(ValueError) as refused:
        configure(c)
    assert str(refused.value).startswith(f"c.{section}.{key} is not a setting of {section}.")
    assert (f"Did you mean {nearest}?" in str(refused.value)) == bool(nearest)
    assert json.dumps(c, default=str) == before
    assert not Path(c.GpuService.state_dir).exists()


def test_right_keys_of_a_spawner_and_of_its_parents_pass(c: Config) -> None:
    c.JupyterHub.spawner_class = "gpu"
    c.GpuKubeSpawner.mem_limit = "4G"
    c.GpuKubeSpawner.extra_resource_limits.update({"example.com/nic": "1"})
    c.GpuSpawnerMixin.storage_class = "fast"
    c.GpuSpawnerMixin.gpu_service_timeout_seconds = 20.0
    configure(c)
    assert (c.GpuKubeSpawner.mem_limit, c.GpuSpawnerMixin.storage_class) == ("4G", "fast")


def test_a_class_of_the_admins_own_may_have_settings_of_its_own(c: Config) -> None:
    c.JupyterHub.spawner_class = "our.own.Spawner"
    c.GpuSpawnerMixin.flavour = "vanilla"
    c.GpuKubeSpawner.flavour = "vanilla"
    configure(c)
    assert c.JupyterHub.spawner_class == "our.own.Spawner"
    assert c.GpuSpawnerMixin.flavour == c.GpuKubeSpawner.flavour == "vanilla"


def test_the_section_of_a_spawner_that_is_not_chosen_loads_nothing(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """KubeSpawner is not installed where servers are processes."""
    monkeypatch.setitem(sys.modules, "hub_extensions.spawner.kube", None)
    c.GpuKubeSpawner.mem_limt = "4G"
    configure(c)
    again = Config()
    again.GpuService.state_dir = c.GpuService.state_dir
    again.JupyterHub.spawner_class = "gpu"
    again.GpuKubeSpawner.mem_limt = "4G"
    configure(again)
    assert sys.modules["hub_extensions.spawner.kube"] is None, "an import would have raised"
    assert (again.JupyterHub.spawner_class, again.GpuKubeSpawner.mem_limt) == ("gpu", "4G")
