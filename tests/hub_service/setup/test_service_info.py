"""What a service apart from the hub is told, what it is not, and where the hub and its proxy reach a service."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.core.cluster.model import ClusterConfig, Requirement
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.settings import settings_in
from hub_extensions.hub_service.setup import addresses
from hub_extensions.hub_service.setup.service_info import (
    BY_ENVIRONMENT,
    WITHHELD,
    ServiceEnvironment,
    from_info,
    hub_secret_of,
    settings_from,
    to_info,
)
from hub_extensions.hub_service.setup.settings import Settings, SettingsError
from hub_extensions.hub_service.setup.state_dir import folder_apart

TOKEN = "token-of-the-service-at-the-hub"
ENVIRONMENT = {
    "JUPYTERHUB_API_URL": "http://hub:8081/jh/hub/api/",
    "JUPYTERHUB_API_TOKEN": TOKEN,
    "JUPYTERHUB_GPU_DATABASE_URL": "postgresql://gpu:database-word@db/gpu",
    "JUPYTERHUB_GPU_PROMETHEUS_TOKEN": "prometheus-word",
    "JUPYTERHUB_GPU_METRICS_TOKEN": "metrics-word-long-enough",
    "JUPYTERHUB_GPU_SHARED_SECRET": "shared-word-long-enough",
    "JUPYTERHUB_GPU_WEBHOOK_URL": "https://chat/hook-word",
    "JUPYTERHUB_GPU_WEBHOOK_TOKEN": "receivers-word",
    "JUPYTERHUB_GPU_SMTP_PASSWORD": "mail-word",
}
SECRET_WORDS = (
    "database-word", "prometheus-word", "metrics-word", "shared-word", "hook-word", "receivers-word", "mail-word"
)  # fmt: skip
OWN = ServiceEnvironment.of(ENVIRONMENT, "/srv/gpu", "0.0.0.0")
HUBS = Settings(
    state_dir="/srv/jupyterhub/gpu-state",
    hub_secret=hub_secret_of(TOKEN, "shared-word-long-enough"),
    shared_secret="shared-word-long-enough",
    api_token=TOKEN,
    metrics_token="metrics-word-long-enough",
    database_url="postgresql://gpu:database-word@db/gpu",
    connect_url="http://jupyterhub-gpu:8191",
    base_url="/jh/",
    start_seconds=400.0,
    offers=OfferConfig(fractions={"gpu": (0.5,)}, groups={"gpu": ("thesis",)}),
    queue=QueueLimits(max_wait=timedelta(hours=2)),
    culling=CullPolicy(lifetime=None),
    prometheus_url="http://prometheus:9090",
    prometheus_token="prometheus-word",
    webhook_url="https://chat/hook-word",
    webhook_token="receivers-word",
    smtp_password="mail-word",
    dcgm_scale="card",
    cluster=ClusterConfig(
        capacity={"mig-1g.5gb": 5},
        node_terms=((Requirement("pool", "In", ("a",)), Requirement("old", "DoesNotExist")), ()),
        tolerated=("gpu=yes:NoSchedule",),
    ),
)


def over_the_wire(settings: Settings) -> dict[str, Any]:
    told = from_info(json.loads(json.dumps({"theirs": 1, **to_info(settings)})))
    assert told is not None
    return told


def test_no_secret_and_no_folder_is_told() -> None:
    text = json.dumps(to_info(HUBS))
    for word in (TOKEN, HUBS.hub_secret, *SECRET_WORDS, "/srv/"):
        assert word not in text


def test_a_setting_that_is_not_told_is_the_services_own_or_comes_by_its_environment() -> None:
    assert set(settings_in(Settings)) & WITHHELD == {"state_dir", "host", *BY_ENVIRONMENT}


def test_what_arrives_is_what_the_hub_has_but_for_its_own_place() -> None:
    there = settings_from(over_the_wire(HUBS), OWN)
    assert there == replace(HUBS, state_dir="/srv/gpu", host="0.0.0.0", hub_api_url="http://hub:8081/jh/hub/api")
    assert there.url == HUBS.url == "http://jupyterhub-gpu:8191/jh/services/gpu"


def test_a_secret_that_the_hubs_configuration_has_must_be_in_the_environment_too() -> None:
    """Else a service would go on with an SQLite file while its admin believes it is on PostgreSQL."""
    poor = ServiceEnvironment.of({name: ENVIRONMENT[name] for name in list(ENVIRONMENT)[:2]}, "/srv/gpu", "0.0.0.0")
    with pytest.raises(SettingsError, match=r"set JUPYTERHUB_GPU_DATABASE_URL, JUPYTERHUB_GPU_METRICS_TOKEN, .*_PROM"):
        settings_from(over_the_wire(HUBS), poor)
    assert settings_from(over_the_wire(replace(HUBS, database_url="")), OWN).database_url == HUBS.database_url


def test_a_setting_of_another_version_is_named() -> None:
    told = over_the_wire(HUBS)
    with pytest.raises(SettingsError, match=r"unknown field 'later'.*same version"):
        settings_from({**told, "settings": {**told["settings"], "later": 1}}, OWN)
    for queue, named in (
        ({"later": 1}, r"unknown field 'queue\.later'"),
        ({"max_wait": "long"}, r"c\.GpuQueue\.max_wait_hours: "),
    ):
        with pytest.raises(SettingsError, match=rf"{named}.*same version"):
            settings_from({**told, "settings": {**told["settings"], "queue": queue}}, OWN)
    with pytest.raises(SettingsError, match=r"c\.GpuService\.port: .*same version"):
        settings_from({**told, "settings": {**told["settings"], "port": "many"}}, OWN)


def test_a_hub_cannot_change_what_the_service_knows_itself() -> None:
    told = over_the_wire(HUBS)
    there = settings_from({**told, "settings": {**told["settings"], "state_dir": "/etc", "hub_secret": "mine"}}, OWN)
    assert (there.state_dir, there.hub_secret) == ("/srv/gpu", HUBS.hub_secret)


@pytest.mark.parametrize("info", [{}, {"settings": None}, {"settings": []}, {"settings": {}, "needs": "all"}])
def test_a_hub_that_tells_nothing_is_told_apart(info: dict[str, Any]) -> None:
    assert from_info(info) is None


def test_the_secret_is_another_value_than_the_token() -> None:
    assert hub_secret_of(TOKEN) == hub_secret_of(TOKEN) != hub_secret_of(TOKEN + "x")
    assert TOKEN not in hub_secret_of(TOKEN) and len(hub_secret_of(TOKEN)) == 64


def test_a_secret_that_the_environment_brings_to_both_is_preferred_and_never_made_from_the_token() -> None:
    assert hub_secret_of(TOKEN, "shared-word-long-enough") == "shared-word-long-enough"
    without = ServiceEnvironment.of({**ENVIRONMENT, "JUPYTERHUB_GPU_SHARED_SECRET": ""}, "/srv/gpu", "0.0.0.0")
    neither = replace(HUBS, shared_secret="", hub_secret=hub_secret_of(TOKEN))
    assert settings_from(over_the_wire(HUBS), OWN).hub_secret == "shared-word-long-enough"
    assert settings_from(over_the_wire(neither), without).hub_secret == hub_secret_of(TOKEN)


def test_a_secret_that_only_one_of_both_has_is_named() -> None:
    without = ServiceEnvironment.of({**ENVIRONMENT, "JUPYTERHUB_GPU_SHARED_SECRET": ""}, "/srv/gpu", "0.0.0.0")
    with pytest.raises(SettingsError, match="set JUPYTERHUB_GPU_SHARED_SECRET for the service too"):
        settings_from(over_the_wire(HUBS), without)
    with pytest.raises(SettingsError, match="JUPYTERHUB_GPU_SHARED_SECRET is set here and not for the hub"):
        settings_from(over_the_wire(replace(HUBS, shared_secret="")), OWN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JUPYTERHUB_GPU_SHARED_SECRET", "short"),
        ("JUPYTERHUB_API_URL", ""),
        ("JUPYTERHUB_API_URL", "hub:8081"),
        ("JUPYTERHUB_API_TOKEN", ""),
        ("JUPYTERHUB_API_TOKEN", "short"),
        ("JUPYTERHUB_GPU_METRICS_TOKEN", "short"),
        ("JUPYTERHUB_GPU_METRICS_TOKEN", "with-its-line-break\n"),
        ("JUPYTERHUB_GPU_PROMETHEUS_TOKEN", "two words"),
        ("JUPYTERHUB_GPU_DATABASE_URL", "postgresql://gpu@db/gpu\n"),
    ],
)
def test_a_wrong_variable_is_named_and_its_value_is_not(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        ServiceEnvironment.of({**ENVIRONMENT, name: value}, "/srv/gpu", "0.0.0.0")
    assert str(refused.value).startswith(name)
    assert not value or f"{value}." not in str(refused.value)


def test_no_secret_is_in_the_repr_of_what_a_service_knows() -> None:
    assert not [word for word in (TOKEN, *SECRET_WORDS) if word in repr(OWN)]
    assert set(OWN.secrets) == set(BY_ENVIRONMENT)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"--state-dir .* cannot be made"):
        folder_apart(tmp_path / "file" / "inside")
    made = folder_apart(tmp_path / "volume" / "state")
    assert made.stat().st_mode & 0o777 == 0o700


# ------------------------------------------------------------------ where a service is reached


def names(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, str]) -> None:
    def getaddrinfo(name: str, port: object) -> list[tuple[Any, ...]]:
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(family, 1, 6, "", (place, 0)) for family, place in found]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", getaddrinfo)


def test_a_service_that_listens_on_one_address_is_reached_there() -> None:
    assert addresses.reached_at("127.0.0.1", 8191) == ("http://127.0.0.1:8191", "")
    assert addresses.reached_at("::1", 8191) == ("http://[::1]:8191", "")


def test_one_that_listens_everywhere_is_reached_at_the_pods_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, (socket.AF_INET6, "fd00::7"), (socket.AF_INET, "127.0.1.1"), (socket.AF_INET, "10.1.2.3"))
    assert addresses.reached_at("0.0.0.0", 8191) == ("http://10.1.2.3:8191", "")
    assert addresses.reached_at("", 8191) == ("http://10.1.2.3:8191", "")
    assert addresses.reached_at("::", 8191) == ("http://[fd00::7]:8191", "")


def test_a_machine_whose_name_has_no_address_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch)
    url, note = addresses.reached_at("0.0.0.0", 8191)
    assert url == "http://127.0.0.1:8191" and "set c.GpuService.url" in note
