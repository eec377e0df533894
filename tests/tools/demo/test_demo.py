"""The demo: what it refuses with a sentence, what it writes, and that it leaves nothing running.

With DEMO_PICTURES the picture of the docs is written into that folder.
"""

from __future__ import annotations

import http.cookiejar
import itertools
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import types
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.configuration import clean_environment, configuration_of
from hub_extensions.tools.demo.plan import (
    Demo,
    DemoOptions,
    Ports,
    check_programs,
    choose_gpus,
    choose_ports,
    people,
)
from hub_extensions.tools.demo.processes import MARK, marked
from hub_extensions.tools.demo.run import _becomes_ready, run
from hub_extensions.tools.demo.sign_in import FACTS, SignInService, planned, wanted_port
from tests.authenticator.test_pages_in_browser import findings
from tests.machine_needs import CHROMIUM_FLAGS, demo_apps, sign_in_service
from tests.patience import patient
from tests.plain_account import PlainAccount, plain_account, until

STOPS_WITHIN_SECONDS = 15


# ------------------------------------------------------------------ without starting anything


def test_the_first_eight_people_have_first_names() -> None:
    assert people(8) == ("ada", "ben", "cleo", "dan", "eva", "finn", "gus", "hana")


def test_any_number_of_people_have_different_names() -> None:
    names = people(100)
    assert len(set(names)) == 100
    assert names[-1] == "user-100"


def test_the_hub_gets_none_of_the_callers_jupyter_settings(tmp_path: Path) -> None:
    caller = {
        "JUPYTERHUB_API_TOKEN": "x",
        "CONFIGPROXY_AUTH_TOKEN": "x",
        "JUPYTER_CONFIG_DIR": "/home/x",
        "PYTHONPATH": "/home/x",
        "IPYTHONDIR": "/home/x",
        "PATH": "/usr/bin",
        "LANG": "C.UTF-8",
        "no_proxy": "example.org",
    }
    given = clean_environment(tmp_path, caller)
    assert given["LANG"] == "C.UTF-8"
    assert given["PATH"].endswith(":/usr/bin")
    assert given["no_proxy"] == "example.org,127.0.0.1,localhost"
    assert given[MARK] == str(tmp_path)
    assert "/home/x" not in str(given)
    assert not [name for name in given if name.startswith(("JUPYTERHUB_API", "CONFIGPROXY_", "JUPYTER_"))]


