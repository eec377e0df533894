"""The settings of the GPU service itself: where it listens, where it keeps its state, and which systems it queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hub_extensions.core.settings import setting
from hub_extensions.core.tokens import SHORTEST_TOKEN


@dataclass(frozen=True)
class ServiceConfig:
    """The address of the GPU service and the directory of its state."""

    section: ClassVar[str] = "GpuService"

    state_dir: str = setting(
        "gpu-state",
        "Folder of the service's database, secrets and settings file, on a local disk; made with mode 0700. A relative "
        "path starts where the hub is started, as the hub's own database does.",
    )
    database_url: str = setting(
        "",
        "SQLAlchemy URL of the database: postgresql+psycopg://user@host/name. Empty: what the environment variable "
        "JUPYTERHUB_GPU_DATABASE_URL says, else an SQLite file in state_dir.",
        variable="JUPYTERHUB_GPU_DATABASE_URL",
        secret=True,
    )
    host: str = setting(
        "127.0.0.1",
        "Address the service listens on. 0.0.0.0: on all of this machine, or of the hub's pod; the hub and its proxy "
        "are then told the machine's own address.",
    )
    port: int = setting(8191, "Port the service listens on. It has to be free.", least=1, most=65535)
    connect_url: str = setting(
        "",
        "Address at which hub and proxy reach the service: http://jupyterhub-gpu:8191. Empty: at host and port.",
        name="url",
    )
    started_by_hub: bool = setting(
        True,
        "False: the service is started by something else, as python -m hub_extensions.hub_service --ask-hub, and asks "
        "the hub for these settings; it needs url, and a token in c.JupyterHub.services (in the chart "
        "hub.services.gpu). True: the hub starts and ends it.",
    )
    shared_secret: str = setting(
        "",
        "With started_by_hub False: a secret that hub and service alone have, from which they prove what they say to "
        "each other; at least 16 characters, the same for both. Empty: one that both make from the service's token, "
        "which crosses the network between service and hub.",
        variable="JUPYTERHUB_GPU_SHARED_SECRET",
        token=SHORTEST_TOKEN,
        secret=True,
    )
    metrics_token: str = setting(
        "",
        "A token for your Prometheus: it opens /services/gpu/metrics and nothing else; at least 16 characters. Empty: "
        "only admins of the hub read them.",
        name="metrics_token",
        variable="JUPYTERHUB_GPU_METRICS_TOKEN",
        token=SHORTEST_TOKEN,
        secret=True,
    )
    prometheus_url: str = setting(
        "",
        "Address of the Prometheus that reads your dcgm-exporter: http://prometheus:9090. It is asked for the use of "
        "GPUs that tell it to nobody else: an A100's in MIG mode, and on Kubernetes those of all servers. Empty: it is "
        "not asked.",
    )
    prometheus_token: str = setting(
        "",
        "A bearer token that your Prometheus, or the proxy before it, wants. Empty: none is sent.",
        variable="JUPYTERHUB_GPU_PROMETHEUS_TOKEN",
        token=0,
        secret=True,
    )
    help_url: str = setting(
        "",
        "Address of your own page for students, which *How this works* on the form and in the panel leads to: "
        "https://example.org/gpu. Empty: a page of the service, one screen in the reader's language.",
    )
    dcgm_scale: Literal["instance", "card"] = setting(
        "instance",
        "What 100 % of a MIG device's figures from DCGM is: instance (the device itself) or card (the whole GPU it was "
        "cut from).",
    )
