"""``gate config``: what its texts have for every app, and what it refuses to write into another program's file."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import jupyterhub.auth  # noqa: F401  # its import asks a program where PAM is
import pytest
import yaml
from click.testing import CliRunner
from traitlets.config import Config

from hub_extensions import configure
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.identity_headers import TO_THE_GATE, copied_header_names, identity_header_names
from hub_extensions.gate.settings import GateSettings
from hub_extensions.tools.cli.gate_config import POLICIES, PROXIES, config
from hub_extensions.tools.gate_config.render import TEMPLATES, ProxySettings, render
from hub_extensions.tools.gate_config.sites import ConfigRefused
from tests.hubs import ROOT

SECRET = "0123456789abcdefghijklmnopqrstuvwxyz"
URL = "https://apps.example.org"
SETTINGS = ProxySettings(URL, SECRET, gate="http://gate.apps:8192")
MLFLOW = App("mlflow", "MLflow", f"{URL}/mlflow/", "http://mlflow.tracking:5000")
BOARD = App("board", "TensorBoard", "https://board.example.org/", "http://board.apps:6006", header_family="Remote")
BARE = App("bare", "Bare", f"{URL}/bare/", "http://bare.apps.svc.cluster.local:80", prefix=False)
DASK = App("dask", "Dask", f"{URL}/dask/", "http://dask.apps:8787", relay=True)
APPS = (MLFLOW, BOARD, BARE, DASK)
WITHOUT_RELAY = (*APPS[:3], replace(DASK, relay=False))
RELAYING = ("nginx", "caddy", "envoy", "traefik", "traefik-kubernetes")


def apps_for(proxy: str) -> tuple[App, ...]:
    """All of them; with relay where the proxy can."""
    return APPS if proxy in RELAYING else WITHOUT_RELAY


def test_the_command_knows_each_template() -> None:
    assert tuple(TEMPLATES) == (*PROXIES, POLICIES)


@pytest.mark.parametrize("proxy", [each for each in PROXIES if each not in RELAYING])
def test_a_proxy_that_cannot_lead_websockets_through_the_gate_gets_no_app_with_relay(proxy: str) -> None:
    with pytest.raises(ConfigRefused, match=r"app 'dask', relay: .*nginx, caddy, envoy"):
        render(proxy, APPS, SETTINGS)


def test_the_gate_on_kubernetes_is_asked_by_its_services_name() -> None:
    for gate in ("http://gate.apps:8192", "http://gate.apps.svc:8192", "http://gate.apps.svc.cluster.local:8192"):
        text = render("ingress", WITHOUT_RELAY, replace(SETTINGS, gate=gate))
        assert '"http://gate.apps.svc.cluster.local:8192/_gate/check/mlflow"' in text


def test_the_policies_of_envoy_gateway_tell_the_gate_what_a_websocket_brings() -> None:
    assert "    - sec-websocket-key\n" in render("gateway-api", WITHOUT_RELAY, SETTINGS)


def test_behind_envoy_gateway_no_app_reads_a_browsers_own_host_or_prefix() -> None:
    parts = [each for each in yaml.safe_load_all(render("gateway-api", WITHOUT_RELAY, SETTINGS)) if each]
    early = next(each["spec"]["headers"] for each in parts if each["kind"] == "ClientTrafficPolicy")
    assert "Forwarded" in early["earlyRequestHeaders"]["remove"]
    routes = {each["metadata"]["name"]: each["spec"]["rules"][0] for each in parts if each["kind"] == "HTTPRoute"}
    for app, host, prefix in (
        ("mlflow", "apps.example.org", "/mlflow"),
        ("board", "board.example.org", None),
        ("bare", "apps.example.org", "/bare"),
        ("dask", "apps.example.org", "/dask"),
    ):
        change = routes[f"app-{app}"]["filters"][0]["requestHeaderModifier"]
        ours = {each["name"]: each["value"] for each in change["set"]}
        assert ours == {"X-Forwarded-Host": host} | ({"X-Forwarded-Prefix": prefix} if prefix else {})
        assert ("X-Forwarded-Prefix" in change["remove"]) is (prefix is None)
        assert not ours.keys() & set(change["remove"])


@pytest.mark.slow
@pytest.mark.parametrize("proxy", PROXIES)
def test_every_app_is_checked_under_its_own_name_and_every_identity_header_is_the_gates(proxy: str) -> None:
    text = render(proxy, apps_for(proxy), SETTINGS)
    for app in APPS:
        assert re.search(rf"/_gate/(check|answer)/{app.name}\b", text), app.name
    for name in copied_header_names():
        spelled = name.lower().replace("-", "[-_.]") if proxy.startswith("traefik") else name
        assert re.search(rf"\b{re.escape(spelled)}\b", text, re.IGNORECASE), name
    for name in TO_THE_GATE:
        assert re.search(re.escape(name), text, re.IGNORECASE), name
    assert text.count(SECRET) >= 1
    assert "{{" not in text
    assert "{%" not in text


def test_each_app_has_a_policy_that_lets_in_proxy_and_gate_alone() -> None:
    policies = [each for each in yaml.safe_load_all(render("policies", APPS, SETTINGS)) if each]
    named = {each["metadata"]["name"]: (each["metadata"]["namespace"], each["spec"]) for each in policies}
    assert {name: place for name, (place, _) in named.items()} == {
        "app-mlflow": "tracking",
        "app-board": "apps",
        "app-bare": "apps",
        "app-dask": "apps",
    }
    spec = named["app-mlflow"][1]
    (rule,) = spec["ingress"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({"matchLabels": {"app": "mlflow"}}, ["Ingress"])
    assert rule["ports"] == [{"protocol": "TCP", "port": 5000}]
    assert [set(each["podSelector"]["matchLabels"].values()) for each in rule["from"]] == [
        {"apps"},
        {"jupyterhub", "gate"},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("proxy", ["traefik", "traefik-kubernetes", "gateway-api", "ingress", "envoy"])
def test_what_is_yaml_can_be_read(proxy: str) -> None:
    parts = [part for part in yaml.safe_load_all(render(proxy, apps_for(proxy), SETTINGS)) if part]
    named = [
        (part["kind"], part["metadata"]["namespace"], part["metadata"]["name"]) for part in parts if "kind" in part
    ]
    assert len(named) == len(set(named))
    routes = [name for kind, _, name in named if kind in ("HTTPRoute", "Ingress", "IngressRoute")]
    if named:
        assert sorted(routes) == ["app-bare", "app-board", "app-dask", "app-mlflow", "gate-1", "gate-2"]


@pytest.mark.slow
@pytest.mark.parametrize("proxy", ["traefik", "traefik-kubernetes"])
def test_no_apps_name_makes_a_part_of_another_app(proxy: str) -> None:
    """Where two parts had one name, the one would replace the other: a check, for one."""
    names = [
        "a",
        "ask",
        "public",
        "closed",
        *(f"a-{end}" for end in ("app", "away", "path", "slash", "relay")),
        "away-a",
    ]
    apps = [App(name, name, f"{URL}/{name}/", f"http://{name}.apps:80", prefix=False, relay=True) for name in names]
    parts = [each for each in yaml.safe_load_all(render(proxy, apps, SETTINGS)) if each]
    made = [each["spec"] for each in parts if each.get("kind") == "Middleware"]
    for kind in ("forwardAuth", "errors", "stripPrefix", "redirectRegex", "addPrefix"):
        found = [each for each in made or parts[0]["http"]["middlewares"].values() if kind in each]
        assert len(found) == len(names), kind
    named = [each["metadata"]["name"] for each in parts if each.get("kind") == "Middleware"]
    assert len(named) == len(set(named))
    routers = parts[0].get("http", {}).get("routers") or [
        one for each in parts for one in each["spec"].get("routes", ())
    ]
    assert len(routers) == 2 + 3 * len(names)


SPOILED: list[tuple[dict[str, Any], str]] = [
    ({"name": "a b"}, "name"),
    ({"name": "../x"}, "name"),
    ({"where": f"{URL}/a b/"}, "where"),
    ({"where": f"{URL}/a"}, "where"),
    ({"where": f"{URL}/a/;return 200/"}, "where"),
    ({"where": f"{URL}/../"}, "where"),
    ({"where": f"{URL}/_gate/x/"}, "where"),
    ({"where": f"{URL}/a/?b"}, "where"),
    ({"where": "https://apps.example.org}/"}, "where"),
    ({"where": "ftp://apps.example.org/"}, "where"),
    ({"where": f"{URL}/dask/"}, "where"),
    ({"upstream": "http://h:80/path"}, "upstream"),
    ({"upstream": "http://h; }"}, "upstream"),
    ({"upstream": "http://a@h:80"}, "upstream"),
    ({"upstream": "http://h:99999"}, "upstream"),
    ({"upstream": "h:80"}, "upstream"),
]


@pytest.mark.parametrize(("change", "key"), SPOILED, ids=[str(change) for change, _ in SPOILED])
def test_no_text_of_the_catalogue_means_more_in_a_configuration(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigRefused, match=f"app '.*', {key}: "):
        render("nginx", (DASK, replace(MLFLOW, **change)), SETTINGS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"secret": "short"}, "secret"),
        ({"secret": 'x"; return 200; #' * 4}, "secret"),
        ({"listen": "1; }"}, "listen"),
        ({"key": "/a b"}, "key"),
        ({"url": f"{URL}/path/"}, "url"),
        ({"gate": "unix:/run/gate"}, "gate"),
        ({"url": "http://apps.example.org:443"}, "443"),
    ],
)
def test_a_setting_that_cannot_be_written_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigRefused, match=words):
        render("nginx", APPS, replace(SETTINGS, **change))


def test_on_kubernetes_an_upstream_is_a_service() -> None:
    with pytest.raises(ConfigRefused, match=r"app 'mlflow', upstream: .*NAME\.NAMESPACE"):
        render("ingress", (replace(MLFLOW, upstream="http://10.0.0.7:5000"),), SETTINGS)


def test_the_command_writes_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    apps = {"mlflow": {"title": "MLflow", "where": MLFLOW.where, "upstream": MLFLOW.upstream, "groups": ["lab"]}}
    (tmp_path / "apps.yaml").write_text(yaml.safe_dump(apps))
    words = ["nginx", "--apps", f"{tmp_path}/apps.yaml", "--url", URL, "--secret-file", f"{tmp_path}/secret"]
    shown = CliRunner().invoke(config, words)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == render("nginx", (replace(MLFLOW, groups=("lab",)),), ProxySettings(URL, SECRET))
    file = tmp_path / "apps.conf"
    file.write_text("older")
    assert CliRunner().invoke(config, [*words, "-o", str(file)]).exit_code == 0
    assert file.read_text() == shown.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def written_settings(folder: Path, **more: Any) -> str:
    """The gate's own settings, as the hub writes them."""
    known: dict[str, Any] = {
        "url": URL,
        "proxy_secret": SECRET,
        "state_dir": str(folder),
        "hub_api_url": "http://127.0.0.1:8081/hub/api",
        "hub_url": "https://hub.example.net/hub/",
        "client_secret": "client",
    }
    GateSettings(**{**known, **more}).dump(folder / "gate.json")
    return str(folder / "gate.json")


