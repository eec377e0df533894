"""What `configure(c)` adds to a hub's configuration, what it leaves alone, and what it says about bad input."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jupyterhub import app
from kubespawner import KubeSpawner
from traitlets import Bool, Enum, Float, Int, Unicode
from traitlets.config import Config

from hub_extensions import configure
from hub_extensions.configuration import ACCESS_SCOPE, ROLE_NAME, SERVICE_SCOPES, dry_run, settings_of
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.settings import settings_in, spelled
from hub_extensions.hub_service.setup.service_info import ServiceEnvironment, from_info, settings_from
from hub_extensions.hub_service.setup.settings import Settings, SettingsError
from hub_extensions.spawner.config.traits import SECTIONS, Section
from hub_extensions.spawner.kube import GpuKubeSpawner
from tests.patience import patient


@pytest.fixture
def c(tmp_path: Path) -> Config:
    config = Config()
    config.GpuService.state_dir = str(tmp_path / "gpu-state")
    return config


def role(config: Config, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(role for role in config.JupyterHub.load_roles if role["name"] == name)
    return found


def settings(config: Config) -> Settings:
    return Settings.load(Path(config.GpuService.state_dir) / "service.json")


# ------------------------------------------------------------------ a setting is one field of a value


def other(trait: Any) -> Any:
    """Something else than the default that fits the setting; those that need more than that stand in `FITTING`."""
    default = trait.default()
    if isinstance(trait, Enum):
        return next(each for each in trait.values if each not in (default, ""))
    if isinstance(trait, Bool):
        return not default
    return (default or 0) + 1 if isinstance(trait, Int | Float) else "other"


FITTING: dict[str, Any] = {
    "c.GpuOffers.fractions": {"gpu": [0.25]},
    "c.GpuOffers.memory_gib": {"gpu": [8]},
    "c.GpuOffers.titles": {"gpu": "Large"},
    "c.GpuOffers.descriptions": {"gpu": "A whole one."},
    "c.GpuOffers.groups": {"gpu": ["thesis"]},
    "c.GpuOffers.default_offer": "cpu",
    "c.GpuOffers.hidden": ["mig-1g.5gb"],
    "c.GpuOffers.resources": {"nvidia.com/a100": "gpu"},
    "c.GpuOffers.simulate": "two-whole",
    "c.GpuCulling.idle_minutes_by_offer": {"gpu": 15.5},
    **{f"c.GpuCulling.{limit}_minutes": 12.5 for limit in ("holds_memory", "never_used", "contended_idle")},
    "c.GpuCulling.warning_webhook_url": "https://chat.example/stops",
    "c.SignOn.enabled": False,  # of the hub alone, and it would load the authenticator
    "c.SignOnGate.enabled": False,  # of hub and gate alone: tests/gate/test_hub_setup.py
    "c.SignOnGate.trusted_proxies": ["10.0.0.0/8"],
    "c.GpuCluster.capacity": {"gpu": 3},
    "c.GpuService.url": "http://gpu.example:8192",
    "c.GpuService.metrics_token": "metrics-word-long-enough",
    "c.GpuService.shared_secret": "secret-word-long-enough",
    "c.GpuService.prometheus_url": "http://prometheus:9090",
    "c.GpuNotices.webhook_url": "https://chat.example/hook",
    "c.GpuNotices.mail_from": "GPUs <gpu@hub.example>",
    "c.GpuNotices.mail_to": "{{ user }}@hub.example",
    "c.GpuNotices.mail_language": "fi",
}


def test_every_setting_reaches_a_service_apart_from_the_hub(c: Config) -> None:
    """A new setting is found here by itself: it is another than its default, and arrives as another."""
    for section in SECTIONS:
        for name, trait in section.class_traits(config=True).items():
            c[section.__name__][name] = FITTING.get(f"c.{section.__name__}.{name}", other(trait))
    c.JupyterHub.spawner_class = "gpu"
    c.JupyterHub.public_url = "https://hub.example/"
    c.JupyterHub.services = [{"name": "gpu", "api_token": "0123456789abcdef"}]
    configure(c)
    assert c.GpuSpawnerMixin.gpu_notice_channel_text == "other"
    [service] = c.JupyterHub.services
    environment = {
        "JUPYTERHUB_API_URL": "http://hub:8081/hub/api",
        "JUPYTERHUB_API_TOKEN": service["api_token"],
        **{about.variable: f"{name}-of-its-environment" for name, about in settings_in(Settings).items()},
    }
    told = from_info(json.loads(json.dumps(service["info"])))
    assert told is not None
    there = settings_from(told, ServiceEnvironment.of(environment, "/srv/gpu", "0.0.0.0"))
    for value in (there, there.offers, there.queue, there.culling, there.cluster):
        kind = type(value)
        fresh = Settings(hub_secret="", api_token="") if isinstance(value, Settings) else kind()
        for name in settings_in(kind):
            assert getattr(value, name) != getattr(fresh, name), spelled(kind, name)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_help_that_says_its_unit(section: type[Section]) -> None:
    for name, trait in section.class_traits(config=True).items():
        unit = next((u for u in ("minutes", "hours", "seconds", "percent", "gib") if f"_{u}" in name), "")
        assert len(trait.help) > 20 and (not unit or f"unit: {unit}" in trait.help.lower()), name


def test_the_settings_of_prometheus_reach_the_service_and_its_token_is_in_no_repr(c: Config) -> None:
    c.GpuService.prometheus_url = "https://prometheus.example:9090/prom"
    c.GpuService.prometheus_token = "prometheus-secret"
    c.GpuService.dcgm_scale = "card"
    configure(c)
    made = settings_of(c)
    assert (made.prometheus_url, made.dcgm_scale) == ("https://prometheus.example:9090/prom", "card")
    assert made.prometheus_token == "prometheus-secret" and "prometheus-secret" not in repr(made)


def test_a_wrong_token_is_not_written_into_the_error(c: Config) -> None:
    c.GpuService.prometheus_token = "secret word"
    with pytest.raises(ValueError) as refused:
        configure(c)
    assert "secret" not in str(refused.value)


# ------------------------------------------------------------------ what is added


def test_a_plain_configuration_gets_service_roles_templates_and_limits(c: Config) -> None:
    configure(c)
    (service,) = c.JupyterHub.services
    assert (service["name"], service["url"]) == ("gpu", "http://127.0.0.1:8191")
    assert service["command"][1:4] == ["-m", "hub_extensions.hub_service", "--config"]
    assert service["oauth_no_confirm"] is True
    assert c.JupyterHub.concurrent_spawn_limit == 0
    assert c.JupyterHub.tornado_settings == {"slow_spawn_timeout": 1}
    assert c.JupyterHub.spawner_class in {"gpu-local", "hub_extensions.spawner.local.GpuLocalSpawner"}
    assert c.JupyterHub.template_paths[0].endswith("spawner/pages/templates")
    assert callable(c.JupyterHub.template_vars["gpu_away"])
    frame, servers = c.JupyterHub.extra_handlers
    assert (frame[0], frame[2], servers[0]) == ("/api/gpu/frame", {"service": "gpu"}, "/api/gpu/servers")
    assert role(c, ROLE_NAME) == {
        "name": ROLE_NAME,
        "description": role(c, ROLE_NAME)["description"],
        "services": ["gpu"],
        "scopes": list(SERVICE_SCOPES),
    }
    assert role(c, "user")["scopes"] == ["self", ACCESS_SCOPE]
    assert role(c, "server")["scopes"] == ["users:activity!user", "access:servers!server", ACCESS_SCOPE]


def test_the_roles_name_no_scope_that_jupyterhub_5_lacks(c: Config) -> None:
    """T13: with `start:servers` JupyterHub 5 does not start; `servers` works on both."""
    configure(c)
    scopes = [scope for role in c.JupyterHub.load_roles for scope in role["scopes"]]
    assert "servers" in scopes
    assert not [scope for scope in scopes if scope.startswith(("start:", "stop:"))]


def test_waiting_servers_do_not_count_against_the_hubs_start_limit(c: Config) -> None:
    """T2: with JupyterHub's default of 100 waiters keep CPU users out with 429."""
    configure(c)
    assert c.JupyterHub.concurrent_spawn_limit == 0


