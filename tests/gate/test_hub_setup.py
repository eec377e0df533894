"""What ``configure(c)`` adds for the gate, what it leaves alone, and which places of the gate it refuses."""

from __future__ import annotations

import json
import stat
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions import configure
from hub_extensions.configuration import dry_run
from hub_extensions.core.sign_on.apps import App
from hub_extensions.gate.settings import GateSettings

APPS = {
    "mlflow": {
        "title": "MLflow",
        "where": "https://apps.example.org/mlflow/",
        "upstream": "http://10.0.0.7:5000",
        "groups": ["ml", "staff"],
        "servers": True,
    },
    "board": {"where": "https://board.example.net/", "upstream": "http://board:6006", "groups": ["ml"]},
}


@pytest.fixture
def c(tmp_path: Path) -> Config:
    config = Config()
    config.GpuService.state_dir = str(tmp_path / "state")
    config.JupyterHub.public_url = "https://hub.example.org/"
    config.SignOnGate.enabled = True
    config.SignOnGate.url = "https://apps.example.org"
    config.SignOnGate.apps = APPS
    return config


def service(c: Config, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in c.JupyterHub.services if each["name"] == name)
    return found


def role(c: Config, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in c.JupyterHub.load_roles if each["name"] == name)
    return found


def written(c: Config) -> GateSettings:
    return GateSettings.load(Path(c.GpuService.state_dir) / "gate.json")


def refusal(c: Config) -> str:
    with pytest.raises(ValueError) as refused:
        configure(c)
    return str(refused.value)


def test_a_hub_without_a_gate_is_as_it_was(c: Config) -> None:
    c.SignOnGate.enabled = False
    configure(c)
    assert [each["name"] for each in c.JupyterHub.services] == ["gpu"]
    assert not (Path(c.GpuService.state_dir) / "gate.json").exists()


def test_the_gate_is_a_client_of_the_hub_that_the_hubs_proxy_does_not_lead_to(c: Config) -> None:
    configure(c)
    gate = service(c, "gate")
    assert gate == {
        "name": "gate",
        "api_token": written(c).client_secret,
        "oauth_client_id": "service-gate",
        "oauth_redirect_uri": "https://apps.example.org/_gate/callback",
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": ["access:services", "read:servers!user"],
        "command": [
            sys.executable,
            "-m",
            "hub_extensions.gate",
            "--config",
            str(Path(c.GpuService.state_dir) / "gate.json"),
        ],
    }


def test_the_settings_of_the_gate_are_private_and_what_its_process_reads(c: Config) -> None:
    c.JupyterHub.base_url = "/lab"
    c.SignOnGate.contact = "gpu-admins@example.org"
    configure(c)
    file = Path(c.GpuService.state_dir) / "gate.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = written(c)
    assert made.hub_url == "https://hub.example.org/lab/hub/"
    assert made.hub_api_url == "http://127.0.0.1:8081/lab/hub/api"
    assert (made.ended_secret, made.contact) == ("", "gpu-admins@example.org")
    assert [each.name for each in made.catalogue] == ["mlflow", "board"]
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    secrets = {
        made.client_secret,
        made.proxy_secret,
        json.loads((file.parent / "secrets.json").read_text())["api_token"],
    }
    assert len(secrets) == 3 and min(map(len, secrets)) >= 64
    assert not any(each in repr(made) for each in secrets)
    configure(c)
    assert written(c) == made, "a restart changes nothing"


def test_each_app_is_known_to_the_hub_and_its_groups_alone_may_open_it(c: Config) -> None:
    configure(c)
    assert service(c, "mlflow") == {
        "name": "mlflow",
        "info": {"title": "MLflow", "href": "https://apps.example.org/mlflow/"},
    }
    assert {name: (role(c, name)["scopes"], role(c, name)["groups"]) for name in ("app-mlflow", "app-board")} == {
        "app-mlflow": (["access:services!service=mlflow"], ["ml", "staff"]),
        "app-board": (["access:services!service=board"], ["ml"]),
    }
    mine = [scope for scope in role(c, "server")["scopes"] if "mlflow" in scope or "board" in scope]
    assert mine == ["access:services!service=mlflow"], "a server's own token opens what the catalogue says"


def test_configuring_twice_changes_nothing_and_new_apps_are_taken(c: Config) -> None:
    configure(c)
    once = json.dumps(c, default=str)
    configure(c)
    assert json.dumps(c, default=str) == once
    c.SignOnGate.apps = {"board": {**APPS["board"], "groups": ["staff"]}}
    configure(c)
    assert role(c, "app-board")["groups"] == ["staff"]


