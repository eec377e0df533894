"""The class of the server extension: connects sampler, client of the GPU service, and routes with a Jupyter server.

Its one setting is whether Prometheus can read the GPU. The hub sets the limits of a server and the time of its stop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool

from hub_extensions.adapters.hub.login_log import hide_login_secrets
from hub_extensions.adapters.linux.procfs import LEASE_MARK
from hub_extensions.core.messages import Report
from hub_extensions.server_extension.before_stop import HOOK, BeforeStop
from hub_extensions.server_extension.broadcast import Broadcast
from hub_extensions.server_extension.events import SCHEMA_FILE, EndEvents, is_followed
from hub_extensions.server_extension.gpu_processes import GpuProcesses, KernelReader
from hub_extensions.server_extension.progress_folder import VARIABLE, ProgressFolder, folder_in
from hub_extensions.server_extension.recheck import PATH, Recheck, RecheckHandler, note_websockets
from hub_extensions.server_extension.routes import handlers
from hub_extensions.server_extension.sampler import (
    NO_GPU,
    NOT_UNDER_A_HUB,
    UNWATCHED_SECONDS,
    Reader,
    Sampler,
    in_pod,
    leased_uuids,
)
from hub_extensions.server_extension.service_client import REQUEST_SECONDS, ServiceLink, address_in
from hub_extensions.server_extension.terminals import busy_terminals
from hub_extensions.server_extension.training_history_file import NAME as HISTORY
from hub_extensions.server_extension.training_history_file import TrainingHistoryFile
from hub_extensions.server_extension.training_reports import TrainingReports
from hub_extensions.server_extension.trainings import Trainings

if TYPE_CHECKING:
    from hub_extensions.server_extension.metrics import GpuCollector

SIMULATED = "JUPYTERHUB_GPU_SIMULATED"  # environment variable with the simulated layout; not set if the GPUs are real
PACKAGE = "hub_extensions.server_extension"
KERNELS_WATCHED_SECONDS, KERNELS_SECONDS = 3.0, 10.0


def open_reader(environ: Mapping[str, str]) -> Reader:
    """Return the reader of this server's GPUs: the simulation if the hub simulates them, the driver otherwise."""
    layout = environ.get(SIMULATED, "")
    if not layout:
        from hub_extensions.adapters.nvml.reader import Nvml

        return Nvml(leased_uuids(environ), pod=in_pod(environ))
    from hub_extensions.adapters.linux.procfs import marked
    from hub_extensions.adapters.simulated.gpus import SimulatedGpus, of_service
    from hub_extensions.adapters.simulated.layouts import load_layout

    service = environ.get("JUPYTERHUB_GPU_SERVICE_URL", "")
    return SimulatedGpus(load_layout(layout), of_service(service, marked))


