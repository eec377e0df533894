"""What KubeSpawner promises, kept by ours: every test here runs on KubeSpawner itself and on ``GpuKubeSpawner``.

The promises are those of KubeSpawner's documentation and of its 7.0.0 and 7.1.0, in tests of our own. Manifests are
compared whole, after what ours adds for CPU only has been taken out. Not here: what an offer does to a pod
(``test_apply_request.py``), and where ours is meant to differ: choices that are none are refused at once, in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.utils import maybe_future
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.config import kube_config
from kubespawner import KubeSpawner
from kubespawner._version import __version__ as kubespawner_version
from traitlets import TraitError
from traitlets.config import Config

from hub_extensions.spawner.kube import GpuKubeSpawner
from tests.fakes.service import SECRET, GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient
from tests.spawner.played_cluster import PlayedCluster

pytestmark = pytest.mark.hub
BOTH = pytest.mark.parametrize("kind", [pytest.param(KubeSpawner, marks=pytest.mark.whole), GpuKubeSpawner])
OURS_ALONE = {
    "env": {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "JUPYTERHUB_GPU_SERVICE_URL"},
    "volumes": {"jupyterhub-gpu-shm"},
    "labels": {"jupyterhub-gpu/offer"},
    "annotations": {"jupyterhub-gpu/start"},
}
"""What ours adds to a server without a GPU."""
DICT_PROFILES = not kubespawner_version.startswith("7.0")

PROFILES: list[dict[str, Any]] = [
    {"display_name": "Small", "slug": "small", "kubespawner_override": {"cpu_limit": 1, "mem_limit": "1G"}},
    {
        "display_name": "Choose yourself",
        "default": True,
        "kubespawner_override": {"environment": {"COURSE": "ml", "GONE": None}, "node_selector": {"disk": "ssd"}},
        "profile_options": {
            "image": {
                "display_name": "Image",
                "choices": {
                    "base": {"display_name": "Base", "kubespawner_override": {"image": "base:1"}},
                    "torch": {"display_name": "Torch", "default": True, "kubespawner_override": {"image": "torch:1"}},
                },
                "unlisted_choice": {
                    "enabled": True,
                    "display_name": "Another image",
                    "validation_regex": "^jupyter/.+:.+$",
                    "validation_message": "Must be one of jupyter/",
                    "kubespawner_override": {"image": "{value}", "extra_labels": {"image": "own"}},
                },
            },
            "size": {
                "display_name": "Size",
                "choices": {
                    "s": {"display_name": "S", "kubespawner_override": {"mem_guarantee": "1G"}},
                    "l": {"display_name": "L", "kubespawner_override": {"mem_guarantee": "8G"}},
                },
            },
        },
    },
]


@pytest.fixture(scope="module", autouse=True)
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster that is nowhere: whoever makes a manifest asks it nothing."""
    file = tmp_path_factory.mktemp("kube") / "config"
    nowhere = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {}}],
    }
    file.write_text(json.dumps(nowhere))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        yield


@pytest.fixture(scope="module")
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({"mig-1g.5gb": 1}) as running:
        yield running


def a_spawner(
    kind: type[KubeSpawner], *, server: str = "", options: Any = None, url: str = "http://127.0.0.1:9", **kube: Any
) -> Any:
    """A spawner of user ``ada`` with this configuration in ``c.KubeSpawner``."""
    config = Config()
    config.KubeSpawner = Config({"namespace": "hub", "image": "lab:1", **kube})
    config.GpuSpawnerMixin = Config({"gpu_service_url": url, "gpu_hub_secret": SECRET})
    orm = SimpleNamespace(name=server, user_options={}, server=None, state={})
    user = SimpleNamespace(name="ada", id=1, url="/user/ada/", groups=[])
    spawner = kind(_mock=True, config=config, user=user, orm_spawner=orm)
    spawner.user_options = options or {}
    return spawner


