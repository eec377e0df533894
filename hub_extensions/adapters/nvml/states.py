"""The meaning of each NVML return code: a state, and a reason that explains what to do.

The table has every ``NVML_ERROR_*`` that pynvml names, by number (nvml.h, ``nvmlReturn_t``).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from hub_extensions.core.text.reasons import Reason, explain


class Scope(Enum):
    """The scope of a driver failure: the machine, one device, or one value."""

    MACHINE = "machine"  # the driver as a whole cannot be used now
    DEVICE = "device"  # this GPU and everything on it is gone for now
    CALL = "call"  # only this one value is unavailable


class Meaning(NamedTuple):
    """The meaning of an NVML return code.

    Attributes:
        state: code of the state that the panel shows (``messages.Snapshot.state``), such as ``lost``.
        scope: what the failure affects.
        reason: explains what is wrong and what to do.
    """

    state: str
    scope: Scope
    reason: Reason


def meaning_of(code: int) -> Meaning:
    """Return the meaning of an NVML return code; a code that is newer than this table is "unknown"."""
    return MEANINGS.get(code) or Meaning("unknown", Scope.CALL, explain("nvml-other", code=str(code)))


def in_a_container(code: int) -> Reason:
    """Return the reason for an NVML return code, for the user of a container whose devices a cluster assigned."""
    return _IN_A_CONTAINER.get(code) or meaning_of(code).reason


SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 0, 2, 3, 4, 6
UNINITIALIZED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH = 1, 13, 25

MEANINGS: dict[int, Meaning] = {
    1: Meaning("driver-not-loaded", Scope.MACHINE, explain("nvml-uninitialized")),
    2: Meaning("unknown", Scope.CALL, explain("nvml-invalid-argument")),
    3: Meaning("unknown", Scope.CALL, explain("nvml-not-supported")),
    4: Meaning("no-permission", Scope.CALL, explain("nvml-no-permission")),
    5: Meaning("unknown", Scope.CALL, explain("nvml-already-initialized")),
    6: Meaning("lost", Scope.CALL, explain("nvml-not-found")),
    7: Meaning("unknown", Scope.CALL, explain("nvml-insufficient-size")),
    8: Meaning("lost", Scope.CALL, explain("nvml-insufficient-power")),
    9: Meaning("driver-not-loaded", Scope.MACHINE, explain("nvml-driver-not-loaded")),
    10: Meaning("not-answering", Scope.CALL, explain("nvml-timeout")),
    11: Meaning("not-answering", Scope.CALL, explain("nvml-irq-issue")),
    12: Meaning("no-library", Scope.MACHINE, explain("nvml-library-not-found")),
    13: Meaning("version-mismatch", Scope.CALL, explain("nvml-driver-too-old")),
    14: Meaning("unknown", Scope.CALL, explain("nvml-corrupted-inforom")),
    15: Meaning("lost", Scope.DEVICE, explain("nvml-gpu-is-lost")),
    16: Meaning("lost", Scope.DEVICE, explain("nvml-reset-required")),
    17: Meaning("detached", Scope.CALL, explain("nvml-operating-system")),
    18: Meaning("version-mismatch", Scope.MACHINE, explain("nvml-version-mismatch")),
    19: Meaning("not-answering", Scope.CALL, explain("nvml-in-use")),
    20: Meaning("unknown", Scope.CALL, explain("nvml-memory")),
    21: Meaning("unknown", Scope.CALL, explain("nvml-no-data")),
    22: Meaning("unknown", Scope.CALL, explain("nvml-vgpu-ecc")),
    23: Meaning("not-answering", Scope.CALL, explain("nvml-insufficient-resources")),
    24: Meaning("unknown", Scope.CALL, explain("nvml-frequency")),
    25: Meaning("version-mismatch", Scope.CALL, explain("nvml-driver-too-old")),
    26: Meaning("version-mismatch", Scope.CALL, explain("nvml-deprecated")),
    27: Meaning("not-answering", Scope.CALL, explain("nvml-not-ready")),
    28: Meaning("lost", Scope.DEVICE, explain("nvml-gpu-not-found")),
    29: Meaning("unknown", Scope.CALL, explain("nvml-invalid-state")),
    30: Meaning("unknown", Scope.CALL, explain("nvml-reset-type")),
    999: Meaning("detached", Scope.CALL, explain("nvml-unknown")),
}

_IN_A_CONTAINER = {
    9: explain("nvml-driver-not-loaded-in-container"),
    12: explain("nvml-library-not-found-in-container"),
}
