"""A running gate takes new apps from the catalogue's file, and keeps the last good ones."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hub_extensions.adapters.apps.app_catalogue import checked_catalogue
from hub_extensions.core.sign_on.apps import AppCatalogue
from hub_extensions.gate import catalogue
from hub_extensions.gate.serve import log_end
from hub_extensions.gate.settings import GateSettings
from tests.patience import soon

APP = "{name}:\n  where: https://apps.example.org/{name}/\n  upstream: http://10.0.0.7:5000\n  groups: [ml]\n"


def apps_of(source: str) -> AppCatalogue:
    """The apps, whether they fit together or not."""
    return checked_catalogue(source, lambda apps: ())[0]


def settings(apps: object, known: AppCatalogue = ()) -> GateSettings:
    return GateSettings(
        apps=apps,
        url="https://apps.example.org",
        state_dir="/nowhere",
        hub_api_url="http://127.0.0.1:8081/hub/api",
        hub_url="https://hub.example.org/hub/",
        client_secret="client",
        proxy_secret="proxy",
        catalogue=known,
    )


async def test_the_file_is_followed_and_a_bad_one_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalogue, "CHECK_SECONDS", 0.01)
    caplog.set_level("INFO", logger="hub_extensions.gate")
    file = tmp_path / "apps.yaml"

    def write(text: str) -> None:
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", file)

    write(APP.format(name="mlflow"))
    used: list[list[str]] = []
    known = apps_of(str(file))
    write(APP.format(name="mlflow").replace("10.0.0.7:5000", "127.0.0.1:8081"))
    following = asyncio.ensure_future(
        catalogue.follow_catalogue(settings(str(file), known), lambda apps: used.append([each.name for each in apps]))
    )
    await soon(lambda: "this is the hub" in caplog.text)
    assert used == [], "a gate that begins with a bad file has the apps of before"
    assert "hub's next start" not in caplog.text
    write(APP.format(name="board"))
    await soon(lambda: used == [["board"]])
    await soon(lambda: "app 'board' has other groups, or is new" in caplog.text)
    write("board: {upsteam: x}\n")
    await soon(lambda: "did you mean upstream?" in caplog.text)
    write(APP.format(name="mlflow") + APP.format(name="board"))
    await soon(lambda: used == [["board"], ["mlflow", "board"]])
    assert "app 'mlflow' has" not in caplog.text, "its groups are those of the hub's start"
    assert [record.levelname for record in caplog.records].count("ERROR") == 2
    following.cancel()


async def test_a_catalogue_in_the_configuration_does_not_change() -> None:
    await catalogue.follow_catalogue(settings({}), lambda apps: pytest.fail("there are no others"))


async def test_a_gate_that_begins_with_no_apps_waits_for_a_good_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalogue, "CHECK_SECONDS", 0.01)
    file, used = tmp_path / "apps.yaml", list[AppCatalogue]()
    file.write_text("board: {upsteam: x}\n")
    following = asyncio.ensure_future(catalogue.follow_catalogue(settings(str(file)), used.append))
    await soon(lambda: "did you mean upstream?" in caplog.text)
    file.write_text(APP.format(name="board"))
    await soon(lambda: used)
    assert [app.name for app in used[0]] == ["board"]
    following.cancel()


async def test_a_part_that_fails_is_seen_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise KeyError("secret")

    task = asyncio.ensure_future(fails())
    task.add_done_callback(log_end)
    await asyncio.wait({task})
    await soon(lambda: "KeyError" in caplog.text)
    assert "secret" not in caplog.text