def test_a_taken_port_is_a_sentence_that_names_another(free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        with pytest.raises(DemoRefused, match=rf"Port {free_port} is taken.*--port {free_port + 1}\."):
            choose_ports(free_port)
        with pytest.raises(DemoRefused, match=rf"Port {free_port} is taken.*--port {free_port + 1}\."):
            choose_ports(free_port - 2, sign_in=0, apps=True)


def test_the_chosen_ports_are_all_different() -> None:
    ports = choose_ports(0)
    assert len({ports.public, ports.hub, ports.proxy, ports.service}) == 4


def test_an_unknown_layout_is_a_sentence_that_lists_the_known() -> None:
    with pytest.raises(DemoRefused, match=r"--layout lab-b200: .*lab-a100"):
        choose_gpus("lab-b200")


def test_a_layout_file_is_found_from_any_folder(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('title: "One card"\ngpus:\n  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n')
    assert choose_gpus(str(file)) == (str(file), f"The GPUs are simulated (layout {file}).")


def test_the_written_configuration_is_one_python_can_read_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "demo" {x}'
    demo = Demo(folder, Ports(1, 2, 3, 4), ("ada",), "lab-a100", "p" * 12, "q" * 32)
    text = configuration_of(demo)
    compile(text, "jupyterhub_config.py", "exec")
    assert "for trying, not for use" in text
    assert "127.0.0.1" in text
    assert "0.0.0.0" not in text
    assert "allow-root" not in text


def with_sign_in(folder: Path) -> Demo:
    service = SignInService(folder / "sso", 5, "mig-2g.10gb", "a secret", "a key")
    return Demo(folder, Ports(1, 2, 3, 4, 5), ("ada", "ben"), "lab-a100", "p" * 12, "q" * 32, service)


def test_with_a_sign_in_service_nobody_has_a_password_and_no_secret_is_in_the_configuration(tmp_path: Path) -> None:
    text = configuration_of(with_sign_in(tmp_path))
    compile(text, "jupyterhub_config.py", "exec")
    assert "http://localhost:5" in text
    assert "assword" not in text
    assert "a secret" not in text and "a key" not in text


def test_a_sign_in_service_stays_at_its_address_since_people_are_known_by_it(tmp_path: Path) -> None:
    assert (wanted_port(tmp_path, 8000), wanted_port(tmp_path, 0)) == (8001, 0)
    service = planned(tmp_path, tmp_path, 5, "lab-a100")
    (tmp_path / FACTS).write_text(service.facts("http://127.0.0.1:1"))
    assert wanted_port(tmp_path, 8000) == 5
    assert service.offer == "mig-2g.10gb", "the largest is for the group"
    assert planned(tmp_path, tmp_path, 5, "lab-a100").key == service.key


def test_a_sign_in_service_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DemoRefused, match=r"There is no sign-in service in .*\./scripts/demo --sso"):
        check_programs(DemoOptions(tmp_path, sso=tmp_path))


def test_nobody_is_asked_through_the_proxy_before_hub_and_service_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the log of a start that goes well has a 404."""
    made, asked = Demo(tmp_path, Ports(1, 2, 3, 4), (), "lab-a100", "p", "q"), list[str]()

    def answers(url: str) -> bool:
        asked.append(url)
        return asked.count(url) == 2

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            asked.append("a pause")
            return False

    monkeypatch.setattr("hub_extensions.tools.demo.run._answers", answers)
    hub: Any = types.SimpleNamespace(poll=lambda: None)
    assert _becomes_ready(made, hub, Stop(), lambda text: None)
    ports = [str(urllib.parse.urlsplit(each).port) for each in asked if each != "a pause"]
    assert "".join(ports) == "22441111" and asked[1::2] == ["a pause"] * 7, "each in its turn"


@pytest.mark.needs("root")
def test_root_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """T18: as root, every demo user would have a root shell."""
    with pytest.raises(DemoRefused, match="does not run as root"):
        run(DemoOptions(folder=tmp_path / "demo", port=0), lambda text: None)
    assert not (tmp_path / "demo").exists()


# ------------------------------------------------------------------ a real one


@pytest.fixture
def account() -> Iterator[PlainAccount]:
    with plain_account() as made:
        yield made
        for pid, _ in marked(made.folder / "demo"):
            os.kill(pid, signal.SIGKILL)


def demo(account: PlainAccount, *words: str) -> subprocess.Popen[str]:
    return account.popen(sys.executable, "-m", "hub_extensions.tools.cli", "demo", *words)


class Visitor:
    """Somebody with a browser's cookies."""

    def __init__(self, facts: dict[str, Any], name: str, password: str) -> None:
        self.url = facts["url"]
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies)
        )
        self.open("/hub/login")
        form = {"username": name, "password": password, "_xsrf": self.xsrf()}
        self.home = self.open("/hub/login", urllib.parse.urlencode(form).encode())

    def xsrf(self) -> str:
        return next(str(cookie.value) for cookie in self.cookies if cookie.name == "_xsrf" and cookie.path == "/hub/")

    def open(self, path: str, data: bytes | None = None, kind: str = "application/x-www-form-urlencoded") -> str:
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind})
        with self.opener.open(request, timeout=patient(30)) as answer:
            text: str = answer.read().decode()
            return text

    def api(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        text = self.open(f"/hub/api{path}?_xsrf={urllib.parse.quote(self.xsrf())}", data, "application/json")
        return json.loads(text) if text else None


def server_of(visitor: Visitor, user: str) -> dict[str, Any]:
    found: dict[str, Any] = visitor.api(f"/users/{user}")["servers"].get("", {})
    return found


@pytest.mark.whole
@pytest.mark.programs
def test_a_demo_runs_the_loop_survives_its_own_death_and_leaves_nothing(account: PlainAccount) -> None:
    """T16: it is started from a background process whose SIGINT a shell may have ignored, and stops all the same."""
    folder = account.folder / "demo"
    words = ("--port", "0", "--dir", str(folder), "--users", "2", "--layout", "lab-a100")
    first = demo(account, *words)
    facts = until(lambda: _facts(folder), 120, first)
    assert facts["users"] == ["ada", "ben"]
    assert facts["admin"] == "admin"
    assert facts["url"].startswith("http://127.0.0.1:")
    for name in ("demo.json", "passwords.json", "jupyterhub_config.py"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600

    said, _ = (other := demo(account, *words)).communicate(timeout=patient(60))
    assert (other.returncode, said.count("\n")) == (2, 1)
    assert "A demo runs in" in said

    first.kill()
    first.communicate()
    until(lambda: not marked(folder), 30)
    earlier = left_over(account, folder)
    second = demo(account, *words)
    again = until(lambda: _facts(folder, newer_than=facts), 120, second)
    earlier.communicate(timeout=patient(1))
    assert earlier.returncode is not None
    assert again["password"] == facts["password"]

    ada = Visitor(again, "ada", again["password"])
    assert "for trying, not for use" in ada.home
    ada.api("/users/ada/server", {"offer": "mig-2g.10gb"})
    until(lambda: server_of(ada, "ada").get("ready"), 60, second)
    devices = {_variable(pid, "CUDA_VISIBLE_DEVICES") for pid, _ in marked(folder)} - {None}
    assert len(devices) == 1
    assert devices.pop().startswith("MIG-")
    child = left_over(account, folder)

    second.send_signal(signal.SIGINT)
    said, _ = second.communicate(timeout=patient(STOPS_WITHIN_SECONDS))
    assert second.returncode == 0, said
    assert not marked(folder), said
    child.communicate(timeout=patient(1))
    assert child.returncode is not None
    assert "Traceback" not in said


@pytest.mark.whole
@pytest.mark.needs("oidc-provider", "demo-apps", "nginx", "browser")
@pytest.mark.timeout(600)
def test_a_demo_with_single_sign_on_opens_real_apps_audits_them_and_closes_them_with_the_sign_out(
    account: PlainAccount, chromium_path: str
) -> None:
    folder = account.folder / "demo"
    words = ("--port", "0", "--dir", str(folder), "--layout", "lab-a100")
    process = demo(account, *words, "--sso", str(sign_in_service()), "--apps", str(demo_apps()))
    facts = until(lambda: _facts(folder), 120, process)
    assert "password" not in facts
    expect.set_options(timeout=patient(30_000))
    with sync_playwright() as play, play.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS) as browser:

        def a_page(address: str) -> Page:
            context = browser.new_context()
            context.set_default_timeout(patient(30_000))
            page = context.new_page()
            page.goto(address)
            return page

        ada, ben = (signed_in(a_page(facts["apps_url"]), facts["apps_url"], name) for name in ("Ada", "Ben"))
        links = [page.get_by_role("region", name="Apps").get_by_role("link") for page in (ada, ben)]
        expect(links[0]).to_have_text([re.compile("Dask dashboard ● up"), re.compile("TensorBoard ● up")])
        expect(links[1]).to_have_text([re.compile("TensorBoard")])
        links[0].nth(0).click()
        expect(ada.get_by_text("Data Transfer")).to_be_visible()
        ada.goto(facts["apps_url"])
        links[0].nth(1).click()
        expect(ada.get_by_text("learning-rate-0.5").first).to_be_visible()
        board, dask = (ada.url.split("#")[0].replace("tensorboard", name) for name in ("tensorboard", "dask"))
        assert leads_to(ben, dask) == (403, "dask.localhost")

        service = a_page(facts["sign_in_url"])
        service.get_by_role("button", name="Audit the apps").click()
        service.get_by_role("button", name="Run the audit").click()
        expect(service.get_by_text("Nothing is open.")).to_be_visible()
        expect(service.get_by_text("led to the sign-in").first).to_be_visible()
        assert findings(service) == []
        stranger = a_page("about:blank")
        service.get_by_role("button", name="Plant a fault").click()
        expect(service.get_by_role("button", name="Take the fault back")).to_be_visible()
        assert leads_to(stranger, board) == (200, "tensorboard.localhost"), "the fault is one"
        service.get_by_role("button", name="Take the fault back").click()
        expect(service.get_by_role("button", name="Plant a fault")).to_be_visible()
        assert leads_to(stranger, board) == (200, "127.0.0.1"), "the hub's login"

        service.goto(facts["sign_in_url"])
        for button, status in (("Take Ada out of thesis", 403), ("Put Ada back into thesis", 200)):
            service.get_by_role("button", name=button).click()
            until(lambda status=status: leads_to(ada, dask) == (status, "dask.localhost"), 20)
        service.get_by_role("button", name="Sign Ada out everywhere").click()
        until(lambda: leads_to(ada, dask) == (200, "127.0.0.1"), 30)
        if pictures := os.environ.get("DEMO_PICTURES"):
            service.set_viewport_size({"width": 818, "height": 800})
            service.screenshot(path=f"{pictures}/sign-in-service.png")
        assert leads_to(ben, board) == (200, "tensorboard.localhost")

    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=patient(STOPS_WITHIN_SECONDS))
    assert process.returncode == 0, said
    assert "did not stop by themselves" not in said
    assert facts["sign_in_url"] in said and facts["apps_url"] in said
    assert not marked(folder), said


