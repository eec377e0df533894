"""Refuse to restart a server on CPU, after its GPU was taken back, if its user has signed out meanwhile.

Only the hub knows who is signed in: a sign-out between the stop and the restart finds no server, so the service does
not hear of it.
"""

from __future__ import annotations

from typing import Any

from hub_extensions.core.messages import RETURNS_HEADER
from hub_extensions.spawner import spawn_errors


def refuse_return(spawner: Any) -> None:
    """Raise a refusal if the service restarts this server, sessions are enabled, and its user has no session."""
    request = getattr(spawner.handler, "request", None)
    ask = getattr(spawner.authenticator, "sign_on_return_problem", None)
    if request is None or ask is None or RETURNS_HEADER not in request.headers:
        return
    problem = ask(spawner.user)
    if problem:
        raise spawn_errors.refusal(problem, reason="signed-out", status=403)
