"""Decides the users, GPUs and ports of a demo. Checks whether the demo can start, and explains why not."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from hub_extensions.core.gpu.devices import GpusUnavailable
from hub_extensions.hub_service.setup.settings import write_private
from hub_extensions.tools.demo import DemoRefused, apps, sign_in
from hub_extensions.tools.demo.apps import DemoApps
from hub_extensions.tools.demo.sign_in import SignInService

WARNING = "one Unix account for all demo users: for trying, not for use"
ADMIN = "admin"
FIRST_NAMES = (
    *("ada", "ben", "cleo", "dan", "eva", "finn", "gus", "hana", "ivo", "jana", "kai", "lea", "max"),
    *("nia", "omar", "pia", "quinn", "rosa", "sam", "tara", "ugo", "vera", "wim", "xenia", "yara", "zoe"),
)
DEFAULT_LAYOUT = "lab-a100"
STATE_DIR = "gpu-state"
"""Name of the GPU service's state folder within the demo's folder."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command ``demo``.

    Attributes:
        folder: the demo's folder.
        port: the port that users open; 0 for any free port.
        users: number of demo users.
        layout: name or file of the GPUs to simulate; None for this machine's own GPUs, or simulated ones if it has
            none.
        clean: delete what an earlier demo has left in the folder.
        sso: folder of the program at which users sign in; None for passwords.
        apps: folder of the Python environment of the apps behind the sign-in; None for no apps.
    """

    folder: Path
    port: int = 8000
    users: int = 8
    layout: str | None = None
    clean: bool = False
    sso: Path | None = None
    apps: Path | None = None


@dataclass(frozen=True)
class Ports:
    """The ports of all parts of a demo, on 127.0.0.1; 0 if the demo does not have the part.

    Attributes:
        public: the port that users open.
        hub: the hub.
        proxy: API of JupyterHub's proxy.
        service: the GPU service.
        sign_in: the service at which users sign in.
        apps: proxy in front of the apps, which asks the `gate` about each request.
        tensorboard, dask: the two apps.
    """

    public: int
    hub: int
    proxy: int
    service: int
    sign_in: int = 0
    apps: int = 0
    gate: int = 0
    tensorboard: int = 0
    dask: int = 0


@dataclass(frozen=True)
class Demo:
    """All decisions about one demo, from which its configuration is written. `planned` makes it.

    Attributes:
        folder: the demo's folder.
        ports: the ports of all parts of the demo.
        users: names of the users.
        simulate: name or file of the simulated GPUs; None for this machine's own.
        password, admin_password: the password of all users, and that of the administrator; not used with `sign_in`.
        sign_in: the service at which users sign in; None if they use passwords.
        apps: the apps behind the sign-in; None without apps.
    """

    folder: Path
    ports: Ports
    users: tuple[str, ...]
    simulate: str | None
    password: str = field(repr=False)
    admin_password: str = field(repr=False)
    sign_in: SignInService | None = None
    apps: DemoApps | None = None

    @property
    def url(self) -> str:
        """The address of the demo's hub that users open."""
        return f"http://127.0.0.1:{self.ports.public}"

    @property
    def signs_of_life(self) -> tuple[str, ...]:
        """The addresses that must answer before the demo is ready: hub, GPU service, and then both through the proxy.

        The addresses have to be tried in this order, because the hub adds its route to the proxy only when its services
        answer. An earlier request through the proxy would leave a 404 in the log.
        """
        hub, service = "/hub/health", "/services/gpu/health"
        there = (f"http://127.0.0.1:{self.ports.hub}{hub}", f"http://127.0.0.1:{self.ports.service}{service}")
        return (*there, f"{self.url}{hub}", f"{self.url}{service}")


def people(count: int) -> tuple[str, ...]:
    """Return the names of this number of demo users: first names, then numbered ones."""
    return FIRST_NAMES[:count] + tuple(f"user-{number}" for number in range(len(FIRST_NAMES) + 1, count + 1))


def choose_gpus(layout: str | None) -> tuple[str | None, str]:
    """Decide whether the demo uses this machine's GPUs or simulated ones.

    Args:
        layout: name or file of the GPUs to simulate; None for this machine's own, or simulated ones if it has none.

    Returns:
        The layout to simulate, None for this machine's own GPUs; and a sentence about the choice for the user.

    Raises:
        DemoRefused: the layout does not exist, or its file is wrong.
    """
    from hub_extensions.adapters.simulated.layouts import load_layout

    if layout is None:
        why = _why_no_gpus()
        if why is None:
            return None, "The GPUs of this machine are offered."
        return DEFAULT_LAYOUT, f"{why} Here they are simulated (layout {DEFAULT_LAYOUT})."
    try:
        load_layout(layout)
    except (ValueError, OSError) as problem:
        raise DemoRefused(f"--layout {layout}: {problem}") from None
    chosen = str(Path(layout).absolute()) if Path(layout).is_file() else layout
    return chosen, f"The GPUs are simulated (layout {layout})."