def test_hub_spawner_and_service_share_one_secret_that_stays(c: Config, tmp_path: Path) -> None:
    """T14: the token is the same after a restart: a service that outlived its hub is no stranger to the next one."""
    configure(c)
    first = settings(c)
    again = Config()
    again.GpuService.state_dir = c.GpuService.state_dir
    configure(again)
    assert settings(again) == first
    assert c.GpuSpawnerMixin.gpu_hub_secret == again.GpuSpawnerMixin.gpu_hub_secret == first.hub_secret
    assert c.JupyterHub.services[0]["api_token"] == first.api_token
    assert c.GpuSpawnerMixin.gpu_service_url == "http://127.0.0.1:8191/services/gpu"
    assert len(first.api_token) == 64  # JupyterHub 6.1 takes no longer ones


COOKIE = bytes(range(32))


def secrets_of(folder: Path, cookie_secret: object = None) -> tuple[str, str]:
    """Of a hub that starts with an empty folder, as its pod does where the chart gives it no volume."""
    config = Config()
    config.GpuService.state_dir = str(folder)
    if cookie_secret is not None:
        config.JupyterHub.cookie_secret = cookie_secret
    configure(config)
    there = settings(config)
    assert config.JupyterHub.services[0]["api_token"] == there.api_token
    assert stat.S_IMODE((folder / "secrets.json").stat().st_mode) == 0o600
    return there.hub_secret, there.api_token


