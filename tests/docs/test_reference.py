"""The docs are complete: every setting, route and command is there, links lead somewhere, words are the agreed ones."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hub_extensions.hub_service.http.openapi import document as openapi_document
from hub_extensions.spawner.base import GpuSpawnerMixin
from hub_extensions.spawner.config.traits import SECTIONS
from hub_extensions.spawner.kube import GpuKubeSpawner
from hub_extensions.tools.cli import main
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.programs
def test_the_reference_is_what_the_code_says() -> None:
    script = ROOT / "scripts" / "generate-reference.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_has_its_row() -> None:
    text = (DOCS / "reference" / "configuration.md").read_text()
    for section in (*SECTIONS, GpuSpawnerMixin, GpuKubeSpawner):
        part = text.split(f"## c.{section.__name__}\n")[1].split("\n## ")[0]
        own = [name for name in vars(section) if name in section.class_traits(config=True)]
        assert own
        for name in own:
            assert f"| `{name}` |" in part, f"c.{section.__name__}.{name}"


def test_every_route_has_its_row() -> None:
    text = (DOCS / "reference" / "routes.md").read_text()
    document = openapi_document()
    assert document["paths"]
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"| `{method.upper()} {path}` |" in text


def all_commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name, those of groups too."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def test_every_command_has_its_section() -> None:
    text = (DOCS / "reference" / "command-line.md").read_text()
    for name, command in all_commands(main):
        part = text.split(f"## jupyterhub-gpu {name}\n")[1].split("\n## ")[0]
        for option in (option for parameter in command.params for option in parameter.opts):
            assert option in part, f"{name} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    lost = [target for target in targets if not (page.parent / target).exists()]
    assert lost == []


@pytest.mark.parametrize(
    "page", [DOCS / "student.md", DOCS / "student-more.md", ROOT / "README.md"], ids=lambda page: page.name
)
def test_texts_for_users_use_the_agreed_words(page: Path) -> None:
    text = page.read_text().lower()
    found = re.findall(r"\b(queue\w*|culled|culls|allocatable|vgpu|reap\w*|please|workspace|eta)\b|!(?!\[)", text)
    assert found == []


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page.name != "index.md"]
    assert [page for page in pages if page not in index] == []


def test_every_bug_of_others_can_be_sent_as_an_issue() -> None:
    sections = (DOCS / "upstream.md").read_text().split("\n## ")[1:]
    assert len(sections) > 5
    parts = ("Versions", "Steps", "Expected", "Seen", "Proposed change", "Our workaround")
    for section in sections:
        assert [name for name in parts if f"**{name}" not in section] == [], section.splitlines()[0]


def test_the_readme_says_what_the_demo_is_not_for() -> None:
    text = (ROOT / "README.md").read_text()
    assert "One Unix account for all demo users: for trying, not for use" in text
    assert "simulated GPU" in text
    assert "Lost:" in text
    assert "Kept:" in text
