"""GPUs and MIG devices of one machine, as they are read from the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.text.reasons import Reason

WHOLE = 1000
"""A whole device in thousandths. Shares are integers so that their sums are exact."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Place of a GPU instance in the memory slices of its GPU, as ``nvidia-smi mig -lgipp`` prints it (start:size)."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Device:
    """A whole GPU, or a MIG device of a GPU in MIG mode.

    Attributes:
        uuid: value for ``CUDA_VISIBLE_DEVICES`` (``GPU-…`` or ``MIG-…``).
        product: NVML's name, such as ``NVIDIA A100-PCIE-40GB``.
        profile: the MIG profile's name (``1g.5gb``, ``1g.10gb+me``); None for a whole GPU.
        gpu_instance_id, compute_instance_id: NVML's ids; None for a whole GPU.
        placement: place of the MIG device on its GPU; None for a whole GPU, or if the driver does not report it.
        parent_uuid: UUID of the GPU that contains a MIG device; None for a whole GPU.
        memory_bytes, sm_count, compute_slices: the device's real size; None if it is not known.
        usable: False for a GPU instance without a compute instance, on which CUDA programs cannot run.
        reason: why the device is not usable, for administrators; "" if it is usable.
        simulated: True if the card does not exist, which every page has to show.
    """

    uuid: str
    product: str
    profile: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    placement: Placement | None = None
    parent_uuid: str | None = None
    memory_bytes: int | None = None
    sm_count: int | None = None
    compute_slices: int | None = None
    usable: bool = True
    reason: str = ""
    simulated: bool = False

    @property
    def pool(self) -> str:
        """Name of the pool (all devices of this kind), such as ``gpu``, or ``mig-1g.5gb`` for a MIG profile."""
        return "gpu" if self.profile is None else "mig-" + self.profile.replace("+", ".")

    @property
    def identity(self) -> str:
        """Key by which leases name the device: its UUID, profile, GPU instance and placement.

        If a UUID returns with another profile or placement, it is another device.
        """
        place = "" if self.placement is None else f"{self.placement.start}:{self.placement.size}"
        gi = "" if self.gpu_instance_id is None else str(self.gpu_instance_id)
        return "|".join((self.uuid, self.profile or "", gi, place))

    def under(self, identity: str) -> Device:
        """Return this device with an identity from an earlier reading of the GPUs, if it can be the same device.

        That is possible if one of the two identities lacks a GPU instance or placement that the driver did not report,
        and all other parts are equal. Otherwise return the device unchanged.

        Args:
            identity: the identity from the earlier reading.
        """
        own, other = self.identity.split("|"), identity.split("|")
        if identity == self.identity or len(own) != len(other) or own[:2] != other[:2]:
            return self
        if any(mine and theirs and mine != theirs for mine, theirs in zip(own[2:], other[2:], strict=True)):
            return self
        gi, place = other[2:]
        start, _, size = place.partition(":")
        placement = Placement(int(start), int(size)) if place else None
        return replace(self, gpu_instance_id=int(gi) if gi else None, placement=placement)


class Foreign(Enum):
    """Whether a device is used by processes that no server of this hub started."""

    NONE = "none"
    SOME = "some"
    UNKNOWN = "unknown"
    """The driver does not list processes; the device can be given to servers as if it were free of them."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device, whether the driver still lists it, and whether others use it now.

    Attributes:
        foreign: whether processes run on it that no server of this hub has started.
        present: False if the driver listed the device earlier and no longer does.
    """

    device: Device
    foreign: Foreign = Foreign.NONE
    present: bool = True


@dataclass(frozen=True)
class InventoryReading:
    """One reading of a machine's GPUs: what an adapter's ``read(now)`` returns.

    Attributes:
        at: when the GPUs were read.
        devices: whole GPUs that are not in MIG mode, and MIG devices. GPU instances without a compute instance are
            among them with `usable` False, if the driver shows them. A GPU in MIG mode is not a device itself.
        samples: UUID -> measurement; a device that is missing could not be read.
        problems: sentences for an administrator, such as that a GPU is lost; empty without problems.
    """

    at: datetime
    devices: tuple[Device, ...]
    samples: Mapping[str, DeviceSample]
    problems: tuple[str, ...] = ()


class GpusUnavailable(Exception):
    """The GPUs of this machine cannot be read now.

    Attributes:
        state: ``no-library``, ``driver-not-loaded``, ``version-mismatch``, ``lost``, ``detached``, ``no-permission``,
            ``not-answering`` or ``unknown``.
        reason: what is wrong and what to do, for an administrator.
    """

    def __init__(self, state: str, reason: Reason) -> None:
        super().__init__(reason.message)
        self.state = state
        self.reason = reason
