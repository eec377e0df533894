"""The service, turned (``turned_service.py``), that is killed just before or after a step of stopping a server.

    python -m tests.fakes.dying_service --config FILE

`FILE` beside its configuration names the step, once. Servers of these tests report nothing, so that is not waited for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.hub_service.engine.stops import orders, runner
from tests.fakes.turned_service import turn

NAME = "dies-at"
ORDERED, WRITTEN, SAVED, STOPPED, NOTED = "an order comes", "it is written", "it saves", "it stops", "it has stopped"
STEPS = (ORDERED, WRITTEN, SAVED, STOPPED, NOTED)


def _die_at(step: str) -> None:
    armed = Path(sys.argv[sys.argv.index("--config") + 1]).with_name(NAME)
    if armed.exists() and armed.read_text() == step:
        armed.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def _dies(owner: Any, name: str, before: str, after: str = "") -> None:
    whole: Callable[..., Any] = getattr(owner, name)

    async def dies(*args: Any, **more: Any) -> Any:
        _die_at(before)
        result = await whole(*args, **more)
        _die_at(after)
        return result

    setattr(owner, name, dies)


if __name__ == "__main__":
    from hub_extensions.hub_service.__main__ import main

    turn()
    runner.REPORTS_LAST /= 60
    _dies(orders, "stop_signed_out", ORDERED, WRITTEN)
    _dies(runner.StopRunner, "_drained", SAVED)
    _dies(HubApi, "stop", STOPPED)
    _dies(runner.StopRunner, "_stopped", NOTED)
    sys.exit(main())
