"""Each proxy with its generated configuration: what a stranger, a person of the group and a forger get through it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.audit import HEADER_FORMS
from hub_extensions.core.sign_on.identity_headers import FAMILIES, TO_THE_GATE, identity_header_names, spellings
from hub_extensions.tools.gate_config.render import ProxySettings, render
from tests.cluster.certificates import Authority
from tests.fakes.apps_host import ADA, ASSERTION_OF_ADA, GATE_COOKIE, SECRET, AppsHost, EchoApp
from tests.fakes.real_proxies import RealProxy
from tests.gate.proxies.raw_requests import NAVIGATION, Answer, open_socket, request, send
from tests.machine_needs import FETCHED_PROXIES
from tests.ports import free_ports

PROXIES = [
    pytest.param("nginx", marks=pytest.mark.needs("nginx")),
    pytest.param("caddy-debian", marks=pytest.mark.needs("caddy")),
    *(pytest.param(word, marks=pytest.mark.needs("fetched-proxies")) for word in FETCHED_PROXIES),
]
MARK = "mallory"
EVE, AWAY = f"Cookie: {GATE_COOKIE}=eve", f"Cookie: {GATE_COOKIE}=away"
SIGNED_IN = f"Cookie: {ADA}"
pytestmark = [pytest.mark.programs, pytest.mark.whole]


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProxy]:
    host = AppsHost()
    running = RealProxy(request.param, tmp_path_factory.mktemp(request.param), host)
    host.start(running.apps)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        host.stop()


@pytest.fixture(autouse=True)
def nothing_seen(proxy: RealProxy) -> None:
    EchoApp.seen.clear()


Kind = Callable[[RealProxy, list[str]], Answer]


def page(proxy: RealProxy, headers: list[str]) -> Answer:
    return request(proxy.port, "/apps/echo/page?a=1", (*NAVIGATION, *headers))


def post(proxy: RealProxy, headers: list[str]) -> Answer:
    return request(proxy.port, "/apps/echo/api", headers, "POST", b"{}")


def websocket(proxy: RealProxy, headers: list[str]) -> Answer:
    return open_socket(proxy.port, "/apps/echo/socket", headers)


KINDS: tuple[Kind, ...] = (page, post, websocket)


def test_the_proxys_own_check_takes_the_generated_file(proxy: RealProxy, tmp_path: Path) -> None:
    assert RealProxy(proxy.word, tmp_path / "proxy", proxy.host).complaints() == ""


def test_its_check_takes_hosts_with_https_and_apps_behind_https_too(proxy: RealProxy, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "tests").issue("apps", "apps.example.org", addresses=["apps.example.org"])
    port, other_port = free_ports(2)  # the check of nginx binds them
    url = f"https://apps.example.org:{port}"
    apps = (
        App("inner", "Inner", f"{url}/inner/", "https://127.0.0.1:5000", prefix=False),
        App("board", "Board", f"https://board.example.org:{other_port}/", "http://127.0.0.1:6006", relay=True),
    )
    files = {"certificate": str(certificate), "key": str(key)}
    minutes = 0 if proxy.word == "caddy-debian" else 15
    text = render(proxy.kind, apps, ProxySettings(url, SECRET, **files, websocket_minutes=minutes))
    other = copy.copy(proxy)
    other.folder, other.text = tmp_path / "proxy", text
    assert other.complaints() == ""


def test_a_person_of_the_group_opens_page_post_and_websocket_under_the_gates_name_alone(proxy: RealProxy) -> None:
    for kind, status in zip(KINDS, (200, 200, 101), strict=True):
        answer = kind(proxy, [SIGNED_IN])
        assert answer.status == status, (kind.__name__, answer, proxy.log()[-2000:])
        assert answer.has("X-Auth-Request-User") == ["ada"]
        assert answer.has("X-Sign-On-Assertion") == [ASSERTION_OF_ADA]
        assert answer.has("Host") == [f"127.0.0.1:{proxy.port}"]
        assert answer.has("X-Forwarded-Prefix") == ["/apps/echo"]
        assert SECRET not in answer.body.decode()
        assert not [name for name, _ in answer.json["headers"] if name.lower().startswith("x-gate")]


def test_a_stranger_is_sent_to_the_sign_in_from_a_page_and_refused_in_json_elsewhere(proxy: RealProxy) -> None:
    answer = page(proxy, [])
    assert (answer.status, answer.headers["location"]) == (302, "/_gate/start?app=echo")
    fetched = request(proxy.port, "/apps/echo/api", ("Sec-Fetch-Mode: cors",))
    for refused in (fetched, post(proxy, []), websocket(proxy, [])):
        assert refused.status == 401
        assert refused.json.get("error", refused.json.get("message")).lower().startswith("sign in first")
        assert "location" not in refused.headers
    assert EchoApp.seen == []


def test_who_has_not_the_group_and_who_comes_while_the_hub_is_away_read_the_gates_words(proxy: RealProxy) -> None:
    for kind in KINDS:
        refused, away = kind(proxy, [EVE]), kind(proxy, [AWAY])
        assert (refused.status, away.status) == (403, 503)
        if proxy.kind == "nginx" and kind is post:  # which answers a refused upload by itself
            assert (refused.json["status"], away.json["status"]) == (403, 503)
            continue
        assert refused.json == {"error": "Echo is for its group"}
        if proxy.kind == "envoy":  # takes each 5xx of a check for an error of its own, without the body
            assert b"does not answer" in away.body
        else:
            assert away.json == {"error": "the hub does not answer since 12:00"}
    assert EchoApp.seen == []


def test_an_app_that_is_away_is_not_reported_as_a_page_of_the_proxy(proxy: RealProxy) -> None:
    answer = request(proxy.port, "/apps/gone/", (SIGNED_IN, *NAVIGATION))
    assert answer.status in (502, 503)
    assert b"does not answer" in answer.body


def test_an_upload_that_is_too_long_is_not_an_app_that_is_away(proxy: RealProxy) -> None:
    answer = request(proxy.port, "/apps/echo/api", [SIGNED_IN], "POST", b"x" * 1_100_000)
    if proxy.kind in ("nginx", "caddy"):  # the others have no such limit
        status = 502 if proxy.word == "caddy-debian" else 413  # 2.6 has no other word for it
        assert (answer.status, b"does not answer" in answer.body) == (status, False)


def test_a_gate_that_is_away_lets_nobody_in_and_is_not_an_app_that_is_away(proxy: RealProxy, tmp_path: Path) -> None:
    alone = RealProxy(proxy.word, tmp_path / "alone", proxy.host)
    gate, nowhere = (urlsplit(each).port for each in (proxy.host.gate, proxy.host.away))
    alone.text = re.sub(rf"\b{gate}\b", str(nowhere), alone.text)
    try:
        alone.start()
        answer = page(alone, [SIGNED_IN])
    finally:
        alone.stop()
    assert b"app does not answer" not in answer.body
    if proxy.kind == "traefik":  # which has no words of its own to give
        assert (answer.status, answer.body) == (500, b"")
    else:
        assert (answer.status, b"sign-in gate" in answer.body) == (503, True)
    assert EchoApp.seen == []


def forged(name: str, form: str, value: str) -> list[str]:
    """The header as a forger writes it."""
    return [f"{name}:{value}" for name, value in HEADER_FORMS[form](name, value)]


def test_no_spelling_of_an_identity_header_comes_through(proxy: RealProxy) -> None:
    tried = 0
    names = [*identity_header_names(), *TO_THE_GATE]
    for name, form, kind in product(names, HEADER_FORMS, KINDS):
        written = [header for spelled in spellings(name) for header in forged(spelled, form, MARK)]
        tried += len(list(spellings(name)))
        if kind(proxy, [SIGNED_IN, *written]).status not in (200, 101):  # refused as a whole: each by itself then
            for spelled in spellings(name):
                kind(proxy, [SIGNED_IN, *forged(spelled, form, MARK)])
    through = [seen for seen in EchoApp.seen if MARK in str(seen)]
    print(f"{proxy.word}: {tried} forged headers tried, {len(through)} came through, {len(EchoApp.seen)} requests seen")
    assert through == []
    assert tried > 3000
    assert_only_ada(EchoApp.seen)


def assert_only_ada(seen: list[dict[str, object]]) -> None:
    """Each request that reached the app did so in ada's name, which stands in one header."""
    assert seen
    for each in seen:
        headers: list[list[str]] = each["headers"]  # type: ignore[assignment]
        assert [value for name, value in headers if name == "X-Auth-Request-User"] == ["ada"], each


