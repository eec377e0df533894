"""Where a sign-in leads afterwards: on this host, whatever was asked for."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import pytest
from jupyterhub.handlers import BaseHandler
from playwright.async_api import Request, async_playwright
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from hub_extensions.authenticator.login import allowed_next_url
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient

HERE = "https://hub.site.example"
STARTS = (
    "",
    "/",
    "//",
    "///",
    "\\",
    "/\\",
    "\\/",
    "/\t/",
    "/%09/",
    " //",
    "/.//",
    "/..//",
    "https:",
    "https:/",
    "https://",
)
MIDDLES = (
    "evil.example",
    "hub.site.example@evil.example",
    "hub.site.example.evil.example",
    "evil.example%2f..",
    "[::1]",
)
ENDS = ("", "/", "\\@hub.site.example", "?hub.site.example", "#hub.site.example", "/%2e%2e", ":443", "\r\nX: 1")
ODD = ("javascript:alert(1)", "data:text/html,x", "\x00//evil.example", "//\u3002evil.example", "http:evil.example")
VECTORS = [*("".join(parts) for parts in itertools.product(STARTS, MIDDLES, ENDS)), *ODD]


def validated(next_url: str, host: str = "hub.site.example", protocol: str = "https") -> str:
    """Where the hub at this host goes on to."""
    log = SimpleNamespace(warning=lambda *_: None)
    request = SimpleNamespace(host=host, protocol=protocol, headers={})
    handler = SimpleNamespace(settings={}, subdomain_host="", request=request, log=log, domain="")
    handler._validate_next_url = partial(BaseHandler._validate_next_url, handler)
    return allowed_next_url(handler._validate_next_url, next_url) or "/hub/home"


def led_to(next_url: str) -> str:
    """What a browser makes of it: it drops tabs and line breaks, and takes a backslash for a slash."""
    safe = validated(next_url)
    read = "".join(letter for letter in safe.strip() if letter not in "\t\r\n").replace("\\", "/")
    return urljoin(f"{HERE}/hub/oauth_callback", read)


def test_no_address_leads_to_another_host() -> None:
    assert len(VECTORS) > 600
    away = [each for each in VECTORS if urlsplit(led_to(each)).netloc.partition(":")[0] != "hub.site.example"]
    assert away == []


@pytest.mark.parametrize("path", ["/hub/home", "/user/ada/lab/tree/a%20b.ipynb?x=1#y", f"{HERE}/hub/spawn"])
def test_where_somebody_wanted_to_go_is_gone_to(path: str) -> None:
    assert led_to(path) == urljoin(HERE, path)


@pytest.mark.parametrize("sign", ["\x00", "\r\n", "\n", "\x07", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\ud800"])
@pytest.mark.parametrize("place", ["/hub/{}home", "/hub/home{}", "{}/hub/home", "/hub/home?x={}", HERE + "/hub/{}"])
def test_an_address_with_a_control_character_is_none(sign: str, place: str) -> None:
    """The hub would answer 500, as no header has such a character."""
    assert validated(place.format(sign)) == "/hub/home"


def test_letters_of_any_language_are_no_control_characters() -> None:
    assert validated("/user/ada/lab/tree/論文.ipynb") == "/user/ada/lab/tree/論文.ipynb"


class GoesOn(RequestHandler):
    """Redirects as the hub does at the end of a sign-in; any other page is empty."""

    def get(self) -> None:
        wanted = self.get_argument("next", None)
        if wanted is not None:
            self.redirect(validated(wanted, self.request.host, self.request.protocol))


@pytest.mark.programs
@pytest.mark.whole
@pytest.mark.needs("browser")
async def test_a_hundred_of_them_lead_a_real_browser_nowhere_else(chromium_path: str) -> None:
    socket, port = bind_unused_port()
    server, host = HTTPServer(Application([(".*", GoesOn)])), f"127.0.0.1:{port}"
    server.add_socket(socket)
    gone_to: set[str] = set()

    def note(request: Request) -> None:  # each hop
        gone_to.add(urlsplit(request.url).netloc)

    tried = VECTORS[:: len(VECTORS) // 100][:100]
    async with async_playwright() as play:
        options: dict[str, Any] = {"executable_path": chromium_path, "args": CHROMIUM_FLAGS}
        browser = await play.chromium.launch(**options)
        page = await browser.new_page()
        page.set_default_timeout(patient(30_000))
        page.on("request", note)
        for vector in tried:
            await page.goto(f"http://{host}/hub/oauth_callback?next={quote(vector, safe='')}")
            assert urlsplit(page.url).netloc == host, vector
        await browser.close()
    server.stop()
    assert (len(tried), gone_to) == (100, {host})