async def manifest(spawner: Any) -> dict[str, Any]:
    """The pod as it would be sent, without what ours adds for CPU only."""
    pod = await spawner.get_pod_manifest()
    sent: dict[str, Any] = ApiClient().sanitize_for_serialization(pod)
    for name in ("labels", "annotations"):
        for key in OURS_ALONE[name] & set(sent["metadata"][name]):
            del sent["metadata"][name][key]
    spec = sent["spec"]
    spec["volumes"] = [one for one in spec.get("volumes") or [] if one["name"] not in OURS_ALONE["volumes"]]
    for one in spec["containers"]:
        one["env"] = [each for each in one.get("env") or [] if each["name"] not in OURS_ALONE["env"]]
        mounts = one.get("volumeMounts") or []
        one["volumeMounts"] = [mount for mount in mounts if mount["name"] not in OURS_ALONE["volumes"]]
        one["resources"] = {key: value for key, value in (one.get("resources") or {}).items() if value}
    return sent


def notebook(pod: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in pod["spec"]["containers"] if one["name"] == "notebook")


# ------------------------------------------------------------------ the pod

AFFINITY = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
TERM = {"labelSelector": AFFINITY, "topologyKey": "kubernetes.io/hostname"}
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "resources": {"cpu_limit": 2, "cpu_guarantee": 0.5, "mem_limit": "4G", "mem_guarantee": "1G"},
    "other devices": {"extra_resource_limits": {"smarter-devices/fuse": "1"}, "extra_resource_guarantees": {"x/y": 1}},
    "node selector": {"node_selector": {"disk": "ssd"}},
    "tolerations as list": {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]},
    "tolerations as dict": {"tolerations": {"2": {"key": "b"}, "1": {"key": "a", "value": "x"}}},
    "node affinity": {
        "node_affinity_preferred": [{"weight": 3, "preference": AFFINITY}],
        "node_affinity_required": [AFFINITY],
    },
    "pod affinity": {
        "pod_affinity_preferred": [{"weight": 3, "podAffinityTerm": TERM}],
        "pod_affinity_required": [TERM],
        "pod_anti_affinity_preferred": [{"weight": 3, "podAffinityTerm": TERM}],
        "pod_anti_affinity_required": {"one": TERM},
    },
    "extra_pod_config": {"extra_pod_config": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}]}},
    "extra_pod_config in snake case": {"extra_pod_config": {"runtime_class_name": "kata", "dns_policy": "None"}},
    "extra_container_config": {
        "extra_container_config": {"envFrom": [{"configMapRef": {"name": "x"}}], "stdin": True},
    },
    "environment": {
        "environment": {
            "A": "1",
            "USER_IS": "{username}",
            "SECRET": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            "FIELD": {"name": "RENAMED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        }
    },
    "life cycle": {"lifecycle_hooks": {"postStart": {"exec": {"command": ["true"]}}}},
    "volumes as list": {
        "volumes": [{"name": "home-{username}", "persistentVolumeClaim": {"claimName": "claim-{username}"}}],
        "volume_mounts": [{"name": "home-{username}", "mountPath": "/home/{unescaped_username}"}],
    },
    "volumes as dict": {
        "volumes": {"2": {"name": "b", "emptyDir": {}}, "1": {"name": "a", "emptyDir": {}}},
        "volume_mounts": {"1": {"name": "a", "mountPath": "/a"}, "2": {"name": "b", "mountPath": "/b"}},
    },
    "init containers as list": {"init_containers": [{"name": "first", "image": "i:1", "command": ["{username}"]}]},
    "init containers as dict": {
        "init_containers": {"2": {"name": "b", "image": "i"}, "1": {"name": "a", "image": "i"}}
    },
    "side containers as list": {
        "extra_containers": [{"name": "side", "image": "s:1", "ports": [{"containerPort": 1}]}]
    },
    "side containers as dict": {
        "extra_containers": {"b": {"name": "b", "image": "s"}, "a": {"name": "a", "image": "s"}}
    },
    "service account": {"service_account": "lab-{username}"},
    "token of the service account": {"automount_service_account_token": False},
    "labels and annotations": {
        "common_labels": {"team": "x"},
        "extra_labels": {"who": "{username}"},
        "extra_annotations": {"where": "{namespace}", "server": "{servername}"},
        "component_label": "lab",
    },
    "security": {
        "uid": 1000,
        "gid": 100,
        "fs_gid": 100,
        "supplemental_gids": [5],
        "privileged": False,
        "allow_privilege_escalation": False,
        "container_security_context": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
        "pod_security_context": {"seccompProfile": {"type": "RuntimeDefault"}},
    },
    "image": {"image": "reg/x:1", "image_pull_policy": "Always", "image_pull_secrets": ["a", {"name": "b"}]},
    "command": {"cmd": ["start", "{username}"], "args": ["--x={username}"], "working_dir": "/home/{username}"},
    "scheduling": {"scheduler_name": "own", "priority_class_name": "high"},
    "pod name": {"pod_name_template": "lab-{user_server}"},
    "old slugs": {"slug_scheme": "escape"},
    "port": {"port": 9999, "ip": "::"},
    "own shm": {
        "volumes": [{"name": "jupyterhub-gpu-shm", "emptyDir": {"medium": "Memory"}}],
        "volume_mounts": [{"name": "jupyterhub-gpu-shm", "mountPath": "/dev/shm"}],
    },
}


@pytest.mark.parametrize("server", ["", "exam"])
@pytest.mark.parametrize("name", SETTINGS)
async def test_an_admins_setting_makes_the_same_pod_with_either(name: str, server: str) -> None:
    capacity = await manifest(a_spawner(KubeSpawner, server=server, **SETTINGS[name]))
    ours = await manifest(a_spawner(GpuKubeSpawner, server=server, **SETTINGS[name]))
    assert ours == capacity


async def test_what_ours_adds_without_a_gpu_is_no_more_than_is_named_here() -> None:
    """So that the comparison above takes nothing out that it should not."""
    capacity = ApiClient().sanitize_for_serialization(await a_spawner(KubeSpawner).get_pod_manifest())
    ours = ApiClient().sanitize_for_serialization(await a_spawner(GpuKubeSpawner).get_pod_manifest())
    of = {
        "env": lambda pod: {one["name"] for one in notebook(pod)["env"]},
        "volumes": lambda pod: {one["name"] for one in pod["spec"].get("volumes") or []},
        "labels": lambda pod: set(pod["metadata"]["labels"]),
        "annotations": lambda pod: set(pod["metadata"]["annotations"]),
    }
    assert {name: look(ours) - look(capacity) for name, look in of.items()} == OURS_ALONE


@BOTH
async def test_settings_reach_the_pod_with_the_users_name_in_them(kind: type[KubeSpawner]) -> None:
    everything: dict[str, Any] = {}
    for name in ("volumes as list", "labels and annotations", "service account", "life cycle", "node selector"):
        everything |= SETTINGS[name]
    pod = await manifest(a_spawner(kind, server="exam", **everything))
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim-ada"}
    assert notebook(pod)["volumeMounts"] == [{"name": "home-ada", "mountPath": "/home/ada"}]
    assert notebook(pod)["lifecycle"]["postStart"]["exec"]["command"] == ["true"]
    assert pod["spec"]["serviceAccountName"] == "lab-ada"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["metadata"]["labels"]["who"] == "ada"
    assert pod["metadata"]["labels"]["component"] == "lab"
    assert pod["metadata"]["annotations"]["where"] == "hub"
    assert pod["metadata"]["annotations"]["server"] == "exam"


@BOTH
async def test_every_server_of_a_user_has_a_pod_name_of_its_own(kind: type[KubeSpawner]) -> None:
    assert a_spawner(kind).pod_name == "jupyter-ada"
    named = a_spawner(kind, server="exam").pod_name
    assert named.startswith("jupyter-ada--exam") and named != a_spawner(kind, server="lab").pod_name
    assert a_spawner(kind, server="exam", pod_name_template="x-{username}-{servername}").pod_name == "x-ada-exam"


@BOTH
async def test_storage_is_claimed_under_a_name_with_the_user_in_it(kind: type[KubeSpawner]) -> None:
    spawner = a_spawner(
        kind,
        storage_pvc_ensure=True,
        pvc_name_template="home-{username}",
        storage_capacity="10Gi",
        storage_class="fast",
        storage_access_modes=["ReadWriteMany"],
        storage_extra_labels={"who": "{username}"},
        storage_selector={"matchLabels": {"tier": "a"}},
    )
    claim = ApiClient().sanitize_for_serialization(spawner.get_pvc_manifest())
    assert (spawner.pvc_name, claim["metadata"]["name"]) == ("home-ada", "home-ada")
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "10Gi"}
    assert claim["metadata"]["labels"]["who"] == "ada"
    assert claim["spec"]["selector"] == {"matchLabels": {"tier": "a"}}


