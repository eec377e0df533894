"""What the hub's log has of a refusal."""

from __future__ import annotations

import logging

import pytest
from tornado import web

from hub_extensions.spawner.spawn_errors import SHORT_REFUSALS, refusal


def test_a_refusal_is_one_line_of_information_and_what_is_a_fault_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = logging.getLogger("a hub's")
    hub.addFilter(SHORT_REFUSALS)
    hub.addFilter(SHORT_REFUSALS)
    with caplog.at_level(logging.INFO, hub.name):
        for error in (refusal("No %s.", reason="group", log_message="ben: no group"), KeyError("ben")):
            try:
                raise error
            except (KeyError, web.HTTPError):
                hub.exception("Failed to spawn %s with form", "ben")
    short, fault = caplog.records
    assert (short.levelname, short.getMessage()) == ("INFO", "Failed to spawn ben with form: ben: no group")
    assert short.exc_info is None and fault.exc_info is not None and fault.levelname == "ERROR"
