"""The NVIDIA driver's library as values, plain errors and words: the boundary to the untyped ``pynvml``.

Importing this does not import ``pynvml`` and opens nothing. Not here: which calls make a device (``nvml.py``).
"""

from __future__ import annotations

import importlib
from typing import Any

from hub_extensions.core.inventory import GpusUnavailable


class NvmlFailure(Exception):
    """A call that failed, by NVML's code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code
        self.word, self.detail = _WORDS.get(code, ("unknown", _UNKNOWN.format(code=code)))

    @property
    def concerns_machine(self) -> bool:
        """Does it say something about the driver as a whole, not about one GPU?"""
        return self.code in _MACHINE_WIDE

    def as_unavailable(self) -> GpusUnavailable:
        """The same, as the rest of the program knows it."""
        return GpusUnavailable(self.word, self.detail)


class Driver:
    """pynvml has no types, and a class for each error; here every failure is a `NvmlFailure` with its code."""

    def __init__(self) -> None:
        try:
            self.library: Any = importlib.import_module("pynvml")
        except ModuleNotFoundError:
            raise GpusUnavailable(
                "no-library", "The Python package nvidia-ml-py is missing. Install jupyterhub-gpu[server]."
            ) from None

    def call(self, name: str, *arguments: object) -> Any:
        """What pynvml's function `name` answers. Raises `NvmlFailure`."""
        function = getattr(self.library, name, None)
        if function is None:
            raise NvmlFailure(FUNCTION_NOT_FOUND)
        try:
            return function(*arguments)
        except self.library.NVMLError as error:
            raise NvmlFailure(int(error.value)) from error

    def ask(self, name: str, *arguments: object) -> Any:
        """Like `call`, but None where this one answer is not to be had. A lost GPU or driver still raises."""
        try:
            return self.call(name, *arguments)
        except NvmlFailure as failure:
            if failure.concerns_machine or failure.word == "lost":
                raise
            return None

    def let_go(self, name: str, *arguments: object) -> None:
        """Free or close something; that it is gone already is as good."""
        try:
            self.call(name, *arguments)
        except NvmlFailure:
            return


NOT_SUPPORTED, NOT_FOUND, INVALID_ARGUMENT, FUNCTION_NOT_FOUND = 3, 6, 2, 13
_MACHINE_WIDE = {1, 9, 12, 18}  # not initialised, driver not loaded, no library, versions differ
_UNKNOWN = (
    "The NVIDIA driver answers with error {code}. In a container the GPU's devices may have been taken away"
    " (systemctl daemon-reload on the host does that): restart the container, otherwise the machine."
)
_NO_LIBRARY = "No NVIDIA driver was found on this machine (libnvidia-ml.so.1). Install it, or simulate the GPUs."
_LOST = "The GPU has fallen off the bus or waits for a reset. Look for Xid in the kernel's log and restart the machine."
_DENIED = "The NVIDIA driver does not let this account read it. Give the account access to /dev/nvidia*."
_SILENT = "The NVIDIA driver does not answer in time. Look for Xid in the kernel's log."
_WORDS = {
    1: ("driver-not-loaded", "The NVIDIA driver was closed under this program. It is opened again."),
    3: ("unknown", "The NVIDIA driver does not support what was asked of this GPU."),
    4: ("no-permission", _DENIED),
    9: ("driver-not-loaded", "The NVIDIA driver is installed but not loaded. Load it (modprobe nvidia) or restart."),
    10: ("not-answering", _SILENT),
    11: ("not-answering", _SILENT),
    12: ("no-library", _NO_LIBRARY),
    15: ("lost", _LOST),
    16: ("lost", _LOST),
    17: ("no-permission", _DENIED),
    18: (
        "version-mismatch",
        "The NVIDIA driver was updated while it was in use: its library and its kernel module differ. Restart.",
    ),
    27: ("not-answering", _SILENT),
    28: ("lost", _LOST),
}