@pytest.mark.programs  # JupyterHub starts one while it is imported
def test_with_sessions_of_ours_hub_and_gate_have_a_secret_for_ends(c: Config) -> None:
    c.SignOn.enabled = True
    c.JupyterHub.authenticator_class = "dummy"
    configure(c)
    address = c.JupyterHub.authenticator_class.sign_on_gate
    assert (address.url, address.secret) == ("http://127.0.0.1:8192", written(c).ended_secret)
    assert address.secret and address.secret not in repr(address)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hub", "url", "named"),
    [
        ({"public_url": "https://apps.example.org/"}, "https://apps.example.org", "c.JupyterHub.public_url"),
        ({"public_url": "https://Apps.Example.org:8443/"}, "https://apps.example.org", "c.JupyterHub.public_url"),
        ({"subdomain_host": "https://example.org"}, "https://apps.example.org", "c.JupyterHub.subdomain_host"),
        ({"subdomain_host": "https://apps.example.org"}, "https://apps.example.org", "c.JupyterHub"),
        ({"bind_url": "http://apps.example.org:8000"}, "https://apps.example.org", "c.JupyterHub.bind_url"),
        ({"public_url": "http://127.0.0.1:8000"}, "http://127.0.0.1:9000", "c.JupyterHub.public_url"),
        ({}, "http://apps.example.org", "has to begin with https://"),
        ({}, "https://apps.example.org/apps/", "without a path"),
        ({}, "", "c.SignOnGate.url cannot be used"),
        ({"public_url": ""}, "https://apps.example.org", "needs c.JupyterHub.public_url"),
        ({"public_url": "", "bind_url": "http://0.0.0.0:8000"}, "https://a.example.org", "c.JupyterHub.public_url"),
    ],
)
def test_a_gate_at_a_wrong_place_is_refused_by_the_settings_name(
    c: Config, hub: dict[str, str], url: str, named: str
) -> None:
    c.JupyterHub.update(hub)
    c.SignOnGate.url = url
    said = refusal(c)
    assert named in said and "c.SignOnGate" in said
    assert not (Path(c.GpuService.state_dir) / "gate.json").exists()


def test_a_proxy_that_is_no_address_is_refused_by_its_settings_name(c: Config) -> None:
    c.SignOnGate.trusted_proxies = ["10.0.0.0/8", "proxy.example"]
    assert "c.SignOnGate.trusted_proxies has 'proxy.example'" in refusal(c)


def test_a_wrong_app_stops_the_hubs_start_with_its_name(c: Config) -> None:
    c.SignOnGate.apps = {"mlflow": {**APPS["mlflow"], "where": "https://hub.example.org/mlflow/"}}
    assert "c.SignOnGate.apps: app 'mlflow', where: hub.example.org is the hub's host" in refusal(c)
    c.SignOnGate.apps = 3
    assert "a dict from a name to what is known of it or a text" in refusal(c)


