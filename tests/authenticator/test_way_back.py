"""Sign-on sessions on the way back: from JupyterHub 6.1 to 5.5 and forth on one database, and switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.authenticator.signed_hub import home, ids, rest, sessions
from tests.hubs import ROOT, Hub
from tests.patience import patient

SCHEMA_OF_5 = "4621fec11365"
"""The last step of JupyterHub 5.5's own tables."""


def database(hub: Hub, *words: str) -> None:
    """JupyterHub's own command for its tables, as an admin gives it in the hub's folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", *words]
    done = subprocess.run(
        command,
        cwd=hub.folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.needs("hub5")
def test_sessions_last_from_6_to_5_and_back_and_end_where_they_are_switched_off(
    tmp_path: Path, hub5_python: str
) -> None:
    with Hub(tmp_path / "hub", sessions()) as hub:
        newer, signed = hub.python, hub.config.read_text()
        ada, ended = hub.login("ada"), hub.login("ada")
        assert rest(hub, ada, "DELETE", f"users/ada/sessions/{ids(hub, ada, 'ada')[False][0]}").ok
        assert (home(hub, ada), home(hub, ended)) == (200, 302)
        hub.terminate()

        database(hub, "jupyterhub.dbutil", "alembic", "downgrade", SCHEMA_OF_5)
        hub.python = hub5_python
        hub.start()
        assert (home(hub, ada), home(hub, ended)) == (200, 302)
        ben = hub.login("ben")
        hub.terminate()

        database(hub, "jupyterhub", "upgrade-db")
        hub.python = newer
        hub.start()
        assert (home(hub, ada), home(hub, ended), home(hub, ben)) == (200, 302, 200)
        hub.terminate()

        database(hub, "hub_extensions.tools.cli", "sign-on", "drop-tables")
        hub.config.write_text(signed.replace("c.SignOn.enabled = True", "c.SignOn.enabled = False"))
        hub.start()
        assert [home(hub, browser) for browser in (ada, ended, ben)] == [302, 302, 302]
        again = hub.login("ada")
        assert home(hub, again) == 200
        assert again.get(f"{hub.url}/hub/sso/sessions", timeout=patient(20)).status_code == 404