@pytest.mark.slow
@pytest.mark.parametrize("cookie", [COOKIE, COOKIE.hex(), "no hexadecimal digits at all"])
def test_a_hub_without_a_volume_has_the_secrets_that_it_had_before(tmp_path: Path, cookie: str | bytes) -> None:
    """Else its token is unknown at each start, and all who wait in line lose their places."""
    first, second = secrets_of(tmp_path / "one", cookie), secrets_of(tmp_path / "two", cookie)
    assert first == second
    assert first[0] != first[1]
    assert {len(each) for each in first} == {64}
    plain = cookie if isinstance(cookie, str) else cookie.hex()
    assert not [each for each in first if each in plain or plain in each]
    assert not set(first) & set(secrets_of(tmp_path / "three", b"another" + COOKIE))


def test_the_cookie_secret_may_be_written_in_both_of_the_hubs_ways(tmp_path: Path) -> None:
    assert secrets_of(tmp_path / "one", COOKIE) == secrets_of(tmp_path / "two", COOKIE.hex())


@pytest.mark.slow
@pytest.mark.parametrize("cookie", [None, "", b"", b"short"])
def test_without_a_cookie_secret_that_nobody_guesses_the_secrets_are_random(
    tmp_path: Path, cookie: str | bytes | None
) -> None:
    assert not set(secrets_of(tmp_path / "one", cookie)) & set(secrets_of(tmp_path / "two", cookie))


def test_secrets_that_are_there_stay_whatever_the_cookie_secret_is(tmp_path: Path) -> None:
    assert secrets_of(tmp_path / "one") == secrets_of(tmp_path / "one", COOKIE)


