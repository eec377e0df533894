"""The address after a sign-in for an app: on this host, and below the requested app."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import pytest

from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.return_address import return_address, return_path
from tests.authenticator.openid.test_redirects import VECTORS

MLFLOW = App("mlflow", "MLflow", "https://apps.example.org/mlflow/", "http://10.0.0.7:5000")
BOARD = App("board", "TensorBoard", "https://board.example.org/", "http://10.0.0.7:6006")
OF_APPS = [
    "/grafana/",
    "/mlflow/../grafana/",
    "/mlflow/..;/grafana/",
    "/mlflow/%2e%2e/grafana/",
    "/mlflow/%252e%252e/grafana/",
    "/mlflow//evil.example",
    "/mlflow/..%2fgrafana",
    "/mlflow\\..\\grafana",
    "/mlflowed/",
    "/_gate/sign-out",
    "/mlflow/./../x",
    "/mlflow/%5c%5cevil.example",
    "/mlflow/" + "a" * 8192,
    "/mlflow/\u2025/x",
    "/mlflow/%00",
    "/mlflow/a b",
    "/mlflow/#x",
]
BELOW = ["".join(("/mlflow/", vector)) for vector in VECTORS]


def led_to(app: App, wanted: str) -> str:
    """Return the address that a browser opens: it drops tabs and line breaks, and treats a backslash as a slash."""
    safe = return_address(app, wanted)
    read = "".join(letter for letter in safe.strip() if letter not in "\t\r\n").replace("\\", "/")
    return urljoin("https://apps.example.org/_gate/callback", read)


@pytest.mark.parametrize("app", [MLFLOW, BOARD], ids=lambda app: app.name)
def test_no_address_leads_to_another_host_or_another_app(app: App) -> None:
    vectors = [*VECTORS, *OF_APPS, *BELOW]
    assert len(vectors) > 1200
    host, front = urlsplit(app.where).netloc, urlsplit(app.where).path
    for vector in vectors:
        found = urlsplit(led_to(app, vector))
        assert (found.netloc, found.path.startswith(front)) == (host, True), vector
        assert "/_gate" not in found.path


@pytest.mark.parametrize(
    "path", ["/mlflow/", "/mlflow/#/experiments"[:8], "/mlflow/api/2.0/runs?x=a%2Fb&y=//c#"[:-1], "/mlflow"]
)
def test_where_somebody_wanted_to_go_is_gone_to(path: str) -> None:
    assert return_path(MLFLOW, path) == path


@pytest.mark.parametrize("path", OF_APPS)
def test_what_is_not_surely_of_the_app_is_its_front_page(path: str) -> None:
    assert return_path(MLFLOW, path) == "/mlflow/"
