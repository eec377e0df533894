"""Finds the devices of the server in a container if their UUIDs are not given: they are all visible devices.

The container runtime hides all other devices, so the driver lists only those that were assigned to the server. A GPU in
MIG mode is not a device itself; its visible MIG devices are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hub_extensions.adapters.nvml.devices import mig_slots
from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure
from hub_extensions.adapters.nvml.states import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
)


class VisibleDevices(NamedTuple):
    """The devices that a process can see.

    Attributes:
        uuids: their UUIDs, in the driver's order.
        all_answered: every call succeeded, so that no visible device can be missing from the list.
    """

    uuids: tuple[str, ...]
    all_answered: bool


def visible_devices(driver: Driver) -> VisibleDevices:
    """Return the whole GPUs and MIG devices that this process can see.

    Raises:
        NvmlFailure: the driver as a whole failed, or no device could be identified.
    """
    uuids: list[str] = []
    failures: list[NvmlFailure] = []
    for index in range(int(driver.call("nvmlDeviceGetCount"))):
        try:
            found, failed = _seen_on(driver, driver.call("nvmlDeviceGetHandleByIndex", index))
        except NvmlFailure as failure:
            found, failed = [], [failure]
        for one in failed:
            if one.concerns_machine:
                raise one
        uuids.extend(found)
        failures.extend(failed)
    if failures and not uuids:
        raise failures[0]
    # the count can include GPUs of others, which may not be queried from here (nvml.h, nvmlDeviceGetCount_v2)
    return VisibleDevices(tuple(dict.fromkeys(uuids)), all(failure.code == NO_PERMISSION for failure in failures))


_NO_MIG = {NOT_SUPPORTED, FUNCTION_NOT_FOUND}
_HIDDEN = {NOT_FOUND, INVALID_ARGUMENT, NO_PERMISSION}
"""Errors that only mean that a MIG device is not visible here: MIG device numbers have gaps, and devices of others may
not be queried.
"""


def _seen_on(driver: Driver, gpu: Any) -> tuple[list[str], list[NvmlFailure]]:
    """Return the UUIDs of the devices on one GPU, and the calls that failed.

    If the GPU's MIG mode cannot be read, it counts as in MIG mode if MIG devices are visible.

    Args:
        gpu: NVML handle of the GPU.
    """
    failures: list[NvmlFailure] = []
    try:
        cut = int(driver.call("nvmlDeviceGetMigMode", gpu)[0]) == 1
    except NvmlFailure as failure:
        cut = failure.code not in _NO_MIG
        if cut:
            failures.append(failure)
    if not cut:
        return [str(driver.call("nvmlDeviceGetUUID", gpu))], failures
    slots = list(mig_slots(driver, gpu))
    found = [slot.uuid for slot in slots if slot.failure is None]
    silent = [slot.failure for slot in slots if slot.failure is not None and slot.failure.code not in _HIDDEN]
    return found, silent if found else failures + silent
