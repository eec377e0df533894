"""The judge of a normal day's log, by lines as hub, service and servers write them."""

from __future__ import annotations

import pytest

from tests.loop.quiet_log import faults

WHO = "200 GET /hub/api/user (ada@127.0.0.1) 2.50ms"
LIST = "200 GET /hub/api/gpu/servers (gpu@127.0.0.1) 70.83ms"
ACTIVE = "200 POST /hub/api/users/ada/activity (ada@127.0.0.1) 9.30ms"


def every(seconds: int, what: str, times: int) -> str:
    at = (divmod(seconds * number, 60) for number in range(times))
    return "\n".join(f"[I 2026-01-05 12:{m:02}:{s:02}.123 JupyterHub log:192] {what}" for m, s in at)


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (every(15, WHO, 8), ["ada asks too often: GET /hub/api/user, 8 times in 1.8 min"]),
        (every(30, LIST, 8), ["gpu asks too often: GET /hub/api/gpu/servers, 8 times in 3.5 min"]),
        (every(300, WHO, 4) + "\n" + every(300, ACTIVE, 4), []),
        (every(0, WHO, 3), []),
        (every(15, WHO.replace("ada", "admin"), 8), []),
        (every(1, "200 GET /hub/home (ada@127.0.0.1) 20ms", 20), []),
        ("[D 2026-01-05 12:00:00.123 JupyterHub log:192] 404 GET /hub/health (@127.0.0.1) 1ms", []),
        ("[W 2026-01-05 12:00:00.123 JupyterHub log:192] 404 GET /hub/health (@::1) 1ms", ["404: GET /hub/health"]),
        (
            "[E 2026-01-05 12:00:00.123 JupyterHub web:1]\n    Traceback (most recent call last):\n      File a\n"
            "    KeyError: 'HOME'\nKeyError: 'HOME'\n{}",
            ["a traceback: KeyError: 'HOME'"],
        ),
        ('{"message": "x", "exception": "Traceback (most recent call last):\\n"}', ["a traceback: without an end"]),
    ],
)  # fmt: skip
def test_what_a_normal_day_must_not_have_is_a_sentence_each(log: str, found: list[str]) -> None:
    assert faults(log, "admin") == found