def signed_in(page: Page, back: str, name: str) -> Page:
    """At the sign-in service, and back."""
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=name).click()
    page.wait_for_url(f"{back}/")
    return page


def leads_to(page: Page, address: str) -> tuple[int, str | None]:
    """The status at the end of the way, and its host. Names below localhost are the browser's to know."""
    other = (*page.context.pages, None)[1] or page.context.new_page()  # a tab aside stays: to close one may take long
    answer = other.goto(address, wait_until="commit")
    assert answer is not None
    return answer.status, urllib.parse.urlsplit(answer.url).hostname


@pytest.mark.programs
@pytest.mark.whole
def test_a_demo_that_takes_long_says_every_few_seconds_that_it_goes_on(account: PlainAccount) -> None:
    """The proxy never answers here; Ctrl-C ends it all the same."""
    programs, folder = account.folder / "programs", account.folder / "demo"
    programs.mkdir()
    (programs / "configurable-http-proxy").write_text("#!/bin/sh\nexec sleep 300\n")
    (programs / "configurable-http-proxy").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    words = ("-m", "hub_extensions.tools.cli", "demo", "--port", "0", "--dir", str(folder), "--layout", "lab-a100")
    process = account.popen(sys.executable, *words, variables={"PATH": path})
    assert process.stdout is not None
    signs = (line for line in process.stdout if line.startswith("Starting the hub ("))
    passed = [float(sign.split("(")[1].split()[0]) for sign in itertools.islice(signs, 2)]
    assert 5 <= passed[0] < passed[1], "seconds since the start: it says so again and again"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=patient(STOPS_WITHIN_SECONDS))
    assert said.endswith("Stopped. Nothing is left running.\n")
    assert not marked(folder)


