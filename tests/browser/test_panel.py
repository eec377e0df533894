"""The panel in a real JupyterLab in a real browser: a simulated GPU, real kernels, a service the test sets.

Fixtures are in ``conftest.py``, the rest that tests share in ``lab.py``.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from hub_extensions.core.messages import Problem
from hub_extensions.core.text.reasons import explain
from tests.browser.lab import THEMES, UUID, Picture, a_server, choose, end_kernels, notebook, open_lab, until
from tests.fakes.panel_service import PanelService, a_countdown, a_state
from tests.fakes.user_server import UserServer

pytestmark = pytest.mark.needs("browser")

BUSY = """\
import time
data = b"x" * 300_000_000
until = time.time() + 60
while time.time() < until:
    pass"""


@pytest.mark.parametrize("theme", THEMES)
def test_the_panel_shows_this_servers_gpu(page: Page, server: UserServer, picture: Picture, theme: str) -> None:
    choose(server.directory, "themes", {"theme": f"JupyterLab {theme}"})
    panel = open_lab(page, server)
    expect(panel.get_by_role("heading", name="GPU")).to_be_visible()
    expect(panel).to_contain_text("Small GPU")
    expect(panel).to_contain_text("MIG 1g.5gb")
    expect(panel).to_contain_text("simulated GPU")
    expect(panel.get_by_role("meter", name="Memory")).to_be_visible()
    expect(panel).to_contain_text("of 4.75 GiB")
    expect(panel).to_contain_text("Medium GPU")
    expect(panel).to_contain_text("1 in line, wait at most 2 h 10 min", use_inner_text=True)
    expect(panel).to_contain_text("full")
    expect(panel).to_contain_text("The servers ahead end by their time limit at the latest.")
    expect(panel).to_contain_text("wait unknown")
    expect(panel).to_contain_text(
        "at the latest, or when its GPU is idle for 30 min (you are warned 10 min before).", use_inner_text=True
    )
    expect(panel).not_to_contain_text("No end is planned")
    expect(page.locator(".jp-gpu-Status")).to_contain_text("/4.75 GiB")
    picture(page, f"panel-quiet-{theme.lower()}")


@pytest.mark.parametrize("theme", THEMES)
def test_the_warning_is_a_notification_and_keep_takes_it_back(
    page: Page, server: UserServer, service: PanelService, picture: Picture, theme: str
) -> None:
    choose(server.directory, "themes", {"theme": f"JupyterLab {theme}"})
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    keeps = service.keeps
    panel = open_lab(page, server)
    expect(panel).to_contain_text("Idle for 21 min. Stops in 8 min")
    expect(panel).to_contain_text("Keep: 1 of 2 left in 24\u00a0h", use_inner_text=True)
    toast = page.locator(".jp-toastContainer, .Toastify").get_by_text("This server stops at")
    expect(toast.first).to_be_visible()
    expect(page.locator(".Toastify").get_by_role("button", name="Keep 30 min")).to_be_in_viewport(ratio=1)
    expect(page.locator(".jp-gpu-Status")).to_contain_text("stops in 8 min")
    picture(page, f"countdown-{theme.lower()}")
    button = panel.get_by_role("button", name="Keep 30 min")
    assert button.evaluate("button => button.scrollHeight <= button.clientHeight + 1"), "its words are cut"
    button.press("Enter")
    expect(panel).not_to_contain_text("Stops in")
    assert service.keeps == keeps + 1
    expect(toast).to_have_count(0)
    picture(page, f"kept-{theme.lower()}")
    soon = a_countdown(300)
    service.state = a_state(uuid=UUID, countdown=replace(soon, last_warning=soon.stops_at - timedelta(seconds=310)))
    expect(page.locator(".Toastify").get_by_text("The server stops in").first).to_be_visible()
    expect(page.locator(".Toastify").get_by_role("button", name="Keep 30 min")).to_be_in_viewport(ratio=1)
    expect(panel).to_contain_text("Stops in")
    picture(page, f"last-warning-{theme.lower()}")


@pytest.mark.whole
def test_a_share_of_a_gpu_shows_my_memory_against_my_share(
    page: Page, server: UserServer, service: PanelService
) -> None:
    half = {"offer": "gpu-0.5", "title": "Half of a GPU", "share": 0.5, "memory_bytes": 2 * 1024**3}
    service.state = a_state(uuid=UUID, **half)
    panel = open_lab(page, server)
    expect(panel).to_contain_text("of about 2\u00a0GiB")
    expect(panel).to_contain_text("Whole device, everybody:")
    expect(panel).to_contain_text("Your share is by agreement: nothing holds anybody to it.")
    expect(panel.get_by_role("meter", name="In use, all users")).to_be_visible()
    expect(page.locator(".jp-gpu-Status")).to_contain_text("GPU yours")


@pytest.mark.whole
def test_without_an_end_none_is_invented(page: Page, server: UserServer, service: PanelService) -> None:
    """A dry run: nothing is stopped, so nothing is promised either."""
    service.state = a_state(uuid=UUID, ends_at=None, keep=None, rule=None)
    panel = open_lab(page, server)
    expect(panel).to_contain_text("No end is planned.")
    expect(panel).not_to_contain_text("Ends at")


@pytest.mark.whole
def test_keep_in_the_notification_keeps_too(page: Page, server: UserServer, service: PanelService) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    keeps = service.keeps
    open_lab(page, server)
    page.locator(".Toastify").get_by_role("button", name="Keep 30 min").click()
    until(lambda: service.keeps == keeps + 1, page)


@pytest.mark.whole
def test_a_refused_keep_says_why(page: Page, server: UserServer, service: PanelService) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    why = explain("keep-none-left", times=2, day=timedelta(hours=24), wait=timedelta(minutes=90))
    service.refuse = (409, asdict(Problem.of(why)))
    panel = open_lab(page, server)
    panel.get_by_role("button", name="Keep 30 min").click()
    expect(panel).to_contain_text(why.message)


@pytest.mark.whole
@pytest.mark.parametrize("theme", THEMES)
def test_a_running_cell_moves_the_panel(page: Page, server: UserServer, picture: Picture, theme: str) -> None:
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
    drawn = panel.get_by_role("img", name="In use in the last 10 min").locator("path.jp-gpu-Line")
    until(lambda: str(drawn.get_attribute("d")).count("L") > 5, page)
    expect(panel.get_by_role("list", name="Used by")).to_contain_text("busy.ipynb")
    expect(panel).to_contain_text("running")
    picture(page, f"panel-{theme.lower()}")
    end_kernels(server)


@pytest.mark.whole
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


@pytest.mark.whole
def test_while_the_service_is_away_the_gpu_is_still_shown(
    page: Page, server: UserServer, service: PanelService, picture: Picture
) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    panel = open_lab(page, server)
    expect(panel).to_contain_text("Stops in")
    service.go()
    try:
        expect(panel).to_contain_text("The GPU service is not answering since")
        expect(panel).to_contain_text("The countdown and the end of this server stand still")
        expect(panel).not_to_contain_text("Waits now")
        expect(page.locator(".Toastify").get_by_text("The countdown and the end of this server")).to_have_count(1)
        expect(panel).not_to_contain_text("Stops in")
        expect(panel.get_by_role("meter", name="Memory")).to_be_visible()
        picture(page, "service-away")
    finally:
        service.come()
    expect(panel).to_contain_text("Stops in")
    expect(page.locator(".Toastify").get_by_text("This server stops at")).to_have_count(1)


@pytest.mark.whole
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
