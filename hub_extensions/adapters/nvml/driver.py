"""A typed wrapper of the untyped ``pynvml``, with one error class.

Importing it does not import ``pynvml`` and opens nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from hub_extensions.adapters.nvml.states import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    Scope,
    meaning_of,
)
from hub_extensions.core.gpu.devices import GpusUnavailable
from hub_extensions.core.text.reasons import explain


class NvmlFailure(Exception):
    """A failed call of the driver's library NVML.

    Attributes:
        code: the return code of NVML (``nvmlReturn_t``).
        state: code of the state that the panel shows (``messages.Snapshot.state``), such as ``lost``.
        scope: what the failure affects.
        reason: explains what is wrong and what to do.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code
        self.state, self.scope, self.reason = meaning_of(code)

    @property
    def concerns_machine(self) -> bool:
        """Return whether this failed call of NVML shows that the driver as a whole does not work."""
        return self.scope is Scope.MACHINE

    @property
    def concerns_device(self) -> bool:
        """Return whether this failed call of NVML shows that the GPU is lost, so that it cannot be queried any more."""
        return self.scope is Scope.DEVICE

    @property
    def lasting(self) -> bool:
        """Return whether the call of NVML that failed would fail in the same way a second later."""
        return self.code in _LASTING

    def as_unavailable(self) -> GpusUnavailable:
        """Convert this failure of NVML to the exception that the rest of the program uses."""
        return GpusUnavailable(self.state, self.reason)


class Driver:
    """Calls functions of pynvml by name. Every failure is a `NvmlFailure` with NVML's return code.

    Attributes:
        library: the module ``pynvml``.
        refused: the first failure that `note` has stored since a caller last set this attribute to `None`; `None` if no
            call has failed since. A caller reads it to report why a value is unavailable. Failures of calls that the
            card or driver does not support are not stored.
    """

    def __init__(self) -> None:
        self.refused: NvmlFailure | None = None
        try:
            self.library: Any = importlib.import_module("pynvml")
        except ModuleNotFoundError:
            raise GpusUnavailable("no-library", explain("nvml-no-package")) from None

    def call(self, name: str, *arguments: object) -> Any:
        """Call pynvml's function `name`. Raises `NvmlFailure`."""
        function = getattr(self.library, name, None)
        if function is None:
            raise NvmlFailure(FUNCTION_NOT_FOUND)
        try:
            return function(*arguments)
        except self.library.NVMLError as error:
            raise NvmlFailure(int(error.value)) from error

    def ask(self, name: str, *arguments: object) -> Any:
        """Call pynvml's function `name`, and return `None` if only this value is unavailable.

        Raises:
            NvmlFailure: the GPU or the driver is lost.
        """
        try:
            return self.call(name, *arguments)
        except NvmlFailure as failure:
            if failure.scope is not Scope.CALL:
                raise
            self.note(failure)
            return None

    def ask_either(self, newer: tuple[object, ...], older: tuple[object, ...]) -> Any:
        """Call the newer of two functions of pynvml, or the older one if the driver does not know the newer one.

        Returns `None` if only this value is unavailable, as `ask` does.

        Args:
            newer: name and arguments of the newer function.
            older: name and arguments of the older function.

        Raises:
            NvmlFailure: the GPU or the driver is lost.
        """
        for question in (newer, older):
            try:
                return self.call(str(question[0]), *question[1:])
            except NvmlFailure as failure:
                if failure.scope is not Scope.CALL:
                    raise
                self.note(failure)
                if failure.code not in _NOT_KNOWN_TO_DRIVER:
                    return None
        return None

    def note(self, failure: NvmlFailure) -> None:
        """Store a failure as `refused`, unless one is stored already, or the card or driver does not support the call.

        `ask` and `ask_either` call this themselves. A caller of `call` has to call this if it catches the failure.
        """
        if self.refused is None and failure.code not in _NOT_KNOWN_TO_DRIVER:
            self.refused = failure

    def release(self, name: str, *arguments: object) -> None:
        """Call a function of NVML that frees or closes an object. A failure (such as of a lost GPU) is ignored."""
        try:
            self.call(name, *arguments)
        except NvmlFailure:
            return


class OpenDriver:
    """Opens the driver's library at the first use, and again after `close`.

    Args:
        clock: returns the monotonic clock in seconds.

    Attributes:
        opened_at: when the driver was opened, in seconds of that clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._driver: Driver | None = None
        self.opened_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._driver is not None

    def get(self) -> Driver:
        """Return the driver, opening it if needed. Raises `NvmlFailure`, and `GpusUnavailable` without nvidia-ml-py."""
        if self._driver is None:
            driver = Driver()
            driver.call("nvmlInit")
            self._driver, self.opened_at = driver, self._clock()
        return self._driver

    def open_for(self) -> float:
        """Return the seconds since the driver was opened."""
        return self._clock() - self.opened_at

    def close(self, before: Callable[[Driver], None]) -> None:
        """Close the driver. Do nothing if it is not open.

        Args:
            before: called with the driver before it is closed, to free the objects that belong to it.
        """
        driver, self._driver = self._driver, None
        if driver is None:
            return
        before(driver)
        driver.release("nvmlShutdown")


_NOT_KNOWN_TO_DRIVER = {NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH}
_LASTING = {*_NOT_KNOWN_TO_DRIVER, NO_PERMISSION}
