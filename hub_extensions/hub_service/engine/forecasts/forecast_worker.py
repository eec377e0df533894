"""A worker process that computes the likely waits, so that the service needs neither numpy nor the history in memory.

`ForecastWorker`, in the service, starts the process with the first request, and again after the process has ended.
``python -m`` of this module is the process itself. It answers one request after the other over two pipes and ends with
the service.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from hub_extensions.core.forecast.results import VALID, ForecastInputs, Given, Stay, WaitForecasts
from hub_extensions.hub_service.engine.state.errors import CalculationEnded

LIMIT_SECONDS = VALID.total_seconds()
"""Limit for one request; an answer that comes later would be too old to be shown."""
INHERITED = ("LANG", "LC_", "LD_", "PYTHON")
"""Prefixes of the environment variables that the process inherits. It needs no token, address or home."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class ForecastWorker:
    """Starts the worker process that computes the likely waits, and sends requests to it.

    One thread at a time may send requests; any thread may call `close`.

    Args:
        limit_seconds: a process that has not answered a request by then is killed.
    """

    def __init__(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._limit_seconds = limit_seconds
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The id of the worker process. `None` if it has not been started, or if it has ended."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def begin_history(self) -> None:
        """Have the worker process start to load a history of past uses (one server's time with a GPU each).

        `add_page` is then called for each page of the history, and `load_history` at the end.
        """
        self._ask("begin_history")

    def add_page(self, page: Sequence[Stay]) -> None:
        self._ask("add_page", page)

    def load_history(self, joins: Sequence[Given]) -> None:
        self._ask("load_history", joins)

    def answer(
        self, inputs: ForecastInputs, stays: Sequence[Stay], matured: Sequence[Given], seed: int
    ) -> tuple[WaitForecasts, float]:
        """Learn from the uses and waits that have ended since the last call, then compute the likely waits.

        Args:
            inputs: the line, the leases (servers' rights to their GPUs), and the ends of leases that are known already.
            stays: past uses (one server's time with a GPU) that ended since the last call.
            matured: forecasts whose tickets (places in line) have started since the last call, with the real waits.
            seed: seed of the simulation's random numbers.

        Returns:
            The likely waits, and the seconds of processor time that they took.

        Raises:
            CalculationEnded: the process ended or had to be killed.
            RuntimeError: the calculation failed; the message is the traceback of the process.
        """
        found: tuple[WaitForecasts, float] = self._ask("answer", inputs, stays, matured, seed)
        return found

    def release(self) -> None:
        """End the worker process to give its memory back.

        The next request starts another one, which has learned nothing.
        """
        with self._lock:
            process = self._process
        if process is not None:
            self._end(process)

    def close(self) -> None:
        """End the worker process for good. A request that waits for an answer fails at once with `CalculationEnded`."""
        with self._lock:
            self._closed = True
        self.release()

    def _ask(self, *request: object) -> Any:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        limit = threading.Timer(self._limit_seconds, process.kill)
        limit.daemon = True
        limit.start()
        try:
            pickle.dump(request, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            succeeded, found = pickle.load(process.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):  # ValueError: `close` has closed the pipes
            self._end(process)
            raise CalculationEnded(f"the worker process ended with status {process.returncode}") from None
        finally:
            limit.cancel()
        if not succeeded:
            raise RuntimeError(found)
        return found

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise CalculationEnded("the service stops")
            if self._process is None:
                inherited = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
                # the same modules as the service's, wherever it was started
                path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
                try:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", __name__],
                        cwd="/",
                        env={**inherited, **ONE_THREAD, "PYTHONPATH": path},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                except OSError as problem:
                    raise CalculationEnded(f"the worker process cannot be started: {problem}") from None
            return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # the rest of a request may be unsent
                pipe.close()  # type: ignore[union-attr]
        process.wait()
        with self._lock:
            if self._process is process:
                self._process = None


def work(requests: BinaryIO, answers: BinaryIO) -> None:
    """Run the worker process: answer requests until the service closes the pipe.

    Args:
        requests: pickled tuples of a method's name of `ForecastCalculator` and its arguments.
        answers: gets a pickled pair for each request: (True, result) or (False, traceback).
    """
    from hub_extensions.adapters.allocator import trim_memory
    from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator

    calculator = ForecastCalculator()
    while True:
        try:
            name, *arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: object = (True, getattr(calculator, name)(*arguments))
        except Exception:  # noqa: BLE001 - the service logs it, whatever it is
            answer = (False, traceback.format_exc())
        del arguments
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
        del answer
        trim_memory()  # a simulation frees more memory than everything else here holds


def main() -> None:
    from hub_extensions.adapters.allocator import limit_arenas
    from hub_extensions.adapters.linux.worker_process import end_first_without_memory, end_with_parent

    end_with_parent()
    end_first_without_memory()
    for number in (signal.SIGINT, signal.SIGTERM):
        # a terminal and systemd send them to all processes of a service; the service itself ends this one
        signal.signal(number, signal.SIG_IGN)
    limit_arenas()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a library must not be read as an answer
    with suppress(BrokenPipeError):
        work(sys.stdin.buffer, answers)
    os._exit(0)  # not even a buffer is left to write: the service is gone


if __name__ == "__main__":
    main()