@BOTH
async def test_the_namespace_of_a_user_is_the_admins_to_name(kind: type[KubeSpawner]) -> None:
    spawner = a_spawner(kind, enable_user_namespaces=True, user_namespace_template="lab-{username}")
    assert spawner.namespace == "lab-ada"


@BOTH
async def test_the_state_brings_pod_and_namespace_back_after_a_restart(kind: type[KubeSpawner]) -> None:
    state = a_spawner(kind, pod_name_template="old-{username}", namespace="elsewhere").get_state()
    assert (state["pod_name"], state["namespace"]) == ("old-ada", "elsewhere")
    after = a_spawner(kind)
    after.load_state(json.loads(json.dumps(state)))
    assert (after.pod_name, after.namespace) == ("old-ada", "elsewhere")


# ------------------------------------------------------------------ profiles and the form


async def _later(spawner: Any) -> list[dict[str, Any]]:
    return PROFILES


SHAPES: dict[str, Any] = {
    "list": PROFILES,
    "callable": lambda spawner: PROFILES,
    "async callable": _later,
    "dict": {"2": PROFILES[1], "1": PROFILES[0]},
}


async def chosen(kind: type[KubeSpawner], options: dict[str, Any], **kube: Any) -> Any:
    """A spawner whose user has chosen this, as far as it is before the pod."""
    spawner = a_spawner(kind, options=options, **{"profile_list": PROFILES, **kube})
    await spawner.load_user_options()
    return spawner


