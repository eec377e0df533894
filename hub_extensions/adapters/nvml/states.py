"""What each code of the NVIDIA driver's library means to a person: a state, a sentence, and what to do.

Every ``NVML_ERROR_*`` that pynvml names is here by its number (nvml.h, ``nvmlReturn_t``). Not here: who asked.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Scope(Enum):
    """How much a failed call says."""

    MACHINE = "machine"
    """The driver as a whole is not to be used now."""
    DEVICE = "device"
    """This GPU is gone for now, with everything on it."""
    CALL = "call"
    """Only this one answer is not to be had."""


class Meaning(NamedTuple):
    """`word` is a state of ``messages.Snapshot``; `sentence` says what is wrong and what to do."""

    word: str
    scope: Scope
    sentence: str


def meaning_of(code: int) -> Meaning:
    """What `code` means; a code that is newer than this table is "unknown"."""
    return MEANINGS.get(code) or Meaning("unknown", Scope.CALL, f"The NVIDIA driver answers with error {code}. {_TELL}")


def in_a_container(code: int) -> str:
    """The sentence of `code` for the user of a container whose devices a cluster gave."""
    return _IN_A_CONTAINER.get(code) or meaning_of(code).sentence


SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 0, 2, 3, 4, 6
UNINITIALIZED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH = 1, 13, 25

_TELL = "Restart the server; if that does not help, tell the administrator."
_AGAIN = "It is tried again by itself."
_ADMIN = "Tell the administrator."
_TOO_OLD = "The NVIDIA driver on this machine is older than this program expects. Tell the administrator to update it."

MEANINGS: dict[int, Meaning] = {
    1: Meaning(
        "driver-not-loaded", Scope.MACHINE, "The NVIDIA driver was closed or loaded anew. It is opened again by itself."
    ),
    2: Meaning("unknown", Scope.CALL, f"The NVIDIA driver does not understand what it was asked. {_TELL}"),
    3: Meaning("unknown", Scope.CALL, "The NVIDIA driver cannot tell this about this GPU. Nothing is to be done."),
    4: Meaning(
        "no-permission",
        Scope.CALL,
        "The NVIDIA driver does not let this account read the GPU."
        " The administrator can give the account access to /dev/nvidia*.",
    ),
    5: Meaning("unknown", Scope.CALL, f"The NVIDIA driver says that it is open already. {_TELL}"),
    6: Meaning("lost", Scope.CALL, "This GPU is not on this machine any more. Save the work and restart the server."),
    7: Meaning("unknown", Scope.CALL, f"The NVIDIA driver had more to say than there was room for. {_AGAIN}"),
    8: Meaning("lost", Scope.CALL, f"A GPU's power cable is not attached as it should be. {_ADMIN}"),
    9: Meaning(
        "driver-not-loaded",
        Scope.MACHINE,
        "The NVIDIA driver is installed but not loaded."
        " The administrator can load it (modprobe nvidia) or restart the machine.",
    ),
    10: Meaning(
        "not-answering", Scope.CALL, "The NVIDIA driver does not answer in time. An Xid in the kernel's log says why."
    ),
    11: Meaning("not-answering", Scope.CALL, f"The kernel gets no interrupts from a GPU. {_ADMIN}"),
    12: Meaning(
        "no-library",
        Scope.MACHINE,
        "No NVIDIA driver was found on this machine (libnvidia-ml.so.1). Install it, or simulate the GPUs.",
    ),
    13: Meaning("version-mismatch", Scope.CALL, _TOO_OLD),
    14: Meaning("unknown", Scope.CALL, f"The GPU's own notes (infoROM) are damaged. {_ADMIN}"),
    15: Meaning(
        "lost",
        Scope.DEVICE,
        "The GPU has fallen off the bus. The administrator finds an Xid in the kernel's log and restarts the machine.",
    ),
    16: Meaning(
        "lost", Scope.DEVICE, "The GPU waits for a reset. The administrator resets it or restarts the machine."
    ),
    17: Meaning(
        "detached",
        Scope.CALL,
        "The operating system (cgroups) keeps the GPU from this server. Save the work and restart the server.",
    ),
    18: Meaning(
        "version-mismatch",
        Scope.MACHINE,
        "The NVIDIA driver was updated while it was in use: its library and its kernel module differ."
        " The machine has to be restarted.",
    ),
    19: Meaning("not-answering", Scope.CALL, f"Something else holds the GPU for itself at the moment. {_AGAIN}"),
    20: Meaning("unknown", Scope.CALL, f"The NVIDIA driver has no memory left to answer with. {_AGAIN}"),
    21: Meaning("unknown", Scope.CALL, f"The NVIDIA driver has no figures yet. {_AGAIN}"),
    22: Meaning(
        "unknown", Scope.CALL, "This GPU cannot be read while vGPU guests with ECC use it. Nothing is to be done."
    ),
    23: Meaning("not-answering", Scope.CALL, f"The NVIDIA driver has run out of something it needs. {_AGAIN}"),
    24: Meaning("unknown", Scope.CALL, "This GPU does not run at the clock it was asked for. Nothing is to be done."),
    25: Meaning("version-mismatch", Scope.CALL, _TOO_OLD),
    26: Meaning(
        "version-mismatch",
        Scope.CALL,
        "The NVIDIA driver is newer than this program and no longer answers this. Update jupyterhub-gpu.",
    ),
    27: Meaning("not-answering", Scope.CALL, f"The GPU is not ready yet. {_AGAIN}"),
    28: Meaning("lost", Scope.DEVICE, "The GPU is not on this machine any more. Save the work and restart the server."),
    29: Meaning("unknown", Scope.CALL, f"The GPU is in a state in which it cannot be read. {_TELL}"),
    30: Meaning("unknown", Scope.CALL, "This GPU cannot be reset in the way that was asked. Nothing is to be done."),
    999: Meaning(
        "detached",
        Scope.CALL,
        'The NVIDIA driver answers "Unknown Error". In a container the GPU has been taken away from it, as'
        " systemctl daemon-reload on the host does: save the work and restart the server."
        " Outside a container restart the machine.",
    ),
}

_IN_A_CONTAINER = {
    9: "The GPU's driver does not answer in this container."
    " Tell an admin: no device of a GPU was put into it, or the driver of its node is not loaded.",
    12: "The GPU's driver is not in this container."
    " Tell an admin: the container runtime of its node, or this server's runtime class, did not put it in.",
}
"""No user of a container can load or install a driver, and no restart of the machine is his."""
