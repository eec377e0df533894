"""Required claims of a logout token, as a table with one error in each row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.sign_on.claims import SIGNING_ALGORITHMS
from hub_extensions.core.sign_on.logout_token import EVENT, LogoutToken, judge_logout_token
from hub_extensions.core.sign_on.refusal import SignOnRefusal

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
SECONDS = int(NOW.timestamp())
ISSUER, US = "https://login.site.example/realms/uni/", "the-hub"
HEADER = {"alg": "RS256", "kid": "1", "typ": "logout+jwt"}
CLAIMS = {
    "iss": ISSUER,
    "aud": US,
    "iat": SECONDS,
    "exp": SECONDS + 120,
    "jti": "one",
    "sub": "u-1",
    "sid": "s-1",
    "events": {EVENT: {}},
}
GONE = object()


def judge(header: Mapping[str, Any], claims: Mapping[str, Any]) -> LogoutToken | SignOnRefusal:
    return judge_logout_token(
        header,
        claims,
        issuer=ISSUER,
        client_id=US,
        algorithms=SIGNING_ALGORITHMS,
        leeway=timedelta(seconds=60),
        now=NOW,
    )


def changed(whole: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**whole, **other}.items() if value is not GONE}


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({}, {}),
        ({"typ": "JWT"}, {}),
        ({"typ": GONE}, {}),
        ({"typ": "application/logout+jwt"}, {}),
        ({"alg": "ES256"}, {}),
        ({}, {"sid": GONE}),
        ({}, {"sub": GONE}),
        ({}, {"aud": ["another", US]}),
        ({}, {"iat": SECONDS + 59}),
        ({}, {"exp": SECONDS - 59}),
        ({"typ": "JWT"}, {"exp": GONE}),  # Keycloak 23.0.3, Ory Hydra 2.2
        ({"typ": GONE}, {"exp": GONE, "iat": SECONDS - 359}),
        ({}, {"iat": SECONDS + 0.5}),
        ({}, {"events": {EVENT: {}, "another": {}}}),
    ],
)
def test_a_logout_token_that_says_all_is_taken(header: dict[str, Any], claims: dict[str, Any]) -> None:
    told = changed(CLAIMS, claims)
    judged = judge(changed(HEADER, header), told)
    assert isinstance(judged, LogoutToken), judged
    assert (judged.sub, judged.sid, judged.jti) == (told.get("sub", ""), told.get("sid", ""), "one")


@pytest.mark.parametrize(
    ("case", "header", "claims", "code"),
    [
        ("L6 alg none", {"alg": "none"}, {}, "algorithm"),
        ("L6 alg None", {"alg": "nOnE"}, {}, "algorithm"),
        ("L6 no alg", {"alg": GONE}, {}, "algorithm"),
        ("L7 HS256", {"alg": "HS256"}, {}, "algorithm"),
        ("L8 not on the list", {"alg": "RS512"}, {}, "algorithm"),
        ("L11 an access token's typ", {"typ": "at+jwt"}, {}, "type"),
        ("L11 no text as typ", {"typ": 5}, {}, "type"),
        ("L12 an id token", {"typ": "JWT"}, {"events": GONE, "nonce": "n", "jti": GONE}, "events"),
        ("L13 iss", {}, {"iss": ISSUER.rstrip("/")}, "issuer"),
        ("L13 no iss", {}, {"iss": GONE}, "issuer"),
        ("L14 aud", {}, {"aud": "another"}, "audience"),
        ("L14 no aud", {}, {"aud": GONE}, "audience"),
        ("L15 aud without us", {}, {"aud": ["a", "b"]}, "audience"),
        ("L15 aud of all sorts", {}, {"aud": [US, 5]}, "audience"),
        ("L15 aud empty", {}, {"aud": []}, "audience"),
        ("L16 no iat", {}, {"iat": GONE}, "issued-at"),
        ("L16 iat a text", {}, {"iat": str(SECONDS)}, "issued-at"),
        ("L16 iat true", {}, {"iat": True}, "issued-at"),
        ("L16 iat infinite", {}, {"iat": float("inf")}, "issued-at"),
        ("L16 iat far too large", {}, {"iat": 10**30}, "issued-at"),
        ("L17 iat ahead", {}, {"iat": SECONDS + 61, "exp": SECONDS + 200}, "clock"),
        ("L18 exp past", {}, {"iat": SECONDS - 200, "exp": SECONDS - 60}, "clock"),
        ("L18 no exp, not fresh", {}, {"exp": GONE, "iat": SECONDS - 361}, "old"),
        ("L18 no exp, ahead", {}, {"exp": GONE, "iat": SECONDS + 61}, "clock"),
        ("L18 no exp, no iat", {}, {"exp": GONE, "iat": GONE}, "issued-at"),
        ("L18 exp a text", {}, {"exp": str(SECONDS + 60)}, "expires"),
        ("L18 exp null", {}, {"exp": None}, "expires"),
        ("L18 a day old", {}, {"iat": SECONDS - 100_000, "exp": SECONDS + 10**9}, "old"),
        ("L19 nobody", {}, {"sub": GONE, "sid": GONE}, "subject"),
        ("L19 sub no text", {}, {"sub": 7}, "subject"),
        ("L19 sid empty", {}, {"sid": ""}, "subject"),
        ("L19 sub too long", {}, {"sub": "x" * 256}, "subject"),
        ("L20 no events", {}, {"events": GONE}, "events"),
        ("L21 another event", {}, {"events": {"another": {}}}, "events"),
        ("L21 events a list", {}, {"events": [EVENT]}, "events"),
        ("L21 the event no object", {}, {"events": {EVENT: True}}, "events"),
        ("L22 nonce", {}, {"nonce": "n"}, "nonce"),
        ("L22 nonce null", {}, {"nonce": None}, "nonce"),
        ("L23 no jti", {}, {"jti": GONE}, "id"),
        ("L23 jti no text", {}, {"jti": ["one"]}, "id"),
    ],
)
def test_a_logout_token_in_which_one_thing_is_wrong_is_refused(
    case: str, header: dict[str, Any], claims: dict[str, Any], code: str
) -> None:
    judged = judge(changed(HEADER, header), changed(CLAIMS, claims))
    assert isinstance(judged, SignOnRefusal), case
    assert judged.code == code, judged
    assert judged.log_message.endswith(".")


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iat": SECONDS + 300, "exp": SECONDS + 420}, "5 min ahead of"),
        ({"iat": SECONDS - 300, "exp": SECONDS - 180}, "5 min behind"),
    ],
)
def test_a_time_that_does_not_fit_says_by_how_much(claims: dict[str, Any], words: str) -> None:
    judged = judge(HEADER, changed(CLAIMS, claims))
    assert isinstance(judged, SignOnRefusal)
    assert words in judged.log_message


@pytest.mark.parametrize(
    ("exp", "until"),
    [(SECONDS + 120, NOW + timedelta(seconds=180)), (SECONDS + 10**9, NOW + timedelta(days=1, seconds=60))],
)
def test_its_id_is_remembered_as_long_as_it_would_be_taken_and_a_day_at_most(exp: int, until: datetime) -> None:
    judged = judge(HEADER, changed(CLAIMS, {"exp": exp}))
    assert isinstance(judged, LogoutToken)
    assert judged.until == until


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(name=st.sampled_from(sorted(CLAIMS)), value=JSON, in_header=st.booleans())
def test_whatever_stands_in_a_claim_it_is_judged(name: str, value: Any, in_header: bool) -> None:
    header = {**HEADER, "alg": value} if in_header else HEADER
    assert isinstance(judge(header, {**CLAIMS, name: value}), (LogoutToken, SignOnRefusal))
