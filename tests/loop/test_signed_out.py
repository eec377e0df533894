"""A lost right: counted down with its cause, over a kill of everything, and the GPU goes to the next in line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
import requests

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, StartRefused
from tests.authenticator.killed_at import TAKES_OVER, again, config, dies_before
from tests.authenticator.signed_hub import copy_of, rest
from tests.fakes.dying_service import NAME, STEPS
from tests.hubs import Hub, until
from tests.loop.place import DYING, Place
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
SEVEN_SMALL = ONE_SMALL.replace("one small part", "seven small parts") + "".join(
    f"      - {{profile: 19, start: {start}}}\n" for start in range(1, 7)
)
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
            found: dict[str, object] = rest(hub, admin, "DELETE", "users/ada/sessions?access_revoked=true").json()
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
        service = place.service_pid()
        hub.kill()
        with contextlib.suppress(ProcessLookupError):  # its parent may have ended it: the hub is gone
            os.kill(service, signal.SIGKILL)
        hub.start()
        place.wait_service()
        shown = datetime.fromisoformat(countdown()["stops_at"].replace("Z", "+00:00"))
        assert shown >= promised
        until(lambda: hub.server("ada") is None, 90, "ada's server stops")
        hub.wait_ready("ben", seconds=60)
        until(lambda: ended(place), what="the use is over")
        assert ended(place) == ["signed-out"]
        # gil signed out between the stop of a server and its start without a GPU, which nobody asked for
        browser = hub.login("gil")
        browser.get(f"{hub.url}/hub/logout", timeout=patient(20))
        assert comes_back(hub, "gil") == "403: You were signed out."
        assert hub.server("gil") is None
        hub.login("gil")
        assert comes_back(hub, "gil") == ""
        hub.wait_ready("gil")


@pytest.mark.whole
@pytest.mark.hub("6.1")
def test_a_service_that_is_killed_at_each_step_of_a_stop_stops_that_server_and_no_other(tmp_path: Path) -> None:
    soon = CONFIG.replace("drain_minutes = 0.5", "drain_minutes = 0.05")
    place = Place(tmp_path, layout=SEVEN_SMALL, lab=False, config=DYING + soon + config())
    with place.open():
        hub = place.hub
        steps = dict(zip((f"p{number}" for number in range(len(STEPS))), STEPS, strict=True))
        hub.add_users("hana", "ada", *steps)
        admin = hub.login("root-admin")
        for name in ("hana", "ada", *steps):
            hub.spawn(name, {"offer": OFFER})
            hub.wait_ready(name)
        before = hub.server("hana")
        armed = place.state / NAME
        for name, step in steps.items():
            armed.write_text(step)
            assert rest(hub, admin, "DELETE", f"users/{name}/sessions?access_revoked=true").ok
            until(lambda: not armed.exists(), 30, f"the service dies: {step}")
            until(lambda: hub.server(name) is None, 60, f"{step}: the server stops")  # noqa: B023
        dies_before(hub, *TAKES_OVER)
        with suppress(requests.ConnectionError):
            rest(hub, admin, "DELETE", "users/ada/sessions?access_revoked=true")
        again(hub)
        place.wait_service()
        until(lambda: hub.server("ada") is None, 60, "ada's server stops")
        until(lambda: list(place.leases()) == ["hana"], what="what they had is free")
        until(lambda: hub.ready("hana"), what="the hub knows hana's server again")
        after = hub.server("hana")
        assert before is not None and after is not None and after["started"] == before["started"]


@pytest.mark.whole
def test_a_sign_out_at_the_hub_ends_the_login_at_the_service_long_before_that_is_asked_about_again(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, layout=ONE_SMALL, lab=False, config=CONFIG)
    with place.open():
        hub = place.hub
        hub.add_users("ada")
        browser = hub.login("ada")
        page = f"{hub.url}/services/gpu/"
        assert browser.get(page, timeout=patient(20)).url == page
        kept = copy_of(browser)
        assert kept.get(page, allow_redirects=False, timeout=patient(20)).status_code == 200
        browser.get(f"{hub.url}/hub/logout", timeout=patient(20))

        def is_over() -> bool:
            return kept.get(page, allow_redirects=False, timeout=patient(20)).status_code == 302

        until(is_over, 1, "the service knows of the sign-out")


def comes_back(hub: Hub, name: str) -> str:
    """What the hub says to the service that asks for it; "": it starts."""

    async def ask() -> str:
        api = HubApi(f"{hub.url}/hub/api", hub.token)
        try:
            await api.start(name, "", {"offer": "cpu"}, returns=True)
        except StartRefused as problem:
            return f"{problem.status}: {problem.message}"
        finally:
            api.close()
        return ""

    return asyncio.run(ask())


def ended(place: Place) -> list[str]:
    """How ada's uses ended."""
    token = place._admin_token
    url = f"http://{place.host}:{place.port}/services/gpu/api/usage"
    answer = requests.get(url, headers={"Authorization": f"token {token}"}, timeout=patient(10))
    return [each["end"] for each in answer.json()["uses"] if each["user"] == "ada"]
