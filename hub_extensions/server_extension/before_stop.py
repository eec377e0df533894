"""The work of a server once its stop has begun: interrupt its cells, let its pages save, run the user's own hook.

An interrupted cell can still save its state (``except KeyboardInterrupt``). Then the open pages save the notebooks with
what the cell printed. Then the program ``gpu-before-stop`` in the user's Jupyter configuration folder, the hook, runs
if it exists. The service waits for all three steps, at most for ``c.GpuCulling.drain_seconds``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from hub_extensions.core.messages import ServerState
from hub_extensions.core.stops import INTERRUPTED

HOOK = "gpu-before-stop"
OUTPUT = "gpu-before-stop.log"
MAX_OUTPUT_BYTES = 1_000_000
INTERRUPT_SECONDS = 5.0
"""The pages save at the latest after this time, although interrupted cells may still run."""
ANSWER_SECONDS = 3.0  # reserved for the report to the service that everything is done
PAGES_SECONDS = 10.0  # how long a page may take to save: the 8 s of ``save.ts`` and its report
OTHER_PAGES_SECONDS = 3.0  # ``OTHER_PAGES`` of the service: time for the other pages after the first one has saved
STEP_SECONDS = 0.1

log = logging.getLogger("hub_extensions.server_extension")


class BeforeStop:
    """Runs the steps before a stop of this server: interrupt cells, let pages save, run the user's hook (a program).

    The extension passes each state that it receives from the service to `take`. If the stop is withdrawn, the steps are
    cancelled, and a later stop begins with the first step again.

    Args:
        kernels: Jupyter Server's ``kernel_manager``.
        hook: path of the user's program; the file need not exist.
        has_pages: returns whether a page of this server is open.

    Attributes:
        on_change: called when the service should receive a new report of this server.
    """

    def __init__(self, kernels: Any, hook: Path, *, has_pages: Callable[[], bool]) -> None:
        self._kernels = kernels
        self._hook = hook
        self._has_pages = has_pages
        self.on_change: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._interrupted = False
        self._hook_ran = False
        self._has_hook = False
        self._search: asyncio.Task[None] | None = None
        self._pages_asked = False
        self._asked = asyncio.Event()
        self._saved = asyncio.Event()

    @property
    def draining(self) -> bool:
        """Return whether a step before the stop is still running, so that the service should wait with the stop."""
        return self._task is not None and not self._task.done()

    @property
    def asked(self) -> bool:
        """Return whether open pages have been asked to save before this stop. The service then waits for
        their answer.
        """
        return self._pages_asked

    @property
    def hook_ran(self) -> bool:
        """Return whether the user's hook has started before this stop; the GPU use that follows may be the hook's."""
        return self._hook_ran

    @property
    def has_hook(self) -> bool:
        """Return whether the user had a hook at the last check, so that the service leaves time for it."""
        return self._has_hook

    def take(self, state: ServerState) -> ServerState:
        """Start or cancel the steps as the service's new state demands, and return the state for this server's pages.

        The returned state asks the pages to save (`save`) only after the cells have been interrupted.
        """
        if not state.save:
            self._give_up()
            if state.countdown is not None and (self._search is None or self._search.done()):
                self._search = asyncio.get_running_loop().create_task(self._search_hook())
        elif self._task is None:
            cause = state.countdown.cause if state.countdown is not None else ""
            self._task = asyncio.get_running_loop().create_task(self._run(cause, state.drain_seconds))
            self._task.add_done_callback(lambda _: self.on_change())
            self.on_change()
        asks = state.save and self._interrupted
        if asks and not self._asked.is_set():
            self._asked.set()
            self._pages_asked = self._has_pages()
            self.on_change()
        return replace(state, save=asks)

    async def _search_hook(self) -> None:
        """Check whether the user has a hook, because a stop then begins earlier to leave time for it.

        The check runs in a thread, because the home directory may be on a disk that hangs.
        """
        found = await asyncio.to_thread(_problem_with, self._hook) == ""
        if found is not self._has_hook:
            self._has_hook = found
            self.on_change()

    def _give_up(self) -> None:
        """Cancel the steps, because the stop was withdrawn, and be ready for another stop."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._interrupted, self._hook_ran = None, False, False
        self._pages_asked = False
        self._asked.clear()
        self._saved.clear()

    def saved(self) -> None:
        self._saved.set()

    def stop(self) -> None:
        for task in (self._task, self._search):
            if task is not None:
                task.cancel()

    async def _run(self, cause: str, seconds: float) -> None:
        deadline = monotonic() + seconds - ANSWER_SECONDS
        try:
            if cause in INTERRUPTED:
                await asyncio.wait_for(self._interrupt(), INTERRUPT_SECONDS)
        except asyncio.TimeoutError:
            log.info("Not every cell has ended within %.3g s before the stop.", INTERRUPT_SECONDS)
        except Exception as error:  # noqa: BLE001 - kernels of a site's own; what comes after is as important
            log.warning("Cells could not be interrupted before the stop: %r", error)
        self._interrupted = True
        self.on_change()
        if self._has_pages():
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._asked.wait(), PAGES_SECONDS)
                await asyncio.wait_for(self._saved.wait(), PAGES_SECONDS)
                await asyncio.sleep(OTHER_PAGES_SECONDS)
        environ = {**os.environ, "JUPYTERHUB_GPU_STOP_CAUSE": cause}
        await run_hook(self._hook, environ, max(0.0, deadline - monotonic()), self._hook_begins)

    def _hook_begins(self) -> None:
        self._hook_ran = True
        self.on_change()

    async def _interrupt(self) -> None:
        """Interrupt the kernels that run a cell, and wait until these cells have ended."""
        busy = await self._busy()
        sent = await asyncio.gather(*map(self._interrupt_one, busy), return_exceptions=True)
        if failed := [each for each in sent if each is not None]:
            log.warning("%d kernels could not be interrupted before the stop: %r", len(failed), failed[0])
        if busy:
            log.info("%d running cells were interrupted before the stop.", len(busy))
        while busy:
            await asyncio.sleep(STEP_SECONDS)
            busy = [each for each in await self._busy() if each in busy]

    async def _interrupt_one(self, kernel: str) -> None:
        sent = self._kernels.interrupt_kernel(kernel)
        if inspect.isawaitable(sent):
            await sent

    async def _busy(self) -> list[str]:
        listed = self._kernels.list_kernels()
        models = await listed if inspect.isawaitable(listed) else listed
        return [str(model["id"]) for model in models if model.get("execution_state") == "busy"]


