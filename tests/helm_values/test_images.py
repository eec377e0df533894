"""The images' build files: pinned, for no root, from no address; and their steps of pip, run.

The base images cannot be had here, so no image is built: the text is checked, and what pip does in them is done in a
fresh virtual environment instead.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

import hub_extensions
from tests.patience import patient

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
NAMES = ("hub", "singleuser")
PLACE = "/tmp/jupyterhub-gpu"


def steps(name: str) -> list[tuple[str, str]]:
    """(instruction, words) of a Dockerfile, in its order."""
    text = (IMAGES / name / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def of(name: str, instruction: str) -> list[str]:
    return [words for one, words in steps(name) if one == instruction]


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_made_from_one_version(name: str):
    (base,) = of(name, "FROM")
    if base == "${BASE}":
        (base,) = [words.removeprefix("BASE=") for words in of(name, "ARG") if words.startswith("BASE=")]
    assert re.fullmatch(r"[\w.-]+\.\w+/[\w./-]+:\d[\w.-]*", base)
    assert not base.endswith(":latest")


def test_the_hubs_image_is_that_of_the_chart():
    said = yaml.safe_load((ROOT / "helm-values" / "own-images.yaml").read_text(encoding="utf-8"))["hub"]["image"]["tag"]
    chart = of("hub", "FROM")[0].rpartition(":")[2]
    assert said == f"{hub_extensions.__version__}-{chart}"
    begun = yaml.safe_load((ROOT / "helm-values" / "install-at-start.yaml").read_text(encoding="utf-8"))
    assert begun["hub"]["initContainers"][0]["image"] == of("hub", "FROM")[0]


def test_the_hubs_lock_replaces_nothing_that_the_charts_image_has():
    there, locked = (versions(IMAGES / "hub" / file) for file in ("chart-image.txt", "requirements.txt"))
    assert len(there) > 80
    replaced = {
        name: (there[name], locked[name]) for name in locked.keys() & there.keys() if there[name] != locked[name]
    }
    assert replaced == {}
    assert of("hub", "FROM")[0] in (IMAGES / "hub" / "chart-image.txt").read_text(encoding="utf-8").splitlines()[0]


def versions(file: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


@pytest.mark.parametrize("name", NAMES)
def test_an_image_ends_as_a_user_that_is_a_number_and_no_root(name: str):
    last = of(name, "USER")[-1]
    if last == "${NB_UID}":
        (last,) = [words.removeprefix("NB_UID=") for words in of(name, "ARG") if words.startswith("NB_UID=")]
    assert int(last.split(":")[0]) >= 1000
    assert steps(name)[-1][0] == "USER"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_comes_from_an_address(name: str):
    assert {one for one, _ in steps(name)} <= {"FROM", "ARG", "USER", "COPY", "RUN"}
    assert not [words for words in of(name, "RUN") if re.search(r"://|curl|wget|apt|git ", words)]


@pytest.mark.parametrize("name", NAMES)
def test_every_package_is_locked_and_hashed(name: str):
    installs = [words for words in of(name, "RUN") if "pip install" in words]
    assert all("--no-deps" in words and ("--require-hashes" in words or "--no-index" in words) for words in installs)
    text = (IMAGES / name / "requirements.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert "--index" not in text


def test_the_hubs_lock_has_what_the_chart_has():
    text = (IMAGES / "hub" / "requirements.txt").read_text(encoding="utf-8")
    for pinned in ("jupyterhub==5.5.0", "jupyterhub-kubespawner==7.0.0", "sqlalchemy==2.0.50"):
        assert f"\n{pinned} " in text


# ------------------------------------------------------------------ what pip does


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this tree, with a panel that counts as built."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("hub_extensions", "jupyter-config", "labextension"):
        left_out = shutil.ignore_patterns("__pycache__", "node_modules", "lib")
        shutil.copytree(ROOT / name, tree / name, ignore=left_out)
    for name in ("setup.py", "pyproject.toml", "package.json", "LICENSE", "MANIFEST.in"):
        shutil.copy2(ROOT / name, tree)
    panel = tree / "hub_extensions" / "labextension"
    shutil.rmtree(panel, ignore_errors=True)
    panel.mkdir()
    (panel / "package.json").write_text('{"name": "jupyterhub-gpu"}\n')
    words = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tree / "made"), str(tree)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=patient(200))
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = (tree / "made").glob("*.whl")
    assert zipfile.is_zipfile(made)
    return made


def outside() -> dict[str, str]:
    """The environment of a build step; pip leaves out bytecode, which nothing here reads and takes most of a minute."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PIP_COMPILE": "0"}


