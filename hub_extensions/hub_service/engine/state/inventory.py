"""The part of the state with the devices and the offers (the options of the spawn form), as they were read last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hub_extensions.adapters.files.mig_tables import sm_of_product
from hub_extensions.core.gpu.devices import Device, DeviceState, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.offers.model import GpuOffer, OfferConfig, arranged, cpu_offer, derive_offers, named_offer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.pod_request import PodAsk
from hub_extensions.core.queue.cordons import Closing, Cordon, closed_devices, closings, closings_of_nodes
from hub_extensions.core.queue.model import Lease
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.state.meta import CORDONS, OFFERS, read_cordons, read_offers
from hub_extensions.hub_service.engine.state.snapshots import ClusterSnapshot, ServerPods

INVENTORY_GOES_STALE = timedelta(seconds=60)  # a reading that is older does not count


@dataclass(eq=False, kw_only=True)
class Inventory:
    """The devices and offers as they were read last, and which devices administrators have closed to new servers.

    `State` inherits from it. The devices are those of one machine, or of a cluster.
    """

    clock: RunningClock
    """The clock on which deadlines are counted. It stands still while the hub is away."""
    offer_config: OfferConfig
    """The administrator's settings of the offers."""
    offers: tuple[GpuOffer, ...] = ()
    """The choices on the spawn form now. CPU only is always among the offers."""
    devices: dict[str, DeviceState] = field(default_factory=dict)
    """`Device.identity` -> device, on one machine. A device that is gone stays while a lease (right to it) names it."""
    samples: Mapping[str, DeviceSample] = field(default_factory=dict)
    """UUID of each device of this machine -> its last measurement: use, memory, processes."""
    highest_use: dict[str, float] = field(default_factory=dict)
    """UUID of a device of this machine -> its highest use in percent since the last decision about idle servers."""
    reading: InventoryReading | None = None
    """The last successful reading of this machine; `None` before the first."""
    read_at: datetime | None = None
    """When devices or cluster were last read successfully, by `clock`; `None` before the first reading."""
    problem: str = ""
    """Why devices or cluster cannot be read now; "" if they can be."""
    on_cluster: bool = False
    """Whether the devices belong to a cluster."""
    cluster: ClusterSnapshot | None = None
    """The cluster as it was read last; `None` before the first reading."""
    pods: ServerPods = field(default_factory=ServerPods)
    """The pods of the cluster's servers, as they were read last."""
    offers_before: tuple[GpuOffer, ...] = ()
    """The offers that the cluster had when it was last read, as stored. They are used while it cannot be read."""
    cordons: tuple[Cordon, ...] = ()
    """The devices or nodes on which no new server starts, because an administrator closed them."""

    def __post_init__(self) -> None:
        self.offers = derive_offers((), self.offer_config, sm_of_product=sm_of_product)

    def _take_reading(self, reading: InventoryReading, devices: dict[str, DeviceState]) -> bool:
        """Replace what was read last from this machine's GPUs, and derive the offers from it.

        Args:
            reading: the devices and measurements that the driver has just reported.
            devices: `Device.identity` -> the device. Devices that are gone are included while a lease (a server's right
                to its GPU) names them.

        Returns:
            `False` if devices and offers have not changed. Measurements do not count.
        """
        changed = devices != self.devices
        self.reading = reading
        self.samples = reading.samples
        for uuid, sample in reading.samples.items():
            if sample.used_percent is not None:
                self.highest_use[uuid] = max(sample.used_percent, self.highest_use.get(uuid, 0.0))
        self.read_at = self.clock.now()
        self.problem = " ".join(reading.problems)
        if not changed and self.offers:
            return False
        self.devices = devices
        present = [each.device for each in devices.values() if each.present]
        self.offers = derive_offers(present, self.offer_config, sm_of_product=sm_of_product)
        return True

    def _take_cluster(self, snapshot: ClusterSnapshot) -> bool:
        """Replace what was read last from the cluster by this snapshot. Return `False` if nothing has changed."""
        self.read_at = self.clock.now()
        self.problem = ""
        if snapshot == self.cluster:
            return False
        self.cluster = snapshot
        self.offers = snapshot.offers.offers
        return True

    def _take_notes(self, meta: Mapping[str, str]) -> None:
        """Take the cluster's offers and the closed devices from the store, after a restart or after a write of them.

        Args:
            meta: name of a stored value -> its JSON. A value that is missing stays as it is.
        """
        if OFFERS in meta:
            self.offers_before = read_offers(meta[OFFERS])
        if CORDONS in meta:
            self.cordons = read_cordons(meta[CORDONS])

    def note_inventory_problem(self, problem: str) -> None:
        """Record why devices or cluster cannot be read now; "" if they can be."""
        self.problem = problem

    def take_pods(self, pods: ServerPods) -> None:
        """Replace the pods of the servers by those that were just read."""
        self.pods = pods

    def clear_highest_use(self, judged: Mapping[str, float]) -> None:
        """Forget the highest measured use of devices, after a decision about idle servers has used these values.

        A value that has risen since the decision is kept for the next decision.

        Args:
            judged: UUID of a device -> the highest use in percent on which the decision was based.
        """
        self.highest_use = {uuid: use for uuid, use in self.highest_use.items() if judged.get(uuid) != use}

    def expect_cluster(self) -> None:
        """Offer to users what the cluster offered when it was read in the service's last run.

        The method is called at the start of the service, before the cluster is read. Until it is read, nobody knows how
        many devices are free.
        """
        self.on_cluster = True
        before = [each for each in self.offers_before if each.id != CPU and not self.offer_config.hides(each.id)]
        self.offers = arranged([*before, cpu_offer()], self.offer_config)

    # -------------------------------------------------------------- views

    @property
    def unread(self) -> bool:
        """Whether the service is on a cluster that has not been read yet. The offers are not known then."""
        return self.on_cluster and self.cluster is None

    def offer(self, offer_id: OfferId) -> GpuOffer | None:
        """Return an offer (an option of the spawn form) by its id. `None` if it is not offered now."""
        return next((offer for offer in self.offers if offer.id == offer_id), None)

    def by_name(self, wanted: Sequence[OfferId]) -> tuple[GpuOffer, ...]:
        """Return provisional offers for requested ids of which no offer is known, because the cluster is unread.

        Each offer (an option of the spawn form) is made from its id alone, such as ``mig-1g.5gb``. Offers that the
        settings hide are left out.

        Args:
            wanted: the requested ids.
        """
        unknown = set(wanted) - {offer.id for offer in self.offers}
        return arranged((named_offer(each) for each in unknown if not self.offer_config.hides(each)), self.offer_config)

    def node_of(self, lease: Lease) -> str:
        """Return the name of the node on which the server of a lease (right to a GPU) runs.

        "" on one machine, and while the node is unknown.
        """
        pod = self.pods.of(lease)
        return "" if pod is None else pod.node

    def ask_of(self, offer: OfferId) -> PodAsk | None:
        """Return the resources that a pod of an offer (an option of the spawn form) requests.

        `None` on one machine and for an unknown offer.
        """
        return self.cluster.offers.asks.get(offer) if self.cluster is not None else None

    def device(self, identity: str) -> Device | None:
        """Return a device by its `Device.identity`. `None` if no device has this identity.

        A device that has disappeared is still returned while a lease (a server's right to its GPU) names it.
        """
        state = self.devices.get(identity)
        return state.device if state else None

    def known_devices(self) -> tuple[DeviceState, ...] | None:
        """Return this machine's devices. `None` on a cluster, or if they were last read more than a minute ago."""
        if self.cluster is not None or not self.is_fresh():
            return None
        return tuple(self.devices.values())

    @property
    def closed(self) -> frozenset[str]:
        """`Device.identity` of this machine's drained devices: no new server gets them, by an administrator's order."""
        return closed_devices(self.cordons, self.devices.values())

    def closings(self) -> Mapping[str, Closing]:
        """Return the drained devices, which no new server gets, for each pool (devices of one kind).

        Pools without drained devices are left out.
        """
        if self.cluster is None:
            return closings(self.cordons, self.devices.values()) if self.cordons else {}
        return closings_of_nodes(
            self.cordons,
            (
                (pool.id, part.node, part.total)
                for pool in self.cluster.survey.pools.values()
                for part in pool.nodes
                if part.because is not None and part.because.reason == "node-cordoned"
            ),
        )

    def inventory_age(self) -> timedelta | None:
        """Return the time since GPUs or cluster were last read. `None` if they were never read.

        The result is counted on the running clock, which stands still while the hub is away.
        """
        return None if self.read_at is None else self.clock.now() - self.read_at

    def is_fresh(self) -> bool:
        """Whether GPUs or cluster were read within the last minute."""
        age = self.inventory_age()
        return age is not None and age <= INVENTORY_GOES_STALE
