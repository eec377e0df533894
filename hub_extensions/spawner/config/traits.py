"""The settings an admin writes in ``jupyterhub_config.py``: name, default, help with its unit, and nothing else.

Each section builds one value of ``core``, which says what a setting means. Reading a section from a configuration and
saying what is wrong with it is ``configuration.py``'s part.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from traitlets import Bool, Dict, Float, HasTraits, Int, List, Unicode

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.offers.model import OfferConfig, check_config, read_offer_id
from hub_extensions.core.queue.model import QueueLimits


class GpuOffers(HasTraits):
    """What the spawn form offers beside the machine's whole GPUs and MIG devices."""

    fractions = Dict(
        key_trait=Unicode(),
        value_trait=List(Float()),
        help="Parts of one device that several servers share: the id of the device's offer, and the shares to offer of "
        'it, each larger than 0 and smaller than 1. {"gpu": [0.5], "mig-3g.20gb": [0.5]} offers half a GPU and half a '
        "3g.20gb. Servers on one device can slow each other down and take each other's memory.",
    ).tag(config=True)
    memory_gib = Dict(
        key_trait=Unicode(),
        value_trait=List(Int()),
        help="Parts of a whole GPU by memory, on a cluster where KAI shares GPUs out (c.GpuCluster.fractions_by is "
        "'kai'): the id of the GPU's offer, and the sizes to offer of it. {\"gpu\": [8, 16]} offers 8 GiB and 16 GiB "
        "of a GPU, as gpu-8gib and gpu-16gib. A size that is not less than the card's memory is not offered. "
        "Unit: GiB.",
    ).tag(config=True)
    titles = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help='Your own title of an offer, by its id: {"mig-1g.5gb": "Small GPU"}.',
    ).tag(config=True)
    descriptions = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Your own sentence below an offer's title, by the offer's id.",
    ).tag(config=True)
    groups = Dict(
        key_trait=Unicode(),
        value_trait=List(Unicode()),
        help="The groups whose members may choose an offer, by the offer's id. An offer that is not named here is for "
        'everybody: {"gpu": ["thesis"]}.',
    ).tag(config=True)
    hidden = List(
        Unicode(),
        help='Ids of offers that are not shown and cannot be chosen: ["gpu"]. CPU only cannot be hidden.',
    ).tag(config=True)
    simulate = Unicode(
        None,
        allow_none=True,
        help="Name of a layout (lab-a100, two-whole, mixed) or path of a YAML file whose GPUs are simulated, for "
        "trying the hub without a card. None uses the GPUs of this machine.",
    ).tag(config=True)

    def build(self) -> OfferConfig:
        """The offers' settings as `core` reads them.

        Raises:
            OfferConfigError: an id that no offer can have, or a share out of range; the text begins with the trait.
        """
        config = OfferConfig(
            fractions={offer: tuple(shares) for offer, shares in self.fractions.items()},
            memory_gib={offer: tuple(sizes) for offer, sizes in self.memory_gib.items()},
            titles=dict(self.titles),
            descriptions=dict(self.descriptions),
            groups={offer: tuple(names) for offer, names in self.groups.items()},
            hidden=tuple(self.hidden),
        )
        check_config(config)
        return config


class GpuQueue(HasTraits):
    """The limits of the line."""

    max_waiting = Int(500, min=1, help="Servers that may wait at the same time. Who comes later is refused.").tag(
        config=True
    )
    max_wait_hours = Float(24.0, min=0.0, help="A wait ends after this many hours. Unit: hours.").tag(config=True)
    max_starting = Int(
        64,
        min=1,
        help="Servers that may be starting at the same time, CPU only included. It takes the place of JupyterHub's "
        "concurrent_spawn_limit, which would count servers that wait in line.",
    ).tag(config=True)
    gpu_leases_per_user = Int(1, min=1, help="Servers with a GPU that one user may have at the same time.").tag(
        config=True
    )
    tickets_per_user = Int(1, min=1, help="Places in line that one user may have at the same time.").tag(config=True)
    abandon_seconds = Float(
        120.0,
        min=1.0,
        help="A place in line ends when the hub has answered for this long without a start that belongs to it. "
        "Unit: seconds.",
    ).tag(config=True)

    def build(self) -> QueueLimits:
        """The line's limits as `core` reads them."""
        return QueueLimits(
            max_waiting=self.max_waiting,
            max_wait=timedelta(hours=self.max_wait_hours),
            max_starting=self.max_starting,
            gpu_leases_per_user=self.gpu_leases_per_user,
            tickets_per_user=self.tickets_per_user,
            abandon_after=timedelta(seconds=self.abandon_seconds),
        )


