"""``demo --sso``: TensorBoard and a Dask dashboard behind the hub's sign-in.

Both are real programs. ``scripts/demo`` creates their Python environment, and ``scripts/apps`` has the data that they
show.
"""

from __future__ import annotations

import pprint
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hub_extensions.hub_service.setup.settings import write_private
from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.processes import program
from hub_extensions.tools.demo.proxy import DemoProxy, find_proxy

HOST = "apps.localhost"
"""Host name of the portal. It differs from the hub's, because cookies of one host are shared by all its ports.
Browsers resolve each name below ``localhost`` to this machine."""
BOARD, DASK = "tensorboard", "dask"
"""Names of the two apps. Each has a host to itself: TensorBoard, because it shows content of users; Dask, because its
first page works only at the path ``/``."""
STARTS_IN_SECONDS = 120.0
AUDITOR = "auditor"
AUDITOR_SCOPES = ("admin:users", "tokens", "groups", "list:services", "access:services")


@dataclass(frozen=True)
class DemoApps:
    """The two apps of a demo: their addresses, and the configuration that follows from them.

    Attributes:
        folder: folder of their state.
        environment: folder of the Python environment with their programs.
        state_dir: state folder of the GPU service, with the gate's settings.
        port: port of the proxy in front of the apps.
        gate, tensorboard, dask: ports of the gate and of the apps, to which only the proxy connects.
    """

    folder: Path
    environment: Path
    state_dir: Path
    port: int
    gate: int
    tensorboard: int
    dask: int

    @property
    def url(self) -> str:
        """Address of the portal, the page with the links to all apps."""
        return f"http://{HOST}:{self.port}"

    @property
    def board_url(self) -> str:
        return f"http://{BOARD}.localhost:{self.port}/"

    @property
    def gate_file(self) -> Path:
        """File with the gate's settings, which the hub writes when it starts."""
        return self.state_dir / "gate.json"

    @property
    def token_file(self) -> Path:
        """File with a token of the hub, with which the audit (``gate audit``) creates its test accounts."""
        return self.folder / "auditor-token"

    @property
    def proxy(self) -> DemoProxy:
        kind, found = find_proxy(self.environment)
        return DemoProxy(kind, found, str(self.folder / "proxy"), str(self.gate_file), unprotected=BOARD)

    @property
    def catalogue(self) -> Mapping[str, Mapping[str, object]]:
        """The catalogue of apps, as an administrator would write it in ``c.SignOnGate.apps``.

        TensorBoard is for the group `course`, Dask for the group `thesis` only.
        """
        return {
            BOARD: {
                "title": "TensorBoard",
                "where": self.board_url,
                "upstream": f"http://127.0.0.1:{self.tensorboard}",
                "groups": ["course"],
                "health": "/data/environment",
            },
            DASK: {
                "title": "Dask dashboard",
                "where": f"http://{DASK}.localhost:{self.port}/",
                "upstream": f"http://127.0.0.1:{self.dask}",
                "groups": ["thesis"],
                "health": "/health",
                "relay": True,
            },
        }

    @property
    def configuration(self) -> str:
        """The part of the demo's ``jupyterhub_config.py`` that sets up the apps."""
        return f"""from pathlib import Path

c.SignOnGate.enabled = True
c.SignOnGate.url = {self.url!r}
c.SignOnGate.port = {self.gate}
c.SignOnGate.contact = "the admin of this demo"
c.SignOnGate.audit_minutes = 0  # by the button alone
c.SignOnGate.apps = {pprint.pformat(self.catalogue, sort_dicts=False)}
c.JupyterHub.services = [{{"name": {AUDITOR!r}, "api_token": Path({str(self.token_file)!r}).read_text()}}]
c.JupyterHub.load_roles = [
    {{"name": {AUDITOR!r}, "services": [{AUDITOR!r}], "scopes": {list(AUDITOR_SCOPES)!r}}},
]
"""

    @property
    def buttons(self) -> Mapping[str, object]:
        """The links to the apps for the sign-in service's page, and the commands that the buttons of this page run."""
        audit = ["gate", "audit", "--json", "--config", str(self.gate_file), "--token-file", str(self.token_file)]
        fault = [sys.executable, "-m", "hub_extensions.tools.demo.proxy", self.proxy.folder]
        return {
            "portal": f"{self.url}/",
            "board": self.board_url,
            "audit": [
                sys.executable,
                "-m",
                "hub_extensions.tools.cli",
                *audit,
                "--connect-to",
                f"127.0.0.1:{self.port}",
            ],
            "plant": [*fault, "plant"],
            "mend": [*fault, "mend"],
        }


def check_programs(environment: Path) -> None:
    """Check that the apps' environment and a proxy are installed. Raises DemoRefused."""
    if not (environment / "bin" / "tensorboard").exists():
        raise DemoRefused(f"There are no apps in {environment}. ./scripts/demo --sso sets them up.")
    find_proxy(environment)


@contextmanager
def running(
    apps: DemoApps, variables: Mapping[str, str], stop: threading.Event, answers: Callable[[str], bool]
) -> Iterator[None]:
    """Run both apps while the block runs. The block begins when they answer.

    Args:
        apps: the two apps of the demo.
        variables: environment variables of their processes.
        stop: set if the demo should end; then the start is not waited for.
        answers: returns whether a program answers at an address.

    Raises:
        DemoRefused: one of the apps did not start.
    """
    apps.folder.mkdir(mode=0o700, exist_ok=True)
    write_private(apps.token_file, secrets.token_hex(32))
    python = [str(apps.environment / "bin" / "python"), "-I"]
    runs, own = apps.folder / "runs", {**variables, "HOME": str(apps.folder)}
    board = ["-m", "tensorboard.main", "--host=127.0.0.1", f"--port={apps.tensorboard}", "--load_fast=false"]
    with ExitStack() as stack:

        def start(name: str, *words: str) -> subprocess.Popen[bytes]:
            return stack.enter_context(program([*python, *words], apps.folder / f"{name}.log", own))

        started = {
            "training": start("training", str(apps.environment / "training.py"), str(runs)),
            BOARD: start(BOARD, *board, f"--logdir={runs}"),
            DASK: start(DASK, str(apps.environment / "cluster.py"), str(apps.dask)),
        }
        addresses = [f"{app['upstream']}{app['health']}" for app in apps.catalogue.values()]
        deadline = time.monotonic() + STARTS_IN_SECONDS
        while not stop.is_set() and not all(map(answers, addresses)):
            failed = [name for name, process in started.items() if process.poll()]
            if failed or time.monotonic() > deadline:
                logs = ", ".join(str(apps.folder / f"{name}.log") for name in failed or started)
                raise DemoRefused(f"The apps behind the sign-in did not start: see {logs}.")
            stop.wait(0.1)
        yield
