"""Required claims of an id token: a table with one error in each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.sign_on.claims import SIGNING_ALGORITHMS
from hub_extensions.core.sign_on.id_token import (
    Expected,
    IdToken,
    hash_of_token,
    judge_id_token,
    userinfo_problem,
)
from hub_extensions.core.sign_on.refusal import SignOnRefusal

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
SECONDS = int(NOW.timestamp())
ISSUER, US = "https://login.site.example", "the-hub"
ACCESS = "an access token"
EXPECTED = Expected(ISSUER, US, SIGNING_ALGORITHMS, timedelta(seconds=60), nonce="n-1", access_token=ACCESS)
HEADER = {"alg": "RS256", "kid": "1"}
CLAIMS = {
    "iss": ISSUER,
    "aud": US,
    "sub": "u-1",
    "sid": "s-1",
    "iat": SECONDS,
    "exp": SECONDS + 300,
    "nonce": "n-1",
    "at_hash": hash_of_token("RS256", ACCESS),
}
GONE = object()


def changed(whole: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**whole, **other}.items() if value is not GONE}


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({}, {}),
        ({}, {"at_hash": GONE}),
        ({"alg": "EdDSA"}, {"at_hash": hash_of_token("EdDSA", ACCESS)}),
        ({}, {"aud": [US]}),
        ({}, {"aud": [US, "api"], "azp": US}),
        ({}, {"azp": US}),
        ({}, {"iat": SECONDS + 60}),
        ({}, {"iat": SECONDS - 100_000}),
        ({}, {"exp": SECONDS - 59}),
        ({}, {"nbf": SECONDS + 59}),
        ({}, {"sid": GONE}),
        ({"typ": "JWT"}, {}),
    ],
)
def test_an_id_token_that_says_all_is_taken(header: dict[str, Any], claims: dict[str, Any]) -> None:
    judged = judge_id_token(changed(HEADER, header), changed(CLAIMS, claims), EXPECTED, NOW)
    assert isinstance(judged, IdToken), judged
    assert (judged.iss, judged.sub) == (ISSUER, "u-1")


@pytest.mark.parametrize(
    ("header", "claims", "code"),
    [
        ({"alg": "none"}, {}, "algorithm"),
        ({"alg": "HS256"}, {}, "algorithm"),
        ({"alg": "RS384"}, {}, "algorithm"),
        ({}, {"iss": ISSUER + "/"}, "issuer"),
        ({}, {"iss": GONE}, "issuer"),
        ({}, {"aud": "another"}, "audience"),
        ({}, {"aud": {US: 1}}, "audience"),
        ({}, {"azp": "another"}, "audience"),
        ({}, {"aud": [US, "api"]}, "audience"),
        ({}, {"aud": [US, "api"], "azp": "api"}, "audience"),
        ({}, {"exp": GONE}, "times"),
        ({}, {"iat": GONE}, "times"),
        ({}, {"iat": "now"}, "times"),
        ({}, {"iat": SECONDS + 61}, "clock"),
        ({}, {"iat": SECONDS - 400, "exp": SECONDS - 60}, "clock"),
        ({}, {"nbf": SECONDS + 61}, "clock"),
        ({}, {"nbf": "later"}, "clock"),
        ({}, {"nonce": GONE}, "nonce"),
        ({}, {"nonce": "n-2"}, "nonce"),
        ({}, {"nonce": ["n-1"]}, "nonce"),
        ({}, {"at_hash": hash_of_token("RS256", "another")}, "at-hash"),
        ({"alg": "EdDSA"}, {}, "at-hash"),
        ({}, {"sub": GONE}, "subject"),
        ({}, {"sub": 5}, "subject"),
        ({}, {"sub": "x" * 256}, "subject"),
        ({}, {"sub": "u\n1"}, "subject"),
    ],
)
def test_an_id_token_in_which_one_thing_is_wrong_is_refused(
    header: dict[str, Any], claims: dict[str, Any], code: str
) -> None:
    judged = judge_id_token(changed(HEADER, header), changed(CLAIMS, claims), EXPECTED, NOW)
    assert isinstance(judged, SignOnRefusal)
    assert judged.code == code, judged


def test_one_from_a_refresh_needs_no_nonce_and_has_to_be_of_the_same_person() -> None:
    expected = replace(EXPECTED, nonce=None, access_token=None, sub="u-1")
    claims = changed(CLAIMS, {"nonce": GONE, "at_hash": "whatever"})
    assert isinstance(judge_id_token(HEADER, claims, expected, NOW), IdToken)
    other = judge_id_token(HEADER, {**claims, "sub": "u-2"}, expected, NOW)
    assert isinstance(other, SignOnRefusal)
    assert other.code == "subject"


@pytest.mark.parametrize(
    ("issued", "words"), [(SECONDS + 300, ("300", "ahead of")), (SECONDS - 3600, ("3600", "behind"))]
)
def test_a_clock_that_is_off_is_told_with_by_how_much(issued: int, words: tuple[str, str]) -> None:
    judged = judge_id_token(HEADER, {**CLAIMS, "iat": issued, "exp": issued + 300}, EXPECTED, NOW)
    assert isinstance(judged, SignOnRefusal)
    assert (judged.parameters["off"], judged.parameters["where"]) == words


def test_the_hash_of_a_token_is_that_of_the_standards_example() -> None:
    # OpenID Connect Core 1.0, appendix A.3 and A.4
    assert hash_of_token("RS256", "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y") == "77QmUPtjPfzWtF2AnpK9RQ"


@pytest.mark.parametrize(("claims", "fits"), [({"sub": "u-1"}, True), ({"sub": "u-2"}, False), ({}, False)])
def test_user_information_is_of_the_person_who_signed_in(claims: dict[str, Any], fits: bool) -> None:
    assert (userinfo_problem(claims, "u-1") is None) is fits


def test_nothing_is_the_same_as_nothing() -> None:
    assert userinfo_problem({"sub": ""}, "") is not None