def test_files_with_secrets_are_private(c: Config) -> None:
    configure(c)
    folder = Path(c.GpuService.state_dir)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("secrets.json", "service.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    loaded = settings(c)
    assert loaded.hub_secret not in repr(loaded)
    assert loaded.api_token not in repr(loaded)


def test_the_service_in_the_hubs_pod_finds_the_cluster_and_the_database(
    c: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterHub hands a service hardly anything of its own environment."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.97.0.1")
    monkeypatch.setenv("PGPASSWORD", "of the database")
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    c.JupyterHub.services = [{"name": "gpu", "environment": {"TZ": "Europe/Berlin", "PGPASSWORD": "the admin's own"}}]
    configure(c)
    configure(c)
    [service] = c.JupyterHub.services
    assert service["environment"]["KUBERNETES_SERVICE_HOST"] == "10.97.0.1"
    assert service["environment"]["PGPASSWORD"] == "the admin's own"
    assert service["environment"]["TZ"] == "Europe/Berlin"
    assert "SOMETHING_ELSE" not in service["environment"]


PUBLIC = {"PROXY_PUBLIC_SERVICE_HOST": "10.97.0.9"}
WITH_HTTPS = {**PUBLIC, "PROXY_PUBLIC_SERVICE_PORT": "443", "PROXY_PUBLIC_SERVICE_PORT_HTTPS": "443"}
BOTH_PORTS = {**WITH_HTTPS, "PROXY_PUBLIC_SERVICE_PORT_HTTP": "80"}
INNER = {"PROXY_HTTP_SERVICE_HOST": "10.97.0.10", "PROXY_HTTP_SERVICE_PORT": "8000"}


@pytest.mark.parametrize(
    ("services", "reached"),
    [
        (PUBLIC, "10.97.0.9:80"),
        ({**PUBLIC, "PROXY_PUBLIC_SERVICE_PORT": "8080"}, "10.97.0.9:8080"),
        (BOTH_PORTS, "10.97.0.9:80"),
        (WITH_HTTPS, "10.97.0.9:443"),  # type offload without the port of plain HTTP: it is plain HTTP there
        ({**BOTH_PORTS, **INNER}, "10.97.0.10:8000"),
        ({"PROXY_PUBLIC_SERVICE_HOST": "fd00::9"}, "[fd00::9]:80"),
    ],
)
def test_a_pod_that_starts_while_the_service_is_away_is_told_the_way_through_the_proxy(
    c: Config, monkeypatch: pytest.MonkeyPatch, services: dict[str, str], reached: str
) -> None:
    for name, value in services.items():
        monkeypatch.setenv(name, value)
    c.JupyterHub.spawner_class = "gpu"
    configure(c)
    assert c.GpuSpawnerMixin.gpu_service_connect_url == f"http://{reached}/services/gpu"
    assert settings(c).servers_url == c.GpuSpawnerMixin.gpu_service_connect_url


def test_the_admins_own_way_to_the_service_wins(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WITH_HTTPS.items():
        monkeypatch.setenv(name, value)
    c.JupyterHub.spawner_class = "gpu"
    c.GpuCluster.service_connect_url = "https://hub.example.org/services/gpu"
    configure(c)
    assert c.GpuSpawnerMixin.gpu_service_connect_url == "https://hub.example.org/services/gpu"


@pytest.mark.parametrize(
    ("bound", "way"),
    [
        ("http://:8081", "http://127.0.0.1:8081/lab/hub/api"),
        ("http://*:9000/", "http://127.0.0.1:9000/lab/hub/api"),
        ("http://10.0.0.3:8081", ""),
        ("https://:8081", ""),
        ("", ""),
    ],
)
def test_a_service_in_the_hubs_pod_asks_the_hub_inside_it(c: Config, bound: str, way: str) -> None:
    """By the hub's own Service a pod's network policies may keep it from itself."""
    c.JupyterHub.base_url = "/lab/"
    if bound:
        c.JupyterHub.hub_bind_url = bound
    configure(c)
    assert settings(c).hub_api_url == way


def test_the_admins_settings_reach_the_service(c: Config) -> None:
    c.JupyterHub.bind_url = "http://127.0.0.1:8000/jupyter/"
    c.JupyterHub.allow_named_servers = True
    c.GpuOffers.fractions = {"gpu": [0.5]}
    c.GpuOffers.groups.update({"gpu": ["thesis"]})
    c.GpuQueue.max_wait_hours = 2
    c.GpuCulling.enabled = True
    c.GpuCulling.lifetime_hours = None
    configure(c)
    loaded = settings(c)
    assert loaded.prefix == "/jupyter/services/gpu/"
    assert loaded.allow_named_servers
    assert loaded.offers == OfferConfig(fractions={"gpu": (0.5,)}, groups={"gpu": ("thesis",)})
    assert loaded.queue.max_wait == timedelta(hours=2)
    assert loaded.culling == CullPolicy(enabled=True, lifetime=None)


def test_configuring_twice_changes_nothing(c: Config) -> None:
    c.JupyterHub.template_paths = ["/srv/templates"]
    configure(c)
    once = json.dumps(c, default=str)
    configure(c)
    assert json.dumps(c, default=str) == once


def test_a_second_configure_brings_new_settings_to_the_service(c: Config) -> None:
    configure(c)
    c.GpuService.port = 8292
    c.GpuSpawnerMixin.clear()
    configure(c)
    assert [service["url"] for service in c.JupyterHub.services] == ["http://127.0.0.1:8292"]


def test_the_hubs_own_events_are_not_warned_of_at_each_start_and_anothers_are(c: Config) -> None:
    """JupyterHub 5.5 has a number where jupyter-events wants a text."""
    hubs, mine = "https://schema.jupyter.org/jupyterhub/events/server-action", "https://example.org/events/mine"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        configure(c)
        for name in (hubs, mine):
            schema = {"$id": name, "version": 1, "title": "t", "description": "d", "type": "object", "properties": {}}
            app.EventLogger().register_event_schema(schema)
    assert [mine in str(each.message) for each in said] == [True]


def test_importing_and_looking_write_nothing(c: Config) -> None:
    settings_of(c)
    assert not Path(c.GpuService.state_dir).exists()


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("gpuu", "gpu"),
        ("gpu_local", "gpu-local"),
        ("GPU", "gpu"),
        ("hub_extensions.spawner.kube.GpuKubSpawner", "hub_extensions.spawner.kube.GpuKubeSpawner"),
        ("hub_extension.spawner.kube.GpuKubeSpawner", "hub_extensions.spawner.kube.GpuKubeSpawner"),
    ],
)
def test_a_spawner_class_that_is_nearly_ours_is_an_error_that_names_the_right_one(
    c: Config, given: str, right: str
) -> None:
    c.JupyterHub.spawner_class = given
    said = f"c.JupyterHub.spawner_class is {given!r}, which is no spawner: write {right!r}."
    with pytest.raises(ValueError, match=re.escape(said)):
        configure(c)


