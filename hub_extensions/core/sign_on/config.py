"""Settings of sign-on sessions: how long they last, and what ends with them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from hub_extensions.core.settings import setting

ServerPolicy = Literal["keep", "stop", "stop-gpu", "drain"]
TokenPolicy = Literal["session", "all"]

_POLICIES = (
    "keep: they run on. stop: all of them stop at once (with a GPU: once notebooks are saved). stop-gpu: those with a "
    "GPU stop at once. drain: all of them stop after drain_minutes."
)
_TOKENS = "session: those that the hub gave out to the ended sessions. all: also the person's own API tokens."


@dataclass(frozen=True)
class SignOnConfig:
    """Settings of sign-on sessions, which work with any authenticator of the hub."""

    section: ClassVar[str] = "SignOn"

    enabled: bool = setting(
        False,
        "True gives each sign-in a session of its own, which can be ended: by its user, an admin, or a limit. The "
        "authenticator stays the one that c.JupyterHub.authenticator_class names above this line.",
    )
    idle: timedelta | None = setting(
        timedelta(hours=24),
        "A session that was not used for this long ends. Use is a request of its browser to the hub, or one to a "
        "server that asks the hub about its token. JupyterLab on a visible page asks by itself and counts; a hidden "
        "page and the GPU panel do not. None: no such limit.",
        name="idle_hours",
        least=0.1,
    )
    lifetime: timedelta | None = setting(
        timedelta(hours=336),
        "A session ends this long after its sign-in, used or not. None: no such limit.",
        name="lifetime_hours",
        least=0.1,
    )
    max_sessions: int | None = setting(
        10, "So many sessions a person may have. At one more the oldest ends. None: no such limit.", least=1
    )
    recheck: timedelta = setting(
        timedelta(minutes=5),
        "With single-sign-on the provider is asked about each session so often. 0: only when its browser asks for "
        "something.",
        name="recheck_seconds",
        least=0,
    )
    servers_at_sign_out: ServerPolicy = setting(
        "keep", f"What becomes of the servers of who has signed out of the last session. {_POLICIES}"
    )
    servers_at_lost_right: ServerPolicy = setting(
        "drain", f"What becomes of the servers of who may not sign in any more. {_POLICIES}"
    )
    drain: timedelta = setting(
        timedelta(minutes=10), "How long a drained server still runs.", name="drain_minutes", least=0
    )
    orphan: timedelta | None = setting(
        None,
        "Where the provider refuses to renew a person's last session and nobody knows whether the account is still "
        "there, the person's servers stop this long after, once their GPU, kernels and terminals are idle. None: they "
        "run until something else stops them.",
        name="orphan_hours",
        least=0,
    )
    tokens_at_sign_out: TokenPolicy = setting("session", f"Which tokens end at a sign-out. {_TOKENS}")
    tokens_at_lost_right: TokenPolicy = setting(
        "all",
        f"Which tokens end with the right to sign in, or "
        f"while nobody knows whether the account is still there. {_TOKENS}",
    )
    events_days: int = setting(90, "The audit log keeps an event for so many days.", least=1)
    server_cache_seconds: int | None = setting(
        10,
        "So long a server believes what the hub said about a token (HubOAuth.cache_max_age); JupyterHub's own "
        "default is 300. Servers with our extension are told at once. Never 0, which a server reads as for ever. None: "
        "servers get no such argument.",
        least=1,
        most=300,
    )
