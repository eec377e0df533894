"""Follows the training runs of this server: their files, their processes, their forecasts and their ends.

Everything that reads a disk runs in a thread of its own, because the user's home can be on a disk that hangs. What the
service has to know is sent from the event loop (``training_reports.py``).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from time import monotonic
from typing import Any

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.forecast.progress_file import DONE, RUNNING, ProgressFile
from hub_extensions.core.forecast.training import (
    NotedForecast,
    TimeLeft,
    TrainingRun,
    forecast_to_note,
    past_forecasts,
    time_left,
)
from hub_extensions.core.forecast.training_history import MAX_RUNS, PastRun
from hub_extensions.core.forecast.training_runs import (
    Followed,
    Trace,
    followed,
    in_order,
    is_shown,
    length_seconds,
    state_of,
    training_of,
)
from hub_extensions.core.messages import ServerState, Training
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.progress_folder import ProgressFolder, is_alive
from hub_extensions.server_extension.service_client import RequestRefused
from hub_extensions.server_extension.training_history_file import TrainingHistoryFile

REFRESH_SECONDS = 5.0
MAX_PARENTS = 100

log = logging.getLogger(__name__)


class Trainings:
    """The training runs of this server, as of the last look.

    Args:
        folder: where training programs report.
        history: the finished runs of the user.
        state: returns the service's last state of this server; `None` if it is not known.
        environ: environment variables of this server, with the mark of its lease.
        on_change: called in any thread after something has changed.
        pace: divides all intervals (for tests).
        wall: returns the wall-clock time.
    """

    def __init__(
        self,
        folder: ProgressFolder,
        history: TrainingHistoryFile,
        state: Callable[[], ServerState | None],
        environ: Mapping[str, str],
        *,
        on_change: Callable[[], None] = lambda: None,
        pace: float = 1.0,
        wall: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._folder = folder
        self._history = history
        self._state = state
        self._lease = environ.get(procfs.LEASE_MARK, "")
        self._on_change = on_change
        self._pace = pace
        self._wall = wall
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._traces: dict[str, Trace] = {}
        self._noted: dict[str, tuple[NotedForecast, ...]] = {}
        self._forecasts: dict[str, tuple[TrainingRun, TimeLeft | None]] = {}
        self._unsaved: dict[str, PastRun] = {}
        self._saved: set[str] = set()
        self._wishes: frozenset[str] = frozenset()
        self._faults: set[str] = set()
        self._shown: tuple[Training, ...] = ()
        self.runs: tuple[Followed, ...] = ()

    def start(self) -> None:
        if self._thread is None:
            # a daemon, so that a disk that hangs does not delay the end of the server
            self._thread = threading.Thread(target=self._run, name="gpu-trainings", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def shown(self) -> tuple[Training, ...]:
        """Return what the panel shows."""
        return self._shown

    def wish(self, run: str, on: bool) -> None:
        """Note whether the user wishes a notice at the end of a run.

        Raises:
            RequestRefused: there is no such run that goes on (404), or no notice can be sent to this user (409).
        """
        found = next((each for each in self.runs if each.run.run == run and each.running), None)
        if found is None or found.trace.outside:
            raise RequestRefused(404, explain("unknown-training"))
        state = self._state()
        if on and (state is None or not state.can_notify):
            raise RequestRefused(409, explain("no-notices"))
        self._wishes = self._wishes | {run} if on else self._wishes - {run}
        self._publish()

    def settle(self, run: str) -> None:
        """Forget the wish for a notice, because it was sent or is not due."""
        self._wishes -= {run}
        self._publish()

    def refresh(self) -> None:
        """Read the folder once, and find out about each run. Called by the thread only."""
        now = self._wall()
        files = self._folder.read(now)
        known = {file.run.run for file in files}
        memories: tuple[dict[str, Any], ...] = (self._traces, self._noted, self._forecasts)
        for memory in memories:
            for gone in memory.keys() - known:
                del memory[gone]
        self._saved &= known
        offer = getattr(self._state(), "offer", "") or ""
        found = [each for file in files if (each := self._follow(file, offer, now)) is not None]
        self._save()
        self._publish(tuple(in_order(found)))

    def _run(self) -> None:
        self._guarded(self._history.load)
        while not self._stop.is_set():
            began = monotonic()
            self._guarded(self.refresh)
            took = monotonic() - began
            # a slow disk is left alone at least half of the time
            self._stop.wait(max(REFRESH_SECONDS / self._pace - took, took))

    def _publish(self, runs: tuple[Followed, ...] | None = None) -> None:
        """Replace the runs, and the wishes of their user in them.

        Args:
            runs: the runs of the latest look; `None` if only a wish has changed.
        """
        with self._lock:
            wishes = self._wishes
            now = tuple(replace(each, notify=each.run.run in wishes) for each in (self.runs if runs is None else runs))
            changed, self.runs = now != self.runs, now
            if changed:
                self._shown = tuple(map(training_of, now))
        if changed:
            self._on_change()

    def _follow(self, file: ProgressFile, offer: str, now: datetime) -> Followed | None:
        run = file.run
        before = self._traces.get(run.run, Trace())
        alive = is_alive(file)
        ours = before.ours or (alive is True and _is_ours(file.pid, self._lease))
        trace = self._traces[run.run] = followed(before, run, alive, ours, now)
        if not is_shown(run, trace, alive, now):
            return None
        state = state_of(run, trace)
        history = self._history.history
        usual, count = history.usual(run.name, offer)
        left = None
        if state == RUNNING:
            left = self._forecast(run, trace, offer)
        elif state == DONE and trace.ours and run.run not in self._saved:
            forecasts = past_forecasts(run, self._noted.get(run.run, ()))
            resumed = run.start > 0
            self._unsaved[run.run] = PastRun(
                run.run, run.name, offer, run.started, length_seconds(run), resumed, forecasts
            )
        return Followed(run, trace, state, left, usual_seconds=usual, usual_runs=count)

    def _forecast(self, run: TrainingRun, trace: Trace, offer: str) -> TimeLeft | None:
        known = self._forecasts.get(run.run)
        if known is not None and known[0] is run:
            return known[1]  # nothing new was reported
        left = None
        try:
            noted = self._noted.get(run.run, ())
            if trace.ours and (note := forecast_to_note(run, noted)) is not None:
                self._noted[run.run] = (*noted, note)
            left = time_left(run, self._history.history.past(run.name, offer))
        except Exception as error:  # noqa: BLE001 - numbers that nobody thought of; the run is shown without an end
            self._log_fault("forecast", error)
        self._forecasts[run.run] = run, left
        return left

    def _save(self) -> None:
        """Add the finished runs to the history until one cannot be written, for example because the disk is full."""
        for run, past in tuple(self._unsaved.items()):
            if not self._history.add(past):
                break
            self._saved.add(run)
            del self._unsaved[run]
        for run in tuple(self._unsaved)[:-MAX_RUNS]:
            del self._unsaved[run]

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the next time may succeed
            self._log_fault("refresh", error)

    def _log_fault(self, what: str, error: Exception) -> None:
        kind = f"{what} {type(error).__name__}"
        if kind not in self._faults:
            self._faults.add(kind)
            log.exception("The trainings of this server cannot be followed as they should: %r", error)


def _is_ours(pid: int, lease: str) -> bool:
    """Return whether a process was started by this server.

    Args:
        pid: id of the process.
        lease: id of this server's lease; "" without one. A daemon of this server has it in its environment.
    """
    ancestor: int | None = pid
    for _ in range(MAX_PARENTS):
        if not ancestor:
            break
        if ancestor == os.getpid():
            return True
        ancestor = procfs.parent(ancestor)
    return bool(lease) and procfs.environment(pid).get(procfs.LEASE_MARK) == lease
