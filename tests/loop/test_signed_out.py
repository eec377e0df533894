"""A lost right: counted down with its cause, over a kill of everything, and the GPU goes to the next in line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import requests

from tests.authenticator.signed_hub import rest
from tests.hubs import until
from tests.loop.place import Place
from tests.patience import patient

pytestmark = [pytest.mark.programs, pytest.mark.hub]
OFFER = "mig-1g.5gb"
ONE_SMALL = """
title: "One A100-40GB with one small part, for tests"
gpus:
  - product: NVIDIA A100-PCIE-40GB
    memory_gib: 40
    sm: 108
    mig:
      - {profile: 19, start: 0}
"""
CONFIG = """
c.SignOn.enabled = True
c.SignOn.drain_minutes = 0.5
c.JupyterHub.cleanup_servers = False
"""


@pytest.mark.whole
def test_a_drain_is_shown_is_never_shortened_and_ends_as_a_cull_does(tmp_path: Path) -> None:
    place = Place(tmp_path, layout=ONE_SMALL, lab=False, config=CONFIG)
    with place.open():
        hub = place.hub
        hub.add_users("ada", "ben")
        admin = hub.login("root-admin")
        for name in ("ada", "ben"):
            hub.spawn(name, {"offer": OFFER})
        hub.wait_ready("ada")
        until(lambda: place.waiting() == ["ben"], what="ben is in line")

        def end_adas_right() -> dict[str, object]:
            found: dict[str, object] = rest(hub, admin, "DELETE", "users/ada/sessions?lost_right=true").json()
            return found

        def countdown() -> dict[str, str]:
            [lease] = [each for each in place.as_admin("api/leases") if each["user"] == "ada"]
            return lease

        report = end_adas_right()
        assert report["servers_stopped"] == [""]
        until(lambda: countdown()["stop_reason"], what="the service counts down")
        promised = datetime.fromisoformat(countdown()["stops_at"].replace("Z", "+00:00"))
        assert end_adas_right()["stops_at"] == report["stops_at"], "a second order changes nothing"
        # signed in again, for as long as the authenticator lets her in: her own page says it too
        page = hub.login("ada").get(f"{hub.url}/services/gpu/", timeout=patient(20)).text
        assert "An admin ended your access to this hub." in page and "Stops at" in page
        hub.kill()
        place.kill_service()
        hub.start()
        place.wait_service()
        shown = datetime.fromisoformat(countdown()["stops_at"].replace("Z", "+00:00"))
        assert shown >= promised
        until(lambda: hub.server("ada") is None, 90, "ada's server stops")
        hub.wait_ready("ben", seconds=60)
        until(lambda: ended(place), what="the use is over")
        assert ended(place) == ["signed-out"]


def ended(place: Place) -> list[str]:
    """How ada's uses ended."""
    token = place._admin_token
    url = f"http://{place.host}:{place.port}/services/gpu/api/usage"
    answer = requests.get(url, headers={"Authorization": f"token {token}"}, timeout=patient(10))
    return [each["end"] for each in answer.json()["uses"] if each["user"] == "ada"]
