"""What the browser tests share: one fake service and server, one browser and one page of it, emptied after each test.

Pictures are taken where ``PANEL_PICTURES`` names a folder for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.browser.lab import PATIENCE_MS, PICTURES, UUID, Picture, a_server, a_tab, empty
from tests.fakes.panel_service import PanelService, a_state
from tests.fakes.user_server import UserServer
from tests.machine_needs import CHROMIUM_FLAGS


@pytest.fixture(scope="package")
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    yield service
    service.go()


@pytest.fixture(autouse=True)
def a_fresh_state(service: PanelService) -> None:
    service.state, service.refuse = a_state(uuid=UUID), None


@pytest.fixture(scope="package")
def server(service: PanelService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    server = a_server(tmp_path_factory.mktemp("lab"), service)
    yield server
    server.stop()


@pytest.fixture(scope="package")
def browser(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Iterator[Page]:
    """One page: it loads JupyterLab again with half the work of a new one."""
    with a_tab(browser, 1180, 760) as tab:
        yield tab


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """The page, with nothing of the test before."""
    yield tab
    empty(tab)


@pytest.fixture(scope="package")
def picture() -> Picture:
    """``picture(page, name)``."""

    def take(of: Page | Locator, name: str) -> None:
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            of.screenshot(path=Path(PICTURES) / f"{name}.png")

    return take
