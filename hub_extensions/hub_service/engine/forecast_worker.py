"""The likely waits are computed by a program of its own, so that the service has neither numpy nor the history.

Both ends of it. ``ForecastWorker`` is the service's: it starts the program with the first question, and again where it
has died; what that one had learned is lost with it, and is told anew. The program answers one request after the other,
and ends with the service: nothing more comes, or its parent is another. Not here: what is computed
(``core/queue/foretell.py``), and when (``forecaster.py``).
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from hub_extensions.core.queue.outlook import Foretold, Given, Question, Stay

LONGEST = 120.0
"""Seconds for one request: an answer that comes later would not be shown."""
KEPT = ("HOME", "LANG", "LC_", "LD_", "PATH", "PYTHON", "VIRTUAL_ENV")
"""How the names begin that it has of the service's environment: it needs no token and no address."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class WorkerGone(Exception):
    """It ended, or had to be ended, and with it what it had learned; the next request starts another."""


class ForecastWorker:
    """Asks the program; one thread at a time. `close` may be called by any."""

    def __init__(self) -> None:
        self.closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the program that runs; None: it has not been started, or has ended."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def begin(self) -> None:
        """What is told from now on is what it is to know instead of what it knows."""
        self._ask("begin")

    def tell(self, page: Sequence[Stay]) -> None:
        """A page of the history: first the uses that ended last, and in each as well."""
        self._ask("tell", page)

    def learn(self, joins: Iterable[Given]) -> None:
        """Know what was told, and what came true of these; it has forgotten everything else."""
        self._ask("learn", tuple(joins))

    def answer(
        self, question: Question, stays: Sequence[Stay], matured: Sequence[Given], seed: int
    ) -> tuple[Foretold, float]:
        """The likely waits, and the seconds of a processor that they took; it has learned from the others before.

        Raises:
            WorkerGone: ask again. RuntimeError: it cannot be computed, and why.
        """
        found: tuple[Foretold, float] = self._ask("answer", question, stays, matured, seed)
        return found

    def close(self) -> None:
        """End it; whoever waits for an answer is told at once that there is none."""
        with self._lock:
            self.closed, process = True, self._process
        if process is not None:
            self._end(process)

    def _ask(self, *request: object) -> Any:
        process = self._running()
        late = threading.Timer(LONGEST, process.kill)
        late.daemon = True
        late.start()
        try:
            pickle.dump(request, process.stdin, pickle.HIGHEST_PROTOCOL)  # type: ignore[arg-type]
            process.stdin.flush()  # type: ignore[union-attr]
            done, found = pickle.load(process.stdout)  # type: ignore[arg-type]
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):  # ValueError: `close` closed it meanwhile
            self._end(process)
            raise WorkerGone(f"the program that computes them ended with status {process.returncode}") from None
        finally:
            late.cancel()
        if not done:
            raise RuntimeError(found)
        return found

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self.closed:
                raise WorkerGone("the service stops")
            if self._process is None:
                environment = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
                command = [sys.executable, "-m", __name__, str(os.getpid())]
                try:
                    self._process = subprocess.Popen(
                        command, env={**environment, **ONE_THREAD}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                    )
                except OSError as problem:
                    raise WorkerGone(f"the program that computes them cannot be started: {problem}") from None
            return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not sent yet
                pipe.close()  # type: ignore[union-attr]
        process.wait()


def work(requests: BinaryIO, answers: BinaryIO, parent: int) -> None:
    """Answer until nothing more comes, or `parent` is not ours any more."""
    from hub_extensions.adapters.allocator import give_back
    from hub_extensions.core.queue.foretell import Foreteller

    teller, pages = Foreteller(), list[Sequence[Stay]]()

    def came_true(each: Given) -> None:
        teller.matured(each.pool, each.played, each.waited or 0.0, each.at_most, each.running.timestamp())

    def done(what: str, *rest: Any) -> object:
        nonlocal teller
        if what == "begin":
            pages.clear()
        elif what == "tell":
            pages.extend(rest)
        elif what == "learn":
            teller = Foreteller()
            while pages:  # each from the last that ended to the first
                teller.learn(reversed(pages.pop()))
            for each in rest[0]:
                came_true(each)
        else:
            question, stays, matured, seed = rest
            teller.learn(stays)
            for each in matured:
                came_true(each)
            began = time.process_time()
            found = teller.answer(question, seed, lambda: os.getppid() == parent)
            return found, time.process_time() - began
        return None

    while os.getppid() == parent:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: object = (True, done(*request))
        except Exception:  # noqa: BLE001 - the service logs it, whatever it is
            answer = (False, traceback.format_exc())
        del request
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
        del answer
        give_back()  # the lines that were played took more than anything else here


def main() -> None:
    """The program."""
    parent = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the service ends it
    from hub_extensions.adapters.allocator import keep_small

    keep_small()
    with suppress(BrokenPipeError):
        work(sys.stdin.buffer, sys.stdout.buffer, parent)
    os._exit(0)  # nothing is left to be said, and nobody to hear it


if __name__ == "__main__":
    main()
