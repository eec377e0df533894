"""Our spawner on Kubernetes without a cluster: its form, its choices, its pod, its clock, and what it remembers."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
import string
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyterhub.utils import maybe_future
from kubernetes_asyncio.client import V1Pod
from kubernetes_asyncio.config import kube_config
from kubespawner import KubeSpawner
from kubespawner._version import __version__ as kubespawner_version
from tornado import web
from traitlets.config import Config

from hub_extensions.adapters.service.gpu_service import GpuServiceClient, ServiceAway
from hub_extensions.core.messages import Ask, LeaseGrant
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.pod_request import LEASE_LABEL, Mechanism, PodAsk
from hub_extensions.core.offers.user_options import UserOptions, UserOptionsError
from hub_extensions.spawner.base import NO_LIMIT_SECONDS, GpuSpawnerMixin
from hub_extensions.spawner.kube import GpuKubeSpawner
from hub_extensions.spawner.pages.profiles import check_profile, slug_of, still_valid
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.pods.api_rejections import rejection_of
from hub_extensions.spawner.pods.apply_request import START_ANNOTATION
from tests.examples import many
from tests.fakes.service import SECRET, AwayService, GpuServiceInATest
from tests.spawner.played_cluster import KUEUE_DOWN, OVER_QUOTA

pytestmark = pytest.mark.slow

ONE = "mig-1g.5gb"
NOWHERE = "http://127.0.0.1:9/services/gpu"
PROFILES: list[dict[str, Any]] = [
    {"display_name": "Small <b>one</b>", "slug": "small", "kubespawner_override": {"mem_limit": "1G"}},
    {
        "display_name": "Big one",
        "default": True,
        "kubespawner_override": {"start_timeout": 123},
        "profile_options": {
            "image": {
                "display_name": "Image",
                "choices": {
                    "base": {"display_name": "Base", "default": True, "kubespawner_override": {"image": "base:1"}},
                    "torch": {"display_name": "Torch", "kubespawner_override": {"image": "torch:1"}},
                },
                "unlisted_choice": {
                    "enabled": True,
                    "display_name": "Other image",
                    "validation_regex": "^jupyter/.+:.+$",
                    "kubespawner_override": {"image": "{value}"},
                },
            }
        },
    },
]
GPU_GRANT = LeaseGrant(
    "l1",
    OfferId(ONE),
    None,
    1.0,
    {"JUPYTERHUB_GPU_LEASE": "l1"},
    PodAsk(Mechanism.MIG, limits={f"nvidia.com/{ONE}": "1"}),
)


@pytest.fixture(scope="module", autouse=True)
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster that is nowhere: these tests ask it nothing."""
    file = tmp_path_factory.mktemp("kube") / "config"
    nowhere = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {}}],
    }
    Path(file).write_text(json.dumps(nowhere))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        yield


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1}) as running:
        yield running


def a_spawner(*, url: str = NOWHERE, options: Any = None, kind: type[KubeSpawner] = GpuKubeSpawner, **kube: Any) -> Any:
    config = Config()
    config.KubeSpawner = Config({"namespace": "hub", "image": "lab:1", **kube})
    config.GpuSpawnerMixin = Config({"gpu_service_url": url, "gpu_hub_secret": SECRET})
    spawner = kind(_mock=True, config=config)
    spawner.user.groups = []
    spawner.orm_spawner = SimpleNamespace(user_options={}, name="", server=None, state={})
    spawner.user_options = options or {}
    return spawner


def granted(spawner: Any, grant: LeaseGrant | None) -> Any:
    spawner._gpu_start = Start(UserOptions((grant.offer if grant else CPU,)), grant=grant)
    return spawner


def checked(html: str, name: str) -> list[str]:
    radios = re.findall(r"<input type=\"radio\"[^>]*>", html)
    mine = [one for one in radios if f'name="{name}"' in one and re.search(r"\bchecked\b", one)]
    return [re.findall(r'value="([^"]*)"', one)[0] for one in mine]


@pytest.mark.parametrize("groups", [None, object()])
async def test_a_user_without_groups_has_none(groups: object) -> None:
    """As the user of KubeSpawner's own tests."""
    spawner = a_spawner()
    spawner.user.groups = groups
    assert spawner.gpu_groups == ()
    del spawner.user.groups
    assert spawner.gpu_groups == ()