@pytest.mark.whole
@pytest.mark.programs
def test_a_folder_that_holds_other_things_is_left_alone(account: PlainAccount) -> None:
    folder = account.folder / "thesis"
    account.popen("mkdir", str(folder)).communicate()
    account.popen("sh", "-c", f"echo 'years of work' > {folder}/chapter-1.txt").communicate()
    said, _ = (process := demo(account, "--port", "0", "--dir", str(folder), "--clean")).communicate(
        timeout=patient(60)
    )
    assert process.returncode == 2
    assert "is not a demo's" in said
    assert (folder / "chapter-1.txt").read_text() == "years of work\n"


@pytest.mark.needs("root")
def test_a_folder_of_another_account_is_a_sentence(account: PlainAccount) -> None:
    folder = account.folder / "roots"
    folder.mkdir(mode=0o777)
    said, _ = (process := demo(account, "--port", "0", "--dir", str(folder))).communicate(timeout=patient(60))
    assert (process.returncode, said.count("\n")) == (2, 1)
    assert "belongs to another account" in said


def _facts(folder: Path, newer_than: dict[str, Any] | None = None) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    except FileNotFoundError:
        return None
    return None if found == newer_than else found


def _variable(pid: int, name: str) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [entry for entry in environment if entry.startswith(name.encode() + b"=")]
    return found[0].decode().split("=", 1)[1] if found else None


def left_over(account: PlainAccount, mark: Path) -> subprocess.Popen[str]:
    """T17: what a user started with `nohup`: it ignores SIGTERM and has a session of its own."""
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    child = account.popen(sys.executable, "-c", program, start_new_session=True, variables={MARK: str(mark)})
    assert child.stdout is not None
    child.stdout.readline()
    return child