class GpuCulling(HasTraits):
    """When servers are stopped to give their GPU to the next in line."""

    enabled = Bool(
        False,
        help="True stops servers by the limits below. False only writes into the service's log what would have been "
        "stopped: no server stops, no countdown is shown, and no wait is said to be at most so long.",
    ).tag(config=True)
    idle_minutes = Float(
        30.0, min=0.0, help="A server whose GPU was idle for this long is stopped. Unit: minutes."
    ).tag(config=True)
    idle_minutes_by_offer = Dict(
        key_trait=Unicode(),
        value_trait=Float(min=0.0),
        help='Another idle limit for single offers, by the offer\'s id: {"gpu": 15}. Unit: minutes.',
    ).tag(config=True)
    idle_below_percent = Float(
        5.0, min=0.0, max=100.0, help="A GPU used less than this is idle. Unit: percent, 0 to 100."
    ).tag(config=True)
    warn_minutes = Float(
        10.0, min=0.0, help="Users are warned this long before their server stops. Unit: minutes."
    ).tag(config=True)
    keep_minutes = Float(30.0, min=0.0, help="How much time one press of Keep adds. Unit: minutes.").tag(config=True)
    keeps_per_day = Int(2, min=0, help="How often a user may press Keep for a server in 24 hours.").tag(config=True)
    lifetime_hours = Float(
        12.0,
        min=0.0,
        allow_none=True,
        help="A server with a GPU ends after this, busy or not; Keep does not move it. None: no such limit. "
        "Unit: hours.",
    ).tag(config=True)
    grace_minutes = Float(
        10.0, min=0.0, help="No idle time is counted this long after a server's start. Unit: minutes."
    ).tag(config=True)
    unopened_minutes = Float(
        15.0,
        min=0.0,
        allow_none=True,
        help="A server with a GPU that nobody has opened this long after its start is stopped, and its user is told. "
        "None: never. Unit: minutes.",
    ).tag(config=True)
    cpu_idle_minutes = Float(
        720.0,
        min=0.0,
        allow_none=True,
        help="A server without a GPU is stopped when its user was away for this long and no kernel is busy. "
        "None: never. Unit: minutes.",
    ).tag(config=True)

    def build(self) -> CullPolicy:
        """The policy as `core` reads it.

        Raises:
            ValueError: an id that no offer can have; the text starts with the trait's name.
        """
        for offer in self.idle_minutes_by_offer:
            read_offer_id(offer, f"idle_minutes_by_offer[{offer!r}]")
        return CullPolicy(
            enabled=self.enabled,
            idle=timedelta(minutes=self.idle_minutes),
            idle_by_offer={offer: timedelta(minutes=m) for offer, m in self.idle_minutes_by_offer.items()},
            idle_below_percent=self.idle_below_percent,
            warn=timedelta(minutes=self.warn_minutes),
            keep=timedelta(minutes=self.keep_minutes),
            keeps_per_day=self.keeps_per_day,
            lifetime=_optional("hours", self.lifetime_hours),
            grace=timedelta(minutes=self.grace_minutes),
            unopened=_optional("minutes", self.unopened_minutes),
            cpu_idle=_optional("minutes", self.cpu_idle_minutes),
        )


class GpuService(HasTraits):
    """Where the GPU service listens and keeps its state."""

    state_dir = Unicode(
        "gpu-state",
        help="Folder of the service's database, secrets and settings file, on a local disk; made with mode 0700. A "
        "relative path starts where the hub is started, as the hub's own database does.",
    ).tag(config=True)
    database_url = Unicode(
        "",
        help="SQLAlchemy URL of the database: postgresql+psycopg://user@host/name. Empty: what the environment "
        "variable JUPYTERHUB_GPU_DATABASE_URL says, else an SQLite file in state_dir.",
    ).tag(config=True)
    host = Unicode(
        "127.0.0.1",
        help="Address the service listens on. 0.0.0.0: on all of this machine, or of the hub's pod; the hub and its "
        "proxy are then told the machine's own address.",
    ).tag(config=True)
    port = Int(8191, min=1, max=65535, help="Port the service listens on. It has to be free.").tag(config=True)
    url = Unicode(
        "",
        help="Address at which hub and proxy reach the service: http://jupyterhub-gpu:8191. Empty: at host and port.",
    ).tag(config=True)
    started_by_hub = Bool(
        True,
        help="False: the service is started by something else, as python -m hub_extensions.hub_service --ask-hub, and "
        "asks the hub for these settings; it needs url, and a token in c.JupyterHub.services (in the chart "
        "hub.services.gpu). True: the hub starts and ends it.",
    ).tag(config=True)
    public_metrics_token = Unicode(
        "",
        help="A token for your Prometheus: it opens /services/gpu/metrics and nothing else; at least 16 characters. "
        "Empty: only admins of the hub read them.",
    ).tag(config=True)
    prometheus_url = Unicode(
        "",
        help="Address of the Prometheus that reads your dcgm-exporter: http://prometheus:9090. It is asked for the use "
        "of GPUs that tell it to nobody else, which is how idle servers on an A100 in MIG mode are found. Empty: it "
        "is not asked.",
    ).tag(config=True)
    prometheus_token = Unicode(
        "", help="A bearer token that your Prometheus, or the proxy before it, wants. Empty: none is sent."
    ).tag(config=True)
    dcgm_scale = Unicode(
        "instance",
        help="What 100 % of a MIG device's figures from DCGM is: instance (the device itself) or card (the whole GPU "
        "it was cut from).",
    ).tag(config=True)


