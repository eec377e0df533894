"""``doctor --config`` says of a hub that cannot start its users' servers what is wrong, and the lines that work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hub_extensions.tools.doctor import examine
from hub_extensions.tools.doctor.accounts import findings
from hub_extensions.tools.doctor.diagnosis import Diagnosis

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


def test_the_lines_that_doctor_gives_are_lines_with_which_it_finds_nothing(tmp_path: Path) -> None:
    wrong = examined(tmp_path, "")["accounts"]
    assert wrong.state == "problem" and "gpu-local" in wrong.text
    assert (f"uid {os.geteuid()}" in wrong.text) is (os.geteuid() != 0)
    lines = wrong.fix.split("configure(c):\n")[1]
    assert len(lines.splitlines()) == 2
    assert "accounts" not in examined(tmp_path, lines)


def test_what_doctor_says_is_sentences(tmp_path: Path) -> None:
    for each in (*examined(tmp_path, "").values(), *examine(None)):
        for text in filter(None, (each.text, each.fix)):
            assert text[0].isupper() or text.startswith(("c.", "/", "pip ", "nvidia-smi")), text
        assert each.text.endswith((".", ")")) and " " in each.text, each.text
