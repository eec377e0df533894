"""The NVIDIA driver's library as values, plain errors and words: the boundary to the untyped ``pynvml``.

Importing this does not import ``pynvml`` and opens nothing. Not here: which calls make a device (``devices.py``),
and what the codes mean (``states.py``).
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
    """A call that failed, by NVML's code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code
        self.state, self.scope, self.reason = meaning_of(code)

    @property
    def concerns_machine(self) -> bool:
        """Does it say something about the driver as a whole, not about one GPU?"""
        return self.scope is Scope.MACHINE

    @property
    def concerns_device(self) -> bool:
        """Is there no use in asking this GPU anything more?"""
        return self.scope is Scope.DEVICE

    @property
    def lasting(self) -> bool:
        """Will the same question get the same answer in a second?"""
        return self.code in _LASTING

    def as_unavailable(self) -> GpusUnavailable:
        """The same, as the rest of the program knows it."""
        return GpusUnavailable(self.state, self.reason)


class Driver:
    """pynvml has no types, and a class for each error; here every failure is a `NvmlFailure` with its code.

    Attributes:
        refused: why a question of `ask` had no answer that this card and driver could give; the first since it was
            set to None.
    """

    def __init__(self) -> None:
        self.refused: NvmlFailure | None = None
        try:
            self.library: Any = importlib.import_module("pynvml")
        except ModuleNotFoundError:
            raise GpusUnavailable("no-library", explain("nvml-no-package")) from None

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
            if failure.scope is not Scope.CALL:
                raise
            self.note(failure)
            return None

    def ask_either(self, newer: tuple[object, ...], older: tuple[object, ...]) -> Any:
        """Like `ask` with the name and arguments in `newer`; with `older` where the driver does not know that one."""
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
        """Remember it as `refused`, for one who has used `call` himself."""
        if self.refused is None and failure.code not in _NOT_KNOWN_TO_DRIVER:
            self.refused = failure

    def release(self, name: str, *arguments: object) -> None:
        """Free or close something; that it is gone already is as good."""
        try:
            self.call(name, *arguments)
        except NvmlFailure:
            return


class OpenDriver:
    """The driver while it is open: opened at the first use, and again after `close`.

    Attributes:
        opened_at: what `clock` (running, in seconds) showed then.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._driver: Driver | None = None
        self.opened_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._driver is not None

    def get(self) -> Driver:
        """The driver, opened if it is not. Raises `NvmlFailure`, and `GpusUnavailable` without nvidia-ml-py."""
        if self._driver is None:
            driver = Driver()
            driver.call("nvmlInit")
            self._driver, self.opened_at = driver, self._clock()
        return self._driver

    def open_for(self) -> float:
        """Seconds since it was opened."""
        return self._clock() - self.opened_at

    def close(self, before: Callable[[Driver], None]) -> None:
        """Give it back, after `before` has freed what belongs to it; nothing where it is not open."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        before(driver)
        driver.release("nvmlShutdown")


_NOT_KNOWN_TO_DRIVER = {NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH}
_LASTING = {*_NOT_KNOWN_TO_DRIVER, NO_PERMISSION}