class GpuExtension(ExtensionApp):
    """The application object that Jupyter Server loads.

    It adds the routes below ``gpu/`` and starts the other parts: the sampler (reads the GPU), the client of the GPU
    service, and the sender of messages to open panels.
    """

    name = "jupyterhub_gpu"

    metrics = Bool(
        False,
        help="""
        Whether this server shows its GPU's memory, use and state to Prometheus, at its own /metrics beside Jupyter
        Server's metrics, names jupyterhub_gpu_*. What is not known is absent.
        """,
    ).tag(config=True)

    _sampler: Sampler | None = None
    _link: ServiceLink | None = None
    _live: Broadcast | None = None
    _kernels: KernelReader | None = None
    _collector: GpuCollector | None = None
    _refreshing: asyncio.Task[None] | None = None
    _trainings: Trainings | None = None
    _reports: TrainingReports | None = None
    _reporting: asyncio.Task[None] | None = None

    def initialize_handlers(self) -> None:
        """Create all parts, as the environment variables of this server demand, and add the routes.

        Nothing is opened or requested before the server's event loop runs.
        """
        # our own loggers use the format and level of the server
        logging.getLogger(PACKAGE).parent = self.log
        hide_login_secrets()  # a login returns to a page of this server, with its code in the address
        address, uuids = address_in(os.environ), leased_uuids(os.environ)
        # a simulated reader shows the whole machine, so only named devices belong to this server
        finds = not uuids and in_pod(os.environ) and not os.environ.get(SIMULATED)
        self._sampler = Sampler(
            lambda: open_reader(os.environ),
            uuids,
            finds=finds,
            no_gpu=NOT_UNDER_A_HUB if address is None else NO_GPU,
            environ=os.environ,
        )
        live = self._live = Broadcast(self._sampler)
        assert self.serverapp is not None
        events = self.serverapp.event_logger
        assert events is not None  # made before any extension
        events.register_event_schema(SCHEMA_FILE)
        end_events = EndEvents(events.emit)
        before_stop = BeforeStop(
            self.serverapp.kernel_manager,
            Path(self.serverapp.config_dir) / HOOK,
            has_pages=lambda: live.watched or is_followed(),
        )
        link = self._link = ServiceLink(
            address,
            self._report,
            on_state=end_events.take,
            on_answer=end_events.keep_alive,
            before_stop=before_stop,
        )
        folder = folder_in(os.environ, self.serverapp.runtime_dir)
        os.environ[VARIABLE] = str(folder)  # for kernels and terminals, which inherit it
        trainings = self._trainings = Trainings(
            ProgressFolder(folder),
            TrainingHistoryFile(Path(self.serverapp.data_dir) / HISTORY),
            lambda: link.state,
            os.environ,
            on_change=live.wake,
        )
        if address is not None:
            self._reports = TrainingReports(trainings, link.post)
        live.use(link, trainings)
        self._sampler.use(server=None if address is None else lambda: link.state, after_reading=live.wake)
        if uuids or finds:
            kernels = self._kernels = KernelReader(self.serverapp.session_manager, self.serverapp.kernel_manager)
            processes = GpuProcesses(os.environ[LEASE_MARK], str(self.serverapp.root_dir), kernels.kernels)
            self._sampler.use(holding=processes.refresh)
        if self.metrics:
            self._show_metrics(self._sampler)
        self.handlers.extend(handlers(live, link, trainings))
        note_websockets()
        self.handlers.append((PATH, RecheckHandler, {"recheck": Recheck(self._hub_auth)}))
        self.serverapp.io_loop.add_callback(self._begin)  # runs as soon as the server's loop does

    def _hub_auth(self) -> Any:
        """Return the `HubAuth` with which this server asks the hub about tokens; `None` without a hub."""
        assert self.serverapp is not None
        own = getattr(self.serverapp.identity_provider, "hub_auth", None)
        return own or self.serverapp.web_app.settings.get("hub_auth")

    def _show_metrics(self, sampler: Sampler) -> None:
        from hub_extensions.server_extension.metrics import GpuCollector  # loaded only if it is enabled

        self._collector = GpuCollector(sampler.latest)
        self._collector.register()

    def _begin(self) -> None:
        if self._sampler is not None and self._link is not None:
            self._sampler.start()
            self._link.start()
        if self._trainings is not None:
            self._trainings.start()
        if self._reports is not None:
            self._reporting = asyncio.get_running_loop().create_task(self._reports.run())
        if self._kernels is not None and self._live is not None:
            self._refreshing = asyncio.get_running_loop().create_task(_refresh_kernels(self._kernels, self._live))

    async def stop_extension(self) -> None:
        """Stop requests and sampling at the end of the server; a driver that hangs does not delay it."""
        if self._collector is not None:
            self._collector.unregister()
        for task in (self._refreshing, self._reporting):
            if task is not None:
                task.cancel()
        if self._trainings is not None:
            self._trainings.stop()
        if self._live is not None:
            self._live.stop()
        if self._link is not None:
            self._link.stop()
        if self._sampler is not None:
            self._sampler.stop()

    async def _report(self, since: float) -> Report:
        """Return this server's report to the service, by which the service decides whether the server is idle.

        Args:
            since: time of the last delivered report on the monotonic clock; GPU use is reported from then on.
        """
        assert self.serverapp is not None
        settings = self.serverapp.web_app.settings
        states = await self._kernel_states()
        # Jupyter Server notes the time of each authenticated API request, unless the handler opts out
        opened = (self._live is not None and self._live.opened) or "api_last_activity" in settings or bool(states)
        used = None
        if self._sampler is not None:
            # a report that follows soon must cover at least three readings
            used = self._sampler.highest_since(min(since, monotonic() - 3 * UNWATCHED_SECONDS))
        terminals = busy_terminals(settings.get("terminal_manager"))
        report = Report(
            opened=opened,
            kernels=None,
            busy_kernels=None,
            used_percent=used,
            busy_terminals=terminals,
            watched=self._live is not None and self._live.watched,
        )
        if states is None:
            return report
        busy = sum(state == "busy" for state in states)
        return replace(report, kernels=len(states), busy_kernels=busy)

    async def _kernel_states(self) -> list[str] | None:
        """Return each kernel's execution state; `None` if the kernels cannot be listed."""
        assert self.serverapp is not None
        try:
            manager: Any = self.serverapp.kernel_manager
            listed = manager.list_kernels()
            # a slow remote gateway must not delay the report
            models = await asyncio.wait_for(listed, REQUEST_SECONDS) if inspect.isawaitable(listed) else listed
            return [str(model.get("execution_state", "")) for model in models]
        except Exception as error:  # noqa: BLE001 - a kernel provider of the site's own; not known is then the truth
            self.log.debug("The kernels cannot be listed: %r", error)
            return None


async def _refresh_kernels(kernels: KernelReader, live: Broadcast) -> None:
    """Refresh the list of kernels until cancelled, more often while a panel is open."""
    while True:
        await kernels.refresh()
        await asyncio.sleep(KERNELS_WATCHED_SECONDS if live.watched else KERNELS_SECONDS)
