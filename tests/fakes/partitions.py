"""ResourceSlices of cards that NVIDIA's DRA driver cuts on demand (DynamicMIG), as the API server has them.

Names and counters as in the driver v0.4: ``gpu-0-mig-1g5gb-19-0`` (card, profile, its number, where it starts) draws on
``memory-slice-0`` of ``gpu-0-counter-set``. Profiles are an A100's with 40 GB.
"""

from __future__ import annotations

from typing import Any

DRIVER = "gpu.nvidia.com"
SLICES = 8
SMS = 108
MIB = 40960
PROFILES = {
    "1g.5gb": (19, 1, 14, 4864, range(7)),
    "1g.10gb": (15, 2, 14, 9856, range(0, 8, 2)),
    "2g.10gb": (14, 2, 28, 9856, range(0, 6, 2)),
    "3g.20gb": (9, 4, 42, 19968, range(0, 8, 4)),
    "4g.20gb": (5, 4, 56, 19968, range(1)),
    "7g.40gb": (0, 8, 98, 40192, range(1)),
}
"""Profile -> number, slices of memory, SMs, MiB, where it may start."""


def resource_slices(node: str, cards: int = 1, *, together: bool = False) -> list[dict[str, Any]]:
    """The slices of one node's pool.

    ``together``: counters and devices in one slice, as on Kubernetes 1.34; newer ones have the counters in their own.
    """
    counters = [_counter_set(number) for number in range(cards)]
    devices = [_devices(number) for number in range(cards)]
    parts: list[dict[str, Any]] = [{"devices": each} for each in devices]
    if together:
        parts = [{"sharedCounters": counters, "devices": [device for each in devices for device in each]}]
    else:
        parts.insert(0, {"sharedCounters": counters})
    return [_slice(node, number, len(parts), part) for number, part in enumerate(parts)]


def claim_template(name: str, profile: str = "") -> dict[str, Any]:
    """A ResourceClaimTemplate for one device of this profile, or for a whole card."""
    kind = "mig" if profile else "gpu"
    request: dict[str, Any] = {"deviceClassName": f"{kind}.nvidia.com"}
    if profile:
        expression = f"device.attributes['{DRIVER}'].profile == '{profile}'"
        request["selectors"] = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}},
    }


def _slice(node: str, number: int, count: int, part: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{number}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **part},
    }


def _counter_set(card: int) -> dict[str, Any]:
    return {"name": f"gpu-{card}-counter-set", "counters": _counters(SMS, MIB, range(SLICES))}


def _counters(sms: int, mib: int, slices: range) -> dict[str, Any]:
    found = {"multiprocessors": {"value": str(sms)}, "memory": {"value": f"{mib}Mi"}}
    return found | {f"memory-slice-{number}": {"value": "1"} for number in slices}


def _devices(card: int) -> list[dict[str, Any]]:
    found = [_device(card, f"gpu-{card}", "gpu", "", SMS, MIB, range(SLICES))]
    for profile, (number, size, sms, mib, starts) in PROFILES.items():
        for start in starts:
            name = f"gpu-{card}-mig-{profile.replace('.', '')}-{number}-{start}"
            found.append(_device(card, name, "mig", profile, sms, mib, range(start, start + size)))
    return found


def _device(card: int, name: str, kind: str, profile: str, sms: int, mib: int, slices: range) -> dict[str, Any]:
    said = {"type": kind, "productName": "NVIDIA A100-SXM4-40GB"} | ({"profile": profile} if profile else {})
    return {
        "name": name,
        "attributes": {key: {"string": value} for key, value in said.items()},
        "capacity": {"memory": {"value": f"{mib}Mi"}, "multiprocessors": {"value": str(sms)}},
        "consumesCounters": [{"counterSet": f"gpu-{card}-counter-set", "counters": _counters(sms, mib, slices)}],
    }
