"""The lock files: every file hashed, no index host named, and the versions that the package itself allows."""

from __future__ import annotations

import json
import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def pinned(name: str) -> dict[str, list[Version]]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found: dict[str, list[Version]] = {}
    for project, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE):
        found.setdefault(project.lower().replace("_", "-"), []).append(Version(version))
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_file_hashes_everything_and_names_no_host(lock: Path) -> None:
    text = lock.read_text()
    blocks = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert "--index" not in text


def test_npm_lock_files_name_no_host() -> None:
    for folder in ("", "requirements/browser", "scripts/sso"):
        file = ROOT / folder / "package-lock.json"
        packages = json.loads(file.read_text())["packages"]
        assert not [name for name, entry in packages.items() if "://" in entry.get("resolved", "")]
        assert all(
            "integrity" in entry
            for name, entry in packages.items()
            if "node_modules/" in name and not entry.get("link")
        )


def test_the_two_generations_of_jupyterhub_are_locked() -> None:
    assert [str(version)[:2] for version in pinned("demo")["jupyterhub"]] == ["6."]
    assert [str(version)[:3] for version in pinned("hub5")["jupyterhub"]] == ["5.5"]


def test_the_tests_lock_is_the_demos_and_more() -> None:
    test = pinned("test")
    for name in ("demo", "sso"):
        there = pinned(name)
        assert {name: test.get(name) for name in there} == there


def test_the_demos_hub_with_a_sign_in_service_has_all_that_its_packages_ask_for() -> None:
    there = {canonicalize_name(name) for lock in ("demo", "sso") for name in pinned(lock)}
    asked = [Requirement(text) for name in pinned("sso") for text in requires(name) or ()]
    needed = {canonicalize_name(one.name) for one in asked if not one.marker or one.marker.evaluate({"extra": ""})}
    assert needed | {"cryptography"} <= there


def test_what_the_package_asks_for_is_what_is_locked() -> None:
    asked = re.findall(r'^    "([A-Za-z].*?)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    requirements = [Requirement(text) for text in asked if re.match(r"[\w-]+(\[\w+\])?[<>=]", text)]
    locked = pinned("test")
    wrong = [
        str(one)
        for one in requirements
        if not all(one.specifier.contains(v) for v in locked.get(one.name.lower().replace("_", "-"), [Version("0")]))
    ]
    assert len(requirements) > 10
    assert not wrong
