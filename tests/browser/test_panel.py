"""The panel in a real JupyterLab in a real browser: a simulated GPU, real kernels, a service the test sets.

Pictures go to the folder ``PANEL_PICTURES`` names, else to the test's own temporary folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from hub_extensions.adapters.simulated import load_layout
from tests.fakes.panel_service import TOKEN, PanelService, a_countdown, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.machine_needs import built_panel

pytestmark = pytest.mark.needs("browser")

BUILT = built_panel()
UUID = next(device.uuid for device in load_layout("lab-a100").devices if device.profile == "1g.5gb")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 40_000
BUSY = """\
import time
data = b"x" * 300_000_000
until = time.time() + 60
while time.time() < until:
    pass"""


@pytest.fixture(scope="module")
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    yield service
    service.go()


@pytest.fixture(autouse=True)
def a_fresh_state(service: PanelService) -> None:
    service.state, service.refuse = a_state(uuid=UUID), None


@pytest.fixture(scope="module")
def server(service: PanelService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    server = a_server(tmp_path_factory.mktemp("lab"), service)
    yield server
    server.stop()


def a_server(directory: Path, service: PanelService, port: int = 0) -> UserServer:
    """A server with the built panel on a simulated MIG device."""
    assert (BUILT / "package.json").exists(), "the panel is not built: npm run build"
    extensions = directory / "share" / "labextensions"
    if not extensions.exists():
        extensions.mkdir(parents=True)
        (extensions / "jupyterhub-gpu").symlink_to(BUILT)
    choose(directory, "notification", {"fetchNews": "false", "checkForUpdates": False})
    environ = {
        "JUPYTER_PATH": str(directory / "share"),
        "JUPYTERHUB_GPU_SERVICE_URL": service.url,
        "JUPYTERHUB_API_TOKEN": TOKEN,
        "JUPYTERHUB_GPU_LEASE": "lease-of-this-test",
        "JUPYTERHUB_GPU_SIMULATED": "lab-a100",
        "CUDA_VISIBLE_DEVICES": UUID,
    }
    return UserServer(directory, environ, port=port)


def choose(directory: Path, plugin: str, settings: dict[str, object]) -> None:
    """Write a user's own JupyterLab settings."""
    folder = directory / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{plugin}.jupyterlab-settings").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1180, "height": 760}, locale="en-GB", timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    context.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("PANEL_PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_lab(page: Page, server: UserServer, path: str = "lab") -> Locator:
    """JupyterLab with the panel open; returns the panel."""
    page.goto(f"{server.url}{path}?reset&token={LOGIN_TOKEN}")
    page.locator("#jp-main-dock-panel").wait_for()
    panel = page.locator("#jupyterhub-gpu-panel")
    if not panel.is_visible():
        page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]').click()
    panel.wait_for()
    return panel


