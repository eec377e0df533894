"""What the hub is told of values: our reading of the chart, and, where the chart is at hand, the chart's own."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub_extensions.tools.helm_check.chart_config import base_config, merge
from tests.helm_values.chart_config import config_files, extra_config, hub_config
from tests.helm_values.rendering import EXAMPLES, OVERLAYS, of_chart, over_chart, read

EVERYTHING = """
fullnameOverride: lab
nameOverride: labs
imagePullSecret: {create: true, registry: here, username: ada, password: lovelace}
imagePullSecrets: [theirs]
debug: {enabled: true}
cull: {users: true, adminUsers: false, removeNamedServers: true, maxAge: 5}
scheduling:
  podPriority: {enabled: true}
  userPods: {nodeAffinity: {matchNodePurpose: require}}
hub:
  baseUrl: /labs/
  namedServerLimitPerUser: 3
  db: {type: postgres, url: "postgresql://db/hub", password: secret}
  loadRoles: {readers: {scopes: [self], services: [gpu]}, b: {name: other, scopes: []}}
  services: {gpu: {}, other: {url: "http://a", apiToken: "0123456789abcdef", name: named}}
  extraConfig: {z: "pass", a: "pass"}
  config:
    JupyterHub: {spawner_class: gpu, services: [], cookie_secret: "aa"}
    KubeSpawner: {image: other}
    GpuService: {host: 0.0.0.0}
    ConfigurableHTTPProxy: {auth_token: x}
singleuser:
  cmd: null
  podNameTemplate: p-{username}
  extraTolerations: [{key: nvidia.com/gpu, operator: Exists}]
  initContainers: [{name: first, image: busybox}]
  extraEnv: {A: b, C: {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}}
  extraFiles: {k.json: {mountPath: /x/k.json, data: {a: 1}, mode: 420}, j: {mountPath: /y, stringData: s}}
  storage:
    type: static
    static: {pvcName: homes}
    extraVolumes: [{name: shm, emptyDir: {medium: Memory}}]
    extraVolumeMounts: [{name: shm, mountPath: /dev/shm}]
  profileList: [{display_name: one, kubespawner_override: {cpu_limit: 1}}]
  image: {pullPolicy: Always, pullSecrets: [z]}
  defaultUrl: /lab
"""
BY_DICTIONARY = """
fullnameOverride: null
hub: {db: {type: sqlite-memory}, services: {s: {url: "http://s"}}}
singleuser:
  storage: {extraVolumes: {shm: {name: shm, emptyDir: {}}}, extraVolumeMounts: {shm: {name: shm, mountPath: /dev/shm}}}
  extraNodeAffinity: {preferred: [{weight: 1, preference: {}}]}
  cloudMetadata: {blockWithIptables: false}
