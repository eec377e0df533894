"""A training on a card that is played: seen in the panel, named by its notebook, and culled only when it has ended.

Hub, service, spawner, JupyterLab, browser and pynvml are real; the card below them is ``tests/fakes/nvml``, and what it
shows follows the processor time of the kernel that trains. The running clock is turned: its minute is ten seconds.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, Locator, Page, expect

from hub_extensions.adapters.linux import procfs
from tests.fakes.nvml import GIB, FakeNvml
from tests.hubs import until
from tests.loop.place import TURNED, Person, Place, browsers
from tests.patience import patient

pytestmark = [pytest.mark.needs("browser", "c-compiler"), pytest.mark.timeout(600)]

GPU, MINE, OTHER = "GPU-of-the-training", "MIG-of-the-training", "MIG-of-nobody"
PRODUCT = "NVIDIA H100 80GB HBM3"
TRAINING = """\
import random, time

rows = [(x := random.random() * 10, 3.0 * x + 2.0 + random.gauss(0, 0.1)) for _ in range(2000)]
slope = shift = 0.0
weights = bytearray(200 * 2**20)
until = time.time() + 25
while time.time() < until:
    down_slope = sum((slope * x + shift - y) * x for x, y in rows) / len(rows)
    down_shift = sum((slope * x + shift - y) for x, y in rows) / len(rows)
    slope, shift = slope - 0.01 * down_slope, shift - 0.01 * down_shift
print("trained", round(slope), round(shift))"""
IDLE, WARN = 720, 660
"""Seconds of the turned clock: 120 and 110 of the machine's, in which the training has to begin."""


class CardThatFollows(threading.Thread):
    """Keeps the played card up to date: in use while a kernel of this place's servers computes, with its memory.

    How much of a busy machine's processor a kernel gets says nothing: 90 %, or nothing.
    """

    def __init__(self, card: FakeNvml, home: Path) -> None:
        super().__init__(daemon=True)
        self._card, self._home = card, home
        self._done = threading.Event()
        self._before: dict[tuple[int, int], float] = {}
        self._holds: set[tuple[int, int]] = set()

    def run(self) -> None:
        while not self._done.wait(0.5):
            self._show()

    def stop(self) -> None:
        self._done.set()
        self.join(patient(5))

    def _show(self) -> None:
        kernels = [process for process in procfs.marked() if process.kernel and process.device == MINE]
        use = 0
        for kernel in kernels:
            key = (kernel.pid, kernel.started)
            worked = kernel.cpu_seconds - self._before.get(key, kernel.cpu_seconds)
            self._before[key] = kernel.cpu_seconds
            use = 90 if worked >= 0.03 else use  # of half a second; a kernel without a cell needs less
            if kernel.rss_bytes > 200 * 2**20:
                self._holds.add(key)  # it has put something on the card, and keeps it until it ends
        play(self._card, use, [k for k in kernels if (k.pid, k.started) in self._holds])


def play(card: FakeNvml, use: int, holders: list[procfs.Process]) -> None:
    """An H100 with two 1g.10gb, the first of which does what is said."""
    card.gpus.clear()
    card.rows.clear()
    card.gpu(GPU, name=PRODUCT, mig=1, total=80 * GIB, cores=16896, cc="9.0", gpm=1)
    card.profile(GPU, "1g.10gb", enum=0, id=19, slices=1, sm=16, mb=10 * 1024, count=7)
    for slot, (uuid, gi) in enumerate(((MINE, 7), (OTHER, 8))):
        mine = uuid == MINE
        used = sum(holder.rss_bytes for holder in holders) if mine else 0
        card.instance(GPU, gi, profile=19, start=slot, size=1)
        facts = {"slices": 1, "gislices": 1, "sm": 16, "used": used, "util": use if mine else 0}
        card.mig(GPU, uuid, slot=slot, gi=gi, name=f"{PRODUCT} MIG 1g.10gb", total=10 * GIB, **facts)
    for holder in holders:
        card.process(MINE, holder.pid, used=holder.rss_bytes)
    card.write()


@pytest.fixture
def card(tmp_path: Path) -> Iterator[FakeNvml]:
    folder = tmp_path / "card"
    folder.mkdir()
    card = FakeNvml(folder)
    play(card, 0, [])
    follows = CardThatFollows(card, tmp_path)
    follows.start()
    yield card
    follows.stop()


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with browsers(chromium_path) as browser:
        yield browser