# ------------------------------------------------------------------ without an address of the service


async def test_without_a_service_the_form_is_kubespawners_own() -> None:
    spawner = a_spawner(url="", profile_list=PROFILES)
    assert (
        await spawner.get_options_form() == await a_spawner(kind=KubeSpawner, profile_list=PROFILES).get_options_form()
    )
    assert spawner.options_from_form({"profile": ["small"]}) == {"profile": "small"}
    assert await a_spawner(url="").get_options_form() == "", "a hub without profiles has no form"
    called = a_spawner(url="", profile_list=lambda spawner: PROFILES)
    assert "Big one" in await called.get_options_form()


async def test_without_a_service_a_wrong_value_is_what_kubespawner_says_of_it() -> None:
    spawner = a_spawner(url="", profile_list=PROFILES)
    spawner.user_options = {"profile": "big-one", "image--unlisted-choice": "evil"}
    with pytest.raises(ValueError):
        await spawner.load_user_options()


async def test_a_service_without_an_address_is_away_and_cpu_only_starts_without_it() -> None:
    spawner = a_spawner(url="")
    with pytest.raises(ServiceAway, match="its address is not set"):
        await spawner._gpu_service.form("ada", "", (), admin=False)
    start = Start(UserOptions())
    assert await spawner._gpu_admission(start) is None
    assert spawner._gpu_service.titles == {}


async def test_without_a_service_no_start_is_written_down_to_be_asked_for_again() -> None:
    spawner = a_spawner(url="")
    spawner.user.db = object()  # nothing that could be asked, as in KubeSpawner's own tests
    spawner.load_state({})
    assert spawner._gpu_accept({}) is None and "pod_name" in spawner.get_state()


async def test_a_form_is_read_at_once_where_the_profiles_need_no_time() -> None:
    spawner = a_spawner(profile_list=PROFILES)
    assert spawner.options_from_form({"profile": ["small"], "offer": [ONE]}) == {"profile": "small", "offer": ONE}
    spawner.profile_list = lambda spawner: PROFILES
    later = spawner.options_from_form({"profile": ["small"], "offer": [ONE]})
    assert await later == {"profile": "small", "offer": ONE}


async def test_who_wants_to_be_told_says_so_beside_a_profile_too() -> None:
    spawner = a_spawner(profile_list=PROFILES)
    fields = {"profile": ["small"], "offer": [ONE], "notify_when_ready": ["1"]}
    options = {"profile": "small", "offer": ONE, "notify_when_ready": True}
    assert spawner.options_from_form(fields) == spawner._gpu_checked(options).to_dict() == options
    await spawner._gpu_check_others(spawner._gpu_checked(options))
    with pytest.raises(web.HTTPError, match="notify_when_ready is true or false"):
        spawner._gpu_checked({**options, "notify_when_ready": "soon"})


# ------------------------------------------------------------------ the pod


async def test_a_pod_for_cpu_only_is_kubespawners_but_for_what_keeps_gpus_out_of_sight() -> None:
    """The contract: nothing else of KubeSpawner's pod is touched."""
    plain = await a_spawner(kind=KubeSpawner).get_pod_manifest()
    ours = await granted(a_spawner(), None).get_pod_manifest()
    assert ours.spec.containers[0].image == plain.spec.containers[0].image
    known = {variable.name for variable in plain.spec.containers[0].env}
    extra = {one.name: one.value for one in ours.spec.containers[0].env if one.name not in known}
    assert extra == {
        "CUDA_VISIBLE_DEVICES": "void",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "JUPYTERHUB_GPU_SERVICE_URL": NOWHERE,
    }
    assert [volume.name for volume in ours.spec.volumes] == ["jupyterhub-gpu-shm"]
    assert set(ours.metadata.annotations) - set(plain.metadata.annotations) == {START_ANNOTATION}
    assert set(plain.metadata.labels.items()) < set(ours.metadata.labels.items())


async def test_a_pod_is_logged_by_its_name_and_told_whole_to_who_looks_at_it() -> None:
    pod = await granted(a_spawner(), None).get_pod_manifest()
    assert pod.to_str() == f"the pod {pod.metadata.name}"
    assert "lab:1" in str(pod) and isinstance(pod, V1Pod)


