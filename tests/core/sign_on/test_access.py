"""Access to an app: a table of requests and their senders."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.sign_on.access import (
    REASONS,
    ROUND_AGAIN,
    Passage,
    PersonFacts,
    RequestFacts,
    SessionLimits,
    SilentRound,
    is_public,
    judge_session,
    judge_token,
)
from hub_extensions.core.sign_on.apps import App

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
ORIGIN = "https://apps.example.org"
APP = App("mlflow", "MLflow", f"{ORIGIN}/mlflow/", "http://10.0.0.7:5000", groups=("lab",))
MAY = PersonFacts(frozenset({APP.scope}))
MAY_NOT = PersonFacts(frozenset({"access:services!service=other"}))
PAGE = RequestFacts("GET", site="none", mode="navigate", dest="document")
OLD_PAGE = RequestFacts("GET", accept="text/html,*/*")
FETCH = RequestFacts("GET", site="same-origin", mode="cors", dest="empty")
POST = RequestFacts("POST", site="same-origin", mode="cors", dest="empty")
FORM = RequestFacts("POST", site="same-origin", mode="navigate", dest="document")
SOCKET = RequestFacts("GET", upgrade=True, site="same-origin", mode="websocket", dest="empty")
CURL = RequestFacts("GET", accept="*/*")
LINK = replace(PAGE, site="cross-site")
AJAX = replace(OLD_PAGE, by_script=True)
P = Passage


OPEN_APP = replace(APP, public=("/version", "/static/"))
OPEN_PATHS = (
    "/mlflow/version",
    "/mlflow/version?a=/../x",
    "/mlflow/static/",
    "/mlflow/static/a/b.js",
    "/mlflow/static/x~1",
)
CLOSED_PATHS = (
    "", "/", "/mlflow/", "/mlflow/static", "/mlflow/versions", "/mlflow/version/", "/version", "/static/a",
    "/mlflow/Version", "/mlflow/static/../x", "/mlflow/static/..", "/mlflow/static/./x", "/mlflow/static//x",
    "//mlflow/static/x", "/mlflow/static/..;/x", "/mlflow/static/;/x", "/mlflow/static/%2e%2e/x",
    "/mlflow/static/..%2fx", "/mlflow/%73tatic/x", "/mlflow/static/\\..\\x", "/mlflow/static/\tx",
    "/mlflow/static/x\n", "/mlflow/x?/mlflow/static/", "/mlflow/#/static/", "http://apps.example.org/mlflow/static/x",
    "/mlflow/static/x,/mlflow/x", "/dask/static/x",
)  # fmt: skip


def test_what_is_public_is_read_by_anybody_and_no_other_spelling_is() -> None:
    for path in OPEN_PATHS:
        assert is_public(PAGE, OPEN_APP, path) and is_public(CURL, OPEN_APP, path), path
        assert not is_public(PAGE, APP, path), "there is none by itself"
        assert not any(is_public(each, OPEN_APP, path) for each in (POST, FORM, SOCKET, replace(CURL, method="PUT")))
    for path in CLOSED_PATHS:
        assert not is_public(PAGE, OPEN_APP, path), path


@pytest.mark.parametrize(
    ("request_", "who", "passage", "reason"),
    [
        (PAGE, None, P.SIGN_IN, "sign-in"),
        (OLD_PAGE, None, P.SIGN_IN, "sign-in"),
        (LINK, None, P.SIGN_IN, "sign-in"),
        *(
            (each, None, P.REFUSE, "sign-in")
            for each in (FETCH, POST, FORM, SOCKET, CURL, AJAX, replace(PAGE, method="HEAD"))
        ),
        (replace(PAGE, dest="object"), None, P.REFUSE, "sign-in"),
        *((each, MAY, P.PASS, "") for each in (PAGE, OLD_PAGE, LINK, FETCH, POST, FORM, SOCKET, CURL, AJAX)),
        (PAGE, PersonFacts(frozenset({"access:services"})), P.PASS, ""),
        (PAGE, PersonFacts(frozenset({"access:services!service=mlflow2"})), P.SILENT_ROUND, "not-allowed"),
        (PAGE, replace(MAY, is_over=True), P.SIGN_IN, "session-over"),
        (FETCH, replace(MAY, is_over=True), P.REFUSE, "session-over"),
        (PAGE, replace(MAY, scopes=None, away=NOW), P.AWAY, "hub-away"),
        (PAGE, replace(MAY, kind="service"), P.REFUSE, "token-of-service"),
        # who has no right: one round, and only for a page
        (PAGE, MAY_NOT, P.SILENT_ROUND, "not-allowed"),
        (PAGE, replace(MAY_NOT, last_round=SilentRound(NOW, ())), P.FORBID, "not-allowed"),
        (PAGE, replace(MAY_NOT, last_round=SilentRound(NOW - ROUND_AGAIN, ())), P.SILENT_ROUND, "not-allowed"),
        # once more at once with a new group, and not for one that is gone
        (PAGE, replace(MAY_NOT, groups=("a", "b"), last_round=SilentRound(NOW, ("b",))), P.SILENT_ROUND, "not-allowed"),
        (FETCH, replace(MAY_NOT, groups=("a",), last_round=SilentRound(NOW, ())), P.FORBID, "not-allowed"),
        (PAGE, replace(MAY_NOT, groups=("b", "a"), last_round=SilentRound(NOW, ("a", "b"))), P.FORBID, "not-allowed"),
        (PAGE, replace(MAY_NOT, groups=("a",), last_round=SilentRound(NOW, ("a", "b"))), P.FORBID, "not-allowed"),
        *((each, MAY_NOT, P.FORBID, "not-allowed") for each in (FETCH, POST, SOCKET, CURL)),
        # another page's request
        *(
            (replace(POST, site=site), MAY, P.FORBID, "foreign-origin")
            for site in ("cross-site", "same-site", "odd", "")
        ),
        *((replace(SOCKET, site=site), MAY, P.FORBID, "foreign-origin") for site in ("cross-site", "same-site")),
        (replace(POST, site=None, origin=ORIGIN), MAY, P.PASS, ""),
        (replace(SOCKET, site=None, origin=ORIGIN), MAY, P.PASS, ""),
        *(
            (replace(each, site=None, origin=origin), MAY, P.FORBID, "foreign-origin")
            for each in (POST, SOCKET, replace(POST, method="DELETE"), replace(POST, method="BREW"))
            for origin in (None, "null", "https://evil.example", f"{ORIGIN}.evil.example", "http://apps.example.org")
        ),
        (replace(POST, site="none", origin=None), MAY, P.PASS, ""),
        # inside another page, where clicks are not what they seem to be
        *(
            (replace(PAGE, dest=dest, site=site), MAY, P.FORBID, "foreign-frame")
            for dest in ("iframe", "frame", "object", "embed")
            for site in ("cross-site", "same-site")
        ),
        *((replace(PAGE, dest="iframe", site=site), MAY, P.PASS, "") for site in ("same-origin", "none", None)),
        (replace(PAGE, site="cross-site"), MAY, P.PASS, ""),
        (replace(PAGE, dest="iframe", site="same-site"), None, P.SIGN_IN, "sign-in"),
    ],
)
def test_a_browsers_request(request_: RequestFacts, who: PersonFacts | None, passage: Passage, reason: str) -> None:
    verdict = judge_session(request_, APP, ORIGIN, who, NOW)
    assert (verdict.passage, verdict.reason) == (passage, reason)
    assert reason == "" or REASONS[reason]


OF_SERVER = frozenset({"access:servers!server=ada/"})


@pytest.mark.parametrize(
    ("servers", "who", "passage", "reason"),
    [
        (False, None, P.REFUSE, "token-unknown"),
        (False, MAY, P.PASS, ""),
        (False, MAY_NOT, P.FORBID, "token-without-scope"),
        (False, PersonFacts(None, away=NOW), P.AWAY, "hub-away"),
        (False, replace(MAY, kind="service"), P.REFUSE, "token-of-service"),
        (False, PersonFacts(OF_SERVER, groups=("lab",)), P.REFUSE, "token-of-server"),
        (False, PersonFacts(OF_SERVER | {APP.scope}, groups=("lab",)), P.REFUSE, "token-of-server"),
        (True, PersonFacts(OF_SERVER | {APP.scope}), P.PASS, ""),
        (True, PersonFacts(OF_SERVER, groups=("lab", "more")), P.FORBID, "token-without-scope"),
        (True, PersonFacts(OF_SERVER, groups=("others",)), P.FORBID, "token-without-scope"),
        (True, PersonFacts(frozenset({"read:users"}), groups=("lab",)), P.FORBID, "token-without-scope"),
    ],
)
def test_a_programs_token(servers: bool, who: PersonFacts | None, passage: Passage, reason: str) -> None:
    verdict = judge_token(replace(APP, servers=servers), who)
    assert (verdict.passage, verdict.reason) == (passage, reason)


@pytest.mark.parametrize(
    ("begun", "used", "is_over"),
    [
        (0, 0, False),
        (23, 23, False),
        (24, 24, True),
        (100, 0, False),
        (168, 0, True),
        (-167, -1, False),
        (-168, 0, True),
    ],
)
def test_a_session_ends_by_its_limits(begun: float, used: float, is_over: bool) -> None:
    limits = SessionLimits(timedelta(hours=24), timedelta(hours=168))
    assert limits.passed(NOW - timedelta(hours=begun), NOW - timedelta(hours=used), NOW) is is_over
    assert limits.passed(NOW - timedelta(hours=167), NOW, NOW) is False
