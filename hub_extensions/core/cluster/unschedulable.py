"""Why the scheduler finds no machine for a pod, read from its own sentence: what lacks, and whether that is the GPU.

Its counts say more than its text: where fewer machines lack the device than were looked at for room, one has the
device and lacks something else. Not here: what is made of it, and how long it is waited for (``pod_status.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_RESOURCE = re.compile(r"Insufficient ([\w./-]+\w)")
_HAMI_LACKS = re.compile(
    r"\b(?:NodeUnfitPod|NodeInsufficientDevice|ResourceQuotaNotFit|ExclusiveDeviceAllocateConflict|"
    r"AllocatedCardsInsufficientRequest|"
    r"Card(?:InsufficientMemory|InsufficientCore|TimeSlicingExhausted|ComputeUnitsExhausted|NotHealth))\b"
)
"""HAMi's reasons (``pkg/device/common``) for full cards; some versions have ``NodeUnfitPod`` for all of them."""
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
"""Filters of kube-scheduler that a machine meets after the one for room, as those for storage are."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Why a pod has no machine.

    Attributes:
        message: for its user.
        lacks_device: it is for want of a GPU.
        lacks_other: it is for want of something that the cluster may never have. With neither it is not known, or
            machines are out of it for a while.
    """

    message: str
    lacks_device: bool = False
    lacks_other: bool = False


def why_unschedulable(message: str, wanted: str = "") -> Unschedulable:
    """Why no machine was found.

    Args:
        message: kube-scheduler's, e.g. ``0/3 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb, 2 node(s) had
            untolerated taint {...}. no new claims to deallocate, preemption: ...``.
        wanted: title of what was chosen, for where the message does not name it.
    """
    reasons = re.split(r"\. (?:no new claims|preemption)|, preemption", message)[0]
    lacking, out = _RESOURCE.findall(reasons), _machines_out(reasons)
    devices = [resource for resource in lacking if resource.startswith("nvidia.com/")]
    device = wanted or (_device_name(devices[0]) if devices else "a GPU")
    if beside := _beside_the_device(reasons):
        return Unschedulable(" ".join([beside.format(device=device.removeprefix("a ")), *out]), lacks_other=True)
    if devices or "cannot allocate all claims" in reasons or _HAMI_LACKS.search(reasons):
        none_free = f"{device[:1].upper()}{device[1:]} is not free now."
        return Unschedulable(" ".join([none_free, *out]), lacks_device=True)
    return Unschedulable(_without_a_device(reasons, lacking, out), lacks_other=bool(message) and not out)


def _without_a_device(reasons: str, lacking: list[str], out: list[str]) -> str:
    if any(part in reasons for part in _STORAGE):
        return "The storage for its files is not ready."
    if named := _short_of(lacking):
        return f"No machine has enough free {named} for it now."
    if "Too many pods" in reasons:
        return "The machines are full now."
    if out or "untolerated taint(s)" in reasons:  # which taint Kubernetes 1.36 does not say
        return " ".join(["No machine can take it now.", *out])
    if re.search(r"didn't match|node affinity|node selector|Card(?:Type|Uuid)Mismatch", reasons):
        return "No machine is of the kind that was asked for."
    return "No machine was found for it yet."


def _beside_the_device(reasons: str) -> str:
    """What lacks on the machines that do have the device free, as a sentence with ``{device}``; "" where none has.

    Of kube-scheduler's filters each machine names the first that it does not pass. The one for room names each resource
    that lacks, and those for storage and for other pods come after it (Kubernetes 1.36, ``default_plugins.go`` and
    ``noderesources/fit.go``). So looked at for room are all machines less those out for a reason of before, and who is
    out for one of after has the device. Of claims, and of two kinds of device, the counts say nothing.
    """
    total = _OF.match(reasons)
    counts = [(int(number), text) for number, text in _counts(reasons)]
    without = [number for number, text in counts if text.startswith(_NO_DEVICE)]
    if total is None or len(without) != 1 or "claims" in reasons:
        return ""
    stored = [text for _, text in counts if any(part in text for part in _STORAGE)]
    after = [text for _, text in counts if text in stored or any(part in text for part in _OTHER_PODS)]
    before = sum(number for number, text in counts if not text.startswith(_FOR_ROOM) and text not in after)
    if int(total[1]) - before <= without[0]:
        return ""
    if stored:
        return "The machines with a free {device} cannot reach its files."
    if named := _short_of(_RESOURCE.findall(reasons)):
        return f"The machines with a free {{device}} do not have enough free {named} for it now."
    if "Too many pods" in reasons:
        return "The machines with a free {device} are full now."
    return "The machines with a free {device} cannot take it now."


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


def _machines_out(reasons: str) -> list[str]:
    """Machines that are out of it altogether, counted."""
    silent = closed = 0
    for number, text in _counts(reasons):
        if "node.kubernetes.io/not-ready" in text or "node.kubernetes.io/unreachable" in text:
            silent += int(number)
        elif "unschedulable" in text:
            closed += int(number)
    sentences = []
    if silent:
        sentences.append("1 machine does not answer." if silent == 1 else f"{silent} machines do not answer.")
    if closed:
        sentences.append(
            "1 machine is closed by an admin." if closed == 1 else f"{closed} machines are closed by an admin."
        )
    return sentences