async def test_a_grant_puts_its_device_into_the_pod_and_no_variable_names_one() -> None:
    spawner = granted(a_spawner(environment={"CUDA_VISIBLE_DEVICES": "0", "MINE": "yes"}), GPU_GRANT)
    pod = await spawner.get_pod_manifest()
    env = {variable.name: variable.value for variable in pod.spec.containers[0].env}
    assert "CUDA_VISIBLE_DEVICES" not in env and "NVIDIA_VISIBLE_DEVICES" not in env
    assert (env["MINE"], env["JUPYTERHUB_GPU_LEASE"]) == ("yes", "l1")
    assert pod.spec.containers[0].resources.limits == {f"nvidia.com/{ONE}": "1"}
    assert pod.metadata.labels[LEASE_LABEL] == "l1"


async def test_a_gpu_of_the_services_own_machine_is_never_taken_for_one_of_the_cluster() -> None:
    grant = LeaseGrant("l1", OfferId("gpu"), "GPU-1", 1.0, {"CUDA_VISIBLE_DEVICES": "GPU-1"})
    with pytest.raises(web.HTTPError) as refused:
        await granted(a_spawner(), grant).get_pod_manifest()
    assert refused.value.gpu_reason == "bad-offer"  # type: ignore[attr-defined]


async def test_an_admins_hooks_and_traits_are_his_own() -> None:
    """T11, T21: nothing of ours hangs on a default of KubeSpawner's, and none of its traits has another value."""
    values: dict[str, Any] = {
        "profile_list": [],
        "environment": {"A": "1"},
        "init_containers": [{"name": "block", "image": "x"}],
    }
    spawner, capacity = a_spawner(**values), a_spawner(kind=KubeSpawner, **values)
    for name in (*values, "modify_pod_hook", "after_pod_created_hook"):
        assert getattr(spawner, name) == getattr(capacity, name)
    pod = await granted(spawner, None).get_pod_manifest()
    assert pod.spec.init_containers[0].name == "block"
    defaults = {
        name: trait.default_value
        for name, trait in KubeSpawner.class_traits(config=True).items()
        if name in GpuKubeSpawner.class_traits(config=True)
        and trait.default_value != GpuKubeSpawner.class_traits(config=True)[name].default_value
    }
    assert defaults == {}


# ------------------------------------------------------------------ the form


async def test_profiles_stand_above_the_offers_in_one_form(service: GpuServiceInATest) -> None:
    html = await a_spawner(url=service.url, profile_list=PROFILES).get_options_form()
    assert html.index('id="kubespawner-profiles-list"') < html.index('id="gpu-form"')
    assert checked(html, "profile") == ["big-one"]
    assert checked(html, "offer") == [ONE]
    assert "Small <b>one</b>" in html, "an admin's own HTML"


async def test_without_profiles_there_are_only_offers(service: GpuServiceInATest) -> None:
    """T11: the chart sets an empty list."""
    html = await a_spawner(url=service.url, profile_list=[]).get_options_form()
    assert "kubespawner-profiles-list" not in html
    assert checked(html, "offer") == [ONE]


@pytest.mark.parametrize("shape", ["list", "callable", "async", "dict"])
async def test_profiles_come_in_every_shape_that_kubespawner_takes(service: GpuServiceInATest, shape: str) -> None:
    async def later(spawner: Any) -> list[dict[str, Any]]:
        await asyncio.sleep(0)
        return PROFILES

    shapes = {"list": PROFILES, "callable": lambda spawner: PROFILES, "async": later}
    if shape == "dict" and kubespawner_version.startswith("7.0"):
        return  # KubeSpawner 7.0 takes no dict at all
    value = shapes.get(shape) or {"b": PROFILES[1], "a": PROFILES[0]}
    spawner = a_spawner(url=service.url, profile_list=value, options={"profile": "big-one", "offer": "cpu"})
    html = await spawner.get_options_form()
    assert (checked(html, "profile"), checked(html, "offer")) == (["big-one"], ["cpu"])
    assert spawner.profile_list == value or shape in ("callable", "async")
    await spawner.load_user_options()
    assert spawner.image == "base:1"


