"""``doctor --config`` says of a hub that cannot start its users' servers what is wrong, and the lines that work."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from hub_extensions.tools.doctor import examine
from hub_extensions.tools.doctor.accounts import findings
from hub_extensions.tools.doctor.diagnosis import Diagnosis

pytestmark = pytest.mark.slow

ROOT, ADA, HUB = 0, 1000, 990
KNOWN = {"root": ROOT, "ada": ADA, "hub": HUB}


@pytest.mark.parametrize(
    ("uid", "people", "makes", "said"),
    [
        (ROOT, {"ada"}, False, ""),
        (ROOT, set(), False, ""),  # anybody whom the authenticator knows
        (ROOT, {"ada", "zoe", "yan"}, False, "no account for yan, zoe,"),
        (ROOT, {"zoe"}, True, ""),
        (HUB, {"ada"}, False, "uid 990"),
        (HUB, set(), False, "uid 990"),
        (HUB, {"hub"}, False, ""),  # one person, whose hub it is
        (HUB, {"zoe"}, True, "uid 990"),
        (ROOT, set("abcdefg"), False, "for a, b, c, d, e and others,"),
    ],
)
def test_a_hub_that_cannot_start_its_users_servers_is_told_so(
    uid: int, people: set[str], makes: bool, said: str
) -> None:
    found = list(findings(uid, frozenset(people), KNOWN.get, makes))
    assert [each.state for each in found] == (["problem"] if said else [])
    assert said in "".join(each.text for each in found)


CONFIG = """
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{"nobody-of-this-name"}}
c.GpuOffers.simulate = "lab-a100"
c.GpuService.state_dir = {state!r}
{more}
from hub_extensions import configure
configure(c)
"""


def examined(folder: Path, more: str) -> dict[str, Diagnosis]:
    config = folder / "jupyterhub_config.py"
    config.write_text(CONFIG.format(state=str(folder / "state"), more=more))
    return {each.check: each for each in examine(config)}


def test_a_setting_of_culling_without_effect_is_named_with_what_to_do(tmp_path: Path) -> None:
    found = examined(tmp_path, "c.GpuCulling.extend_lifetime_hours = 2")["culling"]
    assert found.state == "warning" and found.text.startswith("c.GpuCulling.extend_lifetime_hours: It has no effect")
    assert "Set max_lifetime_extensions" in found.fix
    assert "No server is stopped" in examined(tmp_path, "")["culling"].text


def test_the_lines_that_doctor_gives_are_lines_with_which_it_finds_nothing(tmp_path: Path) -> None:
    wrong = examined(tmp_path, "")["accounts"]
    assert wrong.state == "problem" and "gpu-local" in wrong.text
    assert (f"uid {os.geteuid()}" in wrong.text) is (os.geteuid() != 0)
    lines = wrong.fix.split("configure(c):\n")[1]
    assert len(lines.splitlines()) == 2
    assert "accounts" not in examined(tmp_path, lines)


@pytest.mark.parametrize("chosen", ["simple", "localprocess", "jupyterhub.spawner.SimpleLocalProcessSpawner"])
def test_the_spawner_that_doctor_advises_is_one_that_it_finds_right(tmp_path: Path, chosen: str) -> None:
    """Nobody of that name has an account here, and who tests need not be root."""
    found = examined(tmp_path, f"c.JupyterHub.spawner_class = {chosen!r}")
    assert "accounts" not in found and found["spawner"].text == f"The spawner is {chosen}: no GPU can be chosen."
    lines = found["spawner"].fix.split("configure(c):\n")[1]
    assert '"gpu-demo"' in lines and 'spawner_class = "gpu-local"' not in found["spawner"].fix
    after = examined(tmp_path, lines)
    assert not {"accounts", "spawner"} & after.keys()


def test_a_hub_of_one_person_is_advised_to_start_servers_as_that_account(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    more = f"c.JupyterHub.spawner_class = 'simple'\nc.Authenticator.allowed_users = {{{me!r}}}"
    line = examined(tmp_path, more)["spawner"].fix
    assert line == 'c.JupyterHub.spawner_class = "gpu-local"'
    after = examined(tmp_path, f"{line}\nc.Authenticator.allowed_users = {{{me!r}}}")
    assert not {"accounts", "spawner"} & after.keys()


OWN_CLASS = """
from kubespawner import KubeSpawner
class OfASite(KubeSpawner):
    pass
c.JupyterHub.spawner_class = OfASite
"""


def test_a_class_made_from_kubespawner_is_told_how_to_derive_from_ours(tmp_path: Path) -> None:
    found = examined(tmp_path, OWN_CLASS)["spawner"]
    assert "GpuKubeSpawner" in found.fix and "class OfASite(GpuKubeSpawner):" in found.fix
    right = OWN_CLASS.replace("from kubespawner import KubeSpawner", "from hub_extensions.spawner.kube import *")
    assert "spawner" not in examined(tmp_path, right.replace("(KubeSpawner)", "(GpuKubeSpawner)"))


def test_what_doctor_says_is_sentences(tmp_path: Path) -> None:
    for each in (*examined(tmp_path, "").values(), *examine(None)):
        for text in filter(None, (each.text, each.fix)):
            assert text[0].isupper() or text.startswith(("c.", "/", "pip ", "nvidia-smi")), text
        assert each.text.endswith((".", ")")) and " " in each.text, each.text