@pytest.mark.parametrize(
    ("address", "gate"),
    [
        ({"host": "10.0.0.5", "port": 9000}, "http://10.0.0.5:9000"),
        ({"host": "0.0.0.0", "connect_url": "http://gate.jhub:8192"}, "http://gate.jhub:8192"),
    ],
)
def test_apps_url_secret_and_address_come_from_the_gates_own_settings(
    tmp_path: Path, address: dict[str, Any], gate: str
) -> None:
    file = written_settings(tmp_path, catalogue=APPS, **address)
    shown = CliRunner().invoke(config, ["caddy", "--config", file])
    assert shown.stdout == render("caddy", APPS, ProxySettings(URL, SECRET, gate=gate))


def settings_of_the_chart(folder: Path) -> str:
    """The gate.json that a hub with ``helm-values/gate.yaml`` writes."""
    values = yaml.safe_load((ROOT / "helm-values" / "gate.yaml").read_text(encoding="utf-8"))
    c = Config(values["hub"]["config"])
    c.GpuService.state_dir = str(folder / "state")
    c.JupyterHub.spawner_class = "gpu"
    c.JupyterHub.services = [{"name": "gate", "api_token": "0123456789abcdef"}]
    configure(c)
    return str(folder / "state" / "gate.json")


@pytest.mark.slow
@pytest.mark.parametrize("namespace", ["jhub", "hubs", ""])
def test_the_settings_that_our_own_values_make_are_enough_on_kubernetes(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if namespace:
        monkeypatch.setenv("POD_NAMESPACE", namespace)
    file = settings_of_the_chart(tmp_path)
    for proxy in ("policies", "gateway-api", "traefik-kubernetes", "ingress"):
        shown = CliRunner().invoke(config, [proxy, "--config", file])
        assert shown.exit_code == 0, shown.output
        assert "app-mlflow" in shown.stdout and (namespace or "jhub") in shown.stdout
        assert ("jhub is taken for its namespace" in shown.stderr) is not bool(namespace)
        assert [each for each in yaml.safe_load_all(shown.output) if each], "also with what was said beside it"


def test_an_address_that_is_given_is_not_made_into_another(tmp_path: Path) -> None:
    file = written_settings(tmp_path, catalogue=WITHOUT_RELAY, connect_url="http://gate:8192")
    for address in ("http://gate:8192", "http://10.0.0.7:8192", "http://localhost:8192"):
        shown = CliRunner().invoke(config, ["policies", "--config", file, "--gate", address])
        assert (shown.exit_code, "http://NAME.NAMESPACE:PORT" in shown.output) == (2, True)
    file = written_settings(tmp_path, catalogue=WITHOUT_RELAY, connect_url="http://10.0.0.7:8192")
    assert CliRunner().invoke(config, ["policies", "--config", file]).exit_code == 2
    file = written_settings(tmp_path, catalogue=WITHOUT_RELAY, connect_url="http://gate:8192")
    assert "server gate:8192;" in CliRunner().invoke(config, ["nginx", "--config", file]).output


def test_a_catalogue_in_a_file_is_read_anew_and_checked_as_the_gate_does(tmp_path: Path) -> None:
    apps = tmp_path / "apps.yaml"
    file = written_settings(tmp_path, catalogue=APPS, apps=str(apps))
    apps.write_text(f"new: {{where: '{URL}/new/', upstream: 'http://10.0.0.7:80', groups: [lab]}}")
    shown = CliRunner().invoke(config, ["nginx", "--config", file])
    assert "/_gate/check/new" in shown.output and "mlflow" not in shown.output
    apps.write_text(f"new: {{where: '{URL}/new/', upstream: 'http://127.0.0.1:8081'}}")
    shown = CliRunner().invoke(config, ["nginx", "--config", file])
    assert shown.exit_code == 2 and "app 'new', upstream: this is the hub" in shown.output


@pytest.mark.parametrize("lacking", ["--apps", "--url", "--secret-file"])
def test_what_is_lacking_is_named(tmp_path: Path, lacking: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "apps.yaml").write_text("{}")
    words = {"--apps": f"{tmp_path}/apps.yaml", "--url": URL, "--secret-file": f"{tmp_path}/secret"}
    del words[lacking]
    shown = CliRunner().invoke(config, ["nginx", *(part for pair in words.items() for part in pair)])
    assert (shown.exit_code, shown.output) == (2, f"Nothing was written: --config FILE, or {lacking}, is needed.\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mlflow: {were: x}", "app 'mlflow', were: it is not known here"),
        ("mlflow: {where: x}", "app 'mlflow', upstream: it is missing"),
        ("mlflow: {where: x, upstream: y, mode: no}", "app 'mlflow', mode: "),
        ("mlflow: {where: x, upstream: y}", "app 'mlflow', where: "),
        ("mlflow: 3", "app 'mlflow'"),
        ("[1]", "names of apps"),
        ("a: {", "apps.yaml: "),
    ],
)
def test_a_catalogue_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "apps.yaml").write_text(text)
    files = ["--apps", f"{tmp_path}/apps.yaml", "--secret-file", f"{tmp_path}/secret"]
    shown = CliRunner().invoke(config, ["nginx", "--url", URL, *files])
    assert shown.exit_code == 2
    assert words in shown.output


