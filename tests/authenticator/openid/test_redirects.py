"""Where a sign-in leads afterwards: on this host, whatever was asked for."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace
from urllib.parse import urljoin, urlsplit

import pytest
from jupyterhub.handlers import BaseHandler

from hub_extensions.authenticator.openid.login import on_this_host

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


def led_to(next_url: str) -> str:
    """What a browser makes of it: it drops tabs and line breaks, and takes a backslash for a slash."""
    log = SimpleNamespace(warning=lambda *_: None)
    request = SimpleNamespace(host="hub.site.example", protocol="https", headers={})
    handler = SimpleNamespace(settings={}, subdomain_host="", request=request, log=log, domain="")
    handler._validate_next_url = partial(BaseHandler._validate_next_url, handler)
    safe = on_this_host(handler, next_url) or "/hub/home"
    read = "".join(letter for letter in safe.strip() if letter not in "\t\r\n").replace("\\", "/")
    return urljoin(f"{HERE}/hub/oauth_callback", read)


def test_no_address_leads_to_another_host() -> None:
    assert len(VECTORS) > 600
    away = [each for each in VECTORS if urlsplit(led_to(each)).netloc.partition(":")[0] != "hub.site.example"]
    assert away == []


@pytest.mark.parametrize("path", ["/hub/home", "/user/ada/lab/tree/a%20b.ipynb?x=1#y", f"{HERE}/hub/spawn"])
def test_where_somebody_wanted_to_go_is_gone_to(path: str) -> None:
    assert led_to(path) == urljoin(HERE, path)
