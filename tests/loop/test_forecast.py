"""The likely wait as eight people meet it: "not enough data yet", then a rough range, then one that was good so far,
which moves, and no figure once more.

The card is simulated, and the history is made up (``scripts/make-habits.py``) and imported under that name. How good
the forecast was for it is replayed by the code of ``forecast backtest``. Takes pictures into the folder ``PICTURES``
names, else into a temporary one.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from hub_extensions.adapters.store import Changes, Store
from hub_extensions.core.forecast.results import Given, accuracy_of
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.engine.forecasts.forecaster import SEED
from hub_extensions.tools.backtest.log import read_logs
from hub_extensions.tools.backtest.replay import Replay
from tests.hubs import ROOT, SINGLEUSER
from tests.loop.place import Person, Place, browsers
from tests.patience import patient

pytestmark = [
    pytest.mark.needs("browser"),
    pytest.mark.timeout(600),
    pytest.mark.whole,
]

SMALL, LARGE = "mig-1g.5gb", "mig-2g.10gb"
HOLDERS = ("ada", "ben", "cem", "dan", "eva")
FAY, GUS, HANA = "fay", "gus", "hana"
HABITS = ROOT / "tests" / "fixtures" / "forecast" / "habits.csv"
BEGAN = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=3)
"""The first moment of the history."""
LIKELY = re.compile(r"likely (?:within |about )?(?:roughly )?\d+[\d– a-z]*")
SHARP = re.compile(r"^\s*likely \d[\d– a-z]*$")
"""Neither "roughly" nor "(rough)"."""
LIGHT_SERVERS = f"""
def light(spawner):
    if spawner.user.name != "ada":  # hers alone is opened
        spawner.cmd = {SINGLEUSER!r}