def until(true: Callable[[], object], page: Page, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        page.wait_for_timeout(100)


def notebook(server: UserServer, name: str, source: str) -> None:
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (server.work / name).write_text(json.dumps(content))


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_panel_shows_this_servers_gpu(page: Page, server: UserServer, pictures: Path, theme: str) -> None:
    choose(server.directory, "themes", {"theme": f"JupyterLab {theme}"})
    panel = open_lab(page, server)
    expect(panel.get_by_role("heading", name="GPU")).to_be_visible()
    expect(panel).to_contain_text("MIG 1g.5gb")
    expect(panel).to_contain_text("simulated GPU")
    expect(panel.get_by_role("meter", name="Memory")).to_be_visible()
    expect(panel).to_contain_text("of 4.75 GiB")
    expect(panel).to_contain_text("MIG 2g.10gb")
    expect(panel).to_contain_text("1 in line, at most 2 h 10 min")
    expect(panel).to_contain_text("wait unknown")
    expect(panel).to_contain_text("Stops when its GPU is idle for 30 min")
    expect(panel).not_to_contain_text("No end is planned")
    expect(page.locator(".jp-gpu-Status")).to_contain_text("/4.75 GiB")
    page.screenshot(path=pictures / f"panel-quiet-{theme.lower()}.png")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_warning_is_a_notification_and_keep_takes_it_back(
    page: Page, server: UserServer, service: PanelService, pictures: Path, theme: str
) -> None:
    choose(server.directory, "themes", {"theme": f"JupyterLab {theme}"})
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    keeps = service.keeps
    panel = open_lab(page, server)
    expect(panel).to_contain_text("Idle for 21 min. Stops in 8 min")
    expect(panel).to_contain_text("1 of 2 left in 24\u00a0h")
    toast = page.locator(".jp-toastContainer, .Toastify").get_by_text("This server stops at")
    expect(toast.first).to_be_visible()
    expect(page.locator(".Toastify").get_by_role("button", name="Keep 30 min")).to_be_in_viewport(ratio=1)
    expect(page.locator(".jp-gpu-Status")).to_contain_text("stops in 8 min")
    page.screenshot(path=pictures / f"countdown-{theme.lower()}.png")
    button = panel.get_by_role("button", name="Keep 30 min")
    assert button.evaluate("button => button.scrollHeight <= button.clientHeight + 1"), "its words are cut"
    button.press("Enter")
    expect(panel).not_to_contain_text("Stops in")
    assert service.keeps == keeps + 1
    expect(toast).to_have_count(0)


def test_a_share_of_a_gpu_says_that_its_numbers_are_everybodys(
    page: Page, server: UserServer, service: PanelService, pictures: Path
) -> None:
    half = {"offer": "gpu-0.5", "title": "Half of a GPU", "share": 0.5, "memory_bytes": 2 * 1024**3}
    service.state = a_state(uuid=UUID, **half)
    panel = open_lab(page, server)
    expect(panel.get_by_role("meter", name="Memory, all users")).to_be_visible()
    expect(panel.get_by_role("meter", name="In use, all users")).to_be_visible()
    expect(panel).to_contain_text("Your share is about 2 GiB, without a wall.")
    expect(page.locator(".jp-gpu-Status")).to_contain_text("GPU, all users:")
    page.screenshot(path=pictures / "panel-share.png")


def test_without_an_end_none_is_invented(page: Page, server: UserServer, service: PanelService) -> None:
    """A dry run: nothing is stopped, so nothing is promised either."""
    service.state = a_state(uuid=UUID, ends_at=None, keep=None, rule="")
    panel = open_lab(page, server)
    expect(panel).to_contain_text("No end is planned.")
    expect(panel).not_to_contain_text("Ends at the latest")


def test_keep_in_the_notification_keeps_too(page: Page, server: UserServer, service: PanelService) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    keeps = service.keeps
    open_lab(page, server)
    page.locator(".Toastify").get_by_role("button", name="Keep 30 min").click()
    until(lambda: service.keeps == keeps + 1, page)


def test_a_refused_keep_says_why(page: Page, server: UserServer, service: PanelService) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    service.refuse = (409, {"message": "Both are used for today.", "field": "", "word": "keeps"})
    panel = open_lab(page, server)
    panel.get_by_role("button", name="Keep 30 min").click()
    expect(panel).to_contain_text("Both are used for today.")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_a_running_cell_moves_the_panel(page: Page, server: UserServer, pictures: Path, theme: str) -> None:
    choose(server.directory, "themes", {"theme": f"JupyterLab {theme}"})
    notebook(server, "busy.ipynb", BUSY)
    panel = open_lab(page, server, "lab/tree/busy.ipynb")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle")  # a cell run before that is not run
    page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")
    meter = panel.get_by_role("meter", name="In use")
    until(lambda: int(meter.get_attribute("aria-valuenow") or 0) > 10, page, 60)
    memory = panel.get_by_role("meter", name="Memory")
    until(lambda: int(memory.get_attribute("aria-valuenow") or 0) > 3, page)
    page.screenshot(path=pictures / f"panel-{theme.lower()}.png")
    end_kernels(server)


def end_kernels(server: UserServer) -> None:
    for kernel in server.request("api/kernels")[1]:
        server.request(f"api/kernels/{kernel['id']}", "DELETE")


def test_open_notebooks_are_saved_before_the_stop(page: Page, server: UserServer, service: PanelService) -> None:
    notebook(server, "unsaved.ipynb", "")
    service.state = a_state(uuid=UUID, countdown=a_countdown(120))
    open_lab(page, server, "lab/tree/unsaved.ipynb")
    page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
    page.keyboard.type("the_work_of_a_day = 1")
    service.state = a_state(uuid=UUID, countdown=a_countdown(30, can_keep=False), save=True)
    until(lambda: "the_work_of_a_day" in (server.work / "unsaved.ipynb").read_text(), page)
    until(lambda: service.reports[-1]["saved"], page)
    end_kernels(server)


def test_while_the_service_is_away_the_gpu_is_still_shown(
    page: Page, server: UserServer, service: PanelService, pictures: Path
) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    panel = open_lab(page, server)
    expect(panel).to_contain_text("Stops in")
    service.go()
    try:
        expect(panel).to_contain_text("The GPU service is not answering since")
        expect(panel).to_contain_text("Its countdown and its end stand still")
        expect(panel).not_to_contain_text("Waits now")
        expect(page.locator(".Toastify").get_by_text("This server stops at")).to_have_count(0)
        expect(panel).not_to_contain_text("Stops in")
        expect(panel.get_by_role("meter", name="Memory")).to_be_visible()
        page.screenshot(path=pictures / "service-away.png")
    finally:
        service.come()
    expect(panel).to_contain_text("Stops in")


def test_a_page_that_lost_its_server_says_so_and_finds_it_again(
    page: Page, service: PanelService, tmp_path: Path
) -> None:
    server = a_server(tmp_path, service)
    try:
        panel = open_lab(page, server)
        expect(panel).to_contain_text("of 4.75 GiB")
    finally:
        server.stop()
    expect(panel).to_contain_text("This page cannot reach its server. It keeps trying.")
    again = a_server(tmp_path, service, server.port)
    try:
        expect(panel).not_to_contain_text("This page cannot reach its server")
    finally:
        again.stop()