async def test_of_a_choice_that_is_gone_exactly_one_is_selected_in_both_parts(service: GpuServiceInATest) -> None:
    """T7."""
    for gone in (
        {"profile": "no-more", "offer": "mig-9g.99gb"},
        {"profile": "big-one", "image": "no-more", "offers": ["mig-9g.99gb"]},
        {"image": "x", "offer": ONE},
    ):
        spawner = a_spawner(url=service.url, profile_list=PROFILES, options=gone)
        html = await spawner.get_options_form()
        assert (checked(html, "profile"), checked(html, "offer")) == (["big-one"], [ONE])
        assert spawner.user_options == gone, "only the page is made as if it were not there"
    spawner = a_spawner(url=service.url, profile_list=PROFILES)
    spawner.orm_spawner.user_options = {"profile": "small", "offer": "cpu"}
    html = await spawner.get_options_form()
    known = ["small"] if not kubespawner_version.startswith("7.0") else ["big-one"]
    assert checked(html, "profile") == known, "KubeSpawner 7.0 selects no saved choice"


async def test_a_template_path_of_another_extension_is_left_and_used(
    service: GpuServiceInATest, tmp_path: Path
) -> None:
    """jupyterhub-fancy-profiles assigns `additional_profile_form_template_paths` and brings a form.html of its own."""
    (tmp_path / "form.html").write_text("<div id='fancy'>{{ profile_list | tojson }}</div>")
    html = await a_spawner(
        url=service.url, profile_list=PROFILES, additional_profile_form_template_paths=[str(tmp_path)]
    ).get_options_form()
    assert "id='fancy'" in html and checked(html, "offer") == [ONE]


async def test_the_form_becomes_one_choice_of_profile_and_offer() -> None:
    spawner = a_spawner(profile_list=PROFILES)
    options = spawner.run_options_from_form(
        {
            "_xsrf": ["x"],
            "profile": ["big-one"],
            "profile-option-big-one--image": ["torch"],
            "profile-option-small--x": ["y"],
            "offer": [ONE],
            "also": ["", ""],
        }
    )
    assert options == {"profile": "big-one", "image": "torch", "offer": ONE}
    several = spawner.run_options_from_form({"profile": ["small"], "offer": [ONE], "also": ["mig-2g.10gb"]})
    assert several == {"profile": "small", "offers": [ONE, "mig-2g.10gb"]}
    linked = spawner.options_from_query({"opt-profile": ["small"], "opt-offer": [ONE]})
    assert linked == {"profile": "small", "offer": ONE}


@pytest.mark.parametrize(("linked", "checked"), [({"offer": ONE}, "big-one"), ({"profile": "small"}, "small")])
async def test_a_link_to_an_offer_alone_leaves_the_profile_of_the_last_start(
    linked: dict[str, str], checked: str
) -> None:
    spawner = a_spawner(profile_list=PROFILES, options={"profile": "big-one", "image": "torch", "offer": "cpu"})
    spawner.gpu_linked = UserOptions.from_dict(linked, also=None)
    html = await spawner.gpu_profiles_form()
    assert re.findall(r'name="profile"[^>]*value="([^"]*)"[^>]*checked', " ".join(html.split())) == [checked]


@pytest.mark.parametrize("slug", ["small", "zzz"])
async def test_a_link_preselects_profile_and_offer_and_leaves_nothing_to_start(
    slug: str,
) -> None:
    """What JupyterHub finds in the address after this is what it would start at once."""
    spawner = a_spawner(profile_list=PROFILES)
    given = {"opt-profile": [slug.encode()], "opt-offer": [ONE.encode()], "next": [b"/hub/home"]}
    request = SimpleNamespace(method="GET", headers={}, query_arguments=dict(given))
    spawner.handler = SimpleNamespace(request=request)
    await spawner.run_auth_state_hook(None)
    if slug == "small":
        assert request.query_arguments == {"next": [b"/hub/home"]}
        assert spawner.gpu_linked.to_dict() == {"profile": slug, "offer": ONE}
        html = await spawner.gpu_profiles_form()
        assert re.search(r'value="small"[^>]*checked', html)
        return
    assert request.query_arguments == given and spawner.gpu_linked is None
    with pytest.raises(web.HTTPError, match="zzz"):
        await maybe_future(spawner.options_from_query({"profile": ["small"]}))  # whatever it says by now
    assert await maybe_future(spawner.options_from_query({"profile": ["small"]}))


