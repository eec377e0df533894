"""Logs: one JSON object a line, with ticket and server, without secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import pytest
from tornado.httputil import HTTPInputError
from tornado.log import gen_log

from hub_extensions.adapters.files.json_log import JsonLines, Repeated, hide_malformed_headers
from tests.hub_service.conftest import SECRET, Running


def line(message: str, *args: object, secrets: tuple[str, ...] = (), **fields: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": message, "args": args, **fields})
    formatted = JsonLines(secrets).format(record)
    assert "\n" not in formatted
    found: dict[str, object] = json.loads(formatted)
    return found


def test_a_line_has_its_ticket_and_server() -> None:
    found = line("admitted: %s", "mig-1g.5gb", ticket="t1", server="thesis", user="ada")
    assert found["message"] == "admitted: mig-1g.5gb"
    assert (found["ticket"], found["server"], found["user"], found["level"]) == ("t1", "thesis", "ada", "info")
    assert str(found["time"]).endswith("+00:00")


def test_the_default_servers_empty_name_is_a_name() -> None:
    assert line("x", server="")["server"] == ""


@pytest.mark.parametrize(
    "text",
    ["Authorization: Bearer abcdef123456", "token abcdef123456", "?code=abcdef123456&state=1", "said abcdef123456"],
)
def test_no_secret_is_in_a_line(text: str) -> None:
    found = line("%s", text, secrets=("abcdef123456",), path=f"/x?{text}")
    assert "abcdef123456" not in json.dumps(found)


class Minutes:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(name: str, level: int, message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = {"name": name, "levelno": level, "msg": message, "args": args, **fields}
    return logging.makeLogRecord(made)


def failure(message: str) -> logging.LogRecord:
    try:
        raise OSError(message)
    except OSError:
        return record("x", logging.ERROR, message, exc_info=sys.exc_info())


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda n: failure(f"no file for {n}"), 1),
        (lambda n: record("tornado.general", logging.INFO, "Malformed message from %s", n), 1),
        (lambda n: record("x", logging.WARNING, "the hub is away"), 1),
        (lambda n: record("x", logging.WARNING, "%s is unknown", n), 1000),
        (lambda n: record("x", logging.INFO, "admitted"), 1000),
        (lambda n: record("hub_extensions.hub_service.access", logging.INFO, "%s", n, status=403), 10),
    ],
)
def test_what_repeats_itself_is_written_once_a_minute_and_counted(
    make: Callable[[int], logging.LogRecord], most: int
) -> None:
    clock = Minutes()
    repeated = Repeated(clock)
    # so many different ones are as many kinds, and these are forgotten in between
    assert sum(repeated.filter(make(number)) for number in range(1000)) == most
    clock.now = 61.0
    following = make(1)
    assert repeated.filter(following)
    left = "" if most == 1000 else f" (and {1000 - most} more like it before)"
    assert following.getMessage().endswith(left)


def test_a_traceback_is_one_field_without_secrets() -> None:
    try:
        raise ValueError("Bearer abcdef123456")
    except ValueError:
        found = line("failed", exc_info=sys.exc_info())
    assert "ValueError" in str(found["traceback"])
    assert "abcdef123456" not in str(found)


def test_a_header_that_cannot_be_read_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    hide_malformed_headers()
    with caplog.at_level(logging.DEBUG, logger="tornado.general"):
        error = HTTPInputError("Invalid header value '__Host-gate=a-cookie\\x00'")
        gen_log.info("Malformed HTTP message from %s: %s", "127.0.0.1", error)
        gen_log.info("Cannot send error response after headers written")
    assert caplog.messages == ["Malformed HTTP message", "Cannot send error response after headers written"]


async def test_requests_are_logged_without_query_and_token(service: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="hub_extensions.hub_service.access"):
        await service.ask("GET", "oauth_callback?code=secretcode&state=secretstate")
        await service.ask("GET", "hub/form?user=ada", SECRET)
        await service.ask("GET", "api/offers", "wrong-token-wrong")
    told = [record for record in caplog.records if record.name.endswith(".access")]
    assert len(told) == 3
    text = json.dumps([JsonLines().format(record) for record in told])
    for secret in ("secretcode", "secretstate", SECRET, "wrong-token"):
        assert secret not in text


def test_a_warning_is_new_after_a_line_of_what_went_on_and_a_failure_is_not() -> None:
    repeated = Repeated(Minutes())
    warning, failed = record("x", logging.WARNING, "it cannot be read since 21:18"), failure("no file")
    assert [repeated.filter(each) for each in (warning, failed, warning, failed)] == [True, True, False, False]
    assert repeated.filter(record("x", logging.INFO, "it can be read again"))
    assert [repeated.filter(each) for each in (warning, failed, warning)] == [True, False, False]
