"""The demo as eight people meet it: six get six different devices, the seventh and the eighth wait, and somebody stops.

Takes the pictures of the README into the folder ``PICTURES`` names, else into a temporary one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, expect

from tests.hubs import ROOT, proxy_command, until
from tests.loop.place import Person, browsers
from tests.loop.quiet_log import faults
from tests.patience import patient

pytestmark = [
    pytest.mark.needs("browser", "plain-user"),
    pytest.mark.timeout(600),
    pytest.mark.whole,
]

SCHEMES = ("light", "dark")
OFFERS = ["mig-1g.5gb"] * 5 + ["mig-2g.10gb"] + ["mig-1g.5gb"] * 2


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


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What ``jupyterhub-gpu demo`` says of itself in demo.json, and the process."""
    folder = tmp_path_factory.mktemp("demo")
    command = proxy_command()
    assert command, "configurable-http-proxy is not installed"
    path = os.pathsep.join([str(Path(command[0]).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hub_extensions.tools.cli",
            "demo",
            "--port",
            "0",
            "--dir",
            str(folder),
            "--layout",
            "lab-a100",
        ],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        stdout=(folder.parent / "demo.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    told = folder / "demo.json"
    try:
        until(told.exists, 120, "the demo is up")
        yield {**json.loads(told.read_text()), "folder": folder, "process": process}
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(patient(20))
        finally:
            process.kill()


def admin_token(demo: dict[str, Any], browser: Browser) -> str:
    """An admin makes a token in the hub's own way: by its API, from a logged-in page."""
    admin = Person(browser, demo["url"], demo["admin"], demo["admin_password"])
    made = admin.page.evaluate(
        """async () => {
            const answer = await fetch('/hub/api/users/admin/tokens', {
                method: 'POST', headers: {'X-XSRFToken': window.jhdata.xsrf_token, 'Content-Type': 'application/json'},
                body: JSON.stringify({note: 'test'})});
            return await answer.json();
        }"""
    )
    admin.leave()
    return str(made["token"])


def leases(demo: dict[str, Any], token: str) -> dict[str, dict[str, Any]]:
    answer = requests.get(
        f"{demo['url']}/services/gpu/api/leases", headers={"Authorization": f"token {token}"}, timeout=patient(10)
    )
    answer.raise_for_status()
    return {lease["user"]: lease for lease in answer.json()}


def tickets(demo: dict[str, Any], token: str) -> set[str]:
    """Who has a place in line, or starts."""
    answer = requests.get(
        f"{demo['url']}/services/gpu/api/tickets", headers={"Authorization": f"token {token}"}, timeout=patient(10)
    )
    answer.raise_for_status()
    return {ticket["user"] for ticket in answer.json()}


def environ(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


def panel_says(person: Person) -> dict[str, Any]:
    """What this person's panel is fed with."""
    url = f"{person.url}/user/{person.name}/gpu/snapshot"
    cookies = {cookie["name"]: cookie["value"] for cookie in person.context.cookies(url)}
    answer = person.context.request.get(url, headers={"X-XSRFToken": cookies.get("_xsrf", "")})
    assert answer.ok, answer.text()
    found: dict[str, Any] = answer.json()
    return found


def panel_knows(person: Person) -> dict[str, Any] | None:
    """What the panel says, once it knows its server and has looked at the GPU: two threads, in either order."""
    said = panel_says(person)
    return said if said["server"] and said["gpus"] else None


def in_dark(browser: Browser, demo: dict[str, Any], name: str) -> Person:
    return Person(browser, demo["url"], name, demo["password"], scheme="dark")


def pictures_of_the_form(browser: Browser, demo: dict[str, Any], name: str, pictures: Path) -> None:
    """A full small offer is chosen, and what is left of the line is seen."""
    for scheme in SCHEMES:
        person = Person(browser, demo["url"], name, demo["password"], scheme=scheme)
        person.form()
        person.page.check('input[type=radio][value="mig-1g.5gb"]')
        person.page.screenshot(path=pictures / f"form-{scheme}.png", full_page=True)
        person.leave()


def test_eight_users_share_one_card(browser: Browser, demo: dict[str, Any], pictures: Path) -> None:
    names, url = demo["users"], demo["url"]
    for scheme in SCHEMES:
        size = {"width": 1100, "height": 640}
        login = browser.new_page(viewport=size, locale="en-GB", color_scheme=scheme)  # type: ignore[arg-type]
        login.set_default_timeout(patient(30_000))
        login.goto(f"{url}/hub/login")
        expect(login.locator("body")).to_contain_text("one Unix account for all demo users")
        login.screenshot(path=pictures / f"login-{scheme}.png")
        login.close()
    people = {name: Person(browser, url, name, demo["password"]) for name in names}
    token = admin_token(demo, browser)

    people["ada"].form()
    expect(people["ada"].page.locator("body")).to_contain_text("simulated GPU")
    expect(people["ada"].page.locator("body")).to_contain_text("one Unix account for all demo users")

    for name, offer in list(zip(names, OFFERS, strict=True))[:6]:
        people[name].take(offer)
        people[name].is_in_lab()
        if name != "ada":
            people[name].page.goto("about:blank")  # six JupyterLabs in one browser keep two cores from all else
    held = leases(demo, token)
    assert len({lease["uuid"] for lease in held.values()}) == 6, "six servers, six devices"
    for name in names[:6]:
        mine = held[name]["uuid"]
        until(lambda name=name: leases(demo, token)[name]["pid"], 20, "its process is known")
        env = environ(int(leases(demo, token)[name]["pid"]))
        assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == mine
        assert env["JUPYTERHUB_GPU_LEASE"] == held[name]["lease"]
        said = until(lambda name=name: panel_knows(people[name]), 30, "the panel knows server and GPU")
        assert [gpu["uuid"] for gpu in said["gpus"]] == [mine] and said["server"]["uuid"] == mine

    seventh, eighth = people[names[6]], people[names[7]]
    for person, place in ((seventh, "1st"), (eighth, "2nd")):
        person.form()
        expect(person.page.locator("#spawn_form")).to_contain_text(re.compile("full[ ,]"))
        person.page.check('input[type=radio][value="mig-1g.5gb"]')
        expect(person.page.locator("#spawn_form button[type=submit]")).to_have_text(re.compile("Join the line"))
        if person is eighth:
            pictures_of_the_form(browser, demo, names[7], pictures)
        person.page.click("#spawn_form button[type=submit]")
        person.waits(place)
        expect(person.page.locator("#gpu-waiting")).to_contain_text("Small GPU: all 5 are in use")
        expect(person.page.locator("#gpu-waiting")).to_contain_text("wait at most")
        expect(person.page.locator("#gpu-waiting")).to_contain_text("simulated GPU")
    assert eighth.page.title().startswith("(2) in line")
    eighth.page.screenshot(path=pictures / "waiting-light.png")

    dark = in_dark(browser, demo, names[7])
    dark.page.goto(f"{url}/hub/spawn-pending/{names[7]}")
    dark.waits("2nd")
    dark.page.screenshot(path=pictures / "waiting-dark.png")
    dark.leave()

    people["ada"].stop_at_home()
    seventh.is_in_lab()
    eighth.waits("1st")
    assert leases(demo, token)[names[6]]["uuid"] == held["ada"]["uuid"], "the device went on to the next in line"

    admin = Person(browser, url, demo["admin"], demo["admin_password"])
    admin.page.goto(f"{url}/services/gpu/admin")
    expect(admin.page.locator("body")).to_contain_text(names[7])
    admin.page.screenshot(path=pictures / "admin.png", full_page=True)
    admin.leave()

    left = requests.delete(
        f"{url}/hub/api/users/{names[7]}/server", headers={"Authorization": f"token {token}"}, timeout=patient(20)
    )
    assert left.ok, left.text
    until(lambda: names[7] not in tickets(demo, token), 20, "out of the line")
    assert faults((demo["folder"] / "hub.log").read_text(), demo["admin"]) == []


def test_ctrl_c_leaves_nothing_running(demo: dict[str, Any]) -> None:
    """Runs last: it stops the demo, with servers running and somebody in line."""
    marked = f"JUPYTERHUB_GPU_DEMO={demo['folder']}".encode()

    def left() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if marked in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(entry.name)
                except OSError:
                    continue
        return found

    assert left(), "servers run"
    demo["process"].send_signal(signal.SIGINT)
    demo["process"].wait(patient(15))
    until(lambda: not left(), 2, "nothing is left")
