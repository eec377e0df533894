"""Settings of the gate: its addresses, its apps, and how long it relies on an answer of the hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from hub_extensions.core.settings import setting


@dataclass(frozen=True, slots=True)
class GateAddress:
    """The gate's address for the hub, and the secret with which the hub signs its messages to the gate."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class GateConfig:
    """Settings of the gate in front of apps without a login, and of the page that lists a user's apps."""

    section: ClassVar[str] = "SignOnGate"

    enabled: bool = setting(
        False,
        "True makes the hub start the gate, knows each app of `apps` as a service of the hub, and gives the groups of "
        "an app the right to open it.",
    )
    url: str = setting(
        "",
        "Public address of the apps' host, https://apps.example.org. Another host than the hub's, and not one below "
        "c.JupyterHub.subdomain_host: cookies of the hub's host go to every user's server.",
    )
    host: str = setting("127.0.0.1", "Address that the gate listens on. Only the proxy has to reach it.")
    port: int = setting(8192, "Port that the gate listens on.", least=1, most=65535)
    apps: Any = setting(
        {}, "The apps: a dict of name and what is known of the app, or the path of a YAML file with the same."
    )
    cache: timedelta = setting(
        timedelta(seconds=5),
        "So long the gate believes what the hub said about a session. It is told of a sign-out at once where c.SignOn "
        "is enabled.",
        name="cache_seconds",
        least=0,
        most=60,
    )
    assertion: timedelta = setting(
        timedelta(seconds=60),
        "So long an assertion, the signed statement to the app of who is calling, holds.",
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
        "Addresses and networks of proxies, whose X-Forwarded-For is believed, for the log alone: 10.0.0.0/8. Without "
        "them the log has the address that asked the gate, which is the proxy's.",
    )
    portal: bool = setting(True, "The front page of the apps' host shows the apps that its reader may open.")
    audit: timedelta = setting(
        timedelta(minutes=60),
        "So often the gate tries by itself whether an app is open to strangers. 0: only by hand.",
        name="audit_minutes",
        least=0,
    )
    started_by_hub: bool = setting(
        True,
        "The hub starts the gate. False: it is a Deployment of its own, and its service `gate` at the hub needs a "
        "token that both know.",
    )
    connect_url: str = setting(
        "",
        "Where the hub reaches the gate to tell it of a sign-out, http://gate:8192. Empty: host and port. Needed where "
        "started_by_hub is False.",
    )
    database_url: str = setting(
        "",
        "The gate's sessions are kept there: an address of PostgreSQL, which several gates may share. Empty: what the "
        "environment variable JUPYTERHUB_GPU_GATE_DATABASE_URL of the gate says, else a file of SQLite in its own "
        "folder, for one gate alone.",
        variable="JUPYTERHUB_GPU_GATE_DATABASE_URL",
        secret=True,
    )
    contact: str = setting("", "Whom to ask for the right to open an app: a few words on the page that refuses.")
