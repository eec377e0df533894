"""``jupyterhub-gpu gate``: the commands about the gate's process and its keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hub_extensions.adapters.provider.assertions import AssertionSigner, KeyFolder
from hub_extensions.gate.settings import GateSettings
from hub_extensions.tools.cli import main


def test_rotate_makes_the_next_key_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = GateSettings(
        url="https://apps.example.org",
        state_dir=str(tmp_path),
        hub_api_url="http://127.0.0.1:8081/hub/api",
        hub_url="https://hub.example.org/hub/",
        client_secret="client-secret-client-secret",
        proxy_secret="proxy-secret-proxy-secret",
    )
    assert "secret-" not in repr(settings)
    file = tmp_path / "gate.json"
    settings.dump(file)
    assert (file.stat().st_mode & 0o777, GateSettings.load(file)) == (0o600, settings)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("JUPYTERHUB_GPU_GATE_DATABASE_URL", "postgresql://gate:word@db/gate")
        named = GateSettings.load(file)
    assert named.store_url == "postgresql://gate:word@db/gate" and "word" not in repr(named)
    signer = AssertionSigner(KeyFolder(tmp_path), settings.origin, settings.assertion)
    before = [key["kid"] for key in signer.published()["keys"]]
    answer = CliRunner().invoke(main, ["gate", "rotate", "--config", str(file)])
    assert answer.exit_code == 0, answer.output
    assert signer.refresh() and not signer.refresh()
    after = [key["kid"] for key in signer.published()["keys"]]
    assert after[0] == before[1] and after[1] in answer.output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "gate.json")
    for command, code in (("rotate", 1), ("run", 78)):
        answer = CliRunner().invoke(main, ["gate", command, "--config", missing])
        assert (answer.exit_code, missing in answer.output) == (code, True)
