"""What an administrator's own Python sets, in the ways in which people write it: it is read, and never run."""

from __future__ import annotations

import pytest

from hub_extensions.core.offers.pod_request import is_gpu_resource
from hub_extensions.tools.helm_check.extra_config import gpus_of_hooks, gpus_set, names_of, own_form

SECTIONS, LIMITS = ("GpuKubeSpawner", "KubeSpawner", "Spawner"), ("extra_resource_limits",)
FORM = ("options_form", "options_from_form")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("c.KubeSpawner.options_form = '<b/>'", ("KubeSpawner", "options_form")),
        ("c.KubeSpawner.options_form: str = '<b/>'", ("KubeSpawner", "options_form")),
        ("k = c.KubeSpawner\nk.options_form = '<b/>'", ("KubeSpawner", "options_form")),
        ("c['KubeSpawner']['options_form'] = '<b/>'", ("KubeSpawner", "options_form")),
        ("c.KubeSpawner.update({'options_form': '<b/>'})", ("KubeSpawner", "options_form")),
        ("c.KubeSpawner.update(options_from_form=read)", ("KubeSpawner", "options_from_form")),
        ("setattr(c.Spawner, 'options_form', '<b/>')", ("Spawner", "options_form")),
        ("if True:\n    c.Spawner.options_form = c.KubeSpawner.options_form = f", ("Spawner", "options_form")),
        ("form = c.KubeSpawner.options_form", None),
        ("c.KubeSpawner.update({'image': 'x'})", None),
        ("other.KubeSpawner.options_form = '<b/>'", None),
        ("c.Form.options_form = '<b/>'", None),
        ("a = b\nb = a\na.KubeSpawner.options_form = '<b/>'", None),
    ],
)
def test_another_form_is_seen_however_it_is_set(code: str, found: tuple[str, str] | None) -> None:
    assert own_form(code, names_of([code]), FORM) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("c.KubeSpawner.extra_resource_limits = {'nvidia.com/gpu': 1}", {"nvidia.com/gpu": "1"}),
        ("more = {'nvidia.com/gpu': '1'}\nc.KubeSpawner.extra_resource_limits = more", {"nvidia.com/gpu": "1"}),
        ("GPU = 'nvidia.com/gpu'\nc.Spawner.extra_resource_limits = {GPU: 2}", {"nvidia.com/gpu": "2"}),
        ("c.KubeSpawner.extra_resource_limits = dict([('nvidia.com/gpu', '1')])", {"nvidia.com/gpu": "1"}),
        ("c['KubeSpawner'].extra_resource_limits = {'nvidia.com/a100': 1}", {"nvidia.com/a100": "1"}),
        ("c.KubeSpawner.extra_resource_limits.update({'nvidia.com/gpu': 1})", {"nvidia.com/gpu": "1"}),
        ("c.KubeSpawner.update({'extra_resource_limits': {'nvidia.com/gpu': 1}})", {"nvidia.com/gpu": "1"}),
        ("c.KubeSpawner.extra_resource_limits = {'nvidia.com/gpu': 0, 'example.com/fpga': 1}", {}),
        ("c.KubeSpawner.extra_resource_limits.pop('nvidia.com/gpu', 1)", {}),
        ("c.KubeSpawner.profile_list = [{'extra_resource_limits': {'nvidia.com/gpu': 1}}]", {}),
    ],
)
def test_a_gpu_for_everybody_is_seen_however_it_is_set(code: str, found: dict[str, str]) -> None:
    assert gpus_set(code, SECTIONS, LIMITS, is_gpu_resource, names_of([code])) == found


GIVE = "def give(pod, n=1):\n    pod.spec.containers[0].resources.limits['nvidia.com/gpu'] = n\n"


@pytest.mark.parametrize(
    ("code", "hooks"),
    [
        (f"{GIVE}c.KubeSpawner.modify_pod_hook = give", ["modify_pod_hook"]),
        (f"{GIVE}def hook(s, pod):\n    give(pod)\nc.Spawner.modify_pod_hook = hook", ["modify_pod_hook"]),
        (f"{GIVE}c.KubeSpawner.modify_pod_hook = partial(give, n=2)", ["modify_pod_hook"]),
        (f"{GIVE}c['KubeSpawner'].modify_pod_hook = lambda s, pod: give(pod)", ["modify_pod_hook"]),
        (GIVE.replace("'nvidia.com/gpu'", "GPU") + "GPU = 'nvidia.com/gpu'\nc.Spawner.auth_state_hook = give",
         ["auth_state_hook"]),
        (f"{GIVE}c.KubeSpawner.post_stop_hook = give", []),
        (f"{GIVE}def hook(s, pod):\n    return pod\nc.KubeSpawner.modify_pod_hook = hook", []),
        ("def hook(s, pod):\n    for each in ('nvidia.com/gpu', 'nvidia.com/mig-1g.5gb'):\n        pod.pop(each)\n"
         "c.KubeSpawner.modify_pod_hook = hook", []),
        ("def hook(s):\n    s.tolerations.append({'key': 'nvidia.com/gpu'})\nc.Spawner.pre_spawn_hook = hook", []),
    ],
)  # fmt: skip
def test_a_hook_that_gives_a_gpu_is_seen_through_what_it_calls(code: str, hooks: list[str]) -> None:
    found = list(gpus_of_hooks(code, SECTIONS, is_gpu_resource, names_of([code])))
    assert [hook for _, hook, _ in found] == hooks


def test_a_hook_and_what_it_calls_may_stand_in_two_pieces_of_code() -> None:
    second = "c.KubeSpawner.pre_spawn_hook = give"
    (found,) = gpus_of_hooks(second, SECTIONS, is_gpu_resource, names_of([GIVE, second]))
    assert found == ("KubeSpawner", "pre_spawn_hook", "nvidia.com/gpu")
