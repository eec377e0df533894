"""The part of a spawner that keeps its accepted start in its state (see ``accepted_starts.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub.utils import maybe_future

from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.spawner.accepted_starts import KEY, AcceptedStart, AcceptedStarts
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.user_options import UserOptionsMixin


class StartRecovery(UserOptionsMixin):
    """Keeps an accepted start of a spawner over a restart of the hub."""

    user: Any
    name: str
    _gpu_starts: AcceptedStarts | None = None

    def get_state(self) -> dict[str, Any]:
        """Return the real spawner's state, with the start that the service does not know yet."""
        state: dict[str, Any] = super().get_state()  # type: ignore[misc]
        record = self._gpu_record
        return state if record is None else {**state, KEY: record.to_state()}

    @property
    def ready(self) -> bool:
        """False while a start has not been answered: its server in the database only serves to find it again."""
        return bool(super().ready) and self._gpu_record is None  # type: ignore[misc]

    @property
    def _gpu_record(self) -> AcceptedStart | None:
        """The record of this spawner's start, None if the service has answered. Must be fast: lists use it often."""
        if self._gpu_starts is None:
            self._gpu_starts = AcceptedStarts.of(self)
        if self._gpu_starts is None or not self._gpu_starts.owed:
            return None
        return self._gpu_starts.record_of(self.user.name, self.name)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the real spawner's state. The first spawner of a hub finds the starts that the last hub left."""
        super().load_state(state)  # type: ignore[misc]
        AcceptedStarts.of(self)

    async def run_post_stop_hook(self) -> None:
        """Keep an unanswered start, because the stop may be the hub's own shutdown, then run the real hook."""
        journal = AcceptedStarts.of(self)
        if journal is not None:
            journal.keep_findable(self)
        await maybe_future(super().run_post_stop_hook())  # type: ignore[misc]

    def _gpu_accept(self, options: UserOptions) -> AcceptedStart | None:
        journal = AcceptedStarts.of(self)
        return journal.accept(self, options) if journal is not None else None

    def _gpu_settle_accepted(self, start: Start) -> None:
        """Remove the record: the service knows the start, the start is over, or its user has left."""
        journal = AcceptedStarts.of(self)
        if journal is not None and start.accepted is not None:
            journal.settle(self.user.name, self.name, start.accepted)
