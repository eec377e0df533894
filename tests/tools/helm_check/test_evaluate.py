"""``helm check --evaluate``: what the administrator's Python sets, however it is written, and what it cannot reach."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.tools.helm_check.chart_facts import packed_facts
from hub_extensions.tools.helm_check.check import CheckOptions, CheckReport, check
from hub_extensions.tools.helm_check.evaluate import evaluate
from hub_extensions.tools.helm_check.model import Evaluation, Release
from tests.hubs import ROOT

pytestmark = pytest.mark.programs

OURS = [str(ROOT / "helm-values" / "gpu.yaml"), str(ROOT / "tests" / "helm_values" / "site-images.yaml")]
GPU = "nvidia.com/gpu"


def run(*codes: str, seconds: float = 120, **values: Any) -> Evaluation:
    entries = {f"{at:02}": code for at, code in enumerate(codes)}
    release = Release([], {"hub": {"extraConfig": entries, **values}}, packed_facts())
    return evaluate(release, {"KubeSpawner": {"environment": {"A": "b"}}}, {}, seconds=seconds)


def set_by(evaluation: Evaluation) -> dict[str, Any]:
    return {f"{each.section}.{each.trait}": each.value for each in evaluation.changes}


def test_every_way_to_write_a_setting_is_read() -> None:
    found = run(
        "c.KubeSpawner.options_form = lambda spawner: '<b/>'",
        "k = c.Spawner\nk.options_form = '<b/>'",
        "c['KubeSpawner']['image'] = 'a' + 'b'",
        "c.KubeSpawner.update({'args': ['--x']})",
        "setattr(c.KubeSpawner, 'cmd', None)",
        "c.KubeSpawner.environment['B'] = 'c'",
        "c.KubeSpawner.extra_resource_limits.update({'nvidia.com/gpu': 1})",
        "c.KubeSpawner.profile_list.append({'display_name': 'x'})",
        "from kubespawner import KubeSpawner\nclass Mine(KubeSpawner): pass\nc.JupyterHub.spawner_class = Mine",
        "form = c.KubeSpawner.options_from_form\nother = get_config('hub.extraEnv')",
    )
    assert found.failed == [] and found.missing == [] and found.unfinished is None
    assert set_by(found) == {
        "KubeSpawner.options_form": {"$object": "function"},
        "Spawner.options_form": "<b/>",
        "KubeSpawner.image": "ab",
        "KubeSpawner.args": ["--x"],
        "KubeSpawner.cmd": None,
        "KubeSpawner.environment": {"A": "b", "B": "c"},
        "KubeSpawner.extra_resource_limits": {GPU: 1},
        "KubeSpawner.profile_list": [{"display_name": "x"}],
        "JupyterHub.spawner_class": {"$class": "jupyterhub_config.Mine", "ours": False, "known": True},
    }
    assert found.changes[0].path == ("hub", "extraConfig", "00")


GIVE = "def give(s, pod, n=1):\n    pod.spec.containers[0].resources.limits['nvidia.com/gpu'] = n\n"
HOOKS = {
    "modify_pod_hook": [
        (f"{GIVE}c.K.modify_pod_hook = give", {GPU}),
        (f"{GIVE}def hook(s, pod):\n    give(s, pod)\nc.K.modify_pod_hook = hook", {GPU}),
        (f"{GIVE}from functools import partial\nc.K.modify_pod_hook = partial(give, n=2)", {GPU}),
        (f"{GIVE}async def hook(s, pod):\n    give(s, pod)\n    return pod\nc.K.modify_pod_hook = hook", {GPU}),
        (f"{GIVE}def hook(s, p):\n    if 'ml' in [g.name for g in s.user.groups]: give(s, p)\n"
         "c.K.modify_pod_hook = hook", {GPU}),
        (f"{GIVE}def hook(s, p):\n    if s.user_options['gpu'] == 'yes': give(s, p)\nc.K.modify_pod_hook = hook",
         {GPU}),
        ("def hook(s, pod):\n    for each in ('nvidia.com/gpu', 'nvidia.com/mig-1g.5gb'):\n"
         "        pod.spec.containers[0].resources.limits.pop(each, None)\nc.K.modify_pod_hook = hook", set()),
        ("def hook(s, pod):\n    return pod\nc.K.modify_pod_hook = hook", set()),
    ],
    "pre_spawn_hook": [
        ("def hook(s):\n    s.extra_resource_limits = {'nvidia.com/a100': '1'}\nc.K.pre_spawn_hook = hook",
         {"nvidia.com/a100"}),
        ("def hook(s):\n    s.extra_resource_limits = {'nvidia.com/gpu': '0'}\nc.K.pre_spawn_hook = hook", set()),
        ("def hook(s):\n    s.extra_resource_limits = {'example.com/fpga': 1}\nc.K.pre_spawn_hook = hook", set()),
    ],
}  # fmt: skip


@pytest.mark.whole
def test_a_hook_that_gives_a_gpu_is_seen_also_if_it_gives_it_to_some_users_only() -> None:
    codes = [(code.replace("c.K.", f"c.A{at}Spawner."), given)
             for at, (code, given) in enumerate([each for hooks in HOOKS.values() for each in hooks])]  # fmt: skip
    # functions with the same name would replace each other in the one namespace, as in the hub
    found = run(*(code.replace("hook(s", f"hook{at}(s").replace("= hook", f"= hook{at}") for at, (code, _) in
                  enumerate(codes)))  # fmt: skip
    assert found.failed == []
    seen = [{hook.resource for hook in found.hooks if hook.section == f"A{at}Spawner" and hook.was_seen}
            for at in range(len(codes))]  # fmt: skip
    assert seen == [given for _, given in codes]


def test_the_code_has_no_environment_no_network_an_empty_home_and_little_memory() -> None:
    found = run(
        "import os\nc.A.names = sorted(os.environ)\nc.A.home = os.listdir(os.path.expanduser('~'))",
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 2)\nexcept OSError as e:\n"
        "    c.A.network = e.errno",
        "x = bytearray(2 ** 31)",
        "c.A.after = True",
        extraEnv={"MINE": "1", "SECRET": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}},
    )
    settings = set_by(found)
    inherited = {"USER", "LOGNAME", "TEST_PATIENCE", "VIRTUAL_ENV", "PYTHONPATH", "JUPYTERHUB_API_TOKEN"}
    assert {"MINE", "SECRET", "HOME"} <= set(settings["A.names"]) and not inherited & set(settings["A.names"])
    assert settings["A.home"] == []
    assert settings["A.network"] == (101 if found.isolated else 111)  # unreachable: not even the loopback is there
    assert [kind for _, kind, _, _ in found.failed] == ["MemoryError"]
    assert settings["A.after"] is True


@pytest.mark.whole
def test_code_that_does_not_end_is_named_and_what_came_before_it_is_judged() -> None:
    found = run("c.A.first = 1", "import time\ntime.sleep(600)", "c.A.last = 1", seconds=1)
    assert (found.unfinished, found.in_time) == (("hub", "extraConfig", "01"), False)
    found = run("c.A.first = 1", "import os\nos._exit(0)", "c.A.last = 1")
    assert (found.unfinished, found.in_time) == (("hub", "extraConfig", "01"), True)
    assert set_by(found) == {"A.first": 1}


def test_a_module_that_is_not_installed_is_named_and_the_rest_is_judged() -> None:
    found = run(
        "import nowhere.inner as n\nfrom nowhere import Thing\nclass Mine(Thing): pass\n"
        "c.JupyterHub.authenticator_class = Mine\nc.A.x = n.call(1).value or 5",
        "try:\n    import nowhere_else\nexcept ImportError:\n    pass\nc.A.y = 1",
    )
    assert [module for _, module in found.missing] == ["nowhere", "nowhere_else"]
    assert found.failed == [] and set_by(found)["A.y"] == 1


# ------------------------------------------------------------------ with a chart

CONFIG = """
c = get_config()
from tornado.httpclient import AsyncHTTPClient
from z2jh import get_config, get_name, get_name_env, get_secret_value
AsyncHTTPClient.configure("tornado.curl_httpclient.CurlAsyncHTTPClient")
c.ConfigurableHTTPProxy.api_url = f'http://{get_name("proxy-api")}:{get_name_env("proxy-api", "_SERVICE_PORT")}'
c.KubeSpawner.environment = get_config("singleuser.extraEnv")
c.KubeSpawner.profile_list = []
c.KubeSpawner.storage_class = get_config("custom.disk")
c.JupyterHub.services = [{"name": n, "api_token": get_secret_value(f"hub.services.{n}.apiToken")}
                         for n in get_config("hub.services", {})]