@pytest.mark.whole
@pytest.mark.programs
def test_the_hubs_log_ends_with_the_sentence_about_a_wrong_setting_and_has_no_traceback(tmp_path: Path) -> None:
    ends_with_its_sentence(sys.executable, tmp_path)


@pytest.mark.programs
@pytest.mark.needs("hub5")
@pytest.mark.whole
def test_so_does_the_log_of_jupyterhub_5(hub5_python: str, tmp_path: Path) -> None:
    ends_with_its_sentence(hub5_python, tmp_path)


def ends_with_its_sentence(python: str, tmp_path: Path) -> None:
    config = tmp_path / "jupyterhub_config.py"
    config.write_text("from hub_extensions import configure\nc.GpuQueue.max_waitings = 3\nconfigure(c)\n")
    words = [python, "-m", "jupyterhub", "--config", str(config)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=patient(60), check=False)
    assert ended.returncode == 1
    assert "c.GpuQueue.max_waitings is not a setting. Did you mean max_waiting?" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stdout + ended.stderr


# ------------------------------------------------------------------ what is left alone


def test_nothing_an_admin_has_set_is_overwritten(c: Config, capsys: pytest.CaptureFixture[str]) -> None:
    c.JupyterHub.spawner_class = "simple"
    c.JupyterHub.concurrent_spawn_limit = 20
    c.JupyterHub.active_server_limit = 30
    c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0, "headers": {}}
    c.JupyterHub.template_paths = ["/srv/templates"]
    c.JupyterHub.services = [{"name": "cull", "command": ["python", "-m", "jupyterhub_idle_culler"]}]
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", "shares!user"]},
        {"name": "teacher", "scopes": ["list:users"], "groups": ["teachers"]},
    ]
    configure(c)
    assert c.JupyterHub.spawner_class == "simple"
    assert c.JupyterHub.concurrent_spawn_limit == 20
    assert c.JupyterHub.tornado_settings == {"slow_spawn_timeout": 0, "headers": {}}
    assert c.JupyterHub.template_paths[0] == "/srv/templates"
    assert [service["name"] for service in c.JupyterHub.services] == ["cull", "gpu"]
    assert role(c, "user")["scopes"] == ["self", "shares!user", ACCESS_SCOPE]
    assert role(c, "teacher") == {"name": "teacher", "scopes": ["list:users"], "groups": ["teachers"]}
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith("jupyterhub-gpu: ") for line in said)
    for word in ("spawner_class", "concurrent_spawn_limit", "active_server_limit", "'cull'"):
        assert len([line for line in said if word in line]) == 1, word


class KubeSpawnerOfASite(KubeSpawner):
    """As a site writes it that has hooks of its own."""


class OursOfASite(GpuKubeSpawner):
    """As the note says it."""

    site_word = Unicode().tag(config=True)


HERE = __name__


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (KubeSpawnerOfASite, f"({HERE}.KubeSpawnerOfASite)"),
        (f"{HERE}.KubeSpawnerOfASite", "`class KubeSpawnerOfASite(GpuKubeSpawner):`"),
        ("kubespawner.KubeSpawner", 'Set it to "gpu"'),
        ("kubespawner.spawner.KubeSpawner", 'Set it to "gpu"'),
        (KubeSpawner, 'Set it to "gpu"'),
        ("simple", '"gpu-demo" for any other hub on one machine'),
        ("jupyterhub.spawner.LocalProcessSpawner", '"gpu-local" for a hub that is root'),
        ("no.such.module.Spawner", "(no.such.module.Spawner)"),
    ],
)
def test_a_spawner_that_is_not_ours_is_told_how_it_can_be(
    c: Config, capsys: pytest.CaptureFixture[str], chosen: object, said: str
) -> None:
    c.JupyterHub.spawner_class = chosen
    configure(c)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "spawner_class" in line]
    assert said in line and "without the choice of a GPU" in line
    derived = "KubeSpawnerOfASite" in str(chosen)
    assert ("hub_extensions.spawner.kube import GpuKubeSpawner" in line) is derived


@pytest.mark.parametrize("chosen", [OursOfASite, f"{HERE}.OursOfASite"])
def test_a_class_made_from_ours_is_ours_by_its_name_too(
    c: Config, capsys: pytest.CaptureFixture[str], chosen: object
) -> None:
    c.JupyterHub.spawner_class = chosen
    c.GpuKubeSpawner.site_word = "x"
    configure(c)
    assert settings(c).cluster is not None, "its servers are pods"
    assert "spawner_class" not in capsys.readouterr().err