def why(error: BaseException) -> str:
    """KubeSpawner's own words: ours makes a refusal of them, for which nothing is counted against the hub."""
    return f"{error} {error.__cause__}"


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
async def test_profiles_are_taken_in_every_shape(
    kind: type[KubeSpawner], shape: str, service: GpuServiceInATest
) -> None:
    if shape == "dict" and not DICT_PROFILES:
        with pytest.raises(TraitError, match="profile_list"):  # KubeSpawner 7.0 takes none
            a_spawner(kind, url=service.url, profile_list=SHAPES[shape])
        return
    spawner = a_spawner(kind, url=service.url, profile_list=SHAPES[shape], options={"profile": "small"})
    html = await spawner.get_options_form()
    assert 'value="small"' in html and 'value="choose-yourself"' in html
    assert html.index('value="small"') < html.index('value="choose-yourself"')
    await spawner.load_user_options()
    assert (spawner.cpu_limit, spawner.mem_limit) == (1, 1024**3)


@BOTH
async def test_without_a_choice_the_default_profile_and_its_default_choices_are_taken(kind: type[KubeSpawner]) -> None:
    spawner = await chosen(kind, {}, environment={"KEPT": "1", "GONE": "x"})
    assert (spawner.image, spawner.node_selector) == ("torch:1", {"disk": "ssd"})
    assert spawner.mem_guarantee == 1024**3, "the first of the choices where none is the default"


@BOTH
async def test_an_override_is_merged_into_a_dict_and_none_takes_a_key_out(kind: type[KubeSpawner]) -> None:
    spawner = await chosen(kind, {"profile": "choose-yourself"}, environment={"KEPT": "1", "GONE": "x"})
    assert spawner.environment == {"KEPT": "1", "COURSE": "ml"}