def test_a_file_that_went_bad_leaves_the_apps_of_before(
    c: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "apps.yaml"
    file.write_text("board:\n  where: https://board.example.net/\n  upstream: http://board:6006\n  groups: [ml]\n")
    c.SignOnGate.apps = str(file)
    configure(c)
    file.write_text("board: {upsteam: x}\n")
    configure(c)
    assert "did you mean upstream?" in capsys.readouterr().err
    board = App("board", "board", "https://board.example.net/", "http://board:6006", groups=("ml",))
    assert written(c).catalogue == (board,)
    with dry_run():
        c.SignOnGate.apps = "/of/the/hubs/machine.yaml"
        configure(c)


def test_the_gates_limits_are_never_longer_than_the_hubs(c: Config, capsys: pytest.CaptureFixture[str]) -> None:
    c.JupyterHub.cookie_max_age_days = 3
    c.SignOnGate.idle_hours = 30
    configure(c)
    made = written(c)
    assert (made.idle, made.lifetime) == (timedelta(hours=30), timedelta(days=3))
    assert "c.SignOnGate.lifetime_hours is taken as 72" in capsys.readouterr().err


def test_what_the_admin_has_is_left_alone_and_said(c: Config, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = {"name": "board", "url": "http://board:6006", "info": {"title": "Mine"}}
    c.JupyterHub.services = [theirs, {"name": "gate", "oauth_no_confirm": False}]
    c.JupyterHub.load_roles = [{"name": "app-board", "scopes": [], "users": ["ada"]}]
    configure(c)
    assert service(c, "board") == theirs
    assert service(c, "gate")["oauth_no_confirm"] is False
    assert role(c, "app-board") == {"name": "app-board", "scopes": [], "users": ["ada"]}
    said = capsys.readouterr().err
    assert "'board' has a url" in said and "'gate' is left alone in oauth_no_confirm" in said and "'app-board'" in said


def test_an_authenticator_that_manages_roles_gives_them_itself(c: Config, capsys: pytest.CaptureFixture[str]) -> None:
    c.OAuthenticator.manage_roles = True
    configure(c)
    assert "groups" not in role(c, "app-mlflow")
    assert "roles app-NAME" in capsys.readouterr().err


def test_a_gate_apart_has_the_token_of_the_chart_and_no_command(c: Config) -> None:
    c.SignOnGate.started_by_hub = False
    assert "c.SignOnGate.started_by_hub is False" in refusal(c)
    c.JupyterHub.services = [{"name": "gate", "api_token": "0123456789abcdef"}]
    assert "c.SignOnGate.connect_url" in refusal(c)
    c.SignOnGate.connect_url = "http://gate:8192"
    c.JupyterHub.hub_connect_url = "http://hub:8081"
    configure(c)
    made = written(c)
    assert "command" not in service(c, "gate")
    assert (made.client_secret, made.hub_api_url) == ("0123456789abcdef", "http://hub:8081/hub/api")
    assert (made.state_dir, made.connect_url) == ("/srv/gate", "http://gate:8192")


def test_so_it_has_beside_a_gpu_service_apart(c: Config, tmp_path: Path) -> None:
    file = tmp_path / "apps.yaml"
    file.write_text("board: {where: 'https://board.example.net/', upstream: 'http://board:6006', groups: [ml]}\n")
    c.SignOnGate.apps = str(file)
    for section, name, url in ((c.GpuService, "gpu", "url"), (c.SignOnGate, "gate", "connect_url")):
        section.started_by_hub = False
        section[url] = f"http://{name}:8191"
    c.JupyterHub.services = [{"name": name, "api_token": "0123456789abcdef"} for name in ("gpu", "gate")]
    configure(c)
    assert stat.S_IMODE(Path(c.GpuService.state_dir).stat().st_mode) == 0o700
    made = written(c)
    assert len(made.proxy_secret) == 64
    assert (made.apps, [each.name for each in made.catalogue]) == ({}, ["board"]), "the file is not in the gate's pod"


CHART = {"PROXY_PUBLIC_SERVICE_HOST": "10.97.0.9", "PROXY_PUBLIC_SERVICE_PORT": "80", "POD_NAMESPACE": "hubs"}
BY_THE_PROXY = "http://10.97.0.9:80/services/gpu"


def in_the_chart(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``helm-values/gpu.yaml`` and ``gate.yaml`` make it, in a pod with an address of its own."""
    for name, value in CHART.items():
        monkeypatch.setenv(name, value)
    c.JupyterHub.spawner_class = "gpu"
    c.JupyterHub.services = [{"name": "gate", "api_token": "0123456789abcdef"}]
    c.JupyterHub.hub_connect_url = "http://hub:8081"
    c.KubeSpawner.namespace = "users"
    c.GpuService.host = "0.0.0.0"
    c.SignOnGate.started_by_hub = False
    c.SignOnGate.connect_url = "http://gate:8192"


@pytest.mark.parametrize("service", ["in the hub's pod", "apart"])
def test_a_gate_in_its_own_pod_asks_the_gpu_service_where_users_servers_do(
    c: Config, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    """The address of the hub's pod is closed to it, and another one after the hub's next start."""
    in_the_chart(c, monkeypatch)
    if service == "apart":
        c.GpuService.started_by_hub = False
        c.GpuService.url = "http://jupyterhub-gpu:8191"
        c.JupyterHub.services += [{"name": "gpu", "api_token": "0123456789abcdef"}]
    configure(c)
    assert written(c).gpu_service_url == c.GpuSpawnerMixin.gpu_service_connect_url == BY_THE_PROXY
    assert written(c).hub_api_url == "http://hub:8081/hub/api"


def test_so_it_does_where_the_admin_names_the_way(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_chart(c, monkeypatch)
    c.GpuCluster.service_connect_url = "https://hub.example.org/services/gpu"
    configure(c)
    assert written(c).gpu_service_url == "https://hub.example.org/services/gpu"


def test_a_gate_in_the_hubs_pod_asks_it_directly(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_chart(c, monkeypatch)
    c.SignOnGate.started_by_hub, c.SignOnGate.connect_url, c.JupyterHub.services = True, "", []
    c.GpuService.host = "127.0.0.1"
    configure(c)
    assert written(c).gpu_service_url == "http://127.0.0.1:8191/services/gpu"


@pytest.mark.parametrize(
    ("reached", "written_as"),
    [
        ("http://gate:8192", "http://gate.hubs:8192"),
        ("https://gate", "https://gate.hubs"),
        ("http://gate.others:8192", "http://gate.others:8192"),
        ("http://localhost:8192", "http://localhost:8192"),
        ("http://10.0.0.7:8192", "http://10.0.0.7:8192"),
        ("http://[fd00::7]:8192", "http://[fd00::7]:8192"),
    ],
)
def test_the_gates_address_has_the_namespace_that_the_hub_finds_it_in(
    c: Config, monkeypatch: pytest.MonkeyPatch, reached: str, written_as: str
) -> None:
    """Whoever reads the settings elsewhere does not look in the hub's own."""
    in_the_chart(c, monkeypatch)
    c.SignOnGate.connect_url = reached
    configure(c)
    assert written(c).connect_url == written_as


def test_no_namespace_is_made_up_for_it(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_chart(c, monkeypatch)
    monkeypatch.delenv("POD_NAMESPACE")
    configure(c)
    assert written(c).connect_url == "http://gate:8192"


def test_a_folder_that_cannot_be_written_is_a_sentence(c: Config, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "gate").write_text("a file")
    assert "c.GpuService.state_dir" in refusal(c)


def test_looking_writes_nothing(c: Config) -> None:
    with dry_run():
        configure(c)
    assert not Path(c.GpuService.state_dir).exists()
    assert service(c, "mlflow")["name"] == "mlflow"
