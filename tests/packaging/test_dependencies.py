"""What is imported is declared, and what is declared is imported: for each extra of the package, and for the tests.

Read from the text, so that an import inside a function counts as well. The same requirement has the same words wherever
it stands. Not here: the lock files (``test_locks.py``).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OURS = "hub_extensions"

SERVER = ("server_extension/",)
HELM = ("tools/helm_check/helm.py",)
SIGN_ON = (
    "adapters/provider/assertions.py",
    "adapters/provider/forged_assertions.py",
    "adapters/provider/oidc.py",
    "adapters/hub/sealed_token.py",
    "authenticator/openid/",
)
KUBERNETES = ("adapters/kubernetes/", "spawner/kube.py", "spawner/pods/", "spawner/pages/profiles.py")
PROGRESS = ("progress/",)
"""Where an extra's own libraries are imported, below the package. Everything else is the hub's."""

DISTRIBUTIONS = {
    "_pytest": "pytest",
    "helm_python": "helm-python-sdk",
    "jwt": "pyjwt",
    "kubespawner": "jupyterhub-kubespawner",
    "pynvml": "nvidia-ml-py",
    "slugify": "python-slugify",
    "xdist": "pytest-xdist",
    "yaml": "pyyaml",
}
"""What brings a module, where it has another name."""

RUN_AND_NOT_IMPORTED = {
    "import-linter",
    "jupyterlab",
    "mypy",
    "pytest-asyncio",
    "pytest-timeout",
    "ruff",
    "types-pyyaml",
}
ONLY_WHERE_A_CARD_IS = {"torch"}
STAND_INS = {"fastai", "keras", "lightning", "tqdm", "transformers"}
"""Tests use those of ``tests/progress/libraries``."""
OF_JUPYTERLAB = {"ipython"}  # JupyterLab requires ipykernel, and that IPython
OF_ONE_GENERATION = {"jupyterhub", "jupyterhub-kubespawner", "kubernetes-asyncio", "sqlalchemy"}
"""A lock has these of one generation of JupyterHub, or as the chart's image has them."""


def declared(extra: str) -> dict[str, str]:
    """The requirements of one of ``setup.py``'s lists by their names."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [extra]:
            return by_name(ast.literal_eval(node.value))
    raise LookupError(extra)


def by_name(requirements: Iterable[str]) -> dict[str, str]:
    return {canonicalize_name(Requirement(one).name): one for one in requirements}


def listed(file: Path) -> dict[str, str]:
    """The requirements of an ``*.in`` file and of those that it takes in."""
    found: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            found |= listed(file.parent / line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            found |= by_name([line])
    return found


def modules_of(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(module, the names that are taken from it) of every import in a program."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                yield from ((alias.name, ()) for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module, tuple(alias.name for alias in node.names)
            case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module")):
                if isinstance(named := node.args[0], ast.Constant):
                    yield str(named.value), ()


def imported(files: Iterable[Path]) -> set[str]:
    """The distributions that these files import."""
    names = {module.split(".")[0] for file in files for module, _ in modules_of(file.read_text(encoding="utf-8"))}
    names -= {*sys.stdlib_module_names, OURS, "tests", "benchmarks"}
    return {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in names}


def below(*places: str) -> set[Path]:
    """The package's files in these places: a folder ends with a slash."""
    home = ROOT / OURS
    folders = {file for place in places if place.endswith("/") for file in (home / place).rglob("*.py")}
    return folders | {home / place for place in places if not place.endswith("/")}


def reached_from(files: Iterable[Path]) -> set[Path]:
    """These files, and all of ours that they import in turn."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        for module, names in modules_of(file.read_text(encoding="utf-8")):
            if module.startswith(f"{OURS}."):
                parts = (module, *(f"{module}.{name}" for name in names))
                waiting += [one for part in parts if (one := file_of(part)) is not None]
    return found


def file_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def brought_by(name: str) -> set[str]:
    """What comes with a distribution that is installed here, however deep."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for text in requires(waiting.pop()) or ():
            one = Requirement(text)
            known = canonicalize_name(one.name)
            if known not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
                found.add(known)
                waiting.append(known)
    return found


def test_every_place_that_is_named_here_is_there() -> None:
    for place in (*SERVER, *HELM, *KUBERNETES, *SIGN_ON, *PROGRESS):
        assert below(place) and all(file.is_file() for file in below(place)), place


@pytest.mark.slow
def test_a_users_server_is_told_all_it_imports_and_nothing_else() -> None:
    assert imported(reached_from(below(*SERVER))) == set(declared("SERVER"))


def test_a_users_server_installs_one_library_beside_jupyter_server() -> None:
    assert set(declared("SERVER")) - brought_by("jupyter-server") == {"jupyter-server", "nvidia-ml-py"}


def test_a_training_imports_the_library_that_it_uses_and_nothing_else() -> None:
    hooks = {
        "fastai": {"fastai"},
        "keras": {"keras", "tensorflow"},
        "lightning": {"lightning", "pytorch-lightning"},
        "tqdm": {"tqdm"},
        "transformers": {"transformers"},
    }
    assert {file.stem: found for file in below(*PROGRESS) if (found := imported([file]))} == hooks


@pytest.mark.slow
def test_a_hub_is_told_all_it_imports_and_nothing_else() -> None:
    hubs = set((ROOT / OURS).rglob("*.py")) - below(*SERVER, *HELM, *KUBERNETES, *SIGN_ON, *PROGRESS)
    assert imported(hubs) == set(declared("HUB"))


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "places"), [("KUBERNETES", KUBERNETES), ("HELM", HELM), ("SIGN_ON", SIGN_ON)])
def test_what_only_some_hubs_import_is_an_extra_of_its_own(extra: str, places: tuple[str, ...]) -> None:
    assert imported(below(*places)) - set(declared("HUB")) == set(declared(extra))


@pytest.mark.slow
def test_the_tests_are_told_all_they_import_and_nothing_else() -> None:
    tests = imported(file for place in ("tests", "benchmarks") for file in (ROOT / place).rglob("*.py"))
    packages = {name for extra in ("HUB", "SERVER", "KUBERNETES", "HELM", "SIGN_ON") for name in declared(extra)}
    elsewhere = ONLY_WHERE_A_CARD_IS | STAND_INS | OF_JUPYTERLAB
    assert tests - packages - elsewhere == set(declared("TEST")) - RUN_AND_NOT_IMPORTED


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("requirements/runtime.in", ("SERVER",)),
        ("requirements/demo.in", ("HUB", "SERVER")),
        ("requirements/test.in", ("HUB", "SERVER", "KUBERNETES", "SIGN_ON", "TEST")),
        ("requirements/hub5.in", ("HUB", "SERVER", "KUBERNETES", "SIGN_ON")),
        ("images/hub/requirements.in", ("HUB", "KUBERNETES", "SIGN_ON")),
    ],
)
def test_what_is_locked_is_what_the_package_asks_for(file: str, extras: tuple[str, ...]) -> None:
    asked = {name: words for extra in extras for name, words in declared(extra).items()}
    locked = listed(ROOT / file)
    assert not asked.keys() - locked.keys()
    assert {name: locked[name] for name in asked.keys() - OF_ONE_GENERATION} == {
        name: words for name, words in asked.items() if name not in OF_ONE_GENERATION
    }


def test_an_image_of_a_server_installs_what_no_jupyter_image_has() -> None:
    missing = declared("SERVER").keys() - brought_by("jupyter-server") - {"jupyter-server"}
    assert listed(ROOT / "images/singleuser/requirements.in") == {name: declared("SERVER")[name] for name in missing}