FAULTS = {
    "nginx": r" *proxy_set_header Remote-User .*\n",
    "caddy": r" *request_header -Remote-User\n|\bRemote-User ",
    "envoy": r" *\[\"remote-user\"\] = true,\n| *- \{exact: remote-user\}\n",
    "traefik": r"remote\[-_.\]user\|",
}
"""What takes one header out of a configuration: as if it had been forgotten."""


def test_a_header_that_a_configuration_forgets_is_seen_to_come_through(proxy: RealProxy, tmp_path: Path) -> None:
    faulty = RealProxy(proxy.word, tmp_path / "faulty", proxy.host)
    faulty.text, changes = re.subn(FAULTS[proxy.kind], "", faulty.text)
    assert changes
    try:
        faulty.start()
        for kind in KINDS:
            assert kind(faulty, [SIGNED_IN, f"Remote-User: {MARK}"]).has("Remote-User") == [MARK]
    finally:
        faulty.stop()


def test_mixed_spellings_and_what_names_headers_for_removal_change_nothing(proxy: RealProxy) -> None:
    mixed = ["X-Auth_Request-User", "X.Auth-Request_User", "x_auth.request-user", "X-Auth-Request-User_"]
    for kind in KINDS:
        kind(proxy, [SIGNED_IN, *(f"{name}: {MARK}" for name in mixed[:3])])
    for header in ("X-Auth-Request-User", "Cookie, X-Sign-On-Assertion", "X-Gate-Proxy", "Authorization"):
        request(proxy.port, "/apps/echo/", (SIGNED_IN, f"Connection: {header}", f"X-Auth-Request-User: {MARK}"))
    assert not [seen for seen in EchoApp.seen if MARK in str(seen)]
    assert_only_ada(EchoApp.seen)