c.Spawner.pre_spawn_hook = light
"""


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with browsers(chromium_path) as browser:
        yield browser


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def import_habits(place: Place) -> str:
    """As an admin does it beside the running service; what the command says."""
    words = ("usage", "import", str(HABITS), "--state-dir", str(place.state), "--pool", SMALL, "--label", "made up")
    done = subprocess.run(
        [sys.executable, "-m", "hub_extensions.tools.cli", *words, "--start-time", BEGAN.isoformat()],
        capture_output=True,
        text=True,
        timeout=patient(60),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def store_replayed_forecasts(place: Place) -> None:
    """Store the forecasts of a replay of the history with the real waits, as a service that ran then has stored them.

    A service reads them when it starts.
    """
    (log,) = read_logs(HABITS.parent)
    began = {session.number: BEGAN + timedelta(seconds=session.submit) for session in log.sessions}
    given = tuple(
        Given(
            id=f"replayed-{each.number}",
            ticket="",
            pool=SMALL,
            offer=OfferId(SMALL),
            hour=0,
            at=began[each.number],
            running=began[each.number],
            ahead=0,
            played=each.raw[0],
            shown=each.ours[0],
            end="started",
            waited=each.real,
            over=began[each.number] + timedelta(seconds=each.real),
        )
        for each in Replay(log, log.pools[0], (SEED,)).run()
    )
    assert not accuracy_of(SMALL, sorted(given, key=lambda each: each.over or each.at)).rough
    store = Store.open(f"sqlite:///{place.state / 'gpu.sqlite'}")
    try:
        with ThreadPoolExecutor(1) as apart:  # the browser's event loop runs in this thread
            apart.submit(asyncio.run, store.commit(Changes(forecasts=given))).result()
    finally:
        store.close()


def empty_history(place: Place) -> None:
    """Beside the running service, which goes on."""
    with closing(sqlite3.connect(place.state / "gpu.sqlite", timeout=patient(10))) as database, database:
        database.execute("DELETE FROM gpu_usage")
        database.execute("DELETE FROM gpu_imports")


def row(person: Person, offer: str) -> Locator:
    return person.page.locator(f'[data-offer="{offer}"]')


def test_eight_people_see_a_likely_wait_once_there_is_a_history_and_it_moves_when_somebody_stops(
    tmp_path: Path, browser: Browser, pictures: Path
) -> None:
    place = Place(tmp_path / "hub", layout="lab-a100", config=LIGHT_SERVERS)
    with place.open():
        hub = place.hub
        hub.add_users(*HOLDERS, FAY, GUS, HANA)
        for name in HOLDERS:
            hub.spawn(name, {"offer": SMALL})
        hub.spawn(FAY, {"offer": LARGE})
        for name in (*HOLDERS, FAY):
            hub.wait_ready(name, seconds=120)
        hub.spawn(GUS, {"offer": SMALL})
        gus, hana = (Person(browser, hub.url, name) for name in (GUS, HANA))
        gus.page.goto(f"{hub.url}/hub/spawn-pending/{GUS}")
        gus.waits("1st")
        hana.form()

        # nobody has ever stopped here: no figure is made up
        figures = gus.page.locator("#gpu-figures")
        expect(figures).to_have_text("not enough data yet")
        expect(row(hana, SMALL)).to_contain_text("not enough data yet")
        assert "likely" not in hana.page.inner_text("#gpu-form")

        assert "240" in import_habits(place)
        expect(figures).to_have_text(LIKELY)
        expect(figures).to_have_text(re.compile("rough"))  # nobody has seen yet how good it is
        expect(row(hana, SMALL)).to_contain_text(LIKELY)
        store_replayed_forecasts(place)
        place.kill_service()
        expect(figures).to_have_text(SHARP)
        hana.form()
        expect(row(hana, SMALL)).not_to_contain_text("rough")
        expect(row(hana, SMALL)).to_contain_text(LIKELY)
        expect(gus.page.locator("#gpu-as-of")).to_have_text(re.compile(r"as of \d\d:\d\d"))
        expect(gus.page.locator("#gpu-why")).to_contain_text(re.compile("usually (?:end|go on)"))
        expect(row(hana, LARGE)).to_contain_text("not enough data yet")  # another pool has learned nothing
        hana.page.emulate_media(reduced_motion="reduce")  # or the button is between two colours
        hana.page.check(f'input[type=radio][value="{SMALL}"]')
        hana.page.screenshot(path=pictures / "forecast-form-light.png", full_page=True)

        hana.choose(SMALL)
        hana.waits("2nd")
        second = hana.page.locator("#gpu-figures")
        expect(second).to_have_text(LIKELY)
        before = second.inner_text()
        hana.page.screenshot(path=pictures / "forecast-waiting-light.png")

        hub.stop_server("eva")
        hub.wait_ready(GUS, seconds=60)
        hana.waits("1st")
        expect(second).not_to_have_text(before)
        expect(second).to_have_text(LIKELY)

        # what another choice would bring: nothing while all is held, then at once
        ada = Person(browser, hub.url, "ada")
        ada.page.goto(f"{hub.url}/user/ada/lab")
        panel = open_panel(ada)
        expect(panel).to_contain_text("Waits now")
        hub.stop_server(FAY)
        expect(panel).to_contain_text("Free now: Medium GPU. To have one instead, stop this server")
        expect(panel).not_to_contain_text("Waits now")  # there is nothing to wait for: the rest is folded
        panel.get_by_text("Another GPU instead").click()
        expect(panel.get_by_text("Free now: Medium GPU")).to_be_visible()
        ada.page.add_style_tag(content=".Toastify { display: none; }")  # JupyterLab's own question about its news
        panel.screenshot(path=pictures / "forecast-panel-light.png")

        # a store without a history says so again, whatever was told before
        expect(second).to_have_text(LIKELY)
        empty_history(place)
        expect(second).to_have_text("not enough data yet")
        hana.form("other")
        expect(row(hana, SMALL)).to_contain_text("not enough data yet")
        for person in (gus, hana, ada):
            assert "Traceback" not in person.page.inner_text("body")


def open_panel(person: Person) -> Locator:
    """On a first visit it opens by itself."""
    panel = person.page.locator("#jupyterhub-gpu-panel")
    panel.wait_for()
    return panel
