"""The start of one spawner that is still owed to its user: in its state, and not taken for a server.

Not here: the records of the whole hub (``accepted_starts.py``), and the start itself (``base.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub.utils import maybe_future

from hub_extensions.spawner.accepted_starts import KEY, AcceptedStart, AcceptedStarts
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.user_options import UserOptions


class StartRecovery(UserOptions):
    """The part of a spawner that keeps an accepted start over a restart of the hub."""

    user: Any
    name: str
    _gpu_starts: AcceptedStarts | None = None

    def get_state(self) -> dict[str, Any]:
        """The real spawner's, and the start that the service does not know yet."""
        state: dict[str, Any] = super().get_state()  # type: ignore[misc]
        record = self._gpu_record
        return state if record is None else {**state, KEY: record.to_state()}

    @property
    def ready(self) -> bool:
        """As the hub says, but for a start that is still owed: it has a server only so that it is found again."""
        return bool(super().ready) and self._gpu_record is None  # type: ignore[misc]

    @property
    def _gpu_record(self) -> AcceptedStart | None:
        """The hub asks five times for each server that it lists, and hardly ever is one owed."""
        if self._gpu_starts is None:
            self._gpu_starts = AcceptedStarts.of(self)
        if self._gpu_starts is None or not self._gpu_starts.owed:
            return None
        return self._gpu_starts.record_of(self.user.name, self.name)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """As the real spawner does. The first one of a hub finds the starts that the hub before it has left."""
        super().load_state(state)  # type: ignore[misc]
        AcceptedStarts.of(self)

    async def run_post_stop_hook(self) -> None:
        """As the real spawner does. The stop may have been the hub's own end."""
        journal = AcceptedStarts.of(self)
        if journal is not None:
            journal.make_findable(self)
        await maybe_future(super().run_post_stop_hook())  # type: ignore[misc]

    def _gpu_accept(self, options: Mapping[str, Any]) -> AcceptedStart | None:
        journal = AcceptedStarts.of(self)
        return journal.accept(self, self.gpu_offers_of(options), options) if journal is not None else None

    def _gpu_settle_accepted(self, start: Start) -> None:
        """It is not owed any more: the service has it, it is over, or its user has left."""
        journal = AcceptedStarts.of(self)
        if journal is not None and start.accepted is not None:
            journal.settle(self.user.name, self.name, start.accepted)
