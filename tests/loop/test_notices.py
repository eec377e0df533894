"""A notice from the box on the form to the receiver, through the real hub, the real service and its database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.webhook import WebhookAsTold
from tests.hubs import until
from tests.loop.place import THREE_SMALL, Place

pytestmark = [pytest.mark.whole, pytest.mark.needs("node"), pytest.mark.timeout(300)]


def test_who_asked_for_it_is_told_over_a_kill_of_the_service(tmp_path: Path) -> None:
    receiver = WebhookAsTold()
    config = f"""
c.JupyterHub.public_url = "https://hub.example.org/"
c.GpuNotices.webhook_url = {receiver.url!r}
c.GpuNotices.after_seconds = 5
"""
    place = Place(tmp_path, layout=THREE_SMALL, config=config, lab=False)
    with place.open():
        hub = place.hub
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": "mig-1g.5gb", "notify_when_ready": True})
        hub.spawn("ben", {"offer": "mig-1g.5gb"})
        for user in ("ada", "ben"):
            hub.wait_ready(user, seconds=60)
        place.kill_service()
        until(lambda: receiver.taken, 60, "the notice of the service's next life")
        notice = receiver.taken[0]
        assert (notice["user"], notice["url"]) == ("ada", "https://hub.example.org/user/ada/")
        assert notice["open_until"] is None, "a fresh installation stops no unopened server"
        assert [each["user"] for each in receiver.taken] == ["ada"]
    receiver.close()
