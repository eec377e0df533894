"""What the hub's log has of a refusal, a failed start and one that was left."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tornado.log import app_log

from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.spawner.spawn_errors import AFTER_TIMEOUT, explain_failure, install_short_logs, refusal


def test_what_is_no_fault_is_one_line_of_information_and_a_fault_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = asyncio.TimeoutError("Server at http://127.0.0.1:5/ didn't respond")
    explain_failure(slow, CPU, 2.0)
    hub = logging.getLogger("a hub's")
    install_short_logs(hub)
    install_short_logs(hub)
    cases = [
        (hub, "Failed to spawn %s with form", refusal("No.", reason="group", log_message="ben: no group")),
        (app_log, AFTER_TIMEOUT, slow),
        (app_log, AFTER_TIMEOUT, asyncio.CancelledError()),
        (hub, "Failed to spawn %s with form", KeyError("ben")),
    ]
    with caplog.at_level(logging.INFO):
        for log, text, error in cases:
            log.error(text, "ben", exc_info=(type(error), error, None))
    *short, fault = caplog.records
    assert [(each.levelname, each.getMessage(), each.exc_info) for each in short] == [
        ("INFO", "Failed to spawn ben with form: ben: no group", None),
        ("INFO", "A start ended: Server at http://127.0.0.1:5/ didn't respond", None),
        ("INFO", "A start ended: it was cancelled", None),
    ]
    assert fault.exc_info is not None and fault.levelname == "ERROR"