@pytest.mark.parametrize("section", ["Spawner", "KubeSpawner", "GpuSpawnerMixin", "GpuKubeSpawner", "OursOfASite"])
@pytest.mark.parametrize(
    ("key", "said"),
    [("options_form", "takes the place of the form with the offers"), ("options_from_form", "in place of ours")],
)
def test_a_form_of_the_admins_own_is_said(
    c: Config, capsys: pytest.CaptureFixture[str], section: str, key: str, said: str
) -> None:
    c.JupyterHub.spawner_class = OursOfASite
    c[section][key] = lambda spawner: "<select name='gpu'></select>"
    configure(c)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "form" in line]
    assert f"c.{section}.{key} is left alone" in line and said in line and "nobody can choose a GPU" in line


@pytest.mark.parametrize(
    ("chosen", "section"),
    [("gpu-demo", "KubeSpawner"), ("gpu", "LocalProcessSpawner"), ("simple", "Spawner"), (None, "KubeSpawner")],
)
def test_a_form_that_the_spawner_does_not_read_is_not_said(
    c: Config, capsys: pytest.CaptureFixture[str], chosen: str | None, section: str
) -> None:
    if chosen is not None:
        c.JupyterHub.spawner_class = chosen
    c[section].options_form = "<input>"
    configure(c)
    assert "options_form" not in capsys.readouterr().err


def test_a_role_that_only_names_people_keeps_jupyterhubs_own_scopes(c: Config) -> None:
    c.JupyterHub.load_roles = [{"name": "server", "description": "mine"}]
    configure(c)
    assert role(c, "server")["scopes"] == ["users:activity!user", "access:servers!server", ACCESS_SCOPE]


def test_extra_user_scopes_stay_in_force(c: Config) -> None:
    """JupyterHub 6 ignores `extra_user_scopes` as soon as a role `user` is defined."""
    c.JupyterHub.extra_user_scopes = ["shares!user"]
    configure(c)
    assert c.JupyterHub.extra_user_scopes == ["shares!user", ACCESS_SCOPE]
    assert not [role for role in c.JupyterHub.load_roles if role["name"] == "user"]


def test_lists_that_were_appended_to_are_kept(c: Config) -> None:
    """traitlets keeps `.append` on an unset list as a promise, not as a list."""
    c.JupyterHub.services.append({"name": "mine", "url": "http://127.0.0.1:9999"})
    c.JupyterHub.load_roles.append({"name": "user", "scopes": ["self", "read:hub"]})
    c.JupyterHub.template_paths.append("/srv/templates")
    configure(c)
    assert [service["name"] for service in c.JupyterHub.services] == ["mine", "gpu"]
    assert role(c, "user")["scopes"] == ["self", "read:hub", ACCESS_SCOPE]
    assert c.JupyterHub.template_paths[0] == "/srv/templates"
    assert c.JupyterHub.template_paths[1].endswith("spawner/pages/templates")


def test_a_service_named_gpu_that_is_not_ours_is_left_alone(c: Config, capsys: pytest.CaptureFixture[str]) -> None:
    c.JupyterHub.services = [{"name": "gpu", "url": "http://10.0.0.1:80", "api_token": "x" * 32}]
    configure(c)
    (service,) = c.JupyterHub.services
    assert (service["url"], service["api_token"]) == ("http://10.0.0.1:80", "x" * 32)
    assert "left alone in api_token, url" in capsys.readouterr().err