@BOTH
async def test_choices_and_a_value_of_ones_own_are_overrides(kind: type[KubeSpawner]) -> None:
    listed = await chosen(kind, {"profile": "choose-yourself", "image": "base", "size": "l"})
    assert (listed.image, listed.mem_guarantee) == ("base:1", 8 * 1024**3)
    own = {"profile": "choose-yourself", "image--unlisted-choice": "jupyter/own:1", "size": "s"}
    free = await chosen(kind, own)
    assert (free.image, free.extra_labels["image"]) == ("jupyter/own:1", "own")


@BOTH
async def test_a_value_of_ones_own_that_does_not_match_is_not_started(kind: type[KubeSpawner]) -> None:
    with pytest.raises(Exception) as raised:
        await chosen(kind, {"profile": "choose-yourself", "image--unlisted-choice": "evil:1"})
    assert "failed validation regex" in why(raised.value)


@BOTH
async def test_an_override_may_be_a_function_of_the_spawner(kind: type[KubeSpawner]) -> None:
    override = {"image": lambda spawner: f"image-of-{spawner.user.name}:1", "extra_labels": lambda spawner: {"a": "b"}}
    profiles = [{"display_name": "Own", "kubespawner_override": override}]
    spawner = await chosen(kind, {"profile": "own"}, profile_list=profiles)
    assert (spawner.image, spawner.extra_labels) == ("image-of-ada:1", {"a": "b"})


