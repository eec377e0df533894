"""The how-to on zero-to-jupyterhub, as text: nothing is applied before the check, and the way back names all of it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "helm-values" / "manifests"
PAGE = (ROOT / "docs" / "howto" / "zero-to-jupyterhub.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LABEL = "pod-security.kubernetes.io/enforce"


def commands(text: str) -> str:
    return "".join(BLOCKS.findall(text))


def way_back() -> str:
    return PAGE.split("\n## The way back\n")[1].split("\n## ")[0]


def test_the_check_comes_before_anything_is_applied_and_the_rights_before_the_upgrade() -> None:
    wanted = ["images/build ", "pip install ", "helm check ", "kubectl apply ", "helm upgrade ", "helm rollback "]
    places = [commands(PAGE).index(command) for command in wanted]
    assert places == sorted(places)


def test_the_check_is_installed_from_the_wheel_that_the_images_are_built_with() -> None:
    (installed,) = re.findall(r"pip install (.*)", commands(PAGE))
    assert installed == '"$(ls images/dist/*.whl)[hub,kubernetes]"'
    assert "--wheel-dir dist" in (ROOT / "images" / "build").read_text(encoding="utf-8")


def test_every_file_that_a_command_names_is_there_or_made_by_one() -> None:
    given = commands(PAGE)
    made = {"own-images.yaml", "before.yaml", "your-values.yaml"}
    assert all(f"{name}" in given for name in made)
    named = set(re.findall(r"-[fk] (\S+)", given)) - made
    assert len(named) >= 5
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_steps_take_twenty_minutes() -> None:
    assert sum(map(int, re.findall(r"^## \d\. .*\((\d+) minutes?\b", PAGE, re.MULTILINE))) == 20


def test_the_way_back_takes_the_label_off_first_and_what_was_applied_last() -> None:
    back = commands(way_back())
    places = [back.index(word) for word in (f"{LABEL}-\n", "helm rollback ", "kubectl delete ")]
    assert places == sorted(places)
    overlay = (ROOT / "helm-values" / "restricted.yaml").read_text(encoding="utf-8")
    assert f"{LABEL}=restricted" in overlay and f"{LABEL}-\n" in overlay


def test_the_way_back_names_both_folders_and_every_file_that_is_applied_by_itself() -> None:
    for folder in (MANIFESTS, MANIFESTS / "service-deployment"):
        assert f"kubectl delete -k {folder.relative_to(ROOT).as_posix()}" in way_back()
    together = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))
    known = {*together["resources"], *together["transformers"], "kustomization.yaml"}
    alone = {file.stem for file in MANIFESTS.glob("*.yaml") if file.name not in known}
    assert len(alone) == 9
    assert {name for name in alone if not re.search(rf"\b{name}\b", way_back())} == set()
