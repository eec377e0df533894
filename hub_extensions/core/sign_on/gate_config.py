"""Settings of the gate: its addresses, its apps, and how long it relies on an answer of the hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from hub_extensions.core.settings import setting


@dataclass(frozen=True, slots=True)
class GateAddress:
    """The address at which the hub reaches the gate, and the secret that signs the hub's messages to the gate."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class GateConfig:
    """Settings of the gate in front of apps without a login, and of the page that lists a user's apps."""

    section: ClassVar[str] = "SignOnGate"

    enabled: bool = setting(
        False,
        "True makes the hub start the gate, adds each app of `apps` as a service of the hub, and gives the groups of "
        "an app the right to open it.",
    )
    url: str = setting(
        "",
        "Public address of the apps' host, https://apps.example.org. It must not be the hub's host or one below "
        "c.JupyterHub.subdomain_host: cookies of the hub's host go to every user's server.",
    )
    host: str = setting("127.0.0.1", "Address that the gate listens on. Only the proxy needs to reach it.")
    port: int = setting(8192, "Port that the gate listens on.", least=1, most=65535)
    apps: Any = setting(
        {}, "The apps: a dict of names and keys of the apps, or the path of a YAML file with the same content."
    )
    cache: timedelta = setting(
        timedelta(seconds=5),
        "Time for which the gate caches the hub's answer about a session. If c.SignOn is enabled, the hub reports a "
        "sign-out at once.",
        name="cache_seconds",
        least=0,
        most=60,
    )
    assertion: timedelta = setting(
        timedelta(seconds=60),
        "Validity of an assertion, the signed token that identifies the caller to an app.",
        name="assertion_seconds",
        least=40,
        most=600,
    )
    idle: timedelta | None = setting(
        timedelta(hours=24),
        "A session of the gate that was not used for this long ends. Never longer than c.SignOn.idle_hours.",
        name="idle_hours",
        least=0.1,
    )
    lifetime: timedelta = setting(
        timedelta(hours=168),
        "A session of the gate ends this long after its sign-in. Never longer than c.SignOn.lifetime_hours.",
        name="lifetime_hours",
        least=0.1,
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "Addresses and networks of proxies whose X-Forwarded-For is trusted, for the log only: 10.0.0.0/8. Without "
        "them the log has the address of the proxy.",
    )
    portal: bool = setting(True, "The front page of the apps' host shows the apps that its user may open.")
    audit: timedelta = setting(
        timedelta(minutes=60),
        "Interval at which the gate itself tries whether an app is open to strangers. 0: only by hand.",
        name="audit_minutes",
        least=0,
    )
    started_by_hub: bool = setting(
        True,
        "True: the hub starts the gate. False: the gate is a Deployment of its own, and its service `gate` at the hub "
        "needs a token that both know.",
    )
    connect_url: str = setting(
        "",
        "Address at which the hub reports sign-outs to the gate, http://gate:8192. Empty: host and port. Required if "
        "started_by_hub is False.",
    )
    database_url: str = setting(
        "",
        "Database of the gate's sessions: a PostgreSQL address, which several gates may share. Empty: the gate's "
        "environment variable JUPYTERHUB_GPU_GATE_DATABASE_URL, otherwise an SQLite file in the gate's folder, for a "
        "single gate.",
        variable="JUPYTERHUB_GPU_GATE_DATABASE_URL",
        secret=True,
    )
    contact: str = setting("", "Whom users may ask for the right to open an app; shown on the page of a refusal.")
