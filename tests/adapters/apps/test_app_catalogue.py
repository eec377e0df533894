"""The catalogue of apps: what is read, and of what is wrong the app, the key, and what would be right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.apps.app_catalogue import CatalogueError, WatchedCatalogue, checked_catalogue
from hub_extensions.core.sign_on.apps import App, AppCatalogue, AppProblem, check_catalogue

EXAMPLE = Path(__file__).parents[3] / "docs" / "howto" / "apps.yaml"
LEAST = {"where": "https://apps.example.org/mlflow", "upstream": "http://10.0.0.7:5000"}
LEAST_AS_TEXT = "mlflow:\n  where: https://apps.example.org/mlflow\n  upstream: http://10.0.0.7:5000\n"


def apps_of(source: Any) -> AppCatalogue:
    """The apps, whether they fit together or not."""
    return checked_catalogue(source, lambda apps: ())[0]


def refused(source: Any) -> str:
    with pytest.raises(CatalogueError) as caught:
        apps_of(source)
    return str(caught.value).partition(": ")[2]


def test_a_dict_and_a_file_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "apps.yaml"
    file.write_text(
        "mlflow:\n"
        "  title: MLflow  # for people\n"
        "  where: https://apps.example.org/mlflow/\n"
        "  upstream: http://10.0.0.7:5000\n"
        "  mode: none\n"
        "  groups: [ml, no]\n"
        "  header_family: null\n"
        "  relay: true\n"
        "  servers: false\n"
    )
    written = {**LEAST, "title": "MLflow", "mode": "none", "groups": ["ml", "no"], "header_family": None, "relay": True}
    app = App(
        "mlflow",
        "MLflow",
        "https://apps.example.org/mlflow/",
        "http://10.0.0.7:5000",
        mode="none",
        groups=("ml", "no"),
        header_family=None,
        relay=True,
    )
    assert apps_of(str(file)) == apps_of({"mlflow": written}) == (app,)


def test_an_app_without_a_title_is_called_by_its_name() -> None:
    assert apps_of({"mlflow": LEAST})[0].title == "mlflow"


@pytest.mark.parametrize("nothing", [{}, ""])
def test_a_catalogue_without_apps_is_one(nothing: Any, tmp_path: Path) -> None:
    (tmp_path / "apps.yaml").write_text("# none yet\n")
    assert apps_of(nothing or str(tmp_path / "apps.yaml")) == ()


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ({**LEAST, "upsteam": "x"}, "app 'mlflow', upsteam: it is not known here; did you mean upstream?"),
        ({"where": LEAST["where"]}, "app 'mlflow', upstream: it is missing"),
        ({**LEAST, "public": "/static/"}, "app 'mlflow', public: it has to be a list"),
        ({**LEAST, "groups": "ml"}, "app 'mlflow', groups: it has to be a list"),
        ({**LEAST, "groups": [1]}, "app 'mlflow', groups: it has to be a text"),
        ({**LEAST, "relay": "perhaps"}, "app 'mlflow', relay: it has to be true or false"),
        ({**LEAST, "mode": "headers"}, "app 'mlflow', mode: it has to be 'header', 'jwt', 'oidc' or 'none'"),
        ({**LEAST, "header_family": "X"}, "app 'mlflow', header_family: it has to be 'X-Auth-Request'"),
        ({**LEAST, "title": "x" * 81}, "app 'mlflow', title: it cannot be used"),
        ("http://10.0.0.7", "app 'mlflow': it has to have keys"),
    ],
)
def test_a_wrong_app_is_a_sentence_with_its_name(app: Any, said: str) -> None:
    assert refused({"mlflow": app}).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LEAST_AS_TEXT + LEAST_AS_TEXT, "line 4, mlflow: it stands twice"),
        (LEAST_AS_TEXT + "  group: [a]\n", "line 4, app 'mlflow', group: it is not known here; did you mean groups?"),
        ("a: &x {}\nb: *x\n", "line 1, the file: anchors (&)"),
        ("!!python/object/apply:os.system [x]\n", "it has to hold names of apps"),
        ("- mlflow\n", "it has to hold names of apps"),
        ("a: [\n", "it is not YAML"),
        ("#" * 300_000, "the file: it has more than 256 KiB"),
        ("".join(f"a{number}: 1\n" for number in range(501)), "it has more than 500 apps"),
    ],
)
def test_a_wrong_file_is_a_sentence_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "apps.yaml").write_text(text)
    assert said in refused(str(tmp_path / "apps.yaml"))


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    assert "it cannot be read (No such file" in refused(str(tmp_path / "apps.yaml"))


def test_a_running_gate_keeps_the_last_good_apps(tmp_path: Path) -> None:
    file = tmp_path / "apps.yaml"

    def write(text: str) -> None:
        """Another file in its place, as an editor and a ConfigMap do."""
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", file)

    def check(apps: tuple[App, ...]) -> list[AppProblem]:
        return [AppProblem(each.name, "where", "it is the hub's") for each in apps if each.name == "hub"]

    write(LEAST_AS_TEXT)
    watched = WatchedCatalogue(str(file), check)
    assert [each.name for each in watched.apps] == ["mlflow"] and not watched.refresh()
    write(LEAST_AS_TEXT + "  upsteam: x\n")
    assert not watched.refresh() and "did you mean upstream?" in watched.problem
    write(LEAST_AS_TEXT.replace("mlflow:", "hub:"))
    assert not watched.refresh() and "line 2, app 'hub', where: it is the hub's" in watched.problem
    assert [each.name for each in watched.apps] == ["mlflow"]
    file.unlink()
    assert not watched.refresh() and "cannot be read" in watched.problem and watched.apps
    write(LEAST_AS_TEXT.replace("mlflow:", "board:"))
    assert watched.refresh() and [each.name for each in watched.apps] == ["board"] and not watched.problem


def test_a_gate_does_not_begin_with_apps_that_cannot_be() -> None:
    with pytest.raises(CatalogueError, match="app 'mlflow', where: wrong"):
        WatchedCatalogue({"mlflow": LEAST}, lambda apps: [AppProblem("mlflow", "where", "wrong")])


def test_the_catalogue_of_the_documentation_is_a_good_one() -> None:
    apps = apps_of(str(EXAMPLE))
    groups = {group for app in apps for group in app.groups}
    assert len(apps) == 9
    found = check_catalogue(apps, "https://hub.example.org/hub/", "https://apps.example.net", groups)
    assert all(each.is_warning and "each program of the machine" in each.text for each in found)
