"""Find out from kube-scheduler's message why a pod is unschedulable: because of a GPU or of something else.

The message has the number of nodes for each reason. If fewer nodes lack the device than were checked for resources,
some node has the device and lacks something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hub_extensions.core.text.reasons import Reason, as_text, explain

_RESOURCE = re.compile(r"Insufficient ([\w./-]+\w)")
_HAMI_LACKS = re.compile(
    r"\b(?:NodeUnfitPod|NodeInsufficientDevice|ResourceQuotaNotFit|ExclusiveDeviceAllocateConflict|"
    r"AllocatedCardsInsufficientRequest|"
    r"Card(?:InsufficientMemory|InsufficientCore|TimeSlicingExhausted|ComputeUnitsExhausted|NotHealth))\b"
)
"""HAMi's reasons (``pkg/device/common``) for full cards. Some versions use ``NodeUnfitPod`` for all of them."""
_COUNTED = re.compile(r"(\d+) (.+)")
_OF = re.compile(r"0/(\d+) nodes")
_NO_DEVICE = "Insufficient nvidia.com/"
_FOR_ROOM = ("Insufficient ", "Too many pods")
_STORAGE = (
    "PersistentVolumeClaim",
    "persistentvolumeclaim",
    "volume node affinity",
    "persistent volumes to bind",
    "max volume count",
    "volume zone",
    "PersistentVolume's node affinity",
    "enough free storage",
    "no available disk",
    "non-existent pv",
)
_OTHER_PODS = ("pod topology spread", "pod affinity", "anti-affinity rules")
"""Messages of kube-scheduler's filters that run after the one for resources, as the filters for storage do."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Why a pod cannot be scheduled.

    If neither flag is set, the reason is not known, or nodes are temporarily unavailable.

    Attributes:
        reasons: explanation for the user.
        lacks_device: True if no GPU of the offer is free.
        lacks_other: True if something else is missing that the cluster may never have.
    """

    reasons: tuple[Reason, ...]
    lacks_device: bool = False
    lacks_other: bool = False

    @property
    def message(self) -> str:
        """The explanation for the user why the pod cannot be scheduled, in English."""
        return as_text(self.reasons)


def why_unschedulable(message: str, wanted: str = "") -> Unschedulable:
    """Explain kube-scheduler's message.

    Args:
        message: such as ``0/3 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb, 2 node(s) had untolerated
            taint {...}. no new claims to deallocate, preemption: ...``.
        wanted: title of the chosen offer, for messages that do not name the device; "" for CPU only.
    """
    reasons = re.split(r"\. (?:no new claims|preemption)|, preemption", message)[0]
    lacking, out = _RESOURCE.findall(reasons), _machines_out(reasons)
    devices = [resource for resource in lacking if resource.startswith("nvidia.com/")]
    device = wanted or (_device_name(devices[0]) if devices else "a GPU")
    if beside := _beside_the_device(reasons, device):
        return Unschedulable((beside, *out), lacks_other=True)
    if devices or "cannot allocate all claims" in reasons or _HAMI_LACKS.search(reasons):
        return Unschedulable((explain("device-not-free", device=device), *out), lacks_device=True)
    return Unschedulable(_without_a_device(reasons, lacking, out), lacks_other=bool(message) and not out)


def _without_a_device(reasons: str, lacking: list[str], out: tuple[Reason, ...]) -> tuple[Reason, ...]:
    if any(part in reasons for part in _STORAGE):
        return (explain("storage-not-ready"),)
    if room := _short_of(lacking):
        return (explain("machines-without-room", room=room),)
    if "Too many pods" in reasons:
        return (explain("machines-full"),)
    if out or "untolerated taint(s)" in reasons:  # Kubernetes 1.36 does not name the taint
        return (explain("machines-cannot-take"), *out)
    if re.search(r"didn't match|node affinity|node selector|Card(?:Type|Uuid)Mismatch", reasons):
        return (explain("machines-of-other-kind"),)
    return (explain("no-machine-yet"),)


def _beside_the_device(reasons: str, device: str) -> Reason | None:
    """Return what is missing on nodes where the device is free; None if it is free on no node, or if that is not known.

    For each node, kube-scheduler reports the first filter that rejects it. The filter for resources reports every
    missing resource, and the filters for storage and for other pods run after it (Kubernetes 1.36,
    ``default_plugins.go`` and ``noderesources/fit.go``). So a node that is rejected by a later filter has the device. A
    node that was checked for resources without lacking the device has it too. For claims (DRA), and if two kinds of
    device are missing, the message does not show this.

    Args:
        reasons: the part of the scheduler's message with the counts.
        device: name of the device for the user.
    """
    total = _OF.match(reasons)
    counts = [(int(number), text) for number, text in _counts(reasons)]
    without = [number for number, text in counts if text.startswith(_NO_DEVICE)]
    if total is None or len(without) != 1 or "claims" in reasons:
        return None
    stored = [text for _, text in counts if any(part in text for part in _STORAGE)]
    after = [text for _, text in counts if text in stored or any(part in text for part in _OTHER_PODS)]
    before = sum(number for number, text in counts if not text.startswith(_FOR_ROOM) and text not in after)
    if int(total[1]) - before <= without[0]:
        return None
    if stored:
        return explain("free-without-files", device=device)
    if room := _short_of(_RESOURCE.findall(reasons)):
        return explain("free-without-room", device=device, room=room)
    return explain("free-and-full" if "Too many pods" in reasons else "free-and-closed", device=device)


def _short_of(lacking: list[str]) -> str:
    short = {"cpu": "processors", "memory": "memory", "ephemeral-storage": "disk space"}
    return " and ".join(short[resource] for resource in short if resource in lacking)


def _counts(reasons: str) -> list[tuple[str, str]]:
    parts = (_COUNTED.match(part) for part in reasons.partition("available: ")[2].split(", "))
    return [(part[1], part[2]) for part in parts if part is not None]


def _device_name(resource: str) -> str:
    name = resource.removeprefix("nvidia.com/")
    if name.startswith("mig-"):
        profile = name.removeprefix("mig-").removesuffix(".shared")
        return f"MIG {profile.replace('.me', '+me')}"
    return "a share of a GPU" if name == "gpu.shared" else "a GPU"


def _machines_out(reasons: str) -> tuple[Reason, ...]:
    """Return how many nodes do not answer, and how many are cordoned, as reasons.

    A reason with the number 0 is left out.

    Args:
        reasons: the scheduler's message, which counts the nodes that a pod cannot use by cause.
    """
    silent = closed = 0
    for number, text in _counts(reasons):
        if "node.kubernetes.io/not-ready" in text or "node.kubernetes.io/unreachable" in text:
            silent += int(number)
        elif "unschedulable" in text:
            closed += int(number)
    counted = (("machines-silent", silent), ("machines-closed", closed))
    return tuple(explain(code, machines=machines) for code, machines in counted if machines)
