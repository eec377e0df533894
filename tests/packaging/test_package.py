"""What is packed: one version number, the panel and the server extension in the wheel, and nothing that needs Node."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import hub_extensions
from tests.machine_needs import built_panel
from tests.patience import patient

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]
TREE = (
    "hub_extensions",
    "jupyter-config",
    "labextension",
    "setup.py",
    "pyproject.toml",
    "package.json",
    "LICENSE",
    "MANIFEST.in",
)
MOST_BYTES_OF_SCRIPT = 27_000  # all of it at once, on a slow line: a second at 200 kbit/s
DATA = "jupyterhub_gpu-{version}.data/data/"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packed, with a panel that counts as built."""
    copy = tmp_path_factory.mktemp("tree")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "node_modules", "lib")
            shutil.copytree(source, copy / name, ignore=left_out)
        else:
            shutil.copy2(source, copy / name)
    shutil.rmtree(copy / "hub_extensions" / "labextension", ignore_errors=True)
    panel = copy / "hub_extensions" / "labextension" / "static"
    panel.mkdir(parents=True)
    (panel / "remoteEntry.js").write_text("// the panel\n")
    (panel.parent / "package.json").write_text('{"name": "jupyterhub-gpu"}\n')
    (panel.parent / "schemas" / "jupyterhub-gpu").mkdir(parents=True)
    shutil.copy2(ROOT / "labextension" / "schema" / "panel.json", panel.parent / "schemas" / "jupyterhub-gpu")
    return copy


def without_node() -> dict[str, str]:
    return {**os.environ, "PATH": "/nowhere", "PIP_NO_INDEX": "1"}


def pack(tree: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=without_node(), capture_output=True, timeout=patient(200)
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    pack(tree, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "made", ".")
    return next((tree / "made").glob("*.whl"))


def test_there_is_one_version_number() -> None:
    root = json.loads((ROOT / "package.json").read_text())
    panel = json.loads((ROOT / "labextension" / "package.json").read_text())
    assert root["version"] == hub_extensions.__version__ == panel["version"]


@pytest.mark.whole
def test_the_wheel_brings_the_panel_and_switches_the_server_extension_on(wheel: Path) -> None:
    data = DATA.format(version=hub_extensions.__version__)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        switch = json.loads(archive.read(data + "etc/jupyter/jupyter_server_config.d/hub_extensions.json"))
    panel = data + "share/jupyter/labextensions/jupyterhub-gpu/"
    built = ("package.json", "install.json", "static/remoteEntry.js", "schemas/jupyterhub-gpu/panel.json")
    assert {panel + name for name in built} <= names
    assert switch == {"ServerApp": {"jpserver_extensions": {"hub_extensions.server_extension": True}}}


def test_the_wheel_holds_every_file_the_program_reads(wheel: Path) -> None:
    read = {".yaml", ".html", ".css", ".js", ".json", ".svg", ".mako", ".py", ".ipynb"}
    tracked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "hub_extensions").rglob("*")
        if path.suffix in read and "labextension" not in path.parts and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        missing = tracked - set(archive.namelist())
    assert not missing
    assert len(tracked) > 20


def test_the_wheel_names_our_spawners_and_our_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        text = archive.read(name).decode()
    assert "gpu-local = hub_extensions.spawner.local:GpuLocalSpawner" in text
    assert "gpu-demo = hub_extensions.spawner.local:GpuDemoSpawner" in text
    assert "jupyterhub-gpu = hub_extensions.tools.cli:main" in text


def test_jupyterlab_finds_the_catalogues_of_the_panel(wheel: Path) -> None:
    """It looks for ``locale`` beside the module that the entry point names."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        points = archive.read(name).decode()
        names = set(archive.namelist())
    assert "[jupyterlab.locale]\njupyterhub_gpu = hub_extensions\n" in points
    for language in ("fi_FI", "ja_JP"):
        for name in ("jupyterhub_gpu", "jupyterhub_gpu_pages"):
            assert f"hub_extensions/locale/{language}/LC_MESSAGES/{name}.json" in names


def test_the_panel_is_small() -> None:
    """All of its script, packed as a web server packs it."""
    static = built_panel() / "static"
    assert static.exists(), "the panel is not built: npm run build"
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in static.glob("*.js")}
    assert sizes
    assert sum(sizes.values()) < MOST_BYTES_OF_SCRIPT, sizes


@pytest.mark.whole
def test_an_sdist_installs_without_node(tree: Path, tmp_path: Path) -> None:
    pack(tree, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "out", filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(
            tmp_path / "out"
        )
    unpacked = next((tmp_path / "out").iterdir())
    pack(
        unpacked, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "made"), "."
    )
    with zipfile.ZipFile(next((tmp_path / "made").glob("*.whl"))) as archive:
        assert any(name.endswith("jupyterhub-gpu/static/remoteEntry.js") for name in archive.namelist())


def test_who_names_no_extra_installs_no_library(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        lines = archive.read(name).decode().splitlines()
    wanted = [line.replace("'", '"') for line in lines if line.startswith("Requires-Dist:")]
    assert any(line.startswith("Requires-Dist: nvidia-ml-py") and 'extra == "server"' in line for line in wanted)
    assert all("extra ==" in line for line in wanted)


@pytest.mark.whole
def test_the_server_extension_imports_no_hub_library() -> None:
    code = (
        "import sys, hub_extensions.server_extension.extension as one;"
        "print(sorted({'jupyterhub', 'pydantic', 'sqlalchemy', 'alembic', 'rich'} & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=True
    )
    assert output.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module",
    [
        "hub_extensions.configuration",
        "hub_extensions.hub_service.serve",
        "hub_extensions.spawner.local",
        "hub_extensions.server_extension.extension",
        "hub_extensions.tools.cli",
    ],
)
@pytest.mark.whole
def test_only_the_worker_of_the_forecast_loads_numpy(module: str) -> None:
    """It takes a hub, the service or a user's server 20 MB and a fifth of a second for nothing."""
    code = f"import sys, {module}; print('numpy' in sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=True
    )
    assert output.stdout.strip() == "False"


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys, hub_extensions; print(sorted(name for name in sys.modules if name.startswith('hub_extensions')))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=True
    )
    assert output.stdout.strip() == "['hub_extensions']"


def test_the_installed_package_is_this_version() -> None:
    try:
        installed = distribution("jupyterhub-gpu").version
    except ModuleNotFoundError:
        installed = hub_extensions.__version__  # run from the tree, without an installation
    assert installed == hub_extensions.__version__
