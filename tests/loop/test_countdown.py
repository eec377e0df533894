"""The end of the loop in a browser: idle, warned, kept, idle again, saved, stopped, told; and the next one starts.

The running clock is turned: six seconds of a limit are one of the reader's. At its real pace it runs in
``tests/cluster/on_a_node/test_culling.py``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.hubs import until
from tests.loop.place import TURNED, Person, Place, browsers
from tests.patience import patient

pytestmark = [pytest.mark.needs("browser"), pytest.mark.timeout(600)]

ONE_SMALL = """
title: "One A100-40GB with one small part, for tests"
gpus:
  - product: NVIDIA A100-PCIE-40GB
    memory_gib: 40
    sm: 108
    mig:
      - {profile: 19, start: 0}
"""
IDLE, WARN = 270, 180
"""Seconds of the turned clock: 45 and 30 for a reader, whose page asks every 10 s until it knows of an end."""


@pytest.fixture(scope="module")
def browser(full_chromium_path: str) -> Iterator[Browser]:
    with browsers(full_chromium_path) as browser:
        yield browser


@pytest.mark.whole
def test_idle_is_warned_kept_saved_stopped_and_told(tmp_path: Path, browser: Browser) -> None:
    place = Place(
        tmp_path,
        layout=ONE_SMALL,
        config=f"""{TURNED}
c.Spawner.default_url = "/lab/tree/work.ipynb"
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = {IDLE / 60}
c.GpuCulling.warn_minutes = {WARN / 60}
c.GpuCulling.keep_minutes = {WARN / 60}
c.GpuCulling.grace_minutes = 0
c.GpuCulling.lifetime_hours = 0.5
""",
    )
    home = tmp_path / "home" / "ada"
    home.mkdir(parents=True)
    notebook(home / "work.ipynb")
    hook = home / ".jupyter" / "gpu-before-stop"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\ngrep -c typed_but_never_saved work.ipynb && echo of $JUPYTERHUB_GPU_STOP_CAUSE\n")
    hook.chmod(0o700)
    with place.open():
        ada, ben = (Person(browser, place.hub.url, name) for name in ("ada", "ben"))
        ada.take("mig-1g.5gb")
        ada.is_in_lab()
        ben.take("mig-1g.5gb")
        ben.waits("1st")
        toast = ada.page.locator(".Toastify").get_by_role("button", name="Keep")
        expect(toast).to_be_visible(timeout=patient(90_000))
        toast.click()
        expect(ada.page.locator(".Toastify").get_by_role("button", name="Keep")).to_have_count(
            0, timeout=patient(20_000)
        )

        ada.page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        ada.page.keyboard.press("Control+A")
        ada.page.keyboard.type("typed_but_never_saved = 1")
        expect(ada.page.locator(".Toastify").get_by_role("button", name="Keep")).to_be_visible(timeout=patient(90_000))

        ben.is_in_lab(150)
        assert "typed_but_never_saved" in (home / "work.ipynb").read_text(), "saved before the stop"
        ran = hook.with_name("gpu-before-stop.log").read_text()
        assert ran == "1\nof idle\ngpu-before-stop ended with status 0.\n", "its own program ran once it was saved"
        assert set(place.leases()) == {"ben"}
        until(lambda: place.hub.server("ada") is None, 10, "the server is stopped")
        box = ada.page.get_by_role("dialog")
        expect(box).to_contain_text("Your server was stopped at", timeout=patient(20_000))
        expect(box).to_contain_text("Its GPU was idle for")
        expect(box.get_by_role("button", name="Start again")).to_be_visible()
        ada.page.reload()
        expect(ada.page.locator("#gpu-ended")).to_contain_text("was stopped. Idle for")
        ada.page.goto(f"{place.hub.url}/hub/spawn/ada")
        expect(ada.page.locator("body")).to_contain_text("was stopped")
        expect(ada.page.locator("body")).to_contain_text("Your files are kept")
        pictures_of_the_audit(Person(browser, place.hub.url, "root-admin").page)


def pictures_of_the_audit(page: Page) -> None:
    """As an admin reads it; into the folder ``PANEL_PICTURES`` names."""
    page.goto(re.sub("/hub/.*", "/services/gpu/audit", page.url))
    for kind in ("warned", "kept on", "stopped"):
        expect(
            page.locator("tbody tr").filter(has=page.get_by_role("rowheader", name=kind, exact=True))
        ).not_to_have_count(0)
    for scheme in ("light", "dark") if (folder := os.environ.get("PANEL_PICTURES")) else ():
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.screenshot(path=f"{folder}/audit-{scheme}.png", full_page=True)


def notebook(path: Path) -> None:
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "source": "", "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
