"""Why the scheduler finds no machine for a pod, read from its own sentence: what lacks, and whether that is the GPU.

Its counts say more than its words: where fewer machines lack the device than were looked at for room, one has the
device and lacks something else. Not here: what is made of it, and how long it is waited for (``podstate.py``).
"""

from __future__ import annotations

import re

_RESOURCE = re.compile(r"Insufficient ([\w./-]+\w)")
_HAMI_LACKS = re.compile(
    r"\b(?:NodeUnfitPod|NodeInsufficientDevice|ResourceQuotaNotFit|ExclusiveDeviceAllocateConflict|"
    r"AllocatedCardsInsufficientRequest|"
    r"Card(?:InsufficientMemory|InsufficientCore|TimeSlicingExhausted|ComputeUnitsExhausted|NotHealth))\b"
)
"""HAMi's words (``pkg/device/common``) for cards that are full; some versions say ``NodeUnfitPod`` for all of them."""
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
)


def why_unscheduled(message: str, wanted: str = "") -> tuple[str, bool]:
    """Why no machine was found, as a sentence, and whether it is for want of a GPU.

    Args:
        message: kube-scheduler's, e.g. ``0/3 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb, 2 node(s) had
            untolerated taint {...}. no new claims to deallocate, preemption: ...``.
        wanted: title of what was chosen, for where the message does not name it.
    """
    reasons = _reasons(message)
    lacking = _RESOURCE.findall(reasons)
    devices = [resource for resource in lacking if resource.startswith("nvidia.com/")]
    if devices:
        device, others = wanted or _device_words(devices[0]), _others(reasons)
        if beside := _beside_the_device(reasons):
            return " ".join([beside.format(device=device.removeprefix("a ")), *others]), False
        return " ".join([_none_free(device), *others]), True
    if "cannot allocate all claims" in reasons or _HAMI_LACKS.search(reasons):
        return " ".join([_none_free(wanted or "a GPU"), *_others(reasons)]), True
    if any(part in reasons for part in _STORAGE):
        return "The storage for its files is not ready.", False
    if named := _short_of(lacking):
        return f"No machine has enough free {named} for it now.", False
    if "Too many pods" in reasons:
        return "The machines are full now.", False
    others = _others(reasons)
    if others:
        return " ".join(["No machine can take it now.", *others]), False
    if re.search(r"didn't match|node affinity|node selector|Card(?:Type|Uuid)Mismatch", reasons):
        return "No machine is of the kind that was asked for.", False
    return "No machine was found for it yet.", False


def _reasons(message: str) -> str:
    """Without what is said of preemption."""
    return re.split(r"\. (?:no new claims|preemption)|, preemption", message)[0]


def machines_out(message: str) -> bool:
    """Some machines are out of it altogether: silent, or closed by an admin."""
    return bool(_others(_reasons(message)))


def _beside_the_device(reasons: str) -> str:
    """What lacks on the machines that do have the device free, as a sentence with ``{device}``; "" where none has.

    Of kube-scheduler's filters each machine names the first that it does not pass; the one for room names each resource
    that lacks (Kubernetes 1.36, ``noderesources/fit.go``), and those for storage come after it. So what was looked at
    for room is all machines less those out for a reason of before, and who lacks storage has the device.
    """
    total = _OF.match(reasons)
    counts = [(int(number), text) for number, text in _counts(reasons)]
    if total is None or not counts:
        return ""
    stored = [text for _, text in counts if any(part in text for part in _STORAGE)]
    before = sum(number for number, text in counts if not text.startswith(_FOR_ROOM) and text not in stored)
    without = max((number for number, text in counts if text.startswith(_NO_DEVICE)), default=0)
    if int(total[1]) - before <= without:
        return ""
    if stored:
        return "The machines with a free {device} cannot reach its files."
    named = _short_of(_RESOURCE.findall(reasons))
    if named:
        return f"The machines with a free {{device}} do not have enough free {named} for it now."
    return "The machines with a free {device} are full now." if "Too many pods" in reasons else ""


def _short_of(lacking: list[str]) -> str:
    short = {"cpu": "processors", "memory": "memory", "ephemeral-storage": "disk space"}
    return " and ".join(short[resource] for resource in short if resource in lacking)


def _counts(reasons: str) -> list[tuple[str, str]]:
    parts = (_COUNTED.match(part) for part in reasons.partition("available: ")[2].split(", "))
    return [(part[1], part[2]) for part in parts if part is not None]


def _none_free(device: str) -> str:
    return f"{device[:1].upper()}{device[1:]} is not free now."


def _device_words(resource: str) -> str:
    name = resource.removeprefix("nvidia.com/")
    if name.startswith("mig-"):
        profile = name.removeprefix("mig-").removesuffix(".shared")
        return f"MIG {profile.replace('.me', '+me')}"
    return "a share of a GPU" if name == "gpu.shared" else "a GPU"


def _others(reasons: str) -> list[str]:
    """Machines that are out of it altogether, counted."""
    silent = closed = 0
    for number, text in _counts(reasons):
        if "node.kubernetes.io/not-ready" in text or "node.kubernetes.io/unreachable" in text:
            silent += int(number)
        elif "unschedulable" in text:
            closed += int(number)
    said = []
    if silent:
        said.append("1 machine does not answer." if silent == 1 else f"{silent} machines do not answer.")
    if closed:
        said.append("1 machine is closed by an admin." if closed == 1 else f"{closed} machines are closed by an admin.")
    return said


__all__ = ["machines_out", "why_unscheduled"]
