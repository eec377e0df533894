"""A training that reports as any program could: shown in the panel, on a tab that is opened again, and to its end."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from hub_extensions.core.messages import Keep
from tests.browser.lab import THEMES, UUID, Picture, choose, open_lab
from tests.fakes.panel_service import PanelService, a_state
from tests.fakes.user_server import UserServer
from tests.patience import patient

pytestmark = pytest.mark.needs("browser")

TAKES = 6.0
"""Seconds from the panel of a page that is opened again to a training that runs."""


def report(server: UserServer, run: str, started: float, **changes: Any) -> None:
    """Write the file of a run of the server's own, as the library does: 13,600 steps of 20,000 in 54 minutes."""
    folder = server.directory / "runtime" / "gpu-progress"
    pid = server.process.pid
    born = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    fields: dict[str, Any] = {
        "version": 1, "run": run, "pid": pid, "born": born, "name": "mnist", "library": "loop",
        "state": "running", "started": started, "at": time.time(), "steps": 13_600, "start": 0, "total": 20_000,
        "epochs": 20, "epoch_steps": 1000, "patience": None, "first": 3.2, "group_steps": 256,
        "groups": [60.5, 61.0] * 26, "rest_steps": 287, "rest": 68.1,
    }  # fmt: skip
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / f".{run}.tmp").write_text(json.dumps({**fields, **changes}))
    (folder / f".{run}.tmp").replace(folder / f"{run}.json")


@pytest.mark.parametrize("theme", THEMES)
def test_a_training_is_there_when_the_tab_is_opened_again_and_says_when_it_is_done(
    page: Page, server: UserServer, service: PanelService, picture: Picture, theme: str
) -> None:
    choose(server.directory, "themes", {"theme": f"JupyterLab {theme}"})
    ends_at = datetime.now(timezone.utc) + timedelta(minutes=10)
    extend = Keep(120, 1, 1, of_server=True)
    service.state = a_state(uuid=UUID, can_notify=True, ends_at=ends_at, extend=extend)
    run, started = f"{time.time_ns():016x}"[-16:], time.time() - 3240
    panel = open_lab(page, server)
    expect(panel).to_contain_text("of 4.75 GiB")
    report(server, run, started)
    expect(panel.get_by_role("heading", name="Training")).to_be_visible()
    expect(panel.get_by_role("progressbar", name="Training mnist")).to_have_attribute("aria-valuenow", "68")
    expect(panel).to_contain_text("left")
    expect(panel).to_contain_text("likely done at")
    expect(panel).to_contain_text("Your training ends about")
    expect(panel.get_by_role("button", name="Ask for more time")).to_be_visible()
    expect(page.locator(".jp-gpu-Status")).to_contain_text("training 68")
    page.goto("about:blank")
    report(server, run, started)
    panel = open_lab(page, server)
    began = time.monotonic()
    expect(panel.get_by_role("progressbar", name="Training mnist")).to_be_visible(timeout=patient(TAKES * 1000))
    print(f"shown {time.monotonic() - began:.1f} s after the page was opened again")
    picture(panel, f"training-{theme.lower()}")
    report(server, run, started, state="done", steps=20_000)
    expect(panel).to_contain_text("Done at")
    expect(page.locator(".Toastify").get_by_text("mnist: Done at")).to_have_count(1)
    expect(panel.get_by_role("progressbar", name="Training mnist")).to_have_count(0)
    expect(panel).not_to_contain_text("Your training ends about")
    (server.directory / "runtime" / "gpu-progress" / f"{run}.json").unlink()
    expect(panel.get_by_text("Show the time left of your training")).to_be_visible()
