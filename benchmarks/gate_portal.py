"""The portal with 200 apps beside the hub's own home page: first paint in Chromium, in milliseconds.

A real hub, its gate and nginx, and one person who is signed in. The two pages are opened by turns, each as often, so
that what else the machine does meets both. An app of another group is in neither the page nor the figure.

    .work/venv/bin/python -m benchmarks.gate_portal
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.gate_lab import Lab, LabProxy
from benchmarks.gate_lab_apps import Door
from tests.gate.apps_lab import HOST
from tests.loop.place import THREE_SMALL, Place
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient, until
from tests.ports import free_port

APPS = 200
_CONFIG = """
c.JupyterHub.load_groups = {{"lab": {{"users": ["ada"]}}, "ops": {{"users": []}}}}
c.SignOn.enabled = True
c.SignOnGate.enabled = True
c.SignOnGate.url = {origin!r}
c.SignOnGate.port = {gate_port}
c.SignOnGate.apps = {apps!r}
"""
PAINT = """() => new Promise(done => new PerformanceObserver(list => {
  for (const each of list.getEntries()) if (each.name === "first-contentful-paint") done(each.startTime)
}).observe({type: "paint", buffered: true}))"""


def signed_in(browser: Browser, place: Place) -> Page:
    """As ada, at the hub's form."""
    page = browser.new_page()
    page.set_default_timeout(patient(60_000))
    page.goto(f"{place.hub.url}/hub/login?next=%2Fhub%2Fhome")
    page.fill("#username_input", "ada")
    page.fill("#password_input", "any")
    page.click("#login_submit")
    page.wait_for_url("**/hub/home")
    return page


def painted(page: Page, address: str) -> float:
    """Milliseconds from the begin of the way there."""
    page.goto(address)
    return float(page.evaluate(PAINT))


def print_paints(page: Page, pages: dict[str, str], rounds: int) -> None:
    """A row a page."""
    took: dict[str, list[float]] = {name: [] for name in pages}
    for address in pages.values():
        painted(page, address)  # what is kept is kept
    for _ in range(rounds):
        for name, address in pages.items():
            took[name].append(painted(page, address))
    home = statistics.median(next(iter(took.values())))
    for name, each in took.items():
        middle, slow = statistics.median(each), sorted(each)[int(len(each) * 0.95)]
        print(f"{name}: first paint median {middle:.0f} ms, p95 {slow:.0f} ms, {middle - home:+.0f} ms", flush=True)


def main() -> None:
    """Start all, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="so often is each page opened (default: %(default)s)")
    rounds = parser.parse_args().rounds
    door = Door(HOST, free_port(HOST))
    origin = door.origin
    entries = {
        f"app-{n}": {
            "title": f"App {n}", "where": f"{origin}/app-{n}/", "upstream": "http://127.0.0.1:9",
            "groups": ["lab" if n < APPS else "ops"],
        }
        for n in range(APPS + 1)
    }  # fmt: skip
    config = _CONFIG.format(origin=origin, gate_port=free_port(), apps=entries)
    with tempfile.TemporaryDirectory(prefix="gate-portal-") as name, sync_playwright() as play:
        folder = Path(name)
        with Place(folder / "hub", layout=THREE_SMALL, config=config, lab=False).open() as place:
            proxy = LabProxy("nginx", folder / "nginx", Lab(folder, place, door, (), None))
            proxy.start()
            browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM_PATH"), args=CHROMIUM_FLAGS)
            try:
                until(lambda: door.ask("/_gate/health").status == 200, 60, "the gate answers")
                page = signed_in(browser, place)
                page.goto(origin)
                shown = page.locator("a[href*='/app-']").count()
                print(f"load {os.getloadavg()[0]:.1f}, {shown} apps shown of {len(entries)}", flush=True)
                print_paints(page, {"the hub's home": f"{place.hub.url}/hub/home", "the portal": f"{origin}/"}, rounds)
            finally:
                browser.close()
                proxy.stop()


if __name__ == "__main__":
    main()
