"""A server that comes back unasked, after its GPU was taken back: the hub knows who is signed in, the service does not.

A sign-out between the stop and the start finds no server, so nothing of it reaches the service.
Not here: which servers come back, and when (``core/culling/returns.py``).
"""

from __future__ import annotations

from typing import Any

from hub_extensions.core.messages import RETURNS_HEADER
from hub_extensions.spawner import spawn_errors


def refuse_return(spawner: Any) -> None:
    """Raises a refusal where this start is such a return, sessions are kept, and its person has none."""
    request = getattr(spawner.handler, "request", None)
    ask = getattr(spawner.authenticator, "sign_on_return_problem", None)
    if request is None or ask is None or RETURNS_HEADER not in request.headers:
        return
    problem = ask(spawner.user)
    if problem:
        raise spawn_errors.refusal(problem, reason="signed-out", status=403)
