"""What a signature covers, and which signatures are invalid, as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.signing import (
    SCHEME,
    WINDOW,
    SignedAnswer,
    SignedRequest,
    answer_of,
    clock_problem,
    hash_of,
    is_in_time,
    line_of,
    request_of,
    signed_line,
)

SECRET = "a secret"
NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
REQUEST = SignedRequest("POST", "/services/gpu/hub/tickets?a=1", "0" * 16, NOW, NOW, "1" * 32, hash_of(b"body"))
HEADER = REQUEST.signed(SECRET)
ANSWER = SignedAnswer("1" * 32, 200, "0" * 16, NOW, NOW + timedelta(hours=1), hash_of(b"admit"))


def test_the_header_proves_the_request_and_does_not_tell_the_secret() -> None:
    assert request_of(SECRET, REQUEST.method, REQUEST.target, HEADER) == REQUEST
    assert SECRET not in HEADER


@pytest.mark.parametrize(
    "changed",
    [
        replace(REQUEST, method="GET"),
        replace(REQUEST, target="/services/gpu/hub/tickets?a=2"),
        replace(REQUEST, life="f" * 16),
        replace(REQUEST, time=NOW + timedelta(seconds=1)),
        replace(REQUEST, clock=NOW + timedelta(seconds=1)),
        replace(REQUEST, nonce="2" * 32),
        replace(REQUEST, body=hash_of(b"another")),
    ],
    ids=["method", "target", "life", "time", "clock", "nonce", "body"],
)
def test_nothing_of_a_request_can_be_changed(changed: SignedRequest) -> None:
    signature = HEADER.rpartition("=")[2]
    forged = changed.signed("guessed").rpartition("=")[0] + "=" + signature
    assert request_of(SECRET, changed.method, changed.target, forged) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer " + SECRET,
        SCHEME,
        HEADER + " ",
        HEADER[:-1],
        HEADER.replace("life=0", "life=O"),
        HEADER.replace("2026-11", "2026-13"),
        HEADER.replace("+00:00", ""),
        HEADER.replace("nonce=1", "nonce=\n"),
        REQUEST.signed("another"),
        REQUEST.signed(""),
    ],
)
def test_what_is_no_proof_is_none(header: str) -> None:
    assert request_of(SECRET, REQUEST.method, REQUEST.target, header) is None


def test_an_empty_secret_proves_nothing() -> None:
    assert request_of("", REQUEST.method, REQUEST.target, REQUEST.signed("")) is None
    assert answer_of("", ANSWER.nonce, 200, b"admit", ANSWER.signed("")) is None
    assert line_of("", ANSWER.nonce, 0, signed_line("", ANSWER.nonce, 0, b"{}")) is None


def test_an_answer_fits_its_own_request_status_and_body_alone() -> None:
    header = ANSWER.signed(SECRET)
    assert answer_of(SECRET, ANSWER.nonce, 200, b"admit", header) == ANSWER
    for nonce, status, body in (("2" * 32, 200, b"admit"), (ANSWER.nonce, 403, b"admit"), (ANSWER.nonce, 200, b"wait")):
        assert answer_of(SECRET, nonce, status, body, header) is None
    changed = [("12:00", "12:10"), ("13:00", "13:10"), ("life=0", "life=1"), ("clock=2026-11", "clock=2026-13")]
    for wrong in ("", ANSWER.signed("another"), *(header.replace(old, new) for old, new in changed)):
        assert wrong != header
        assert answer_of(SECRET, ANSWER.nonce, 200, b"admit", wrong) is None


def test_a_line_fits_its_own_stream_and_place_alone() -> None:
    signed = signed_line(SECRET, ANSWER.nonce, 3, b'{"answer": "admit"}')
    assert line_of(SECRET, ANSWER.nonce, 3, signed) == b'{"answer": "admit"}'
    assert line_of(SECRET, ANSWER.nonce, 0, signed_line(SECRET, ANSWER.nonce, 0, b"")) == b""
    for nonce, number, line in (
        ("2" * 32, 3, signed), (ANSWER.nonce, 4, signed), (ANSWER.nonce, 3, signed.replace(b"admit", b"refuse")),
        (ANSWER.nonce, 3, b""), (ANSWER.nonce, 3, b"{}"), (ANSWER.nonce, 3, signed[:64]),
    ):  # fmt: skip
        assert line_of(SECRET, nonce, number, line) is None


@pytest.mark.parametrize(("seconds", "good"), [(0, True), (300, True), (301, False), (-300, True), (-301, False)])
def test_a_request_is_good_five_minutes_around_its_time(seconds: int, good: bool) -> None:
    assert timedelta(minutes=5) == WINDOW
    assert is_in_time(REQUEST, NOW + timedelta(seconds=seconds)) is good


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (timedelta(0), ""),
        (timedelta(seconds=-60), ""),
        (timedelta(minutes=10), "the hub's clock is 10 min ahead of the GPU service's"),
        (timedelta(minutes=-10), "the hub's clock is 10 min behind the GPU service's"),
    ],
)
def test_clocks_that_differ_are_told(ahead: timedelta, words: str) -> None:
    assert clock_problem(ahead).startswith(words)
    assert bool(clock_problem(ahead)) is bool(words)