def test_a_token_that_the_chart_made_for_the_service_is_used_on_both_sides(
    c: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hub.services.gpu: {}` stays in the values when the service goes back into the hub's pod."""
    c.JupyterHub.services = [{"name": "gpu", "api_token": "made-by-the-chart" * 2}]
    for _ in range(2):
        configure(c)
        (service,) = c.JupyterHub.services
        assert service["api_token"] == settings(c).api_token == "made-by-the-chart" * 2
        assert service["command"][1:3] == ["-m", "hub_extensions.hub_service"]
    assert "left alone" not in capsys.readouterr().err
    assert settings_of(c).api_token == ""


def test_looking_at_a_configuration_with_such_a_token_finds_nothing_wrong(c: Config) -> None:
    c.JupyterHub.services = [{"name": "gpu", "api_token": "made-by-the-chart" * 2}]
    with dry_run() as notes:
        configure(c)
    assert notes == []


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("section", "key", "value", "right"),
    [
        ("GpuQueue", "max_waitin", 5, "Did you mean max_waiting?"),
        ("GpuQueue", "max_waiting", -1, "a whole number of at least 1"),
        ("GpuQueue", "max_waiting", "many", "a whole number of at least 1"),
        ("GpuQueue", "max_waiting", True, "a whole number of at least 1"),
        ("GpuQueue", "max_wait_hours", float("nan"), "a number of at least 0"),
        ("GpuQueue", "max_starting", 0, "a whole number of at least 1"),
        ("GpuCulling", "idle_minutes", -3, "a number of at least 0"),
        ("GpuCulling", "idle_below_percent", 101, "a number from 0 to 100"),
        ("GpuCulling", "lifetime_hours", "12", "a number of at least 0 or None"),
        ("GpuCulling", "enabled", 1, "True or False"),
        ("GpuCulling", "idle_minutes_by_offer", {"gpu": -1}, "a dict from an offer's id to a number of at least 0"),
        ("GpuCulling", "idle_minutes_by_offer", {"1g.5gb": 100}, "mig-1g.5gb"),
        ("GpuCulling", "unopened_minutes", 5, "it has to be as long as the warning at least (10 min)"),
        ("GpuCulling", "cpu_idle_minutes", 0, "it has to be longer than 0"),
        ("GpuCulling", "idle_below_percent", 0, "it has to be above 0 and at most 100"),
        ("GpuCulling", "idle_minutes_by_offer", {"cpu": 60}, "CPU-only servers have a limit of their own"),
        ("GpuCulling", "warn_minutes", 31, "at most the shortest idle limit (30 minutes)"),
        ("GpuOffers", "fractions", {"gpu": 0.5}, "a dict from an offer's id to a list"),
        ("GpuOffers", "fractions", {"gpu": [1.5]}, "a share is above 0 and below 1"),
        ("GpuOffers", "fractions", {"gpu": [0.5, 0.5]}, "two offers would have one id"),
        ("GpuOffers", "fractions", {"gpu": [0.3333]}, "at most three decimals"),
        ("GpuOffers", "fractions", {"cpu": [0.5]}, "a fraction is of a device"),
        ("GpuOffers", "memory_gib", {"gpu": [8]}, "needs c.GpuCluster.fraction_scheduler = 'kai'"),
        ("GpuOffers", "memory_gib", {"gpu": [8.5]}, "a dict from an offer's id to a list"),
        ("GpuOffers", "memory_gib", {"gpu": [0]}, "a whole number of GiB above 0"),
        ("GpuOffers", "memory_gib", {"mig-1g.5gb": [2]}, "parts by memory are of whole GPUs"),
        ("GpuOffers", "titles", {"<b>": "x"}, "is no offer"),
        ("GpuOffers", "hidden", ["cpu"], "CPU only is always offered"),
        ("GpuOffers", "hidden", "cpu", "a list of texts"),
        ("GpuOffers", "simulate", 3, "a text or None"),
        ("GpuService", "port", 0, "a whole number from 1 to 65535"),
        ("GpuService", "metrics_token", "short", "at least 16 characters"),
        ("GpuService", "metrics_token", "with a space in it", "without a space"),
        ("GpuService", "metrics_token", "a-line-break-at-its-end\n", "also at its end"),
        ("GpuService", "prometheus_url", "prometheus:9090", "an address such as http://prometheus:9090"),
        ("GpuService", "prometheus_url", "http://me:word@prometheus:9090", "without a user, a password"),
        ("GpuService", "prometheus_url", "http://prometheus:port", "an address such as"),
        ("GpuService", "prometheus_url", "http://prometheus:9090/?x=1", "without a user, a password, a ? or a #"),
        ("GpuService", "prometheus_token", "two words", "without a space"),
        ("GpuService", "prometheus_token", ["word"], "is of the type list: it has to be a text"),
        ("GpuService", "dcgm_scale", "gpu", "it has to be 'instance' or 'card'"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(
    c: Config, section: str, key: str, value: object, right: str
) -> None:
    c[section][key] = value
    with pytest.raises(ValueError) as refused:
        configure(c)
    assert str(refused.value).startswith(f"c.{section}.{key}")
    assert right in str(refused.value)
    assert not Path(c.GpuService.state_dir).exists()


@pytest.mark.parametrize(
    ("variable", "value", "right"),
    [
        ("JUPYTERHUB_GPU_METRICS_TOKEN", "word", "at least 16 characters"),
        ("JUPYTERHUB_GPU_METRICS_TOKEN", "a-word-of-a-file-with-its-line-break\n", "line break, also at its end"),
        ("JUPYTERHUB_GPU_METRICS_TOKEN", "long enough but several words", "without a space"),
        ("JUPYTERHUB_GPU_PROMETHEUS_TOKEN", "word\n", "line break, also at its end"),
        ("JUPYTERHUB_GPU_PROMETHEUS_TOKEN", "several words", "without a space"),
        ("JUPYTERHUB_GPU_DATABASE_URL", "postgresql://gpu:word@db/gpu\n", "has a line break"),
        ("JUPYTERHUB_GPU_DATABASE_URL", " postgresql://gpu:word@db/gpu", "begins or ends with a space"),
    ],
)
def test_a_wrong_secret_of_the_environment_is_named_and_not_shown(
    c: Config, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, right: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError) as refused:
        configure(c)
    assert str(refused.value).startswith(variable)
    assert right in str(refused.value)
    assert "word" not in str(refused.value)
    assert not Path(c.GpuService.state_dir).exists()


def test_a_secret_of_the_environment_that_a_setting_replaces_is_not_looked_at(
    c: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_GPU_PROMETHEUS_TOKEN", "two words")
    c.GpuService.prometheus_token = "word"
    configure(c)
    assert settings(c).prometheus_token == "word"


def test_an_unknown_section_is_named(c: Config) -> None:
    c.GpuCuling.enabled = True
    with pytest.raises(ValueError, match=r"c\.GpuCuling is not a section.*Did you mean GpuCulling\?"):
        configure(c)


@pytest.mark.parametrize("damaged", [b'{"hub_secret": ""}', b"", b"\xff\x00", b"[" * 100_000, b"[]", b'{"hub_sec'])
def test_damaged_secrets_are_a_sentence(c: Config, damaged: bytes) -> None:
    configure(c)
    (Path(c.GpuService.state_dir) / "secrets.json").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"secrets\.json is damaged.*Delete the file"):
        configure(c)


def test_a_folder_in_the_place_of_the_secrets_is_a_sentence(c: Config) -> None:
    configure(c)
    file = Path(c.GpuService.state_dir) / "secrets.json"
    file.unlink()
    file.mkdir()
    with pytest.raises(ValueError, match=r"secrets\.json cannot be read"):
        configure(c)


@pytest.mark.programs
@pytest.mark.whole
def test_a_hub_with_damaged_secrets_ends_with_the_sentence_alone(tmp_path: Path) -> None:
    state = tmp_path / "gpu-state"
    state.mkdir(mode=0o700)
    (state / "secrets.json").write_text("{")
    lines = ["from hub_extensions import configure", f"c.GpuService.state_dir = {str(state)!r}", "configure(c)"]
    (tmp_path / "jupyterhub_config.py").write_text("\n".join(lines))
    hub = subprocess.run(
        [sys.executable, "-m", "jupyterhub", "-f", str(tmp_path / "jupyterhub_config.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert hub.returncode == 1
    assert f"{state / 'secrets.json'} is damaged" in hub.stderr and "Delete the file" in hub.stderr
    assert "Traceback" not in hub.stderr


def test_a_state_folder_that_cannot_be_made_is_a_sentence(c: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    c.GpuService.state_dir = str(tmp_path / "file" / "inside")
    with pytest.raises(ValueError, match=r"c\.GpuService\.state_dir is .* cannot be made"):
        configure(c)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "one JSON object"),
        ('{"hub_secre": ""}', "unknown field 'hub_secre'"),
        ('{"state_dir": "/x", "hub_secret": "a", "api_token": "b", "port": "many"}', "port"),
    ],
)
def test_a_damaged_settings_file_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "service.json").write_text(text)
    with pytest.raises(SettingsError, match=said):
        Settings.load(tmp_path / "service.json")


def test_a_missing_settings_file_says_who_writes_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="configure"):
        Settings.load(tmp_path / "service.json")


# ------------------------------------------------------------------ the hub's own process


LIMITED = """
import resource, sys
from traitlets.config import Config
from hub_extensions import configure
from hub_extensions.configuration import dry_run
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
c = Config()
c.GpuService.state_dir = sys.argv[1]
with dry_run():
    configure(c)
dry = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
configure(c)
print(dry, resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard)
"""


@pytest.mark.whole
@pytest.mark.programs
def test_the_hub_may_have_as_many_open_files_as_the_machine_allows_it(tmp_path: Path) -> None:
    """Half-sent requests of strangers take a file each, and at 1,024 the hub would answer nobody."""
    words = [sys.executable, "-c", LIMITED, str(tmp_path / "state")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patient(60), check=True)
    assert done.stdout.split() == ["256", "True"]