"""


def told(text: str = "{}", **more: Any) -> Any:
    return hub_config(over_chart(yaml.safe_load(text)), namespace="jhub", release="jhub", **more)


# ------------------------------------------------------------------ values files


def test_dictionaries_merge_and_all_else_is_replaced_by_the_last_file():
    chart = {"a": {"x": 1, "y": 2}, "list": [1, 2], "word": "chart"}
    assert merge([chart, {"a": {"x": 3}, "list": [9]}, {"a": {"z": 4}}]) == {
        "a": {"x": 3, "y": 2, "z": 4},
        "list": [9],
        "word": "chart",
    }


def test_a_null_takes_away_what_the_chart_has_and_stays_where_only_files_have_the_key():
    chart = {"a": {"x": 1, "y": 2}, "free": {}, "unset": None}
    assert merge([chart, {"a": {"x": 5}, "free": {"k": 1}}, {"a": {"x": None}, "free": {"k": None}}]) == {
        "a": {"y": 2},
        "free": {"k": None},
    }


def test_what_was_null_in_one_file_is_over_the_charts_values_again_in_a_later_one():
    assert merge([{"a": {"x": 1}}, {"a": None}, {"a": {"y": 2}}]) == {"a": {"x": 1, "y": 2}}
    assert merge([{"a": {"x": 1}}, {"a": None}]) == {}


def test_merging_leaves_the_files_as_they_were():
    chart, file = {"a": {"x": 1}}, {"a": {"y": [1]}}
    merged = merge([chart, file, {"a": {"z": 1}}])
    merged["a"]["y"].append(2)
    assert (chart, file) == ({"a": {"x": 1}}, {"a": {"y": [1]}})


# ------------------------------------------------------------------ the hub's configuration


def test_the_stock_values_give_the_stock_hub():
    c = told()
    assert c.JupyterHub.spawner_class == "kubespawner.KubeSpawner"
    assert (c.JupyterHub.concurrent_spawn_limit, c.Spawner.consecutive_failure_limit) == (64, 5)
    assert (c.KubeSpawner.namespace, c.KubeSpawner.scheduler_name) == ("jhub", "jhub-user-scheduler")
    assert c.JupyterHub.db_url == "sqlite:///jupyterhub.sqlite"
    assert [service["name"] for service in c.JupyterHub.services] == ["jupyterhub-idle-culler"]
    (block,) = c.KubeSpawner.init_containers
    assert (block["name"], block["securityContext"]["privileged"]) == ("block-cloud-metadata", True)
    assert "169.254.169.254" in block["command"]


def test_a_section_of_hub_config_wins_over_the_values_before_it():
    c = told("hub: {config: {KubeSpawner: {start_timeout: 7}, JupyterHub: {spawner_class: gpu}}}")
    assert (c.KubeSpawner.start_timeout, c.JupyterHub.spawner_class) == (7, "gpu")
    assert c.KubeSpawner.profile_list == []


def test_services_that_hub_config_gives_are_dropped():
    c = told("hub: {config: {JupyterHub: {services: [{name: x}]}}, services: {gpu: {}}}", tokens={"gpu": "t"})
    assert c.JupyterHub.services[1:] == [{"name": "gpu", "api_token": "t"}]


def test_a_service_has_the_token_of_its_values_else_the_given_one_else_none():
    c = told("hub: {services: {a: {apiToken: own}, b: {}, c: {url: 'http://c'}}}", tokens={"a": "made", "b": "made"})
    assert c.JupyterHub.services[1:] == [
        {"name": "a", "api_token": "own"},
        {"name": "b", "api_token": "made"},
        {"name": "c", "url": "http://c"},
    ]


def test_a_culler_that_is_off_is_neither_a_service_nor_a_role():
    c = told("cull: {enabled: false}")
    assert c.JupyterHub.services == c.JupyterHub.load_roles == []


def test_python_runs_in_the_order_of_its_keys_files_before_extra_config():
    encoded = base64.b64encode(b"pass").decode()
    folder = "/usr/local/etc/jupyterhub/jupyterhub_config.d"
    values = over_chart(
        {
            "hub": {
                "extraConfig": {"zz": "z = 1", "10": "a = 1"},
                "extraFiles": {
                    "second": {"mountPath": f"{folder}/2.py", "stringData": "b = 1"},
                    "first": {"mountPath": f"{folder}/1.py", "binaryData": encoded},
                    "not-python": {"mountPath": f"{folder}/1.txt", "stringData": ""},
                    "deeper": {"mountPath": f"{folder}/deeper/1.py", "stringData": ""},
                },
            }
        }
    )
    assert config_files(values) == [("1.py", "pass"), ("2.py", "b = 1")]
    assert extra_config(values) == [("10", "a = 1"), ("zz", "z = 1")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hub: {config: {kubeSpawner: {}}}", "hub.config.kubeSpawner has to be the name of a class"),
        ("hub: {config: {KubeSpawner: 3}}", "hub.config.KubeSpawner has to be a dictionary"),
        ("hub: {services: {gpu: 1}}", "hub.services.gpu has to be a dictionary"),
        ("hub: {loadRoles: {gpu: 1}}", "hub.loadRoles.gpu has to be a dictionary"),
        ("hub: {services: [1]}", "hub.services has to be a dictionary"),
        ("singleuser: {extraTolerations: {a: 1}}", "singleuser.extraTolerations has to be a list"),
        ("singleuser: {storage: {extraVolumes: [1]}}", "singleuser.storage.extraVolumes: each has to be"),
        (
            "scheduling: {userPods: {nodeAffinity: {matchNodePurpose: yes}}}",
            "matchNodePurpose has to be ignore, prefer or require",
        ),
        ("singleuser: {extraFiles: {a: {data: {}}}}", "singleuser.extraFiles.a has to say its mountPath"),
    ],
)
def test_a_value_with_which_the_hub_would_not_start_is_named(text: str, said: str):
    with pytest.raises(ValueError, match=said):
        told(text)


def test_what_is_said_of_a_wrong_value_does_not_repeat_it():
    for text in ("hub: {config: {CryptKeeper: {keys: {a: %s}}}}", "hub: {config: {X: %s}}", "hub: {services: {x: %s}}"):
        with pytest.raises(ValueError, match=r"has to be a \w+") as refused:
            told(text % "hunter2")
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "keys"), [("[aa, bb]", ["aa", "bb"]), ('"aa;bb"', ["aa", "bb"]), ("aa", ["aa"]), ('""', None)]
)
def test_keys_to_encrypt_with_are_a_list_or_a_text_with_semicolons(text: str, keys: list[str] | None):
    assert told(f"hub: {{config: {{CryptKeeper: {{keys: {text}}}}}}}").CryptKeeper.get("keys") == keys


@pytest.mark.parametrize(
    "file", [{"data": {"a": 1}}, {"binaryData": "no base64!"}, {"binaryData": base64.b64encode(b"\xff").decode()}, {}]
)
def test_a_configuration_file_that_is_no_text_is_named(file: dict[str, Any]):
    place = "/usr/local/etc/jupyterhub/jupyterhub_config.d/x.py"
    values = {"hub": {"extraFiles": {"mine": {"mountPath": place, **file}}}}
    with pytest.raises(ValueError, match=r"hub\.extraFiles\.mine is Python"):
        config_files(values)


def test_python_that_is_no_text_is_named():
    with pytest.raises(ValueError, match=r"hub\.extraConfig\.mine has to be Python text"):
        extra_config({"hub": {"extraConfig": {"mine": {"a": 1}}}})


# ------------------------------------------------------------------ beside the chart

GIVEN = {"stock": {}, "everything": yaml.safe_load(EVERYTHING), "by dictionary": yaml.safe_load(BY_DICTIONARY)}
SHIPPED = {file.stem: [file] for file in sorted(OVERLAYS.glob("*.yaml"))}
SHIPPED |= {folder.name: sorted(folder.glob("*.yaml")) for folder in sorted(EXAMPLES.glob("*")) if folder.is_dir()}


def plain(config: Any) -> dict[str, dict[str, Any]]:
    """A configuration without the client's objects, and without the order of the culler's options."""
    found = {section: {key: data(value) for key, value in settings.items()} for section, settings in config.items()}
    for service in found["JupyterHub"]["services"]:
        service["command"] = sorted(service.get("command", ()))
    return found


def data(value: Any) -> Any:
    """An object of the Kubernetes client as its manifest has it."""
    if isinstance(value, list):
        return [data(each) for each in value]
    if hasattr(value, "attribute_map"):
        names = value.attribute_map.items()
        return {name: data(getattr(value, own)) for own, name in names if getattr(value, own) is not None}
    return value


@pytest.mark.needs("chart")
@pytest.mark.parametrize("name", [*GIVEN, *SHIPPED])
def test_our_reading_is_what_the_charts_own_configuration_sets(name: str, tmp_path: Path):
    given = [GIVEN[name]] if name in GIVEN else values_of(SHIPPED[name])
    together = merge([{}, *given])
    theirs, their_values, tokens = of_chart(Path(os.environ["TEST_CHART"]), together, tmp_path / "hub")
    ours_values = over_chart(*given)
    assert ours_values == {key: value for key, value in their_values.items() if key not in ("Chart", "Release")}
    ours = hub_config(ours_values, namespace="jhub", release="jhub", tokens=tokens)
    for section, key in (("CryptKeeper", "keys"), ("JupyterHub", "cookie_secret")):  # the chart makes them up
        if key not in ours[section]:
            del theirs[section][key]
    expected = {section: settings for section, settings in plain(theirs).items() if settings}
    assert {section: settings for section, settings in plain(ours).items() if settings} == expected


def values_of(files: list[Path]) -> list[dict[str, Any]]:
    """The files that are values: an example's folder has manifests and node configurations too."""
    return [values for values in read(*files) if "kind" not in values and "version" not in values]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*GIVEN, *SHIPPED])
def test_what_the_check_makes_of_values_is_what_the_whole_reading_makes_of_them(name: str):
    values = over_chart(*([GIVEN[name]] if name in GIVEN else values_of(SHIPPED[name])))
    tokens = dict.fromkeys(values["hub"]["services"], "0" * 64)
    whole = hub_config(values, namespace="jhub", release="jhub", tokens=tokens)
    known = base_config(values, namespace="jhub", release="jhub", token="0" * 64)
    left_out = ("volumes", "volume_mounts", "services", "load_roles", "init_containers", "tolerations", "auth_token")
    for section, settings in known.items():
        for trait, value in settings.items():
            if trait not in left_out and not trait.startswith("node_affinity"):
                assert whole[section][trait] == value, (section, trait)
    ours = [each for each in whole.JupyterHub.services if each["name"] != "jupyterhub-idle-culler"]
    assert sorted(each["name"] for each in known.JupyterHub.services) == sorted(each["name"] for each in ours)