@BOTH
async def test_a_profile_changes_the_pod_in_every_field_that_it_overrides(kind: type[KubeSpawner]) -> None:
    override = {
        "extra_resource_limits": {"smarter-devices/fuse": "1"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "service_account": "big",
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    profiles = [{"display_name": "Big", "slug": "big", "kubespawner_override": override}]
    pod = await manifest(await chosen(kind, {"profile": "big"}, profile_list=profiles))
    assert notebook(pod)["resources"]["limits"] == {"smarter-devices/fuse": "1"}
    assert pod["spec"]["tolerations"] == [{"key": "x", "operator": "Exists"}]
    assert pod["spec"]["serviceAccountName"] == "big"
    assert [one["name"] for one in pod["spec"]["volumes"]] == ["data"]


@BOTH
async def test_a_profile_that_there_is_not_is_not_started(kind: type[KubeSpawner]) -> None:
    for profiles in (PROFILES, []):
        with pytest.raises(Exception) as raised:
            await chosen(kind, {"profile": "anything"}, profile_list=profiles)
        assert "No such profile" in why(raised.value)


@BOTH
async def test_the_fields_of_a_form_become_the_options_of_their_own_profile_only(kind: type[KubeSpawner]) -> None:
    form = {
        "profile": ["choose-yourself"],
        "profile-option-choose-yourself--image": ["base"],
        "profile-option-choose-yourself--size": ["l"],
        "profile-option-small--image": ["torch"],
    }
    options = await maybe_future(a_spawner(kind, profile_list=PROFILES).run_options_from_form(form))
    options.pop("offer", None)
    assert options == {"profile": "choose-yourself", "image": "base", "size": "l"}


@BOTH
async def test_a_template_of_another_extension_is_used_for_the_profiles(
    kind: type[KubeSpawner], service: GpuServiceInATest, tmp_path: Path
) -> None:
    """``additional_profile_form_template_paths``: jupyterhub-fancy-profiles assigns it."""
    (tmp_path / "form.html").write_text("<i id='other'>{{ profile_list | length }} {{ profile_list[0].slug }}</i>")
    html = await a_spawner(
        kind, url=service.url, profile_list=PROFILES, additional_profile_form_template_paths=[str(tmp_path)]
    ).get_options_form()
    assert "<i id='other'>2 small</i>" in html


@BOTH
async def test_a_template_in_the_configuration_is_used_for_the_profiles(
    kind: type[KubeSpawner], service: GpuServiceInATest
) -> None:
    html = await a_spawner(
        kind,
        url=service.url,
        profile_list=PROFILES,
        profile_form_template="<b>{% for p in profile_list %}{{ p.slug }};{% endfor %}</b>",
    ).get_options_form()
    assert "<b>small;choose-yourself;</b>" in html


@BOTH
async def test_groups_change_the_settings_of_their_members(kind: type[KubeSpawner]) -> None:
    """``Spawner.group_overrides``: before the profile, which wins."""
    spawner = a_spawner(kind, profile_list=PROFILES, options={"profile": "small"})
    spawner.user.groups = [SimpleNamespace(name="vision")]
    override = {"mem_limit": "9G", "extra_labels": {"group": "vision"}, "service_account": "vision"}
    spawner.group_overrides = {"1": {"groups": ["vision"], "spawner_override": override}}
    await spawner.apply_group_overrides()
    await spawner.load_user_options()
    assert (spawner.mem_limit, spawner.service_account) == (1024**3, "vision")
    assert (await manifest(spawner))["metadata"]["labels"]["group"] == "vision"


# ------------------------------------------------------------------ in a hub, on a played cluster


HOOKS = """
async def named(spawner, pod):
    pod.metadata.labels["hook"] = f"of-{spawner.user.name}"
    return pod

def noted(spawner, pod):
    with open("made", "a") as file:
        file.write(pod["metadata"]["name"] + " " + pod["metadata"]["labels"]["hook"] + "\\n")

def called(name):
    def hook(spawner, *_):
        with open("hooks", "a") as file:
            file.write(name + "\\n")
    return hook

c.KubeSpawner.modify_pod_hook = named
c.KubeSpawner.after_pod_created_hook = noted
c.Spawner.pre_spawn_hook = called("before")
c.Spawner.post_stop_hook = called("after")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlayedCluster]:
    with PlayedCluster(tmp_path / "cluster") as running:
        yield running


Start = Callable[..., Hub]


@pytest.fixture(params=[KubeSpawner, GpuKubeSpawner], ids=["KubeSpawner", "GpuKubeSpawner"])
def a_hub(request: pytest.FixtureRequest, tmp_path: Path, cluster: PlayedCluster, service: GpuServiceInATest) -> Start:
    """``a_hub("c.KubeSpawner…")``: a hub with either spawner."""

    def make(more: str = "") -> Hub:
        spawner = f"{request.param.__module__}.{request.param.__name__}"
        config = f"""
c.JupyterHub.spawner_class = {spawner!r}
c.GpuSpawnerMixin.gpu_service_url = {service.url!r}
c.GpuSpawnerMixin.gpu_hub_secret = {SECRET!r}
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0.5}}
c.KubeSpawner.namespace = "hub"
c.KubeSpawner.start_timeout = {int(patient(20))}
c.KubeSpawner.image = "lab:1"
{more}
"""
        return Hub(tmp_path / "hub", config, env=cluster.env)

    return make


def test_a_server_is_started_found_again_and_stopped_with_every_hook_called(
    a_hub: Start, cluster: PlayedCluster
) -> None:
    with a_hub(HOOKS) as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        hub.wait_ready("ada")
        hub.spawn("ada", {}, "exam")
        hub.wait_ready("ada", "exam")
        assert len(cluster.pods) == 2 and "jupyter-ada" in cluster.pods
        assert cluster.pods["jupyter-ada"]["metadata"]["labels"]["hook"] == "of-ada"
        assert "jupyter-ada of-ada" in (hub.folder / "made").read_text()
        assert hub.environ("ada")["JUPYTERHUB_USER"] == "ada"
        hub.kill()
        hub.start()
        assert hub.ready("ada") and hub.ready("ada", "exam")
        hub.stop_server("ada")
        until(lambda: "jupyter-ada" not in cluster.pods, what="the pod is deleted")
        until(lambda: hub.server("ada") is None)
        assert hub.ready("ada", "exam"), "only the one that was stopped"
        assert (hub.folder / "hooks").read_text().split() == ["before", "before", "after"]


@pytest.mark.whole
def test_progress_is_a_row_of_dicts_with_a_growing_number_and_a_text(a_hub: Start, cluster: PlayedCluster) -> None:
    cluster.plan = ["no-place"]
    with a_hub() as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        until(lambda: "jupyter-ada" in cluster.pods)
        cluster.event("jupyter-ada", "Scheduled", "Successfully assigned hub/jupyter-ada to node-1", "Normal")
        seen = []
        for event in hub.progress("ada"):
            seen.append(event)
            if len(seen) == 2:
                cluster.run_pod("jupyter-ada")
        numbers = [event["progress"] for event in seen]
        assert numbers == sorted(numbers) and numbers[-1] == 100 and seen[-1]["ready"]
        assert all(0 <= number <= 100 for number in numbers)
        assert all(isinstance(event["message"], str) and event["message"] for event in seen[:-1])


@pytest.mark.whole
def test_a_server_that_ends_by_itself_is_noticed_and_its_pod_removed(a_hub: Start, cluster: PlayedCluster) -> None:
    """`poll`: None while it runs, a status once its container has ended."""
    with a_hub() as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        hub.wait_ready("ada")

        def end(pod: dict[str, Any]) -> None:
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"reason": "Error", "exitCode": 3}}

        cluster.change("jupyter-ada", end)
        until(lambda: hub.server("ada") is None, what="the hub has noticed")
        until(lambda: not cluster.pods, what="the pod that ended is deleted")
        hub.spawn("ada")
        hub.wait_ready("ada")


@pytest.mark.whole
def test_a_stopped_servers_pod_is_kept_where_the_admin_says_so(a_hub: Start, cluster: PlayedCluster) -> None:
    with a_hub("c.KubeSpawner.delete_stopped_pods = False") as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        hub.wait_ready("ada")

        def end(pod: dict[str, Any]) -> None:
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"reason": "Completed", "exitCode": 0}}

        cluster.change("jupyter-ada", end)
        until(lambda: hub.server("ada") is None, what="the hub has noticed")
        assert "jupyter-ada" in cluster.pods


@pytest.mark.whole
def test_a_pod_of_the_same_name_that_was_left_over_is_replaced(a_hub: Start, cluster: PlayedCluster) -> None:
    """The API server's 409."""
    cluster.create({"metadata": {"name": "jupyter-ada", "labels": {"component": "singleuser-server"}}, "spec": {}})
    old = cluster.pods["jupyter-ada"]["metadata"]["uid"]
    with a_hub() as hub:
        hub.add_users("ada")
        hub.spawn("ada")
        hub.wait_ready("ada")
        assert cluster.pods["jupyter-ada"]["metadata"]["uid"] != old


