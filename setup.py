"""What is packed: the Python package, the prebuilt panel for JupyterLab, the file that enables the server extension.

The panel is built with npm into ``hub_extensions/labextension`` unless it is there already, so an sdist, which carries
it, installs without Node. The version is the one of ``package.json``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from setuptools import Command, find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
NAME = "jupyterhub-gpu"
VERSION = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["version"]
PANEL = Path("hub_extensions/labextension")
SWITCH = Path("jupyter-config/jupyter_server_config.d/hub_extensions.json")

SERVER = [
    "jupyter_server>=2.14,<3",
    "nvidia-ml-py>=12.535",
    # these come with Jupyter Server
    "prometheus_client>=0.20",
    "PyYAML>=6",
    "tornado>=6.4",
    "traitlets>=5.14",
]
HUB = [
    "jupyterhub>=5.3,<7",
    "pydantic>=2.7,<3",
    "SQLAlchemy>=2.0.30,<3",
    "alembic>=1.13,<2",
    "prometheus_client>=0.20",
    "Jinja2>=3.1",
    "click>=8.1",
    "rich>=13",
    "PyYAML>=6",
    "jsonschema>=4.18,<5",
    "tornado>=6.4",
    "traitlets>=5.14",
    "nvidia-ml-py>=12.535",
    "numpy>=1.26,<3",
]
KUBERNETES = [
    "jupyterhub-kubespawner>=7.0,<8",
    "kubernetes>=36,<38",
    # these come with those two
    "kubernetes_asyncio>=34",
    "aiohttp>=3.9,<4",
    "python-slugify>=8",
]
SIGN_ON = [
    "oauthenticator>=17.4,<18",
    "PyJWT[crypto]>=2.10,<3",
    "cryptography>=42",
]
HELM = ["helm-python-sdk>=0.2.2,<0.3"]
TEST = [
    "jupyterlab>=4.6,<5",
    "jupyterhub-fancy-profiles>=0.7,<0.8",
    "psycopg[binary]>=3.2.4",
    "pytest>=8.3",
    "pytest-asyncio>=1.0",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "schemathesis>=4.0,<5",
    "playwright>=1.49",
    "Babel>=2.14",
    "packaging>=24",
    "requests>=2.31",
    "ruff",
    "mypy",
    "import-linter",
    "types-PyYAML",
]


class Panel(Command):
    """``python setup.py panel``: builds the JupyterLab panel, where it is not built yet."""

    description = "build the JupyterLab panel into hub_extensions/labextension"
    user_options: list[tuple[str, str | None, str]] = []

    def initialize_options(self) -> None:
        """Nothing to choose."""

    def finalize_options(self) -> None:
        """Nothing to choose."""

    def run(self) -> None:
        """Build with npm; a machine without npm is told where a built panel comes from."""
        if (ROOT / PANEL / "package.json").exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise SetupError(
                "The panel for JupyterLab is not built and there is no npm to build it with. "
                "Install Node 20.19 or newer, or install jupyterhub-gpu from its sdist or wheel, which carry the panel."
            )
        if not (ROOT / "node_modules").exists():
            subprocess.check_call([npm, "ci", "--ignore-scripts"], cwd=ROOT)
        subprocess.check_call([npm, "run", "build"], cwd=ROOT)


def data_files() -> list[tuple[str, list[str]]]:
    """Where the panel's files and the switch of the server extension go below ``sys.prefix``."""
    home = Path("share/jupyter/labextensions") / NAME
    files: dict[str, list[str]] = {
        "etc/jupyter/jupyter_server_config.d": [SWITCH.as_posix()],
        home.as_posix(): ["labextension/install.json"],
    }
    for built in sorted((ROOT / PANEL).rglob("*")):
        if built.is_file():
            below = built.relative_to(ROOT / PANEL).parent
            files.setdefault((home / below).as_posix(), []).append(built.relative_to(ROOT).as_posix())
    return sorted(files.items())


class BuildWithPanel(build_py):
    """Builds the panel first, and only then lists its files."""

    def run(self) -> None:
        """Build the panel, then the Python package."""
        self.run_command("panel")
        self.distribution.data_files = data_files()
        super().run()


class SourcesWithPanel(sdist):
    """An sdist that installs without Node: the built panel is inside."""

    def run(self) -> None:
        """Build the panel, then pack the sources."""
        self.run_command("panel")
        self.distribution.data_files = data_files()
        super().run()


def long_description() -> str:
    """The README, where there is one (an unfinished tree may lack it)."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


setup(
    name=NAME,
    version=VERSION,
    description="GPUs for JupyterHub: offers, a line that is kept, live use, fair culling",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="JupyterHub GPU contributors",
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    keywords=["jupyter", "jupyterhub", "jupyterlab", "gpu", "mig", "kubernetes", "queue", "single sign-on"],
    python_requires=">=3.10",
    packages=find_packages(include=["hub_extensions", "hub_extensions.*"], exclude=["hub_extensions.labextension*"]),
    package_data={
        "hub_extensions": [
            "py.typed",
            "**/*.yaml",
            "**/*.json",
            "**/*.ipynb",
            "**/*.html",
            "**/*.css",
            "**/*.js",
            "**/*.svg",
            "**/*.j2",
            "**/*.ipynb",
        ],
        "hub_extensions.adapters.store": ["**/*.mako", "**/*.ini", "**/*.py"],
    },
    exclude_package_data={"hub_extensions": ["labextension/*", "labextension/**/*"]},
    data_files=data_files(),
    install_requires=[],
    extras_require={
        "hub": HUB,
        "server": SERVER,
        "kubernetes": KUBERNETES,
        "helm": HELM,
        "sign-on": SIGN_ON,
        "test": [*HUB, *SERVER, *KUBERNETES, *SIGN_ON, *TEST],
    },
    entry_points={
        "console_scripts": ["jupyterhub-gpu = hub_extensions.tools.cli:main"],
        "jupyterhub.spawners": [
            "gpu = hub_extensions.spawner.kube:GpuKubeSpawner",
            "gpu-local = hub_extensions.spawner.local:GpuLocalSpawner",
            "gpu-demo = hub_extensions.spawner.local:GpuDemoSpawner",
        ],
        "jupyterhub.authenticators": [
            "single-sign-on = hub_extensions.authenticator.openid.authenticator:SingleSignOnOIDCAuthenticator",
        ],
        "jupyterlab.locale": ["jupyterhub_gpu = hub_extensions"],
    },
    cmdclass={"panel": Panel, "build_py": BuildWithPanel, "sdist": SourcesWithPanel},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: GPU :: NVIDIA CUDA",
        "Framework :: Jupyter",
        "Framework :: Jupyter :: JupyterLab",
        "Framework :: Jupyter :: JupyterLab :: 4",
        "Framework :: Jupyter :: JupyterLab :: Extensions",
        "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Intended Audience :: System Administrators",
        "Natural Language :: English",
        "Natural Language :: Finnish",
        "Natural Language :: Japanese",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: System :: Clustering",
        "Typing :: Typed",
    ],
    zip_safe=False,
)
