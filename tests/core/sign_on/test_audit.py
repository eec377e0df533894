"""The meaning of the audit's answers: only a refusal is safe, and an answer that proves nothing counts as not tried."""

from __future__ import annotations

from dataclasses import replace
from posixpath import normpath
from urllib.parse import unquote

import pytest

from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.audit import (
    CANARY,
    Outcome,
    Probe,
    ProbeAnswer,
    Rule,
    certificate_result,
    cookie_faults,
    framing_of,
    known_limits,
    merged,
    mismatched_apps,
    probes_of,
    real_cookie_probes,
    verdict,
)
from hub_extensions.core.sign_on.identity_headers import identity_header_names

APP = App("mlflow", "MLflow", "https://apps.example.org/mlflow/", "http://10.0.0.7:5000")
SAFE, OPEN, NOT_TRIED = Outcome.SAFE, Outcome.OPEN, Outcome.NOT_TRIED
ANY = Probe("A1", "mlflow", "a stranger", "page", "/", "Close it.")


def a_probe(rule: Rule) -> Probe:
    return Probe("A1", "mlflow", "a stranger", "page", "/", "Close it.", rule)


@pytest.mark.parametrize(
    ("rule", "status", "location", "outcome"),
    [
        *((rule, None, "", NOT_TRIED) for rule in Rule),
        *((rule, 503, "", NOT_TRIED) for rule in (Rule.REFUSED, Rule.ODD, Rule.HIDDEN)),
        *((rule, status, "", SAFE) for rule in (Rule.REFUSED, Rule.ODD) for status in (401, 403)),
        *((rule, 200, "", OPEN) for rule in (Rule.REFUSED, Rule.ODD, Rule.HIDDEN)),
        (Rule.REFUSED, 302, "/_gate/start?app=mlflow", SAFE),
        (Rule.REFUSED, 302, "https://apps.example.org/_gate/start", SAFE),
        (Rule.REFUSED, 302, "https://hub.example.org/hub/api/oauth2/authorize?client_id=x", SAFE),
        (Rule.REFUSED, 302, "/mlflow/login", OPEN),
        (Rule.REFUSED, 302, "https://elsewhere.example/?next=/_gate/start", OPEN),
        (Rule.REFUSED, 101, "", OPEN),
        (Rule.REFUSED, 404, "", OPEN),
        (Rule.REFUSED, 400, "", OPEN),
        (Rule.ODD, 400, "", SAFE),
        (Rule.ODD, 301, "/mlflow/", SAFE),
        (Rule.HIDDEN, 404, "", SAFE),
        (Rule.HIDDEN, 401, "", OPEN),
        (Rule.HIDDEN, 302, "/_gate/start", OPEN),
    ],
)
def test_only_a_refusal_is_safe(rule: Rule, status: int | None, location: str, outcome: Outcome) -> None:
    assert verdict(a_probe(rule), ProbeAnswer(status, location)) is outcome


@pytest.mark.parametrize(
    ("status", "framing", "plain", "outcome"),
    [
        (403, "", 200, SAFE),
        (200, "SAMEORIGIN", 200, SAFE),
        (200, "'none'", 200, SAFE),
        (200, "'self' https://hub.example.org", 200, SAFE),
        (200, "", 200, OPEN),
        (200, "*", 200, OPEN),
        (200, "https:", 200, OPEN),
        (200, "ALLOWALL", 200, OPEN),
        (200, "'self' https://*", 200, OPEN),
        (200, "*:*", 200, OPEN),
        (200, "https://*.example.org", 200, SAFE),
        (200, "DENY, SAMEORIGIN", 200, SAFE),
        # browsers heed it no more, so everybody may
        (200, "ALLOW-FROM https://hub.example.org", 200, OPEN),
        (200, "", 502, NOT_TRIED),
        (404, "", 404, NOT_TRIED),
    ],
)
def test_a_page_is_framed_by_nobody_it_does_not_name(status: int, framing: str, plain: int, outcome: Outcome) -> None:
    answer = ProbeAnswer(status, framing=framing)
    assert verdict(a_probe(Rule.UNFRAMED), answer, ProbeAnswer(plain)) is outcome


