"""The two spawners for one machine: `GpuLocalSpawner` for users with system accounts, and one for the demo.

They identify a server by its pid **and** start time, so that a poll or a signal never reaches another process that was
given the same pid. They never run a server as root with ``--allow-root``.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner
from traitlets import Integer, Unicode

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.linux.server_processes import HUB_MARK, mark_of
from hub_extensions.core.queue.failed_starts import LOG_LENGTH
from hub_extensions.core.text.reasons import explain
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.base import GpuSpawnerMixin
from hub_extensions.spawner.pages.start_progress import Start

POLL_SECONDS = 1.0  # time between polls of the process while the hub waits for the server's first answer


class _KnownProcess(GpuSpawnerMixin):
    """Base class of the two spawners for one machine: a server is a local process, identified by pid and start time."""

    gpu_pid_started = Integer(0, help="When the server's process began, in clock ticks since boot; 0: not known.")
    gpu_log_folder = Unicode(
        help="A folder of the hub's own, made if it is not there. Each server writes its log into a file there, begun "
        "anew at each start, and of a start that failed admins see the last lines. Empty: all servers write into the "
        "hub's log, as JupyterHub has it.",
    ).tag(config=True)
    gpu_lease = ""
    """The id of the server's lease; "" for CPU only."""

    def get_env(self) -> dict[str, Any]:
        """Add an environment variable that names this hub.

        By this variable the GPU service finds processes of servers that the hub started but did not record.
        """
        env = super().get_env()
        if self.gpu_hub_secret:
            env[HUB_MARK] = mark_of(self.gpu_hub_secret)
        return env

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore pid, start time and lease.

        A state that the stock spawner wrote has no start time. Then the process that has the pid now is taken for the
        server, and its start time is kept from here on.
        """
        super().load_state(state)
        if not self.pid:
            return
        self.gpu_pid_started = int(state.get("gpu_pid_started") or procfs.start_time(self.pid) or 0)
        self.gpu_lease = str(state.get("gpu_lease") or "")
        self._gpu_ran = True

    def get_state(self) -> dict[str, Any]:
        """Return the state of JupyterHub's own spawner, with start time of the process and lease (right to a GPU)."""
        state: dict[str, Any] = super().get_state()
        if self.pid and self.gpu_pid_started:
            state["gpu_pid_started"] = self.gpu_pid_started
        if self.pid and self.gpu_lease:
            state["gpu_lease"] = self.gpu_lease
        return state

    def clear_state(self) -> None:
        super().clear_state()
        self.gpu_pid_started = 0
        self.gpu_lease = ""

    async def _gpu_launch(self, start: Start) -> Any:
        if start.grant is not None and start.grant.lease:
            await asyncio.to_thread(_end_earlier_attempts, start.grant.lease)
        with self._gpu_log_of_its_own():
            address = await super()._gpu_launch(start)
        self._gpu_end_with_its_process()
        return address

    def _gpu_end_with_its_process(self) -> None:
        """Let the hub stop waiting for the server's first answer as soon as the process has ended.

        JupyterHub would wait for the whole `http_timeout`.
        """
        server: Any = self.server
        if server is None:
            return  # no hub waits for this server
        ask = server.wait_up

        async def wait_up(*args: Any, **named: Any) -> Any:
            del server.wait_up  # replaced for this start only
            answer = asyncio.ensure_future(ask(*args, **named))
            try:
                while not answer.done():
                    await asyncio.wait({answer}, timeout=POLL_SECONDS)
                    status = None if answer.done() else await self.poll()
                    if status is not None:
                        raise spawn_errors.ServerEnded(self._log_name, status)
                return answer.result()
            finally:
                answer.cancel()

        server.wait_up = wait_up

    @contextmanager
    def _gpu_log_of_its_own(self) -> Iterator[None]:
        """While this context is active, redirect the output of a process that is started to the server's own log file.

        The hub opens the file, so the user cannot read it. If ``gpu_log_folder`` is empty, nothing is redirected.
        """
        out = self._gpu_open_log() if self.gpu_log_folder else None
        if out is None:
            yield
            return
        before: dict[str, Any] = self.popen_kwargs  # type: ignore[has-type]  # jupyterhub is untyped
        try:
            self.popen_kwargs = {"stdout": out, "stderr": out, **before}
            yield
        finally:
            self.popen_kwargs = before
            os.close(out)

    def _gpu_open_log(self) -> int | None:
        """Open the server's log file. Returns None if that fails; the server then writes into the hub's log."""
        file = self._gpu_log_file()
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        except OSError as problem:
            self.log.warning("%s writes into the hub's log: gpu_log_folder: %s", self._log_name, problem)
            return None

    def _gpu_log_file(self) -> Path:
        name = quote(f"{self.user.name}/{self.name}".rstrip("/"), safe="")
        return Path(self.gpu_log_folder) / f"{name}.log"

    def _gpu_log_tail(self) -> str:
        if not self.gpu_log_folder:
            return super()._gpu_log_tail()
        try:
            with self._gpu_log_file().open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_LENGTH))
                return log.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def _gpu_process(self) -> tuple[int | None, int | None]:
        if not self.pid:
            return None, None
        if not self.gpu_pid_started:
            self.gpu_pid_started = procfs.start_time(self.pid) or 0
            grant = self._gpu_start.grant if self._gpu_start is not None else None
            self.gpu_lease = grant.lease if grant is not None else ""
        return self.pid, self.gpu_pid_started or None

    async def poll(self) -> int | None:
        """Return None while the server runs. If its pid belongs to another process now, the server has ended."""
        if self.proc is None and self.pid and not self._gpu_is_ours():
            self.clear_state()
            return 0
        status: int | None = await super().poll()
        return status

    async def _signal(self, sig: int) -> bool:
        if not self.pid:
            return False  # pid 0 would be the hub's own process group
        if not self.gpu_pid_started:
            signalled: bool = await super()._signal(sig)
            return signalled
        if sig == 0:
            return self._gpu_is_ours()
        return procfs.send_signal(self.pid, self.gpu_pid_started, sig)

    def _gpu_is_ours(self) -> bool:
        if self.gpu_pid_started:
            return procfs.alive(self.pid, self.gpu_pid_started)
        return procfs.start_time(self.pid) is not None


def _end_earlier_attempts(lease: str) -> None:
    """Kill processes that were started under this lease by a hub that was killed before it could record them."""
    for process in procfs.marked():
        if process.lease == lease:
            procfs.send_signal(process.pid, process.started, signal.SIGKILL)


class GpuLocalSpawner(_KnownProcess, LocalProcessSpawner):  # type: ignore[misc]  # jupyterhub is untyped
    """LocalProcessSpawner with GPU offers: each server runs as a process of its user's system account."""

    def start(self) -> asyncio.Future[Any]:
        """Start the server. A user without an account on this machine is refused at once.

        The stock spawner would raise a KeyError only after the wait in line, while the lease is held.
        """
        try:
            pwd.getpwnam(self.user.name)
        except KeyError:
            reason = explain("no-account")
            log = f"{self._log_name}: this machine has no account {self.user.name!r} (doctor --config says what to do)"
            error = spawn_errors.refusal((reason,), reason=reason.reason, log_message=log, status=409)
            spawn_errors.undo_failure_count(self, error)
            raise error from None
        return super().start()


class GpuDemoSpawner(_KnownProcess, SimpleLocalProcessSpawner):  # type: ignore[misc]  # jupyterhub is untyped
    """A spawner for the demo: all servers are processes of the hub's own account, so users are not separated."""