async def run_hook(
    hook: Path, environ: Mapping[str, str], seconds: float, begins: Callable[[], None] = lambda: None
) -> None:
    """Run the user's program and write its output to a file beside it.

    Args:
        seconds: the time limit, after which the program and its children are killed.
        begins: called just before the program is started.
    """
    problem = await asyncio.to_thread(_problem_with, hook)  # a home can be on a disk that hangs
    if problem is None:
        return
    if problem:
        log.warning("%s is not run: %s", hook, problem)
        await asyncio.to_thread(_write, hook, f"{hook.name} was not run: {problem}\n".encode())
        return
    begins()
    printed = bytearray()
    readable, writable = os.pipe()  # with a pipe of asyncio, wait() would last until every forked child has closed it
    try:
        process = await asyncio.create_subprocess_exec(
            str(hook),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writable,
            stderr=writable,
            env=dict(environ),
            cwd=Path.home(),
            start_new_session=True,
        )
    except OSError as error:
        os.close(readable)
        log.warning("%s cannot be run: %s", hook, error)
        await asyncio.to_thread(_write, hook, f"{hook.name} cannot be run: {error}\n".encode())
        return
    finally:
        os.close(writable)
    reading = asyncio.ensure_future(_read(readable, printed))
    try:
        code = await asyncio.wait_for(process.wait(), seconds)
        last = f"{hook.name} ended with status {code}.\n"
        await asyncio.wait([reading], timeout=STEP_SECONDS)  # a forked child may hold the pipe for ever
    except asyncio.TimeoutError:
        last = f"{hook.name} was ended after {seconds:.3g} s.\n"
    except asyncio.CancelledError:
        _write(hook, bytes(printed) + f"{hook.name} was ended with its server, or as the stop did not come.\n".encode())
        raise
    finally:
        reading.cancel()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    log.info("%s", last.strip())
    await asyncio.to_thread(_write, hook, bytes(printed) + last.encode())


def _problem_with(hook: Path) -> str | None:
    """Return why this file is not run as the user's hook; "" if it can be run, `None` if the file does not exist."""
    if not os.path.lexists(hook):
        return None
    try:
        found = hook.stat()
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    if found.st_uid != os.geteuid():
        return "it belongs to somebody else"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others can write to it (chmod go-w)"
    return "" if os.access(hook, os.X_OK) else "it is not executable (chmod u+x)"


async def _read(readable: int, into: bytearray) -> None:
    """Read a program's output to its end, so that the program never blocks, and keep only its first part in `into`.

    Args:
        readable: file descriptor of the output.
    """
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(readable, "rb", 0)
    )
    try:
        while piece := await stream.read(65_536):
            into += piece[: max(0, MAX_OUTPUT_BYTES - len(into))]
    finally:
        transport.close()


def _write(hook: Path, text: bytes) -> None:
    """Write the output of the user's hook to a new file beside the hook. It replaces the file of an earlier run."""
    file = hook.with_name(OUTPUT)
    with suppress(OSError):
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text)
