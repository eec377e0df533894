"""Notices to receivers, through the real hub, the real service and its database: a start that was asked for, a stop.

Of a stop also what follows where nobody heard of it, and that the server comes back without its GPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.webhook import WebhookAsTold, WebhookThatFails
from tests.hubs import until
from tests.loop.place import THREE_SMALL, TURNED, Place
from tests.patience import patient

pytestmark = [pytest.mark.whole, pytest.mark.needs("node"), pytest.mark.timeout(300)]

SMALL = "mig-1g.5gb"
SOFT = f"""{TURNED}
c.JupyterHub.public_url = facts["public"]
from jupyterhub.app import JupyterHub

def is_full(spawner):
    if spawner.user.name == "dan":
        JupyterHub.instance().tornado_application.settings["active_server_limit"] = 1

c.Spawner.post_stop_hook = is_full
c.GpuCulling.enabled = True
c.GpuCulling.restart_on_cpu = True
c.GpuCulling.idle_minutes = 1
c.GpuCulling.warn_minutes = 0.8
c.GpuCulling.grace_minutes = 0
c.GpuCulling.unopened_minutes = None
c.GpuCulling.drain_seconds = 0
"""
"""An idle GPU is taken back; after dan's server has stopped the hub runs no second one."""


def test_who_asked_for_it_is_told_over_a_kill_of_the_service(tmp_path: Path) -> None:
    receiver = WebhookAsTold()
    config = f"""
c.JupyterHub.public_url = "https://hub.example.org/"
c.GpuNotices.webhook_url = {receiver.url!r}
c.GpuNotices.delay_seconds = 5
"""
    place = Place(tmp_path, layout=THREE_SMALL, config=config, lab=False)
    with place.open():
        hub = place.hub
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": SMALL, "notify_when_ready": True})
        hub.spawn("ben", {"offer": SMALL})
        for user in ("ada", "ben"):
            hub.wait_ready(user, seconds=60)
        place.kill_service()
        until(lambda: receiver.taken, 60, "the notice of the service's next life")
        notice = receiver.taken[0]
        assert (notice["user"], notice["url"]) == ("ada", "https://hub.example.org/user/ada/")
        assert notice["open_until"] is None, "a fresh installation stops no unopened server"
        assert [each["user"] for each in receiver.taken] == ["ada"]
    receiver.close()


def test_a_stop_nobody_heard_of_is_counted_down_again_once_and_the_server_comes_back_without_its_gpu(
    tmp_path: Path,
) -> None:
    receiver = WebhookThatFails()
    config = f"{SOFT}c.GpuCulling.warning_webhook_url = {receiver.url!r}\n"
    place = Place(tmp_path, layout=THREE_SMALL, config=config, lab=False)
    with place.open():
        hub = place.hub
        hub.add_users("ada", "dan")

        def taken_back(user: str) -> int:
            """Its GPU, as idle: how often its user was to be warned of it first."""
            hub.spawn(user, {"offer": SMALL}).raise_for_status()
            hub.wait_ready(user, seconds=60)
            assert user in place.leases()
            until(lambda: re.search(rf'"culled: .*"user": "{user}"', hub.log()), 120, f"{user}'s server is stopped")
            until(lambda: not place.leases(), what="its GPU is free")
            return len({each["id"] for each in receiver.taken if (each["user"], each["kind"]) == (user, "warning")})

        def reads(user: str, words: str) -> None:
            page = f"{hub.url}/services/gpu/"
            browser = hub.login(user)
            until(lambda: words in browser.get(page, timeout=patient(20)).text, 60, f"{user} reads it on *Your GPU*")

        assert taken_back("ada") == 2
        assert hub.log().count("nobody heard the warnings") == 1
        until(lambda: hub.ready("ada"), 60, "it is back")
        back = hub.server("ada")
        assert back is not None and back["user_options"] == {"offer": "cpu"}
        assert hub.environ("ada")["HOME"] == str(hub.folder / "home" / "ada")
        reads("ada", "Your server runs again, without a GPU.")
        # who hears of it is counted down once; and for this server the hub has no room any more
        receiver.fails = False
        assert taken_back("dan") == 1
        reads("dan", "There is no room for it now")
        assert hub.server("dan") is None and hub.ready("ada")
        audit = hub.login("dan").get(f"{hub.url}/services/gpu/audit?kind=culled", timeout=patient(20)).text
        assert "use 0 % by simulated, idle since" in audit and "reached by stop-webhook" in audit
        assert hub.log().count("nobody heard the warnings") == 1
    receiver.close()