def check_account() -> None:
    """Check that this process does not run as root. Raises DemoRefused.

    As root, every demo user would have a root shell.
    """
    if os.geteuid() == 0:
        raise DemoRefused(
            "The demo does not run as root: every demo user would have a root shell. "
            "Run it as a plain account; scripts/demo does that by itself."
        )


def check_programs(options: DemoOptions) -> None:
    """Check that the programs which the options need are installed. Raises DemoRefused."""
    if shutil.which("configurable-http-proxy") is None:
        raise DemoRefused(
            "configurable-http-proxy is not on the PATH: JupyterHub needs it. "
            "scripts/demo brings it along; else: npm install -g configurable-http-proxy."
        )
    sso, folder = options.sso, options.apps
    if sso is not None and not (sso / "node_modules" / "oidc-provider").is_dir():
        raise DemoRefused(f"There is no sign-in service in {sso}. ./scripts/demo --sso sets one up.")
    if folder is not None and sso is None:
        raise DemoRefused("--apps needs --sso: the apps stand behind the same sign-in.")
    if folder is not None:
        apps.check_programs(folder)


def planned(folder: Path, options: DemoOptions, simulate: str | None) -> Demo:
    """Decide users, ports, passwords and services of a demo. Raises DemoRefused.

    Args:
        folder: the demo's folder. If it has the passwords of an earlier start, they are used again.
        options: the options of the command.
        simulate: name or file of the simulated GPUs; None for this machine's own.
    """
    passwords = _passwords(folder / "passwords.json")
    ports = choose_ports(
        options.port,
        sign_in=sign_in.wanted_port(folder, options.port) if options.sso else None,
        apps=options.apps is not None,
    )
    service = behind = None
    if options.apps is not None:
        places = folder / "apps", options.apps.absolute(), folder / STATE_DIR
        behind = DemoApps(*places, ports.apps, ports.gate, ports.tensorboard, ports.dask)
    if options.sso is not None:
        buttons = behind.buttons if behind else {}
        service = sign_in.planned(folder, options.sso.absolute(), ports.sign_in, simulate, buttons)
    return Demo(
        folder=folder,
        ports=ports,
        users=people(options.users if service is None else 2),
        simulate=simulate,
        password=passwords["password"],
        admin_password=passwords["admin_password"],
        sign_in=service,
        apps=behind,
    )


def _passwords(path: Path) -> Mapping[str, str]:
    if path.exists():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return {name: str(kept[name]) for name in ("password", "admin_password")}
        except (ValueError, KeyError, TypeError):
            raise DemoRefused(f"{path} is damaged. Start with --clean: new passwords are made.") from None
    # JupyterHub wants 8 characters for users and 32 for admins.
    fresh = {"password": secrets.token_hex(6), "admin_password": secrets.token_hex(16)}
    write_private(path, json.dumps(fresh, indent=2) + "\n")
    return fresh


def choose_ports(public: int, *, sign_in: int | None = None, apps: bool = False) -> Ports:
    """Return the requested ports, and free ones for the other parts.

    Args:
        public: the port that users open; 0 for any.
        sign_in: the port of the sign-in service, 0 for any; None if the demo runs without it.
        apps: the demo has apps.

    Raises:
        DemoRefused: a requested port is in use or may not be used.
    """
    with ExitStack() as stack:
        other = f"--port {public and public + (1 if sign_in is None else 3)}"
        held = [_listening(stack, port, other) for port in (public, 0, 0, 0)]
        if sign_in is not None:
            held.append(_listening(stack, sign_in, f"--dir FOLDER {other}"))
        if apps:
            held += [_listening(stack, port, other) for port in (public and public + 2, 0, 0, 0)]
        return Ports(*held)


def _listening(stack: ExitStack, port: int, other: str) -> int:
    holder = stack.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("127.0.0.1", port))
        holder.listen()
    except PermissionError:
        raise DemoRefused(f"Port {port} may only be used by root. Choose one above 1023: --port 8000.") from None
    except OSError:
        raise DemoRefused(f"Port {port} is taken by another program. Choose another one: {other}.") from None
    number: int = holder.getsockname()[1]
    return number


def _why_no_gpus() -> str | None:
    """Return why this machine has no GPUs to offer; None if it has some."""
    from hub_extensions.adapters.nvml.reader import Nvml

    reader = Nvml()
    try:
        reading = reader.read(datetime.now(timezone.utc))
    except GpusUnavailable as problem:
        return problem.reason.message
    finally:
        reader.close()
    if any(device.usable for device in reading.devices):
        return None
    return "The driver answers, but there is no GPU or MIG device that could be offered."
