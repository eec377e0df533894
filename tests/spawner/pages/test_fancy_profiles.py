"""Our offers below the profiles of jupyterhub-fancy-profiles, whose form has a Start of its own, in a real browser."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import jinja2
import jupyterhub_fancy_profiles
import pytest
from jupyterhub._data import DATA_FILES_PATH
from kubernetes_asyncio.config import kube_config
from playwright.sync_api import Browser, Page, expect
from traitlets.config import Config

from hub_extensions.spawner.kube import GpuKubeSpawner
from hub_extensions.spawner.pages.spawn_form import TEMPLATES
from tests.fakes.service import SECRET, GpuServiceInATest
from tests.patience import patient
from tests.spawner.browser import browser_page

pytestmark = [pytest.mark.programs, pytest.mark.needs("browser")]
ONE, BIG = "mig-1g.5gb", "mig-2g.10gb"
STATIC = Path(jupyterhub_fancy_profiles.__file__).parent / "static"
PROFILES = [
    {"display_name": "Small", "description": "2 GB", "slug": "small", "default": True},
    {
        "display_name": "Large",
        "slug": "large",
        "profile_options": {
            "image": {"display_name": "Image", "choices": {"lab": {"display_name": "Lab", "default": True}}}
        },
    },
]
HUB_PAGE = """<!DOCTYPE html><title>Hub</title><meta name="viewport" content="width=device-width">
<script>window.$ = function () { return { submit: function () {} }; };</script>
{% block main %}{% endblock %}{% block script %}{% endblock %}"""


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1, BIG: 1}) as running:
        yield running


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is nowhere: the form asks it nothing."""
    named = {
        "name": "x",
        "cluster": {"server": "http://127.0.0.1:9"},
        "context": {"cluster": "x", "user": "x"},
        "user": {},
    }
    lists = {key: [named] for key in ("clusters", "contexts", "users")}
    (tmp_path / "config").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **lists})
    )
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))


async def form_of(service: GpuServiceInATest) -> str:
    """The form as the hub gets it of a spawner that `setup_ui` was called for."""
    c = Config()
    jupyterhub_fancy_profiles.setup_ui(c)
    c.KubeSpawner.profile_list = PROFILES
    c.GpuSpawnerMixin = Config({"gpu_service_url": service.url, "gpu_hub_secret": SECRET})
    spawner = GpuKubeSpawner(_mock=True, config=c)
    spawner.user.groups = []
    spawner.orm_spawner = SimpleNamespace(user_options={}, name="", server=None, state={})
    return str(await spawner.get_options_form())


@contextmanager
def hub_page(service: GpuServiceInATest) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """The address of the hub's page with the form, and what was sent by it."""
    loader = jinja2.ChoiceLoader(
        [
            jinja2.DictLoader({"page.html": HUB_PAGE}),
            jinja2.FileSystemLoader([TEMPLATES, Path(DATA_FILES_PATH) / "templates"]),
            jinja2.PrefixLoader({"templates": jinja2.FileSystemLoader(Path(DATA_FILES_PATH) / "templates")}, "/"),
        ]
    )
    page = jinja2.Environment(loader=loader).get_template("templates/spawn.html")
    with ThreadPoolExecutor(1) as beside:  # this thread has the browser's loop
        html = page.render(url="/hub/spawn", spawner_options_form=beside.submit(asyncio.run, form_of(service)).result())
    sent: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = STATIC / self.path.removeprefix("/hub/fancy-profiles/static/")
            is_file = self.path.startswith("/hub/fancy-profiles/static/") and file.is_file()
            self.answer(file.read_bytes() if is_file else html.encode(), "text/javascript" if is_file else "text/html")

        def do_POST(self) -> None:
            parts = (
                self.rfile.read(int(self.headers["Content-Length"])).decode().split("Content-Disposition: form-data; ")
            )
            fields: dict[str, list[str]] = {}
            for part in parts[1:]:
                name, _, value = part.partition("\r\n\r\n")
                fields.setdefault(name.removeprefix('name="').rstrip('"'), []).append(value.split("\r\n--")[0])
            sent.append(fields)
            self.answer(b"sent", "text/html")

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a test says what went wrong."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hub/spawn", sent
    finally:
        server.shutdown()
        server.server_close()


def buttons(page: Page) -> list[str]:
    """What the buttons that send the form say, of those that can be seen."""
    return [each.inner_text() for each in page.locator("#spawn_form [type=submit]").all() if each.is_visible()]


@pytest.mark.whole
def test_one_start_stands_below_the_offers_and_says_what_it_does(service: GpuServiceInATest, browser: Browser) -> None:
    service.held["ada", ""] = ONE
    with hub_page(service) as (url, sent), browser_page(browser) as page:
        page.goto(url)
        start = page.locator("#submit-slot button")
        expect(start).to_have_text("Start", timeout=patient(10_000))
        expect(page.get_by_text("What the server gets")).to_be_visible()
        page.get_by_role("heading", name="Large").click()  # it makes its form anew
        row = page.locator(f"[data-offer='{ONE}']")
        row.locator("input").check()
        expect(start).to_have_text("Join the line")
        assert buttons(page) == ["Join the line"]
        boxes = [page.locator(name).bounding_box() for name in ("#profile-large", "#gpu-form", "#submit-slot")]
        tops = [box["y"] for box in boxes if box is not None]
        assert len(tops) == 3 and tops == sorted(tops)
        expect(row.locator(".gpu-free")).to_be_visible()
        start.click()
        page.wait_for_function("document.body.textContent === 'sent'")
        (fields,) = sent
        assert (fields["profile"], fields["offer"]) == (["large"], [ONE])


@pytest.mark.whole
def test_nothing_is_sent_without_a_choice(service: GpuServiceInATest, browser: Browser) -> None:
    service.held = {("ada", ""): ONE, ("cem", ""): BIG}
    with hub_page(service) as (url, _), browser_page(browser) as page:
        page.goto(url)
        start = page.locator("#submit-slot button")
        expect(start).to_have_text("Choose one first", timeout=patient(10_000))
        expect(start).to_be_disabled()
        page.get_by_role("heading", name="Large").click()
        expect(start).to_have_text("Choose one first")
        page.locator("[data-offer='cpu'] input").check()
        expect(start).to_have_text("Start")
        expect(start).to_be_enabled()