@pytest.mark.parametrize(
    ("policies", "frame_options", "framing"),
    [
        ([], "", ""),
        ([], "SAMEORIGIN", "SAMEORIGIN"),
        (["default-src 'self'"], "DENY", "DENY"),
        (["frame-ancestors 'none'"], "", "'none'"),
        (["default-src 'self'; Frame-Ancestors 'self'"], "", "'self'"),
        (["default-src 'self';FRAME-ANCESTORS\t'self'  https://a.example"], "", "'self' https://a.example"),
        # browsers heed X-Frame-Options only where no policy says it
        (["frame-ancestors *"], "DENY", "*"),
        # the first of one policy counts, and the strictest of several
        (["frame-ancestors *; frame-ancestors 'none'"], "", "*"),
        (["frame-ancestors *", "frame-ancestors 'self'"], "", "'self'"),
        (["frame-ancestors *, frame-ancestors 'self'"], "", "'self'"),
        (["default-src 'self'", "frame-ancestors 'none'"], "", "'none'"),
        (["frame-ancestors"], "", "'none'"),
        (["frame-ancestors-of *"], "", ""),
    ],
)
def test_who_may_frame_a_page_is_said_by_the_strictest_of_its_policies(
    policies: list[str], frame_options: str, framing: str
) -> None:
    assert framing_of(policies, frame_options) == framing


@pytest.mark.parametrize(
    ("code", "words", "outcome"),
    [
        (0, "", SAFE),
        (10, "certificate has expired", OPEN),
        (62, "Hostname mismatch, certificate is not valid for 'apps.example.org'.", OPEN),
        (18, "self-signed certificate", NOT_TRIED),
        (20, "unable to get local issuer certificate", NOT_TRIED),
        (None, "no answer in 5 s", NOT_TRIED),
    ],
)
def test_a_certificate_of_an_unknown_issuer_proves_nothing(code: int | None, words: str, outcome: Outcome) -> None:
    result = certificate_result("https://apps.example.org", code, words)
    assert (result.case, result.outcome, bool(result.advice)) == ("A14", outcome, outcome is OPEN)
    assert words in result.came_back


def test_a_cookie_is_changed_cut_and_sent_beside_another_and_never_as_it_is() -> None:
    mine, other = "m" * 43, "o" * 43
    sent = {
        each.way: dict(each.headers)["Cookie"] for each in real_cookie_probes(APP, "/mlflow/", "gate", mine, other, "")
    }
    assert sent == {
        "changed": f"gate={'m' * 41}Am",
        "cut": f"gate={'m' * 42}",
        "beside one's own": f"gate={other}; gate={mine}",
    }
    assert list(real_cookie_probes(APP, "/mlflow/", "gate", "", other, "")) == []
    (old,) = real_cookie_probes(APP, "/mlflow/", "gate", "", other, "OLD")
    assert (old.tried, dict(old.headers)["Cookie"]) == ("a cookie that expired", "gate=OLD")
    assert {each.way for each in real_cookie_probes(APP, "/mlflow/", "gate", mine, "", "")} == {"changed", "cut"}


@pytest.mark.parametrize(
    ("text", "plain", "outcome"),
    [
        (f"hello {CANARY}", ProbeAnswer(200, text="hello"), OPEN),
        ("hello ada", ProbeAnswer(200, text="hello ada"), SAFE),
        ("hello", ProbeAnswer(200, text="hello"), NOT_TRIED),
        ("hello", ProbeAnswer(403, text="ada may not"), NOT_TRIED),
        ("hello", None, NOT_TRIED),
    ],
)
def test_an_app_that_shows_no_name_proves_nothing(text: str, plain: ProbeAnswer | None, outcome: Outcome) -> None:
    assert verdict(a_probe(Rule.UNBELIEVED), ProbeAnswer(200, text=text), plain, "ada") is outcome


def test_every_header_is_tried_in_every_spelling_by_a_stranger_and_by_somebody_signed_in() -> None:
    probes = [each for each in probes_of(APP, "/mlflow/", "__Host-gate") if each.case == "A3"]
    sent = {(each.caller, name) for each in probes for name, _ in each.headers}
    for name in identity_header_names():
        for spelled in (name, name.replace("-", "_"), name.replace("-", ".").lower(), name.upper()):
            assert {("stranger", spelled), ("member", spelled)} <= sent
    assert {each.case for each in probes_of(APP, "/mlflow/", "x")} == {"A1", "A2", "A3", "A4", "A8", "A9", "A11", "A14"}


