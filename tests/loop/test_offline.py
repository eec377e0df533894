"""A waiting page that hears nothing while its server becomes ready: it leads there all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loop.place import Person, Place, browsers
from tests.loop.test_countdown import ONE_SMALL

pytestmark = [pytest.mark.needs("browser"), pytest.mark.timeout(600), pytest.mark.whole]


def test_a_page_that_was_offline_while_its_server_became_ready_leads_to_it(tmp_path: Path, chromium_path: str) -> None:
    """The first that it hears of the hub is a redirect, which a script cannot follow into a user's server."""
    place = Place(tmp_path, layout=ONE_SMALL, config="c.JupyterHub.cleanup_servers = False")
    with browsers(chromium_path) as browser, place.open():
        ada, ben = (Person(browser, place.hub.url, name) for name in ("ada", "ben"))
        ada.take("mig-1g.5gb")
        ada.is_in_lab()
        ben.take("mig-1g.5gb")
        ben.waits("1st")
        ben.context.set_offline(True)
        place.hub.kill()
        place.hub.start()
        place.wait_service()
        place.hub.stop_server("ada")
        place.hub.wait_ready("ben", seconds=60)
        ben.context.set_offline(False)
        ben.is_in_lab()
