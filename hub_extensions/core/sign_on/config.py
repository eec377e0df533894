"""Settings of sign-on sessions: how long they last, and which tokens and servers end with them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from hub_extensions.core.settings import setting

ServerPolicy = Literal["keep", "stop", "stop-gpu", "drain"]
TokenPolicy = Literal["session", "all"]

_POLICIES = (
    "keep: they keep running. stop: all of them stop at once (with a GPU: once notebooks are saved). stop-gpu: those "
    "with a GPU stop at once. drain: all of them stop after drain_minutes."
)
_TOKENS = "session: those that the hub issued to the ended sessions. all: also the person's own API tokens."


@dataclass(frozen=True)
class SignOnConfig:
    """Settings of sign-on sessions, which work with any authenticator of the hub."""

    section: ClassVar[str] = "SignOn"

    enabled: bool = setting(
        False,
        "True gives each sign-in a session of its own, which its user, an admin or a limit can end. The authenticator "
        "stays the one that c.JupyterHub.authenticator_class names above this line.",
    )
    idle: timedelta | None = setting(
        timedelta(hours=24),
        "A session that was not used for this long ends. A session is used by a request of its browser to the hub, or "
        "to a server that checks the browser's token with the hub. JupyterLab on a visible page sends such requests "
        "by itself; a hidden page and the GPU panel do not. None: no such limit.",
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
        10, "Maximum number of sessions of a person. One more ends the oldest. None: no such limit.", least=1
    )
    recheck: timedelta = setting(
        timedelta(minutes=5),
        "Interval at which single-sign-on checks each session at the provider. 0: only when its browser sends a "
        "request.",
        name="recheck_seconds",
        least=0,
    )
    servers_at_sign_out: ServerPolicy = setting(
        "keep", f"Servers of a person who signed out of the last session. {_POLICIES}"
    )
    servers_at_revocation: ServerPolicy = setting(
        "drain", f"Servers of a person who may not sign in any more. {_POLICIES}"
    )
    drain: timedelta = setting(
        timedelta(minutes=10), "Time that a drained server keeps running.", name="drain_minutes", least=0
    )
    orphan: timedelta | None = setting(
        None,
        "If the provider refuses to renew a person's last session and it is unknown whether the account still exists, "
        "the person's servers stop after this time, once their GPU, kernels and terminals are idle. None: they run "
        "until something else stops them.",
        name="unknown_account_hours",
        least=0,
    )
    tokens_at_sign_out: TokenPolicy = setting("session", f"Tokens that end at a sign-out. {_TOKENS}")
    tokens_at_revocation: TokenPolicy = setting(
        "all",
        f"Tokens that end with the right to sign in, or while it is unknown whether the account exists. {_TOKENS}",
    )
    audit_retention_days: int = setting(90, "Number of days that the audit log keeps an event.", least=1)
    token_cache_seconds: int | None = setting(
        10,
        "Time in seconds for which a server caches the hub's answer about a token (HubOAuth.cache_max_age); "
        "JupyterHub's own default is 300. Servers with our extension check again at once. Never 0, which a server "
        "reads as for ever. None: servers get no such argument.",
        least=1,
        most=300,
    )