def canonical(name: str) -> str:
    """A header's name as Go, in which Traefik is written, has it: it changes case alone."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def test_the_middlewares_of_traefik_ask_replace_and_take_out_in_this_order() -> None:
    """A stand-in for what Traefik documents: custom headers with "" go, what matches is the answer's or goes."""
    http = yaml.safe_load(render("traefik", APPS, SETTINGS))["http"]
    chain = http["routers"]["app-mlflow"]["middlewares"]
    assert chain[:3] == ["gate-ask", "gate-check-mlflow", "gate-told-mlflow"]
    spelled = [name.replace("-", mark) for name in identity_header_names() for mark in "-_."]
    headers = {canonical(name): "mallory" for name in [*spelled, "X-Auth_Request.User", "Authorization", *TO_THE_GATE]}
    headers |= {"X-Own": "mallory", "X-Forwarded-Prefix": "mallory", "Cookie": "__Host-gate=1; a=2"}
    asked: dict[str, str] = {}
    for each in (http["middlewares"][name] for name in chain[:3]):
        for name, value in each.get("headers", {}).get("customRequestHeaders", {}).items():
            headers.pop(canonical(name), None)
            headers.update({canonical(name): value} if value else {})
        if forward := each.get("forwardAuth"):
            asked = dict(headers)
            assert forward["trustForwardHeader"] is False
            ours = re.compile(forward["authResponseHeadersRegex"])
            headers = {name: value for name, value in headers.items() if not ours.search(name)}
            answered = {"X-Auth-Request-User": "ada", "Cookie": "a=2", "Server": "gate"}
            headers |= {name: value for name, value in answered.items() if ours.search(name)}
    assert {name: asked.get(name) for name in TO_THE_GATE} == {**dict.fromkeys(TO_THE_GATE), "X-Gate-Proxy": SECRET}
    assert asked["Authorization"] == "mallory"
    told = {"X-Forwarded-Host": "apps.example.org", "X-Forwarded-Prefix": "/mlflow"}
    assert headers == {"X-Auth-Request-User": "ada", "Cookie": "a=2", "X-Own": "mallory", **told}