@pytest.mark.whole
def test_a_training_is_seen_named_and_warned_of_only_after_its_end(
    tmp_path: Path, browser: Browser, card: FakeNvml, fake_nvml: Path
) -> None:
    """The pictures go to the folder ``PANEL_PICTURES`` names."""
    sees_the_card = {"LD_LIBRARY_PATH": str(fake_nvml.parent), "FAKE_NVML_STATE": str(card.path)}
    place = Place(
        tmp_path,
        layout="",
        config=f"""{TURNED}
c.Spawner.default_url = "/lab/tree/train.ipynb"
c.GpuOffers.simulate = None
c.Spawner.environment.update({sees_the_card!r})
c.JupyterHub.services.append({{"name": "gpu", "environment": {sees_the_card!r}}})
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = {IDLE / 60}
c.GpuCulling.warn_minutes = {WARN / 60}
c.GpuCulling.keep_minutes = {WARN / 60}
c.GpuCulling.grace_minutes = 0
c.GpuCulling.lifetime_hours = 3
c.SignOn.enabled = True
c.SignOn.token_cache_seconds = 1
""",
    )
    home = tmp_path / "home" / "ada"
    home.mkdir(parents=True)
    notebook(home / "train.ipynb", TRAINING)
    with place.open():
        ada = Person(browser, place.hub.url, "ada")
        ada.take("mig-1g.10gb")
        ada.is_in_lab()
        panel = open_panel(ada.page)
        expect(panel).to_contain_text("1g.10gb")
        expect(ada.page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=patient(60_000))
        ada.page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        ada.page.keyboard.press("Shift+Enter")

        meter = panel.get_by_role("meter", name="In use")
        until(lambda: int(meter.get_attribute("aria-valuenow") or 0) > 40, 30, "the use is shown")
        expect(panel).to_contain_text("train.ipynb", timeout=patient(20_000))
        expect(panel).not_to_contain_text("Stops in")
        used = last_use(place)
        until(lambda: last_use(place) > used, 60, "a page that is seen asks by itself, so the session is used")
        picture(ada.page, "training.png")

        expect(ada.page.locator(".jp-OutputArea-output")).to_contain_text("trained 3 2", timeout=patient(60_000))
        expect(panel).to_contain_text("Stops in", timeout=patient(90_000))
        hide(ada.page)
        toast = ada.page.locator(".Toastify").get_by_role("button", name="Keep")
        expect(toast).to_be_visible(timeout=patient(60_000))
        before = stops_at(place)
        picture(ada.page, "training-over.png")
        toast.click()
        until(lambda: (stops_at(place) or "z") > (before or ""), 20, "kept: the stop moved")
        until(lambda: is_unused(place), 60, "a page that is hidden, and its panel, use the session no more")


def open_panel(page: Page) -> Locator:
    page.locator("#jp-main-dock-panel").wait_for()
    panel = page.locator("#jupyterhub-gpu-panel")
    if not panel.is_visible():
        page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]').click()
    panel.wait_for()
    return panel


def hide(page: Page) -> None:
    """Headless pages are never hidden by themselves: the page is told what a browser tells it behind another tab."""
    page.evaluate(
        """() => {
            Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });
            Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => 'hidden' });
            document.dispatchEvent(new Event('visibilitychange'));
        }"""
    )


def last_use(place: Place) -> str:
    """When ada's sign-on session was used last, as the hub tells an admin's script."""
    place.as_admin("api/leases")  # makes the admin
    headers = {"Authorization": f"token {place._admin_token}"}
    address = f"{place.hub.url}/hub/api/sso/users/ada/sessions"
    [session] = requests.get(address, headers=headers, timeout=patient(20)).json()["sessions"]
    return str(session["last_use"])


def is_unused(place: Place, seconds: float = 15.0) -> bool:
    """Nothing used it in this time: JupyterLab's questions, and the panel's, come every 10 s at the latest."""
    used = last_use(place)
    time.sleep(seconds)  # nothing is waited for: that nothing happens in this time is what is measured
    return last_use(place) == used


def stops_at(place: Place) -> str | None:
    """When ada's server stops, as admins see it; ISO times of one zone compare as text."""
    return next((lease["stops_at"] for lease in place.as_admin("api/leases") if lease["user"] == "ada"), None)


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("PANEL_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / name)


def notebook(path: Path, source: str) -> None:
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
