"""Messages with the standard library only: what goes out comes back, and what does not fit is named."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from hub_extensions.core.messages import Problem, ServerState
from hub_extensions.server_extension.codec import PROTOCOL_VERSION, CodecError, decode, encode
from hub_extensions.server_extension.recheck import SIGNED_OUT
from tests.fakes.panel_service import a_countdown, a_state
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]


def test_a_state_comes_back_as_it_went() -> None:
    at = datetime(2026, 11, 21, 14, 2, 3, 250_000, tzinfo=timezone.utc)
    state = a_state(ends_at=at, countdown=a_countdown(stops_at=at))
    assert decode(ServerState, encode(state)) == state


def test_the_service_and_the_server_extension_write_one_language() -> None:
    """The service writes with pydantic, the extension reads with the standard library, and the other way round."""
    adapter = TypeAdapter(ServerState)
    at = datetime(2026, 11, 21, 14, 2, 3, 123_456, tzinfo=timezone.utc)
    state = a_state(ends_at=at, countdown=a_countdown(stops_at=at + timedelta(microseconds=1)))
    assert decode(ServerState, adapter.dump_json(state)) == state
    again = adapter.validate_json(encode(state))
    assert again.offer == state.offer
    assert again.ends_at is not None and abs(again.ends_at - at) < timedelta(milliseconds=1)


def test_a_newer_service_may_say_more() -> None:
    text = json.dumps({"message": "no", "field": "", "reason": "w", "colour": "blue"})
    assert decode(Problem, text) == Problem("no", "", "w")
    text = encode(a_state())
    assert decode(ServerState, json.dumps({**json.loads(text), "colour": "blue"})) == decode(ServerState, text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"share": "half"}, "ServerState.share"),
        ({"save": 1}, "ServerState.save"),
        ({"memory_bytes": True}, "ServerState.memory_bytes"),
        ({"ends_at": "tomorrow"}, "ServerState.ends_at"),
        ({"ends_at": "2026-11-21T14:02:03"}, "ServerState.ends_at"),
        ({"warnings": "none"}, "ServerState.warnings"),
        ({"waits": [{}]}, r"ServerState.waits\[0\].id"),
        ({"countdown": []}, "ServerState.countdown"),
        ({"share": float("nan")}, "ServerState.share"),
        ({"share": 10**400}, "ServerState.share"),
        ({"ends_at": "9999-12-31T23:59:59-12:00"}, "ServerState.ends_at"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], named: str) -> None:
    data = json.loads(encode(a_state())) | change
    with pytest.raises(CodecError, match=named):
        decode(ServerState, json.dumps(data))


def test_a_missing_field_is_named() -> None:
    data = json.loads(encode(a_state()))
    del data["offer"]
    with pytest.raises(CodecError, match=r"ServerState\.offer: missing"):
        decode(ServerState, json.dumps(data))


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null"])
def test_what_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        decode(Problem, text)


@pytest.mark.programs
def test_the_panels_types_follow_the_messages() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "generate-types.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == 0, done.stdout


@pytest.mark.whole
@pytest.mark.programs
def test_a_users_server_loads_no_hub_library_and_opens_nothing() -> None:
    """Importing the extension loads neither pydantic nor jupyterhub nor the driver's library, and starts no thread."""
    code = (
        "import sys, threading; import hub_extensions.server_extension as e; e._jupyter_server_extension_points();"
        "print(sorted({'pydantic', 'jupyterhub', 'pynvml', 'sqlalchemy'} & set(sys.modules)), threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(60), cwd=ROOT)
    assert done.stdout.strip() == "[] 1", done.stdout + done.stderr


def test_the_panel_reads_the_wire_that_is_spoken() -> None:
    """Else every page says that it is older than its server."""
    text = (ROOT / "labextension" / "src" / "api.ts").read_text(encoding="utf-8")
    assert re.findall(r"^export const PROTOCOL_VERSION = (\d+);$", text, re.MULTILINE) == [str(PROTOCOL_VERSION)]
    assert re.findall(r"^const SIGNED_OUT = (\d+);$", text, re.MULTILINE) == [str(SIGNED_OUT)]
