"""Errors in a catalogue of apps: a sentence with the app's name and the wrong key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hub_extensions.core.sign_on.apps import App, AppProblem, address_of, check_catalogue, is_inside

HUB, GATE, SERVERS = "https://hub.example.org/", "https://apps.example.org", "https://users.example.org:8443"
MLFLOW = App("mlflow", "MLflow", "https://apps.example.org/mlflow/", "http://10.0.0.7:5000", groups=("ml",))
BOARD = App("board", "Board", "https://board.example.net/", "http://board:6006", groups=("ml",))


def found(*apps: App, groups: Any = ("ml", "admins"), offers: Any = ("cpu", "mig-1g.5gb")) -> list[AppProblem]:
    return list(
        check_catalogue(apps, HUB, GATE, groups, offers, hub_inside=("http://127.0.0.1:8081",), subdomain_host=SERVERS)
    )


def test_nothing_is_wrong_with_apps_on_a_path_and_on_a_host_of_their_own() -> None:
    assert found(MLFLOW, BOARD) == []


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        ("name", {"name": "ML flow"}, "small letters"),
        ("name", {"name": "a" * 41}, "small letters"),
        ("name", {"name": "gate"}, "name of the gate"),
        ("name", {"name": "gpu"}, "name of the GPU service"),
        ("icon", {"icon": "https://cdn.example/x.png"}, "another host would see"),
        ("where", {"where": "mlflow"}, "has to be an address"),
        ("where", {"where": "https://apps.example.org/mlflow"}, "slash at its end"),
        ("where", {"where": "https://user@apps.example.org/mlflow/"}, "has to be an address"),
        ("where", {"where": "https://apps.example.org/a/../b/"}, "has to be an address"),
        ("where", {"where": "https://apps.example.org/a;b/"}, "has to be an address"),
        ("where", {"where": "https://apps.example.org:99999/a/"}, "has to be an address"),
        ("where", {"where": "https://HUB.example.org/mlflow/"}, "the hub's host"),
        ("where", {"where": "https://hub.example.org:8443/mlflow/"}, "the hub's host"),
        ("where", {"where": "https://users.example.org/"}, "c.JupyterHub.subdomain_host"),
        ("where", {"where": "https://Board.users.example.org/"}, "c.JupyterHub.subdomain_host"),
        ("where", {"where": "https://apps.example.org/_gate/"}, "the gate's own"),
        ("where", {"where": "https://own.example.org/_gate/check/"}, "the gate's own"),
        ("where", {"where": "https://apps.example.org:443/"}, "hides /_gate"),
        ("where", {"where": "http://apps.example.org/mlflow/"}, "https://"),
        ("upstream", {"upstream": "10.0.0.7:5000"}, "has to be an address"),
        ("upstream", {"upstream": "http://10.0.0.7:5000/api"}, "without a path"),
        ("upstream", {"upstream": "http://127.0.0.1:8081"}, "this is the hub"),
        ("upstream", {"upstream": "https://hub.example.org"}, "this is the hub"),
        ("upstream", {"upstream": "https://apps.example.org"}, "the proxy itself"),
        ("upstream", {"upstream": "http://8.8.8.8:5000"}, "is public"),
        ("upstream", {"upstream": "http://[2001:4860:4860::8888]:5000"}, "is public"),
        ("header_family", {"header_family": None}, "needs one"),
        ("health", {"health": "health"}, "plain path"),
        ("public", {"public": ("/",)}, "the whole app"),
        *(
            ("public", {"public": (path,)}, "plain path")
            for path in ("version", "/a/../b", "//x", "/a;b", "/%61", "/a?b", "/a b", "")
        ),
    ],
)
def test_an_app_that_cannot_be_is_refused_by_name(key: str, change: dict[str, Any], said: str) -> None:
    app = replace(MLFLOW, **change)
    wrong = [each for each in found(app) if not each.is_warning]
    assert [(each.app, each.key) for each in wrong] == [(app.name, key)]
    assert said in str(wrong[0]) and str(wrong[0]).startswith(f"app {app.name!r}, {key}: ")


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        ("groups", {"groups": ("mll",)}, "did you mean 'ml'?"),
        ("groups", {"groups": ()}, "nobody may open"),
        ("offers", {"offers": ("mig-1g.5g",)}, "did you mean 'mig-1g.5gb'?"),
        ("upstream", {"upstream": "http://mlflow.lab.example:5000"}, "nobody but the proxy"),
        ("upstream", {"upstream": "http://127.0.0.1:5000"}, "each program of the machine"),
        ("upstream", {"upstream": "http://[::1]:5000"}, "each program of the machine"),
        ("upstream", {"upstream": "http://localhost:5000"}, "each program of the machine"),
    ],
)
def test_what_is_surely_not_meant_is_a_warning(key: str, change: dict[str, Any], said: str) -> None:
    [doubt] = found(replace(MLFLOW, **change))
    assert (doubt.key, doubt.is_warning) == (key, True) and said in str(doubt)


def test_what_is_not_known_is_not_missed() -> None:
    assert found(replace(MLFLOW, groups=("any",), offers=("any",)), groups=None, offers=None) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"where": "https://other.example.org/"}, "has this name too"),
        ({"name": "b"}, "app 'mlflow' has the same address"),
        ({"name": "b", "where": "https://apps.example.org:443/mlflow/x/"}, "lies below"),
        ({"name": "b", "where": "https://APPS.example.org/mlflow/"}, "same address"),
    ],
)
def test_two_apps_have_neither_name_nor_address_in_common(change: dict[str, Any], said: str) -> None:
    [wrong] = found(MLFLOW, replace(MLFLOW, **change))
    assert said in str(wrong) and not wrong.is_warning


def test_an_app_with_a_check_of_its_own_may_have_a_public_address() -> None:
    assert found(replace(MLFLOW, mode="jwt", upstream="http://8.8.8.8:5000")) == []


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("localhost", True),
        ("mlflow", True),
        ("mlflow.apps.svc", True),
        ("10.1.2.3", True),
        ("fd00::1", True),
        ("100.64.0.1", True),
        ("8.8.8.8", False),
        ("mlflow.example.org", None),
    ],
)
def test_whether_a_host_is_reached_from_inside_only(host: str, inside: bool | None) -> None:
    assert is_inside(host) is inside


def test_an_address_without_a_port_has_that_of_its_scheme() -> None:
    assert [(each and each.port) for each in map(address_of, ("http://a", "https://a", "https://a:0", "ftp://a"))] == [
        80,
        443,
        None,
        None,
    ]