async def test_a_key_of_a_strangers_link_breaks_no_line_of_the_hubs_log(caplog: pytest.LogCaptureFixture) -> None:
    spawner = a_spawner(profile_list=PROFILES)
    spawner.log = logging.getLogger("test.hub")
    caplog.set_level(logging.DEBUG, "test.hub")
    evil = "x\n[E 2026 JupyterHub] all is lost" + "y" * 5000
    spawner.options_from_query({"opt-profile": ["small"], "opt-offer": [ONE], f"opt-{evil}": ["1"]})
    with pytest.raises(web.HTTPError) as refused:
        await spawner._gpu_check_others(spawner._gpu_checked({"profile": "small", evil: 1, "offer": ONE}))
    said = [record.getMessage() for record in caplog.records] + [refused.value.gpu_log_message]
    assert any("all is lost" in line for line in said), "it is told, escaped"
    assert all("\n" not in line and len(line) < 1000 for line in said)


@pytest.mark.whole
@pytest.mark.slow
async def test_a_question_that_fails_after_its_start_was_cancelled_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    with AwayService({ONE: 1}) as away:
        service = GpuServiceClient(away.url, SECRET)
        monkeypatch.setattr(GpuSpawnerMixin, "_gpu_service", service)
        start = Start(UserOptions((OfferId(ONE),)))
        asking = asyncio.ensure_future(a_spawner()._gpu_ask(start, Ask("ada", "", start.offers)))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        await service.close()
    gc.collect()
    assert asking.cancelled() and heard == []


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"profile": ["zzz"]}, "zzz"),
        ({"profile": ["big-one"], "profile-option-big-one--image": ["zzz"]}, "zzz"),
        ({"profile": ["big-one"], "profile-option-big-one--zzz": ["x"]}, "zzz"),
        ({"profile": ["big-one"], "profile-option-big-one--image--unlisted-choice": ["evil"]}, "evil"),
        ({"profile": ["small"], "offer": ["zzz zzz"]}, "offer"),
    ],
)
async def test_a_choice_that_is_none_is_refused_with_what_there_is(form: dict[str, list[str]], field: str) -> None:
    """T6: a refusal, not a fault."""
    with pytest.raises(web.HTTPError) as refused:
        a_spawner(profile_list=PROFILES).run_options_from_form(form)
    assert refused.value.status_code == 400
    assert field in refused.value.jupyterhub_message  # type: ignore[attr-defined]


# ------------------------------------------------------------------ profiles


def test_a_free_text_has_to_match_as_a_whole() -> None:
    """T12."""
    options = {"profile": "big-one", "image--unlisted-choice": "jupyter/x:y"}
    check_profile(PROFILES, options)
    for evil in ("jupyter/x:y\nevil", "jupyter/x:y\n", "x jupyter/x:y"):
        with pytest.raises(UserOptionsError):
            check_profile(PROFILES, {**options, "image--unlisted-choice": evil})


def test_without_a_profile_the_default_ones_options_are_checked() -> None:
    check_profile(PROFILES, {"image": "torch"})
    for wrong in ({"image": "zzz"}, {"image--unlisted-choice": "evil"}, {"image": ["torch"]}, {"garbage": 1}):
        with pytest.raises(UserOptionsError):
            check_profile(PROFILES, wrong)


def test_a_choice_of_profile_where_there_are_none_is_refused_before_the_wait() -> None:
    """KubeSpawner raises "No such profile" for it, when the pod is to be made."""
    for wrong in ({"profile": "x", "offer": "cpu"}, {"profile": "x", "image": "y"}, {"garbage": 1}):
        with pytest.raises(UserOptionsError):
            check_profile([], wrong)
    check_profile([], {})
    check_profile([], {"profile": "", "offer": "cpu"})
    check_profile([], {"mine": 1}, also=("mine",))


def test_slugs_are_kubespawners() -> None:
    assert [slug_of(profile) for profile in PROFILES] == ["small", "big-one"]


OPTIONS = st.dictionaries(
    st.sampled_from(["profile", "image", "image--unlisted-choice", "x"]),
    st.sampled_from(["small", "big-one", "base", "torch", "jupyter/x:y", "", "zzz"]) | st.none() | st.integers(),
)


