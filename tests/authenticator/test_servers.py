"""What becomes of servers, places in line and tokens when a session ends, in a real hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_extensions.core.messages import SignedOut, Stopped
from tests.authenticator.signed_hub import home, rest, sessions
from tests.fakes.service import GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient
from tests.spawner.real_hub import ours

pytestmark = pytest.mark.hub
ONE = "mig-1g.5gb"
POLICIES = """
c.SignOn.servers_at_sign_out = "stop-gpu"
c.SignOn.servers_at_revocation = "drain"
c.SignOn.drain_minutes = 0.1
c.JupyterHub.load_roles.append(
    {"name": "server", "scopes": ["users:activity!user", "access:servers!server", "read:users:name!user"]}
)
"""


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1}) as running:
        yield running


@pytest.mark.whole
def test_servers_follow_the_settings_and_a_killed_hub_goes_on_with_them(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    with Hub(tmp_path / "hub", sessions(POLICIES + ours(service))) as hub:
        hub.add_users("ada", "ben", "cem", "dora")
        ada, other = hub.login("ada"), hub.login("ada")
        admin = hub.login("root-admin")
        hub.spawn("ada", {"offer": ONE})
        hub.spawn("ada", {"offer": "cpu"}, "desk")
        hub.wait_ready("ada")
        hub.wait_ready("ada", "desk")
        hub.spawn("cem", {"offer": ONE})
        until(lambda: ("cem", "") in service.tickets)
        hub.spawn("ben", {"offer": ONE})
        until(lambda: ("ben", "") in service.tickets)
        # one of two sessions: nothing stops; the last one: the GPU is given back, the other server runs on
        other.get(f"{hub.url}/hub/logout", timeout=patient(30))
        assert hub.ready("ada")
        ada.get(f"{hub.url}/hub/logout", timeout=patient(30))
        until(lambda: hub.server("ada") is None, what="the server with the GPU stops")
        until(lambda: service.told_of(Stopped), what="the service hears of it")
        [order] = service.told_of(SignedOut)
        assert (order.user, order.server, order.cause, order.left_seconds) == ("ada", "", "sign-out", 0.0)
        assert order.lease.startswith("lease-"), "and no word to the service of a server without one"
        assert hub.ready("ada", "desk")
        hub.wait_ready("cem")
        # the right is lost: a place in line ends at once, a server at its promised time; also by a hub that is killed
        report = rest(hub, admin, "DELETE", "users/ada/sessions?access_revoked=true").json()
        assert report["servers_stopped"] == ["desk"]
        assert hub.pending("ben") == "spawn"
        report = rest(hub, admin, "DELETE", "users/ben/sessions?access_revoked=true").json()
        assert (report["sessions"], report["servers_stopped"]) == ([], [""])
        hub.spawn("dora", {"offer": "cpu"})
        hub.wait_ready("dora")
        hub.kill()
        assert ("ben", "") in service.tickets
        hub.start()
        assert home(hub, admin) == 200
        # every token of hers ends, but for the server's own, as long as the server runs
        forged = {"note": "Server at /user/dora/"}
        assert hub.api("POST", "users/dora/tokens", forged).ok
        assert hub.api("POST", "users/dora/tokens", {**forged, "scopes": ["tokens!user=dora"]}).ok
        dora = hub.login("dora")
        rest(hub, admin, "DELETE", "users/dora/sessions?access_revoked=true")
        assert "Your default server:" in dora.get(f"{hub.url}/hub/home", timeout=patient(20)).text
        assert [each["note"] for each in hub.api("GET", "users/dora/tokens").json()["api_tokens"]] == [
            "Server at /user/dora/"
        ]
        hub.spawn("ben", {"offer": ONE})  # as the service does, which keeps places over a restart
        until(lambda: ("ben", "") not in service.tickets, what="the place in line is left")
        until(lambda: hub.server("ben") is None, what="its start is cancelled")
        until(lambda: hub.server("ada", "desk") is None, what="the server stops after the restart")