@pytest.mark.whole
def test_profiles_are_chosen_by_rest_link_and_form(
    a_hub: Start, cluster: PlayedCluster, request: pytest.FixtureRequest
) -> None:
    """But for one difference: a link of anybody's starts a server of the stock spawner, and none of ours."""
    profiles = """
c.KubeSpawner.profile_list = [
    {"display_name": "Small", "slug": "small", "kubespawner_override": {"extra_labels": {"size": "small"}}},
    {"display_name": "Big", "slug": "big", "kubespawner_override": {"extra_labels": {"size": "big"}}},
]
"""

    def size(pod: str) -> str:
        return str(cluster.pods[pod]["metadata"]["labels"]["size"])

    with a_hub(profiles) as hub:
        hub.add_users("ada", "ben", "cem")
        hub.spawn("ada", {"profile": "big"})
        hub.wait_ready("ada")
        page = hub.login("ben").get(f"{hub.url}/hub/spawn?profile=big")
        if "GpuKubeSpawner" in request.node.name:
            assert page.status_code == 200 and hub.server("ben") is None
            hub.spawn("ben", {"profile": "big"})
        hub.wait_ready("ben")
        cem = hub.login("cem")
        cem.post(f"{hub.url}/hub/spawn?_xsrf={cem.headers['X-XSRFToken']}", data={"profile": "big"})
        hub.wait_ready("cem")
        assert {size(f"jupyter-{user}") for user in ("ada", "ben", "cem")} == {"big"}
