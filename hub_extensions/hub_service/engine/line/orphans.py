"""End processes of CPU-only servers that the hub started just before it was killed, and that it no longer knows.

Such servers use memory and processors, and their users cannot stop them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress

from hub_extensions.adapters.linux import procfs, server_processes
from hub_extensions.adapters.store import Changes
from hub_extensions.core.culling.orphans import ListedServer, ServerProcess, unknown_to_the_hub
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 15.0
PROVED_SECONDS = 60.0
"""A server is ended if all lists of the hub have lacked it for this long."""
TERM_THEN_KILL_SECONDS = 10.0


class Orphans:
    """Checks the machine's processes periodically for servers that the hub does not know.

    Args:
        state: the state, with the hub's list of servers.
        transaction: writes to the journal.
        mark: a value in the environment of the processes of this hub's servers, which identifies them; "" on a
            cluster, where nothing is checked.
    """

    def __init__(self, state: State, transaction: Transactions, mark: str) -> None:
        self.state = state
        self.transaction = transaction
        self.mark = mark
        self._since: dict[ServerProcess, float] = {}
        self._ending: dict[ServerProcess, float] = {}

    async def run(self) -> None:
        """Call `refresh` every 15 s until cancelled.

        On a cluster, return at once, because no processes have to be searched.
        """
        while self.mark:
            await asyncio.sleep(EVERY)
            await self.refresh()

    async def refresh(self) -> None:
        """End the CPU-only servers of this hub that its lists have not contained for `PROVED_SECONDS` (a minute).

        While the hub does not answer, no server is ended.
        """
        found = await asyncio.get_running_loop().run_in_executor(None, server_processes.servers, self.mark)
        hub, now = self.state.hub_view, self.state.clock.elapsed()
        if hub.listed is None:
            self._since = {}
            return
        listed = [ListedServer(each.user, each.server, each.ready, each.pid) for each in hub.listed.values()]
        busy = {(each.user, each.server) for each in self.state.tickets.values()} | self.state.touched.keys()
        orphans = unknown_to_the_hub(found, listed, busy)
        self._since = {each: self._since.get(each, now) for each in orphans}
        proved = {each: hub.read_at - at for each, at in self._since.items()}
        for each, seconds in proved.items():
            if seconds < PROVED_SECONDS or not self._end(each, now):
                continue
            self.state.count("servers", "orphan-ended")
            log.warning("a server that the hub does not know of is ended (pid %d)", each.pid, extra={"user": each.user})
            why, server = "the hub does not know of it", (each.user, each.server)
            seen = f"the hub's lists have lacked it for {seconds:.0f} s, pid {each.pid}"
            with suppress(Refused):  # it is ended even if the journal cannot be written
                async with self.transaction() as transaction:
                    row = transaction.server_row("orphan-ended", server, why, evidence=seen)
                    await transaction.write(Changes(journal=(row,)))
        self._ending = {each: at for each, at in self._ending.items() if each in self._since}

    def _end(self, orphan: ServerProcess, now: float) -> bool:
        """Send SIGTERM to a server that the hub does not know, or SIGKILL if it still runs 10 s after SIGTERM.

        Args:
            orphan: the server's process.
            now: by the machine's monotonic clock, in seconds.

        Returns:
            Whether this is the first call for this server.
        """
        first = orphan not in self._ending
        kill = now - self._ending.setdefault(orphan, now) >= TERM_THEN_KILL_SECONDS
        if kill or first:
            procfs.send_signal(orphan.pid, orphan.started, signal.SIGKILL if kill else signal.SIGTERM)
        return first