def as_here(words: str, python: Path, place: Path) -> str:
    """A step of a Dockerfile for this machine: its own Python, and a folder instead of the image's."""
    return words.replace("python3 ", f"{shlex.quote(str(python))} ").replace(PLACE, shlex.quote(str(place)))


def lend_jupyter_server(environment: Path) -> None:
    """What a Jupyter image brings itself: the packages of this Python, behind the environment's own."""
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_the_steps_of_a_build_go_through_in_an_empty_environment(name: str, wheel: Path, tmp_path: Path):
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True, timeout=patient(100))
    place = tmp_path / "place"
    place.mkdir()
    for source in [words.split()[0] for words in of(name, "COPY")]:
        shutil.copy2(wheel if source == "dist/*.whl" else IMAGES / source, place)
    for words in of(name, "RUN"):
        if "jupyter_server" in words:
            lend_jupyter_server(tmp_path / "environment")
        done = subprocess.run(
            ["sh", "-ec", as_here(words, python, place)],
            capture_output=True,
            text=True,
            timeout=patient(280),
            cwd=tmp_path,
            env=outside(),
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    assert not place.exists()


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.timeout(600)
def test_the_init_container_installs_beside_the_hub_and_keeps_to_the_versions_that_the_hub_has(
    wheel: Path, tmp_path: Path
):
    """``install-at-start.yaml``: what Python finds by PYTHONPATH comes first, so it has to be the image's versions."""
    hub = yaml.safe_load((ROOT / "helm-values" / "install-at-start.yaml").read_text(encoding="utf-8"))["hub"]
    (container,) = hub["initContainers"]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "hub"], check=True, timeout=patient(100))
    python = tmp_path / "hub" / "bin" / "python"
    older = [str(python), "-m", "pip", "install", "-q", "--only-binary", ":all:", "--no-deps", "click==8.1.8"]
    subprocess.run(older, check=True, timeout=patient(100), env=outside())
    target, there = tmp_path / "target", tmp_path / "there.txt"
    script = container["args"][0].replace("python3 ", f"{python} ").replace("/tmp/there.txt", str(there))
    script = script.replace(hub["extraEnv"]["PYTHONPATH"], str(target))
    env = outside() | {"WHEEL": wheel.as_uri()}
    done = subprocess.run(
        [*container["command"], script], env=env, capture_output=True, text=True, timeout=patient(280), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    asked = "import click, hub_extensions.spawner.kube, hub_extensions.hub_service.serve as s; from importlib.metadata"
    asked += " import version, entry_points; print(version('click'), s.__file__,"
    asked += " entry_points(group='jupyterhub.spawners')['gpu'].value)"
    said = subprocess.run(
        [python, "-c", asked],
        env={**env, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        timeout=patient(100),
        cwd=tmp_path,
    )
    version, file, spawner = said.stdout.split()
    assert (version, spawner) == ("8.1.8", "hub_extensions.spawner.kube:GpuKubeSpawner")
    assert Path(file).is_relative_to(target)


def test_the_init_container_passes_pod_security_restricted():
    hub = yaml.safe_load((ROOT / "helm-values" / "install-at-start.yaml").read_text(encoding="utf-8"))["hub"]
    context = hub["initContainers"][0]["securityContext"]
    assert context["runAsNonRoot"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert hub["extraVolumeMounts"][0]["mountPath"] == hub["extraEnv"]["PYTHONPATH"]
