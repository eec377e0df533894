"""What a release consists of: two equal builds, the files beside the code, and workflows without secrets."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import hub_extensions
from tests.hubs import ROOT
from tests.patience import patient

PINNED = re.compile(r"^[\w./-]+@[0-9a-f]{40}$")


def test_the_workflows_run_our_commands_with_pinned_actions_and_no_secret() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    texts = [file.read_text() for file in files]
    jobs = [job for text in texts for job in yaml.safe_load(text)["jobs"].values()]
    steps = [step for job in jobs for step in job["steps"]]
    assert all(PINNED.match(step["uses"]) for step in steps if "uses" in step)
    commands = " ".join(step.get("run", "") for step in steps)
    assert all(command in commands for command in ("./scripts/test", "./.ci/run", "./scripts/release"))
    assert not any("secrets." in text or "write" in text for text in texts)


def test_every_issue_form_asks_for_what_doctor_says() -> None:
    forms = [file for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml"]
    assert len(forms) == 2
    for form in forms:
        asked = [field["attributes"] for field in yaml.safe_load(form.read_text())["body"]]
        assert any("doctor" in f"{field['label']} {field.get('description')}" for field in asked), form.name
        assert "doctor --json" in form.read_text() or "--json" in form.read_text()


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == hub_extensions.__version__
    assert citation["license"] == "BSD-3-Clause"


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.needs("own-set-up")
@pytest.mark.timeout(900)
def test_two_builds_are_equal_and_complete(tmp_path: Path) -> None:
    """Wheel, sdist, the contexts of both images, and a list of components that names what they bring."""
    words = [ROOT / "scripts" / "release", "--build-only", "--dir", tmp_path]
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=patient(190))
    assert done.returncode == 0, done.stdout + done.stderr
    version = hub_extensions.__version__
    contexts = [f"jupyterhub-gpu-{image}-{version}.context.tar.gz" for image in ("hub", "singleuser")]
    wheel, sdist, bom = (f"jupyterhub_gpu-{version}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json"))
    small = f"jupyterhub_gpu_progress-{version}-py3-none-any.whl"
    for name in (*contexts, wheel, small, sdist, bom):
        assert re.search(rf"equal +[\d.]+ kB  {re.escape(name)}$", done.stdout, re.MULTILINE), done.stdout
    assert {file.name for file in tmp_path.iterdir()} == {*contexts, wheel, small, sdist, bom, "SHA256SUMS"}
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"jupyterhub_gpu-{version}.dist-info/METADATA").decode())
        names = archive.namelist()
    assert "BSD-3-Clause" in (metadata["License-Expression"], metadata["License"])  # by the version of setuptools
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)} <= set(
        metadata.get_all("Classifier")
    )
    assert "hub_extensions/py.typed" in names
    for image, context in zip(("hub", "singleuser"), contexts, strict=True):
        with tarfile.open(tmp_path / context) as archive:
            inside = archive.getnames()
        assert {f"{image}/Dockerfile", f"{image}/requirements.txt", f"dist/{wheel}"} <= set(inside)
    components = {
        each.get("purl", each["name"]): each for each in json.loads((tmp_path / bom).read_text())["components"]
    }
    assert {wheel, sdist, *contexts} <= set(components)
    locked = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "images/hub/requirements.txt").read_text(), re.MULTILINE)
    assert {f"pkg:pypi/{name.lower()}@{number}" for name, number in locked} <= set(components)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
