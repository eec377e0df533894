"""``jupyterhub-gpu store``: what an admin reads, and what is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hub_extensions.adapters.store import Store
from hub_extensions.adapters.store.copies import damage
from hub_extensions.hub_service.process import StoreLock
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.cli import main

pytestmark = pytest.mark.slow


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["store", *words], catch_exceptions=False)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with a store in it, as a service leaves it."""
    settings = Settings(state_dir=str(tmp_path), hub_secret="s" * 64, api_token="t" * 64)
    settings.dump(tmp_path / "service.json")
    Store.open(settings.store_url).close()
    return tmp_path


def damaged(state: Path) -> Path:
    file = state / "gpu.sqlite"
    content = bytearray(file.read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    file.write_bytes(content)
    return file


def test_a_backup_a_damage_and_a_restore(state: Path) -> None:
    folder = ("--state-dir", str(state))
    assert run("check", *folder).output == f"{state / 'gpu.sqlite'}: whole\n"
    made = run("backup", *folder)
    (copy,) = state.glob("gpu.backup-*.sqlite")
    assert (made.exit_code, made.output) == (0, f"{state / 'gpu.sqlite'} was copied to {copy}.\n")
    file = damaged(state)
    found = run("check", *folder)
    assert found.exit_code == 1 and f"{file}: damaged (" in found.output and f"{copy}: whole" in found.output
    refused = run("backup", *folder)
    assert refused.exit_code == 1 and "is damaged" in refused.output
    back = run("restore", *folder)
    assert back.exit_code == 0 and back.output.startswith(f"{copy} was put back as {file}. What was there is ")
    assert damage(file) == "" and run("check", *folder).exit_code == 0
    assert len(list(state.glob("gpu.replaced-*.sqlite"))) == 1


def test_nothing_is_put_back_under_a_running_service_or_without_a_whole_copy(state: Path) -> None:
    folder = ("--state-dir", str(state))
    refused = run("restore", *folder)
    assert refused.exit_code == 1 and "There is no whole copy" in refused.output
    run("backup", *folder)
    lock = StoreLock(state / "service.lock")
    assert lock.take()
    before = (state / "gpu.sqlite").stat().st_ino
    refused = run("restore", *folder)
    lock.free()
    assert refused.exit_code == 1 and "Stop the hub first." in refused.output
    assert (state / "gpu.sqlite").stat().st_ino == before
    (copy,) = state.glob("gpu.backup-*.sqlite")
    copy.write_bytes(b"nothing of ours" * 1000)
    refused = run("restore", *folder, "--from", str(copy))
    assert refused.exit_code == 1 and str(copy) in refused.output and "damaged" in refused.output
    assert damage(state / "gpu.sqlite") == ""


@pytest.mark.parametrize("what", ["backup", "restore", "check"])
def test_postgresql_has_tools_of_its_own_and_a_folder_without_settings_is_told(tmp_path: Path, what: str) -> None:
    nowhere = run(what, "--state-dir", str(tmp_path))
    assert nowhere.exit_code == 2 and "service.json" in nowhere.output
    settings = Settings(
        state_dir=str(tmp_path), hub_secret="s", api_token="t", database_url="postgresql://gpu:hidden@db/gpu"
    )
    settings.dump(tmp_path / "service.json")
    told = run(what, "--state-dir", str(tmp_path))
    assert told.exit_code == 2 and "pg_dump" in told.output and "hidden" not in told.output


def test_a_backup_overwrites_nothing_and_an_absent_store_is_a_sentence(state: Path, tmp_path: Path) -> None:
    folder = ("--state-dir", str(state))
    (tmp_path / "taken").write_text("mine")
    refused = run("backup", *folder, "--to", str(tmp_path / "taken"))
    assert refused.exit_code == 2 and (tmp_path / "taken").read_text() == "mine"
    (state / "gpu.sqlite").unlink()
    refused = run("backup", *folder)
    assert refused.exit_code == 1 and "There is no file" in refused.output
    assert "not there" in run("check", *folder).output
