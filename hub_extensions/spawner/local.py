"""Our two spawners on one machine: for system users, and for the demo.

They add one thing to the mixin: a server is a pid **and** its start time, so that neither a poll nor a signal ever
meets another process that was given the same pid. They never run a server as root with ``--allow-root``.
Not here: GPUs (``base.py``).
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

POLL_SECONDS = 1.0
"""While the hub waits for a first answer the process is polled this often."""


class _KnownProcess(GpuSpawnerMixin):
    """A local process, known by pid and start time."""

    gpu_pid_started = Integer(0, help="When the server's process began, in clock ticks since boot; 0: not known.")
    gpu_log_folder = Unicode(
        help="A folder of the hub's own, made if it is not there. Each server writes its log into a file there, begun "
        "anew at each start, and of a start that failed admins see the last lines. Empty: all servers write into the "
        "hub's log, as JupyterHub has it.",
    ).tag(config=True)
    gpu_lease = ""
    """The lease it runs under; "" for CPU only."""

    def get_env(self) -> dict[str, Any]:
        """With the mark of this hub, which needs no answer of the service: what the hub never noted is found by it."""
        env = super().get_env()
        if self.gpu_hub_secret:
            env[HUB_MARK] = mark_of(self.gpu_hub_secret)
        return env

    def load_state(self, state: Mapping[str, Any]) -> None:
        """After a hub restart. A state of the stock spawner has no start time: the pid is taken at its word, once."""
        super().load_state(state)
        if not self.pid:
            return
        self.gpu_pid_started = int(state.get("gpu_pid_started") or procfs.start_time(self.pid) or 0)
        self.gpu_lease = str(state.get("gpu_lease") or "")
        self._gpu_ran = True

    def get_state(self) -> dict[str, Any]:
        """pid, start time and lease; the stock spawner reads its own ``pid`` from it."""
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
        """The hub asks for a first answer as long as `http_timeout`, also of a server that has ended: not this one."""
        server: Any = self.server
        if server is None:
            return  # no hub waits for it
        ask = server.wait_up

        async def wait_up(*args: Any, **named: Any) -> Any:
            del server.wait_up  # for this start alone
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
        """The process that is started meanwhile writes into its file, which the hub opens: its user cannot read it."""
        out = self._gpu_open_log() if self.gpu_log_folder else None
        if out is None:
            yield
            return
        before: dict[str, Any] = self.popen_kwargs  # type: ignore[has-type]  # jupyterhub has no types
        try:
            self.popen_kwargs = {"stdout": out, "stderr": out, **before}
            yield
        finally:
            self.popen_kwargs = before
            os.close(out)

    def _gpu_open_log(self) -> int | None:
        """None: it cannot be opened, and the server starts all the same and writes into the hub's log."""
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
        """None while it runs. A pid that belongs to another process now is a server that ended."""
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
    """A hub killed between a start and its note of it left a server nobody knows, under our lease: end it."""
    for process in procfs.marked():
        if process.lease == lease:
            procfs.send_signal(process.pid, process.started, signal.SIGKILL)


class GpuLocalSpawner(_KnownProcess, LocalProcessSpawner):  # type: ignore[misc]  # jupyterhub has no types
    """Servers as processes of the system's own accounts, under a GPU lease."""

    def start(self) -> asyncio.Future[Any]:
        """Refused where its user has no account: the hub's own start would end in a KeyError, its GPU held."""
        try:
            pwd.getpwnam(self.user.name)
        except KeyError:
            reason = explain("no-account")
            log = f"{self._log_name}: this machine has no account {self.user.name!r} (doctor --config says what to do)"
            error = spawn_errors.refusal((reason,), reason=reason.reason, log_message=log, status=409)
            spawn_errors.spare_the_count(self, error)
            raise error from None
        return super().start()


class GpuDemoSpawner(_KnownProcess, SimpleLocalProcessSpawner):  # type: ignore[misc]  # jupyterhub has no types
    """Servers as processes of the hub's own account, for the demo: for trying, not for use."""