@many(200)
@given(options=OPTIONS)
async def test_what_passes_our_check_kubespawner_takes_without_a_fault(options: dict[str, Any]) -> None:
    try:
        check_profile(PROFILES, options)
    except UserOptionsError:
        return
    spawner = a_spawner(kind=KubeSpawner, profile_list=PROFILES, options=options)
    await spawner.load_user_options()
    assert spawner.image in ("lab:1", "base:1", "torch:1", "jupyter/x:y")
    assert still_valid(PROFILES, options) == options


@given(text=st.text(alphabet=string.printable, max_size=30))
def test_any_text_as_a_profile_is_refused_in_words(text: str) -> None:
    if text in ("", "small", "big-one"):
        return
    with pytest.raises(UserOptionsError) as error:
        check_profile(PROFILES, {"profile": text})
    assert "There are: small, big-one." in error.value.text


# ------------------------------------------------------------------ start, clock, state


async def test_a_start_timeout_of_a_profile_is_kept_by_our_own_clock() -> None:
    """T10: read after the profile is known, and KubeSpawner's own waiting never ends before ours."""
    spawner = a_spawner(profile_list=PROFILES, options={"profile": "big-one"})
    spawner._gpu_whole = asyncio.get_running_loop().create_future()
    spawner.start_timeout = NO_LIMIT_SECONDS
    await spawner.load_user_options()
    assert (spawner.gpu_limit_of_profile, spawner.start_timeout) == (123, NO_LIMIT_SECONDS)


async def test_a_profile_that_changed_while_its_user_waited_is_a_refusal() -> None:
    spawner = a_spawner(profile_list=PROFILES, options={"profile": "gone"})
    with pytest.raises(web.HTTPError) as refused:
        await spawner.load_user_options()
    assert refused.value.gpu_reason == "bad-choice"  # type: ignore[attr-defined]


async def test_the_lease_survives_a_restart_of_the_hub_and_an_end_clears_it() -> None:
    spawner = a_spawner()
    assert "gpu_lease" not in spawner.get_state()
    spawner._gpu_ran, spawner._gpu_lease = True, "l1"
    state = spawner.get_state()
    assert state["gpu_lease"] == "l1" and state["pod_name"] == spawner.pod_name
    after = a_spawner()
    after.load_state(state)
    assert after.get_state()["gpu_lease"] == "l1"
    after.clear_state()
    assert "gpu_lease" not in after.get_state()


# ------------------------------------------------------------------ what a cluster refuses


@pytest.mark.parametrize(
    ("status", "message", "queue", "word", "says", "again"),
    [
        (500, KUEUE_DOWN, "Kueue", "kueue-away", "Kueue, which hands out the GPUs here, does not answer.", True),
        (500, KUEUE_DOWN, "", "kueue-away", "Kueue", True),
        (403, OVER_QUOTA, "", "quota", "is used up: 2 of mig-1g.5gb.", False),
        (
            403,
            'admission webhook "vpod.kai" denied the request: gpu-fraction annotation value must be a positive number '
            "smaller than 1.0",
            "KAI",
            "cluster-refused",
            "KAI, which hands out the GPUs here, does not take this server: gpu-fraction annotation value must be",
            False,
        ),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest"', "", "cluster-refused", "safe", False),
        (403, 'pods is forbidden: User "x" cannot create resource "pods"', "", "cluster-rights", "may not", False),
        (422, "Pod is invalid: spec.x", "", "cluster-refused", "as it is set up", False),
        (429, "Too many requests", "", "cluster-away", "does not answer now", True),
        (503, "apiserver is shutting down", "", "cluster-away", "does not answer now", True),
        (500, "etcdserver: request timed out", "", "cluster-away", "does not answer now", True),
    ],
)
def test_what_a_cluster_rejects_is_answered_with_a_reason_and_a_message(
    status: int, message: str, queue: str, word: str, says: str, again: bool
) -> None:
    for body in (json.dumps({"kind": "Status", "message": message}), message):
        rejection = rejection_of(status, body, queue)
        assert (rejection.reason, rejection.temporary) == (word, again)
        assert says in rejection.message
        assert message in rejection.log_message
