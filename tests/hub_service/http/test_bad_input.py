"""Bad input is a 4xx that names the field; only our own fault is 500; nothing is half done."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hub_extensions.core.messages import Ask, Ended, Problem, Progress, Report, Started, Stopped
from hub_extensions.hub_service.http.api.codec import BODY_LIMIT_BYTES, BadInput, read, write
from hub_extensions.hub_service.http.api.requests import TicketRequest
from tests.examples import many
from tests.fakes.engine import DeskThatFails
from tests.hub_service.conftest import PREFIX, SECRET, Running, known_hub, said
from tests.patience import patient

ASK: dict[str, Any] = {"user": "ada", "server": "", "offers": ["mig-1g.5gb"]}
BAD_ASKS = [
    (b"", "", "empty"),
    (b"{", "", "not JSON"),
    (b"[]", "", "JSON object"),
    (b'"text"', "", "JSON object"),
    (b"\xff\xfe{}", "", "UTF-8"),
    (b'{"user": NaN}', "user", "NaN"),
    (b'{"user": "ada", "server": "", "offers": ["cpu"], "options": {"a": [Infinity]}}', "options.a.0", "Infinity"),
    (b"[" * 30000, "", ""),
    ({"server": "", "offers": ["cpu"]}, "user", "missing"),
    ({**ASK, "user": ""}, "user", "empty"),
    ({**ASK, "user": 7}, "user", "text"),
    ({**ASK, "offers": "cpu"}, "offers", "list"),
    ({**ASK, "offers": []}, "offers", "at least one"),
    ({**ASK, "offers": ["cpu", 3]}, "offers.1", "text"),
    ({**ASK, "options": []}, "options", "object"),
    ({**ASK, "colour": "red"}, "colour", "Known: user, server"),
    (b'{"\\ud800": 1}', r"\ud800", "half of a character"),
    (b'{"user": "ada\\udfff", "server": "", "offers": ["cpu"]}', "user", "half of a character"),
    ({**ASK, "options": {"a": {"b\n": ["\ud800"]}}}, r"options.a.b\n.0", "half of a character"),
    ({**ASK, "col\nour": "red"}, r"col\nour", "Known: user, server"),
    ({**ASK, "x" * 300: "red"}, "x" * 60, "Known: user, server"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "field", "words"), BAD_ASKS)
async def test_a_malformed_body_is_400_and_names_the_field(
    service: Running, body: object, field: str, words: str
) -> None:
    answer = await service.ask("POST", "hub/tickets", SECRET, body)
    assert answer.code == 400
    problem = said(answer)
    assert problem["field"] == field
    assert words in problem["message"]
    assert service.engine.told == []


KEYS = st.sampled_from([*ASK, "options", "attempt", "how", "ready", "pid", "kernels"]) | st.text(max_size=8)
WHOLE_TEXT = st.text(st.characters(), max_size=8)  # lone surrogates too
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WHOLE_TEXT | st.sampled_from(["cpu", "gpu-0.5"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | WHOLE_TEXT, inner, max_size=4),
    max_leaves=10,
)
BODIES = st.dictionaries(KEYS | WHOLE_TEXT, ANY_JSON, max_size=6) | ANY_JSON


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ask, Started, Ended, Stopped, Report, TicketRequest])
def test_any_json_is_a_message_or_a_sentence_that_can_be_sent(kind: type[object]) -> None:
    @given(BODIES)
    @example({"\ud800": 1})
    def read_or_refused(body: object) -> None:
        try:
            read(kind, json.dumps(body).encode())
        except BadInput as refused:
            assert refused.status == 400 and refused.message.endswith(".")
            assert write(Problem(refused.message, refused.field, refused.reason))

    read_or_refused()


@pytest.mark.whole
@pytest.mark.slow
async def test_no_json_body_makes_any_route_fail(service: Running, caplog: pytest.LogCaptureFixture) -> None:
    bodies: list[object] = [{"\ud800": 1}]

    @many(40, database=None)
    @given(BODIES)
    def collect(body: object) -> None:
        bodies.append(body)

    collect()
    service.engine.run_server("ada", "thesis")
    routes = [("hub/tickets", SECRET), ("hub/tickets/t1/started", SECRET), ("hub/tickets/t1/ended", SECRET)]
    routes += [("hub/stopped", SECRET), ("api/tickets", "ada-token"), ("api/server/report", "ada-thesis")]
    for path, token in routes:
        for body in bodies:
            answer = await service.ask("POST", path, token, body)
            assert answer.code < 500, (path, body)
            assert answer.code < 400 or said(answer)["message"], (path, body)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("hub/tickets/t1/started", {"attempt": 0}, "attempt"),
        ("hub/tickets/t1/started", {"attempt": 1, "pid": -3}, "pid"),
        ("hub/tickets/t1/started", {"attempt": 1.5}, "attempt"),
        ("hub/tickets/t1/started", {"attempt": 1, "ready": "yes"}, "ready"),
        ("hub/tickets/t1/ended", {"attempt": 1, "how": "bored"}, "how"),
        ("hub/stopped", {"user": "ada"}, "server"),
        ("hub/form?user=ada&admin=yes", None, "admin"),
        ("hub/form?user=ada&colour=red", None, "colour"),
        ("hub/form", None, "user"),
    ],
)
async def test_every_hub_route_names_the_field(service: Running, path: str, body: object, field: str) -> None:
    answer = await service.ask("GET" if body is None else "POST", path, SECRET, body)
    assert (answer.code, said(answer)["field"]) == (400, field)
    assert service.engine.told == []


@pytest.mark.parametrize(
    ("report", "field"),
    [
        ({"opened": True, "kernels": -1, "busy_kernels": 0}, "kernels"),
        ({"opened": True, "kernels": 1, "busy_kernels": 2}, "busy_kernels"),
        ({"opened": True, "kernels": 1, "busy_kernels": 0, "busy_terminals": -1}, "busy_terminals"),
        ({"opened": "yes", "kernels": 1, "busy_kernels": 0}, "opened"),
        ({"kernels": 1, "busy_kernels": 0}, "opened"),
        ({"opened": True, "kernels": 1, "busy_kernels": 0, "used_percent": -0.1}, "used_percent"),
        ({"opened": True, "kernels": 1, "busy_kernels": 0, "used_percent": 100.5}, "used_percent"),
        ({"opened": True, "kernels": 1, "busy_kernels": 0, "used_percent": "3"}, "used_percent"),
        (b'{"opened": true, "kernels": 1, "busy_kernels": 0, "used_percent": 1e999}', "used_percent"),
        (b'{"opened": true, "kernels": 1, "busy_kernels": 0, "used_percent": NaN}', "used_percent"),
        (b'{"opened": true, "kernels": 1, "busy_kernels": 0, "used_percent": -Infinity}', "used_percent"),
    ],
)
async def test_a_bad_report_names_the_field(service: Running, report: object, field: str) -> None:
    service.engine.run_server("ada", "thesis")
    answer = await service.ask("POST", "api/server/report", "ada-thesis", report)
    assert (answer.code, said(answer)["field"]) == (400, field)


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"at": "2026-11-01T12:00:00", "left_seconds": 60}, "at"),
        ({"at": "soon", "left_seconds": 60}, "at"),
        ({"at": "2026-11-01T12:00:00Z", "left_seconds": -1}, "left_seconds"),
        ({"at": "2026-11-01T12:00:00Z", "left_seconds": 2592001}, "left_seconds"),
        ({"at": "2026-11-01T12:00:00Z", "left_seconds": 60, "spread": 1.5}, "spread"),
        ({"at": "2026-11-01T12:00:00Z"}, "left_seconds"),
        (b'{"at": "2026-11-01T12:00:00Z", "left_seconds": NaN}', "left_seconds"),
    ],
)
async def test_a_bad_report_of_progress_names_the_field(service: Running, told: object, field: str) -> None:
    answer = await service.ask("POST", "api/server/progress", "ada-thesis", told)
    assert (answer.code, said(answer)["field"]) == (400, field)
    assert service.engine.told == []


@pytest.mark.parametrize(
    ("kind", "oldest"),
    [
        (Report, {"opened": True, "kernels": 1, "busy_kernels": 0}),
        (Progress, {"at": "2026-11-01T12:00:00Z", "left_seconds": 60}),
        (Ended, {"attempt": 1, "how": "failed", "message": "No image.", "reason": "image"}),
        (Stopped, {"user": "ada", "server": "", "message": "It crashed.", "reason": "crashed"}),
    ],
)
def test_what_a_server_or_a_hub_of_another_version_sends_is_read(kind: type[object], oldest: dict[str, object]) -> None:
    """An image or a hub is older than the service, or newer; what a person sends, or an ask, has to be known whole."""
    known = read(kind, json.dumps(oldest).encode())
    assert read(kind, json.dumps({**oldest, "colour": {"of": ["what", 1]}}).encode()) == known
    with pytest.raises(BadInput, match="'colour' is not a field here"):
        read(Ask, json.dumps({**ASK, "colour": "red"}).encode())


async def test_a_report_with_more_than_is_known_is_still_judged_and_is_its_own_servers(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    report: dict[str, object] = {"opened": True, "kernels": 1, "busy_kernels": 0, "colour": "blue", "server": "other"}
    answer = await service.ask("POST", "api/server/report", "ada-thesis", report)
    assert answer.code == 200
    answer = await service.ask("POST", "api/server/report", "ada-thesis", {**report, "kernels": -1})
    assert (answer.code, said(answer)["field"]) == (400, "kernels")


async def test_a_body_that_is_too_large_is_413(service: Running) -> None:
    body = json.dumps({**ASK, "options": {"text": "x" * BODY_LIMIT_BYTES}}).encode()
    answer = await service.ask("POST", "hub/tickets", SECRET, body)
    assert (answer.code, said(answer)["reason"]) == (413, "too-large")
    assert service.engine.told == []


async def test_a_body_in_pieces_is_not_larger_than_the_rest(service: Running) -> None:
    """Without a Content-Length: nothing says how large it is until it is there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head, proof = f"POST {PREFIX}hub/tickets HTTP/1.1\r\n", service.signature("POST", "hub/tickets")
    writer.write(f"{head}Host: x\r\nAuthorization: {proof}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    piece = b"x" * 16384
    for _ in range(6):
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    writer.write(b"0\r\n\r\n")
    status = await asyncio.wait_for(reader.readline(), patient(10))
    writer.close()
    assert b" 413 " in status


async def test_a_strangers_large_body_is_not_read(service: Running) -> None:
    answer = await service.ask("POST", "hub/tickets", "unknown", b"x" * (BODY_LIMIT_BYTES + 1))
    assert answer.code == 403


async def test_a_refusal_of_the_engine_keeps_its_status_field_and_word(service: Running) -> None:
    answer = await service.ask("DELETE", "api/tickets/nothere", "ada-token")
    assert answer.code == 404
    assert said(answer) == {
        "message": "There is no such ticket any more.",
        "field": "ticket",
        "reason": "unknown-ticket",
        "params": {},
    }


async def test_an_unknown_server_is_404_not_an_empty_answer(service: Running) -> None:
    assert (await service.ask("GET", "api/server", "ada-thesis")).code == 404
    assert (await service.ask("POST", "api/server/keep", "ada-thesis", b"")).code == 404


async def test_another_method_is_405(service: Running) -> None:
    assert (await service.ask("PUT", "api/tickets", "ada-token", b"{}")).code == 405


async def test_our_own_fault_is_500_with_a_plain_sentence_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running(DeskThatFails(), known_hub())
    with caplog.at_level(logging.ERROR):
        answer = await running.ask("GET", "hub/form?user=ada", SECRET)
    await running.stop()
    assert answer.code == 500
    assert said(answer)["message"].startswith("The GPU service made a mistake")
    assert b"mistake near" not in answer.body
    assert any(record.exc_info and "mistake near" in str(record.exc_info[1]) for record in caplog.records)


async def test_good_messages_reach_the_engine_as_they_were_meant(service: Running) -> None:
    asked = {**ASK, "options": {"offer": "mig-1g.5gb", "deep": {"a": [1, None]}}, "groups": ["course"]}
    state = said(await service.ask("POST", "hub/tickets", SECRET, asked))
    started = {"attempt": 1, "pid": 17, "pid_started": 99, "ready": True}
    assert (await service.ask("POST", f"hub/tickets/{state['ticket']}/started", SECRET, started)).code == 200
    ended = {"attempt": 1, "how": "failed", "message": "no port"}
    assert (await service.ask("POST", f"hub/tickets/{state['ticket']}/ended", SECRET, ended)).code == 204
    assert (await service.ask("POST", "hub/stopped", SECRET, {"user": "ada", "server": ""})).code == 204
    read_in = {"Accept-Language": "fi-FI"}
    await service.ask("GET", "hub/form?user=ada&server=x&group=a&group=b&admin=1", SECRET, headers=read_in)
    assert service.engine.languages == {"ada": "fi-FI"}
    assert service.engine.told == [
        ("ask", Ask("ada", "", ("mig-1g.5gb",), asked["options"], ("course",))),
        ("started", "t1", Started(1, 17, 99, True)),
        ("ended", "t1", Ended(1, "failed", "no port")),
        ("stopped", Stopped("ada", "")),
        ("form", "ada", "x", ("a", "b"), True),
    ]
    await service.ask("GET", "hub/overview?user=ada", SECRET, headers={"Accept-Language": "ja"})
    assert service.engine.languages["ada"] == "ja-JP"
    await service.ask("GET", "hub/overview?user=ada", SECRET)
    assert service.engine.languages["ada"] == "ja-JP", "not that user's own page"


async def test_answers_are_compact_json_with_times_in_utc(service: Running) -> None:
    answer = await service.ask("GET", "hub/form?user=ada", SECRET)
    assert b'"as_of":"2026-11-20T12:00:00Z"' in answer.body
    assert b", " not in answer.body.split(b'"description"')[0]
    assert answer.headers["Cache-Control"] == "no-store"


async def test_an_answer_before_the_body_is_read_says_that_the_connection_closes(service: Running) -> None:
    """Else a proxy that keeps connections sends the next request into a closed one, and its user gets a 503."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)

    async def asked(method: str, path: str, token: str) -> bytes:
        head = f"{method} {PREFIX}{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        heads = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patient(10))
        length = int(heads.lower().partition(b"content-length: ")[2].split()[0])
        await reader.readexactly(length)
        return heads

    late = await asked("DELETE", "api/tickets/nothere", "ada-token")
    assert b" 404 " in late and b"Connection: close" not in late
    early = await asked("GET", "api/tickets", "unknown-token")
    assert b" 403 " in early and b"Connection: close" in early
    assert await asyncio.wait_for(reader.read(), patient(10)) == b""
    writer.close()