def test_a_familys_app_reads_its_names_and_no_other_familys(proxy: RealProxy) -> None:
    wanted = {"echo": "X-Auth-Request", "bare": "Remote"}
    for app, family in wanted.items():
        answer = request(proxy.port, f"/apps/{app}/", (SIGNED_IN,))
        for each, headers in FAMILIES.items():
            found = [value for name in headers.values() for value in answer.has(name) if value]
            assert found == (["ada", "lab"] if each == family else []), (app, each)
    own = request(proxy.own_port, "/anything", (SIGNED_IN,), host=proxy.own)
    assert [value for name in identity_header_names() for value in own.has(name) if value] == [ASSERTION_OF_ADA]


def test_the_apps_own_cookies_pass_and_the_gates_does_not_nor_does_a_token(proxy: RealProxy) -> None:
    for kind in KINDS:
        for cookies in (
            [f"Cookie: a=1; {ADA}; _xsrf=2|b"],
            ["Cookie: a=1", f"Cookie: {ADA}; _xsrf=2|b"],
            [f'Cookie: a=1; {ADA}; {GATE_COOKIE}=other; "{GATE_COOKIE}"=x; {GATE_COOKIE.upper()}=y; _xsrf=2|b'],
        ):
            answer = kind(proxy, [*cookies, "Authorization: Bearer a-token-of-the-hub"])
            assert answer.status in (200, 101), cookies
            assert answer.has("Cookie") == ["a=1; _xsrf=2|b"]
            assert [value for value in answer.has("Authorization") if value] == []
        assert [value for value in kind(proxy, [SIGNED_IN]).has("Cookie") if value] == []
    many = "; ".join(f"c{number}={number}" for number in range(200))
    assert page(proxy, [f"Cookie: {many}; {ADA}"]).has("Cookie") == [many]


def test_what_is_not_for_browsers_at_the_gate_is_closed_to_them(proxy: RealProxy) -> None:
    asked = [f"{name}: {SECRET}" for name in TO_THE_GATE[:1]]
    paths = [f"/_gate/{kind}/echo" for kind in ("check", "answer", "away", "relay", "ended", "metrics")]
    tricks = [
        "/_gate//check/echo",
        "/_gate/./check/echo",
        "/_gate/%63heck/echo",
        "/_GATE/check/echo",
        "/x/../_gate/check/echo",
    ]
    more = [
        "/_gate/check%2fecho",
        "/_gate/jwks.json/../check/echo",
        "/_gate/start/x",
        "/_gate/metrics",
        "/_gate/ended",
        "/_gate/audit",
    ]
    for target in (*paths, *tricks, *more):
        for method in ("GET", "POST", "HEAD"):
            answer = request(proxy.port, target, (SIGNED_IN, *asked), method)
            assert answer.status in (301, 400, 404), (target, answer)
            assert ASSERTION_OF_ADA not in str(answer)
    assert EchoApp.seen == []


def test_the_gates_own_pages_are_reached_and_get_the_literal_host(proxy: RealProxy) -> None:
    for target in ("/_gate/start", "/"):
        answer = request(proxy.port, target, (f"X-Forwarded-Host: {MARK}",))
        assert (answer.status, answer.json) == (200, {"page": target, "host": f"127.0.0.1:{proxy.port}"})