class GpuCluster(HasTraits):
    """A Kubernetes cluster, where servers are pods (``c.JupyterHub.spawner_class = "gpu"``).

    A standard cluster needs none of these: what it has is found by node labels and allocatable resources.
    """

    kubeconfig = Unicode(
        "", help="Kubeconfig file to read the cluster with. Empty: the service account of the hub's own pod."
    ).tag(config=True)
    context = Unicode("", help="Which context of the kubeconfig file. Empty: its current one.").tag(config=True)
    capacity = Dict(
        key_trait=Unicode(),
        value_trait=Int(min=0),
        help='How many devices there are, by offer: {"mig-1g.5gb": 5, "mig-2g.10gb": 1}. Used only where this hub may '
        "not read the cluster's nodes, or not the pods of other namespaces; where it can read the nodes, never more "
        "than the nodes that count really have.",
    ).tag(config=True)
    kueue_queue = Unicode(
        "", help="Name of a LocalQueue of Kueue in the servers' namespace: Kueue decides then who is next."
    ).tag(config=True)
    kai_queue = Unicode(
        "", help="Name of a queue of KAI-Scheduler: its scheduler places the servers and decides who is next."
    ).tag(config=True)
    kai_scheduler = Unicode("kai-scheduler", help="Name of KAI's scheduler.").tag(config=True)
    fractions_by = Unicode(
        "",
        help="Who shares a GPU out for c.GpuOffers.fractions: 'kai', 'hami', or empty for nobody. Time-slicing and MPS "
        "of NVIDIA's device plugin need no word here.",
    ).tag(config=True)
    runtime_class = Unicode("", help="RuntimeClass of servers with a GPU. Empty: the cluster's default.").tag(
        config=True
    )
    remove_forgotten = Bool(
        False,
        help="True deletes a server's pod that the hub has forgotten; its user's files stay. False only shows it to "
        "admins: it goes on and keeps its GPU. Leave it off where two hubs have one namespace: they cannot tell their "
        "pods apart.",
    ).tag(config=True)
    forgotten_minutes = Float(
        5.0, min=0.0, help="A forgotten pod is deleted after this long, where that is allowed. Unit: minutes."
    ).tag(config=True)
    outside_seconds = Float(
        30.0,
        min=0.0,
        help="An admitted server that finds no GPU for this long: something outside this hub took it. Nobody else is "
        "let past, and the waiting page says so. Unit: seconds.",
    ).tag(config=True)
    servers_url = Unicode(
        "",
        help="Address at which users' servers reach the GPU service, ending in /services/gpu. Empty: through the hub's "
        "proxy by plain HTTP where the chart's service is there, else the service's own address. With the chart's "
        "proxy.https of the type manual or secret the proxy sends plain HTTP away: set https://your-host/services/gpu "
        "then.",
    ).tag(config=True)

    def build(self) -> ClusterConfig:
        """The cluster's settings as `core` reads them.

        Raises:
            ValueError: an id that no offer can have, or a word that is none; the text starts with the trait's name.
        """
        for pool in self.capacity:
            read_offer_id(pool, f"capacity[{pool!r}]")
        if self.fractions_by not in ("", "kai", "hami"):
            raise ValueError(f"fractions_by is {self.fractions_by!r}: it has to be 'kai', 'hami' or empty.")
        if self.fractions_by == "kai" and not self.kai_queue:
            raise ValueError("fractions_by is 'kai', which needs kai_queue: KAI refuses pods without a queue.")
        return ClusterConfig(
            kubeconfig=self.kubeconfig,
            context=self.context,
            capacity=dict(self.capacity),
            kueue_queue=self.kueue_queue,
            kai_queue=self.kai_queue,
            kai_scheduler=self.kai_scheduler,
            fractions_by=self.fractions_by,
            runtime_class=self.runtime_class,
            remove_forgotten=self.remove_forgotten,
            forgotten_after=timedelta(minutes=self.forgotten_minutes),
            outside_after=timedelta(seconds=self.outside_seconds),
            servers_url=self.servers_url,
        )


SECTIONS: tuple[type[HasTraits], ...] = (GpuOffers, GpuQueue, GpuCulling, GpuService, GpuCluster)
"""Every section of the configuration, in the order the reference lists them."""


def _optional(unit: str, value: float | None) -> timedelta | None:
    return None if value is None else timedelta(**{unit: value})


def fields_of(section: type[HasTraits]) -> Mapping[str, str]:
    """Trait name -> help, in the order they are written."""
    return {name: str(trait.help) for name, trait in section.class_traits(config=True).items()}


__all__ = ["SECTIONS", "GpuCluster", "GpuCulling", "GpuOffers", "GpuQueue", "GpuService", "fields_of"]