c.JupyterHub.load_roles = []
for section, settings in get_config("hub.config").items():
    c[section].update(settings)
for key, code in sorted(get_config("hub.extraConfig", {}).items()):
    exec(code)
"""
Z2JH = """
import os, yaml
def _read(*parts):
    with open(os.path.join("/usr/local/etc/jupyterhub", *parts)) as file:
        return file.read()
def get_config(key, default=None):
    value = yaml.safe_load(_read("secret/values.yaml"))
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            return default
        value = value[name]
    return value
def get_name(name):
    return _read("config", name)
def get_name_env(name, suffix=""):
    return os.environ[(get_name(name) + suffix).upper().replace("-", "_")]
def get_secret_value(name):
    return _read("secret", name)
"""


def small_chart(place: Path, more: Mapping[str, str] | None = None) -> Path:
    """An archive with what the check reads of the chart."""
    facts = packed_facts()
    files = {
        "Chart.yaml": f"name: jupyterhub\nversion: {facts.version}\n",
        "values.schema.json": json.dumps(facts.schema),
        "values.yaml": json.dumps(facts.defaults),
        "files/hub/jupyterhub_config.py": CONFIG,
        "files/hub/z2jh.py": Z2JH,
        **(more or {}),
    }
    with tarfile.open(place, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"jupyterhub/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return place


def checked(tmp_path: Path, values: Mapping[str, Any], **more: Any) -> CheckReport:
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps(values))
    return check(CheckOptions([str(file), *OURS], chart=small_chart(tmp_path / "chart.tgz"), evaluate=True, **more))


@pytest.mark.whole
def test_the_charts_own_configuration_runs_before_the_administrators(tmp_path: Path) -> None:
    code = (
        "c.KubeSpawner.environment = {**c.KubeSpawner.environment, 'A': c.KubeSpawner.storage_class}\n"
        "async def profiles(spawner):\n"
        "    gpu = {'extra_resource_limits': {'nvidia.com/gpu': 1}}\n"
        "    return [{'display_name': 'Big', 'kubespawner_override': gpu}]\n"
        "c.KubeSpawner.profile_list = profiles\n"
        "assert c.ConfigurableHTTPProxy.api_url == 'http://proxy-api:8001'\n"
        "assert get_config('custom.disk') == 'fast'\n"
    )
    values = {"custom": {"disk": "fast"}, "hub": {"extraConfig": {"10": code}}, "singleuser": {"extraEnv": {"B": "c"}}}
    report = checked(tmp_path, values)
    assert [(each.rule, each.key) for each in report.findings] == [("profile-gpu", "hub.extraConfig.10")]
    assert report.findings[0].text.startswith("The profile 'Big' asks for nvidia.com/gpu: 1 by itself")
    assert report.evaluation is not None and set_by(report.evaluation)["KubeSpawner.environment"]["A"] == "fast"


@pytest.mark.whole
def test_a_setting_of_ours_that_code_gets_wrong_is_reported_about_the_code(tmp_path: Path) -> None:
    code = "c.GpuQueue.max_waitings = 3\nc.GpuCulling.keeps_per_day = 'many'\n"
    report = checked(tmp_path, {"hub": {"extraConfig": {"10": code}}})
    assert {(each.rule, each.key) for each in report.findings} == {("own-settings", "hub.extraConfig.10")}
    assert len(report.findings) == 2


def test_another_form_that_code_sets_is_reported_once(tmp_path: Path) -> None:
    report = checked(tmp_path, {"hub": {"extraConfig": {"10": "c.KubeSpawner.options_form = '<b/>'\n"}}})
    assert [each.rule for each in report.findings] == ["own-form"]


@pytest.mark.parametrize("left_out", ["files/hub/z2jh.py", "files/hub/jupyterhub_config.py"])
def test_a_chart_without_its_configuration_is_refused(left_out: str, tmp_path: Path) -> None:
    from hub_extensions.tools.helm_check.helm import HelmUnusable, read_hub_files

    chart = small_chart(tmp_path / "chart.tgz")
    assert set(read_hub_files(chart)) == {"z2jh.py", "jupyterhub_config.py"}
    with tarfile.open(chart) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "jupyterhub" / left_out).unlink()
    with pytest.raises(HelmUnusable, match=f"has no {left_out}"):
        read_hub_files(tmp_path / "jupyterhub")