def test_which_app_is_asked_about_is_never_what_a_header_or_an_odd_path_names(proxy: RealProxy) -> None:
    """However the path is written, the app that gets it is the one whose check was passed."""
    odd = [
        "/apps/echo/..%2fbare/", "/apps/echo/%2e%2e/bare/", "/apps/echo/../bare/", "/apps/echo//x", "//apps/echo/",
        "/apps/echo/;/x", "/apps/echo;a=b/", "/apps/echo/%00", "/apps/echo/\\..\\bare", "/apps//echo/", "/apps/./echo/",
        "/apps/ECHO/", "/apps/echo/%252e%252e/", "/apps/nobody/", "/apps/echo", "/apps", "/apps/echo/?next=/apps/bare/",
        "http://127.0.0.1/apps/echo/", f"http://{MARK}/apps/echo/",
    ]  # fmt: skip
    lies = (
        "X-Original-URL: /_gate/health",
        "X-Forwarded-Uri: /_gate/health",
        "X-Forwarded-Host: other",
        "X-Rewrite-URL: /",
    )
    for target, method in product(odd, ("GET", "POST", "HEAD", "OPTIONS", "DELETE")):
        for who in ((), (EVE,)):
            answer = request(proxy.port, target, (*who, *lies), method)
            nothing = answer.body == b"" and answer.status == 200  # of Caddy, for a host that it does not know
            closed = answer.status in (0, 301, 302, 307, 308, 400, 401, 403, 404, 405)
            assert nothing or closed, (target, method, answer)
    assert EchoApp.seen == []
    for target, method in product(odd, ("GET", "POST", "OPTIONS")):
        request(proxy.port, target, (SIGNED_IN, *lies), method)
    for seen in EchoApp.seen:
        users = {name: value for name, value in seen["headers"] if value == "ada"}
        assert list(users) in (["X-Auth-Request-User"], ["Remote-User"]), seen


def test_what_is_public_is_open_without_a_name_and_no_spelling_leads_from_it_to_the_rest(proxy: RealProxy) -> None:
    for who in ([], [SIGNED_IN], [EVE], [f"X-Auth-Request-User: {MARK}", f"Remote_User: {MARK}"]):
        answer = request(proxy.port, "/apps/echo/open/a.js?b=1", (*NAVIGATION, *who))
        assert (answer.status, answer.json["uri"]) == (200, "/apps/echo/open/a.js?b=1")
        assert [value for name in identity_header_names() for value in answer.has(name) if value] == []
        assert [value for value in answer.has("Cookie") if value] == []
    EchoApp.seen.clear()
    lies = [
        f"{name}: /apps/echo/open/a.js" for name in ("X-Gate-Uri", "x_gate_uri", "X-Forwarded-Uri", "X-Original-URL")
    ]
    odd = ("../x", "..%2fx", "%2e%2e/x", "%252e%252e/x", "..;/x", ";/../x", "%00", "..\\x", "%5c..%5cx")
    targets = ["/apps/echo/x", *(f"/apps/echo/open/{each}" for each in odd), "/apps/bare/open/x", "/apps/echo/x?/open/"]
    for target in targets:
        for more in ([], lies, *([each] for each in lies)):
            request(proxy.port, target, (*NAVIGATION, *more))
    # a proxy may bring a path into its one form before it asks: then the app gets that one
    assert {str(seen["uri"]) for seen in EchoApp.seen} <= {"/apps/echo/open/x"}
    EchoApp.seen.clear()
    assert request(proxy.port, "/apps/echo/open/a.js", (), "POST", b"{}").status == 401
    assert open_socket(proxy.port, "/apps/echo/open/socket").status == 401
    assert EchoApp.seen == []


def test_connect_trace_and_other_protocols_open_nothing(proxy: RealProxy) -> None:
    for data in (
        f"CONNECT 127.0.0.1:{proxy.host.app_port} HTTP/1.1\r\nHost: x\r\n{SIGNED_IN}\r\n\r\n",
        f"CONNECT /apps/echo/ HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\n\r\n",
        f"TRACE /apps/echo/ HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nConnection: close\r\n\r\n",
        "GET /apps/echo/ HTTP/0.9\r\n\r\n",
        f"GET /apps/echo/ HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nUpgrade: h2c\r\nConnection: close, Upgrade, "
        "HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
    ):
        assert send(proxy.port, data.encode()).status not in (200, 101), data
    assert EchoApp.seen == []