def test_each_public_path_is_said_and_tried_as_a_way_to_the_rest() -> None:
    probes = [
        each for each in probes_of(replace(APP, public=("/version", "/static/")), "/mlflow/", "x") if each.case == "A8"
    ]
    said = [each for each in probes if each.rule is Rule.LISTED]
    assert [(each.target, each.tried[-9:].strip()) for each in said] == [
        ("/mlflow/version", "/version"),
        ("/mlflow/static/", "/static/"),
    ]
    assert {verdict(each, ProbeAnswer(status)) for each in said for status in (200, 302, 404)} == {SAFE}
    ways = [each for each in probes if each.tried == "past what is public, by /static/"]
    assert len(ways) > 10 and {verdict(each, ProbeAnswer(200), ProbeAnswer(401)) for each in ways} == {OPEN}
    assert any("%2e%2e" in each.target for each in ways) and any(";" in each.target for each in ways)


@pytest.mark.parametrize("public", ["/static/", "/api/open/", "/version"])
@pytest.mark.parametrize("path", ["/mlflow/", "/"])
def test_a_way_past_what_is_public_leads_to_the_app_for_who_undoes_it_once_more(public: str, path: str) -> None:
    """Whoever decodes, takes a mark away or joins slashes, and goes up then."""
    probes = probes_of(replace(APP, public=(public,)), path, "x")
    ways = [each.target for each in probes if each.tried.startswith("past what is public") and "?" not in each.target]
    undone = [unquote(unquote(way)).replace("\\", "/").replace(";", "").replace("//", "/") for way in ways]
    up = [normpath(way) + "/" for way in undone if ".." in way]
    assert len(up) >= 9 and {way.replace("//", "/") for way in up} == {path}


def test_ways_that_came_to_the_same_are_one_line_and_what_is_open_says_what_to_do() -> None:
    refused, opened = ProbeAnswer(401), ProbeAnswer(200)
    lines = merged([(ANY, refused, SAFE), (ANY, ProbeAnswer(403), SAFE), (ANY, opened, OPEN)])
    assert [(each.came_back, each.outcome, each.advice) for each in lines] == [
        ("401, 403", SAFE, ""),
        ("200", OPEN, "Close it."),
    ]


@pytest.mark.parametrize(
    ("cookie", "secure", "faults"),
    [
        ("__Host-gate=x; Path=/; Secure; HttpOnly; SameSite=Lax", True, ()),
        ("gate-without-https=x; Path=/; HttpOnly; SameSite=Lax", False, ()),
        ("session=x; Domain=example.org", True, ("Domain",)),
        ("__Host-gate=x; Path=/", True, ("no HttpOnly", "no SameSite", "no Secure")),
        ("_xsrf=1; Path=/", True, ()),
    ],
)
def test_a_cookie_for_all_hosts_is_a_fault_of_any_app(cookie: str, secure: bool, faults: tuple[str, ...]) -> None:
    assert cookie_faults(cookie, secure) == faults


def test_apps_of_one_origin_and_a_login_that_is_not_the_hubs_are_never_called_safe() -> None:
    board = App("board", "Board", "https://board.example.org/", "http://b:1", mode="oidc")
    assert list(known_limits((APP, board))) == []
    portainer = App("portainer", "P", "https://BOARD.example.org:443/p/", "http://p:1", mode="none")
    shared, own = known_limits((APP, board, portainer))
    assert (shared.case, shared.tried, shared.outcome) == ("A14", "apps of one origin: board, portainer", NOT_TRIED)
    assert (own.case, own.app, own.outcome) == ("A3", "portainer", NOT_TRIED)
    assert "host of its own" in shared.advice and "password" in own.advice


def test_an_app_that_the_other_side_does_not_know_is_named() -> None:
    lines = list(mismatched_apps([APP], {"dask": True, "gpu": False}))
    assert [(each.app, each.outcome) for each in lines] == [("mlflow", OPEN), ("dask", OPEN)]