SECOND = f"GET /apps/echo/second HTTP/1.1\r\nHost: x\r\nX-Auth-Request-User: {MARK}\r\n\r\n"
SMUGGLED = [
    f"Content-Length: {len(SECOND) + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}",
    f"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n{SECOND}\r\n0\r\n\r\n",
    f"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{SECOND}",
    f"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{SECOND}",
    f"Transfer-Encoding:\x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{SECOND}",
    f"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{SECOND}",
    f"X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{SECOND}",
    f"Content-Length: 0\r\nContent-Length: {len(SECOND)}\r\n\r\n{SECOND}",
    f"Content-Length: +0\r\n\r\n{SECOND}",
    f"Content-Length: 0, {len(SECOND)}\r\n\r\n{SECOND}",
    f"X-A: a\nX-Auth-Request-User: {MARK}\r\nContent-Length: 0\r\n\r\n",
    f"X-A: a\rX-Auth-Request-User: {MARK}\r\nContent-Length: 0\r\n\r\n",
    f"X-A\0: a\r\nX-Auth-Request-User\0: {MARK}\r\nContent-Length: 0\r\n\r\n",
    f"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n{SECOND}",
]


def test_requests_hidden_in_requests_reach_the_app_in_nobodys_other_name(proxy: RealProxy) -> None:
    for rest, who in product(SMUGGLED, (f"{SIGNED_IN}\r\n", "")):
        head = f"POST /apps/echo/first HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nConnection: close\r\n{who}"
        send(proxy.port, (head + rest).encode("latin-1"), seconds=0.3)  # some wait for a body that does not come
        page(proxy, [SIGNED_IN])  # what was left on a connection to the app would come before this
    print(f"{proxy.word}: {2 * len(SMUGGLED)} pairs tried")
    assert not [seen for seen in EchoApp.seen for name, value in seen["headers"] if MARK in value and name != "X-A"]
    assert not [seen for seen in EchoApp.seen if "second" in str(seen["uri"])]
    assert_only_ada(EchoApp.seen)


def test_a_path_is_taken_off_where_the_app_does_not_know_it(proxy: RealProxy) -> None:
    assert request(proxy.port, "/apps/echo/a/b?c=d%20e", (SIGNED_IN,)).json["uri"] == "/apps/echo/a/b?c=d%20e"
    assert request(proxy.port, "/apps/bare/a/b?c=d%20e", (SIGNED_IN,)).json["uri"] == "/a/b?c=d%20e"
    answer = request(proxy.port, "/apps/bare")
    assert answer.status in (301, 302, 308)
    assert answer.headers["location"].endswith("/apps/bare/")


def test_websockets_of_a_relayed_app_are_the_gates(proxy: RealProxy) -> None:
    for who, name in (([SIGNED_IN], "ada"), ([], "")):
        answer = open_socket(proxy.port, "/apps/relayed/socket?x=1", [*who, f"X-Gate-Uri: /{MARK}"])
        assert answer.json == {"relayed": "/apps/relayed/socket?x=1", "to": name}
    assert EchoApp.seen == []
    assert request(proxy.port, "/apps/relayed/", (SIGNED_IN,)).has("X-Auth-Request-User") == ["ada"]


def test_a_long_body_reaches_the_app_and_none_the_gate(proxy: RealProxy) -> None:
    body = b"x" * 900_000
    assert request(proxy.port, "/apps/echo/upload", (SIGNED_IN,), "PUT", body).json["body"] == len(body)
    for who, status in (((), 401), ((EVE,), 403)):
        assert request(proxy.port, "/apps/echo/upload", who, "PUT", body).status in (0, status)
    assert len(EchoApp.seen) == 1


def test_no_cookie_token_secret_or_assertion_is_in_what_the_proxy_writes(proxy: RealProxy) -> None:
    secrets = ("canary", SECRET, ASSERTION_OF_ADA, ADA)
    before = {each: proxy.log().count(each) for each in secrets}  # another test sends the secret as a stranger would
    for cookie, kind in product((f"{GATE_COOKIE}=canary-cookie", ADA, EVE), KINDS):
        kind(proxy, [f"Cookie: {cookie}", "Authorization: Bearer canary-token"])
    request(proxy.port, "/apps/gone/", (SIGNED_IN, "Authorization: Bearer canary-token"))
    request(proxy.port, "/_gate/callback?code=canary-code&state=canary-state", ())
    open_socket(proxy.port, "/apps/relayed/socket", (SIGNED_IN,))
    assert {each: proxy.log().count(each) for each in secrets} == before
