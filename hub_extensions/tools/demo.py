"""``jupyterhub-gpu demo``: a real JupyterHub on this machine's loopback, with people, passwords and GPUs to try.

It writes a configuration into a folder of its own, runs the hub as a child, and leaves nothing running when it ends.
One Unix account for all demo users: for trying, not for use. Not here: setting up Python and Node (``scripts/demo``).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

from hub_extensions.core.gpu.devices import GpusUnavailable
from hub_extensions.hub_service.setup.settings import write_private
from hub_extensions.tools import demo_sign_in
from hub_extensions.tools.demo_processes import MARK, end_marked
from hub_extensions.tools.demo_sign_in import SignInService, SignInServiceFailed

WARNING = "one Unix account for all demo users: for trying, not for use"
ADMIN = "admin"
FIRST_NAMES = (
    *("ada", "ben", "cleo", "dan", "eva", "finn", "gus", "hana", "ivo", "jana", "kai", "lea", "max"),
    *("nia", "omar", "pia", "quinn", "rosa", "sam", "tara", "ugo", "vera", "wim", "xenia", "yara", "zoe"),
)
DEFAULT_LAYOUT = "lab-a100"
READY_WITHIN_SECONDS = 120.0
HUB_STOPS_WITHIN_SECONDS = 9.0
DROPPED = ("JUPYTERHUB_", "CONFIGPROXY_", "JUPYTER_", "JPY_", "IPYTHON", "PYTHONPATH", "PYTHONHOME", "XDG_RUNTIME_DIR")

Echo = Callable[[str], None]


class DemoRefused(Exception):
    """The demo does not start; the text is one sentence for the person who typed the command."""


@dataclass(frozen=True)
class DemoOptions:
    """What the command line asks for. `port` 0: any free one; `layout` None: this machine's own GPUs, if it has some;
    `sso`: the folder of a sign-in service."""

    folder: Path
    port: int = 8000
    users: int = 8
    layout: str | None = None
    clean: bool = False
    sso: Path | None = None


@dataclass(frozen=True)
class Ports:
    """Where everything listens, all on 127.0.0.1."""

    public: int
    hub: int
    proxy: int
    service: int
    sign_in: int = 0


@dataclass(frozen=True)
class Demo:
    """One demo, planned: what its configuration is written from."""

    folder: Path
    ports: Ports
    users: tuple[str, ...]
    simulate: str | None
    password: str = field(repr=False)
    admin_password: str = field(repr=False)
    sign_in: SignInService | None = None

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.ports.public}"

    @property
    def signs_of_life(self) -> tuple[str, ...]:
        """What has to answer before people can come: the hub itself, then hub and GPU service through the proxy."""
        hub = f"http://127.0.0.1:{self.ports.hub}/hub/health"
        return hub, f"{self.url}/hub/health", f"{self.url}/services/gpu/health"


def run(options: DemoOptions, echo: Echo) -> int:
    """Run a demo until Ctrl-C, SIGTERM or the hub's end.

    Returns:
        0 after a stop that was asked for; 1 when the hub did not start or ended by itself.

    Raises:
        DemoRefused: it cannot start; nothing was started.
    """
    _check_account()
    check_programs(options.sso)
    folder = _own_folder(options.folder, clean=options.clean)
    with _locked(folder), _stop_requests() as stop:
        end_marked(folder, echo, "An earlier demo of this folder left processes behind")
        simulate, sentence = choose_gpus(options.layout)
        echo(sentence)
        demo = _plan(folder, options, simulate)
        # No earlier proxy is left; its pid may be somebody else's by now, and the hub would wait for that one to end.
        for stale in ("demo.json", "proxy.pid"):
            (folder / stale).unlink(missing_ok=True)
        write_private(folder / "jupyterhub_config.py", configuration_of(demo))
        return _run(demo, stop, echo)


def people(count: int) -> tuple[str, ...]:
    """The demo users: first names, and numbered ones after them."""
    return FIRST_NAMES[:count] + tuple(f"user-{number}" for number in range(len(FIRST_NAMES) + 1, count + 1))


def choose_gpus(layout: str | None) -> tuple[str | None, str]:
    """The layout to simulate (None: this machine's own GPUs) and a sentence that says what was chosen and why.

    Raises:
        DemoRefused: there is no such layout, or its file is wrong.
    """
    from hub_extensions.adapters.simulated.layouts import load_layout

    if layout is None:
        why = _why_no_gpus()
        if why is None:
            return None, "The GPUs of this machine are offered."
        return DEFAULT_LAYOUT, f"{why} The GPUs are simulated (layout {DEFAULT_LAYOUT})."
    try:
        load_layout(layout)
    except (ValueError, OSError) as problem:
        raise DemoRefused(f"--layout {layout}: {problem}") from None
    chosen = str(Path(layout).absolute()) if Path(layout).is_file() else layout
    return chosen, f"The GPUs are simulated (layout {layout})."


def clean_environment(folder: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """The hub's environment: the caller's without other hubs' and Jupyter's settings, marked as this demo's."""
    kept = {name: value for name, value in caller.items() if not name.startswith(DROPPED)}
    here = Path(__file__).resolve().parents[2]
    if here not in {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}:
        kept["PYTHONPATH"] = str(here)  # run from a checkout
    programs = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join([programs, kept.get("PATH", os.defpath)])
    for name in ("no_proxy", "NO_PROXY"):
        kept[name] = ",".join(filter(None, [kept.get(name, ""), "127.0.0.1", "localhost"]))
    return kept | {MARK: str(folder)}


def configuration_of(demo: Demo) -> str:
    """The demo's ``jupyterhub_config.py``."""
    folder, ports = demo.folder, demo.ports
    simulate = "" if demo.simulate is None else f"c.GpuOffers.simulate = {demo.simulate!r}\n"
    sign_in = _passwords_configuration(demo) if demo.sign_in is None else demo.sign_in.configuration
    return f'''"""Written by `jupyterhub-gpu demo` at each start: {WARNING}."""
# ruff: noqa
from hub_extensions import configure
from hub_extensions.configuration import service_environment

c = get_config()

c.JupyterHub.bind_url = {demo.url + "/"!r}
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = {ports.hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports.proxy}"
c.ConfigurableHTTPProxy.pid_file = {str(folder / "proxy.pid")!r}
c.JupyterHub.db_url = {"sqlite:///" + str(folder / "jupyterhub.sqlite")!r}
c.JupyterHub.cookie_secret_file = {str(folder / "cookie_secret")!r}
c.JupyterHub.cleanup_servers = True
c.JupyterHub.allow_named_servers = True
c.JupyterHub.template_vars = {{"announcement": {_announcement(demo)!r}}}

{sign_in}
c.JupyterHub.spawner_class = "hub_extensions.spawner.local.GpuDemoSpawner"
c.SimpleLocalProcessSpawner.home_dir_template = {str(folder / "homes" / "{username}")!r}
c.Spawner.cmd = [{sys.executable!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120  # JupyterLab's first answer takes longer than 30 s where several start on few cores
c.Spawner.environment = {{
    {MARK!r}: {str(folder)!r},
    "JUPYTER_CONFIG_DIR": lambda spawner: spawner.home_dir + "/.jupyter",
    "JUPYTER_DATA_DIR": lambda spawner: spawner.home_dir + "/.local/share/jupyter",
    "JUPYTER_RUNTIME_DIR": lambda spawner: spawner.home_dir + "/.local/share/jupyter/runtime",
    "IPYTHONDIR": lambda spawner: spawner.home_dir + "/.ipython",
}}

c.GpuService.state_dir = {str(folder / "gpu-state")!r}
c.GpuService.port = {ports.service}
{simulate}c.GpuQueue.max_starting = 4
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = 3
c.GpuCulling.warn_minutes = 1
c.GpuCulling.keep_minutes = 3
c.GpuCulling.keeps_per_day = 2
c.GpuCulling.lifetime_hours = 0.5
c.GpuCulling.grace_minutes = 0

configure(c)
service_environment(c)[{MARK!r}] = {str(folder)!r}
'''


def _announcement(demo: Demo) -> str:
    service = f' Its <a href="{demo.sign_in.url}/" target="_blank">sign-in service</a>.' if demo.sign_in else ""
    return f"A demo: {WARNING}.{service}"


def _passwords_configuration(demo: Demo) -> str:
    return f"""c.JupyterHub.authenticator_class = "jupyterhub.authenticators.shared.SharedPasswordAuthenticator"
c.SharedPasswordAuthenticator.user_password = {demo.password!r}
c.SharedPasswordAuthenticator.admin_password = {demo.admin_password!r}
c.Authenticator.allowed_users = {set(demo.users)!r}
c.Authenticator.admin_users = {{{ADMIN!r}}}
"""


# ------------------------------------------------------------------ before anything starts


def _check_account() -> None:
    if os.geteuid() == 0:
        raise DemoRefused(
            "The demo does not run as root: every demo user would have a root shell. "
            "Run it as a plain account; scripts/demo does that by itself."
        )


def check_programs(sso: Path | None) -> None:
    """Raises DemoRefused where one is missing. `sso`: the folder of the sign-in service, if there is to be one."""
    if shutil.which("configurable-http-proxy") is None:
        raise DemoRefused(
            "configurable-http-proxy is not on the PATH: JupyterHub needs it. "
            "scripts/demo brings it along; else: npm install -g configurable-http-proxy."
        )
    if sso is not None and not (sso / "node_modules" / "oidc-provider").is_dir():
        raise DemoRefused(f"There is no sign-in service in {sso}. ./scripts/demo --sso sets one up.")


def _own_folder(folder: Path, *, clean: bool) -> Path:
    folder = folder.expanduser().resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as problem:
        raise DemoRefused(
            f"The folder {folder} cannot be made ({problem.strerror}). Choose another one: --dir."
        ) from None
    if owner != os.geteuid():
        raise DemoRefused(f"The folder {folder} belongs to another account (uid {owner}). Choose another one: --dir.")
    known = (folder / "demo.lock").exists()
    if not known and any(folder.iterdir()):
        raise DemoRefused(f"The folder {folder} holds other files and is not a demo's. Choose another one: --dir.")
    if clean and known:
        with _locked(folder):
            end_marked(folder, lambda text: None, "")
            for entry in folder.iterdir():
                _remove(entry)
    folder.chmod(0o700)
    (folder / "homes").mkdir(mode=0o700, exist_ok=True)
    return folder


def _remove(entry: Path) -> None:
    if entry.name == "demo.lock":
        return
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One demo a folder. The lock goes with this process, however it ends; the hub does not inherit it."""
    with (folder / "demo.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoRefused(f"A demo runs in {folder} already. Stop it, or choose another folder: --dir.") from None
        yield


def _plan(folder: Path, options: DemoOptions, simulate: str | None) -> Demo:
    passwords = _passwords(folder / "passwords.json")
    ports, sign_in = (
        choose_ports(options.port, demo_sign_in.wanted_port(folder, options.port) if options.sso else 0),
        None,
    )
    if options.sso is not None:
        sign_in = demo_sign_in.planned(folder, options.sso.absolute(), ports.sign_in, simulate)
    return Demo(
        folder=folder,
        ports=ports,
        users=people(options.users if sign_in is None else 2),
        simulate=simulate,
        password=passwords["password"],
        admin_password=passwords["admin_password"],
        sign_in=sign_in,
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


def choose_ports(public: int, sign_in: int = 0) -> Ports:
    """The wanted ports, and free ones for the others.

    Raises:
        DemoRefused: the wanted port is taken or may not be used.
    """
    with ExitStack() as stack:
        other = f"--port {public + 1}"
        held = [_listening(stack, port, other) for port in (public, 0, 0, 0)]
        held.append(_listening(stack, sign_in, f"--dir FOLDER --port {public + 2}"))
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
    """None when this machine has GPUs that can be offered, else why not."""
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


# ------------------------------------------------------------------ while it runs


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and a closed terminal set. Set by hand: a background shell ignores SIGINT (T16)."""
    stop = threading.Event()

    def asked(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(demo: Demo, stop: threading.Event, echo: Echo) -> int:
    """The hub, and before it the sign-in service where there is one. What is left of them is ended by its mark."""
    environment = clean_environment(demo.folder, os.environ)
    with ExitStack() as stack:
        if demo.sign_in is not None:
            try:
                stack.enter_context(demo_sign_in.serving(demo.sign_in, demo.folder, demo.url, environment, _answers))
            except SignInServiceFailed as failed:
                raise DemoRefused(str(failed)) from None
            environment |= demo.sign_in.variables
        code = _run_hub(demo, stop, echo, environment)
    end_marked(demo.folder, echo, "Some processes did not stop by themselves")
    echo("Stopped. Nothing is left running.")
    return code


def _run_hub(demo: Demo, stop: threading.Event, echo: Echo, environment: Mapping[str, str]) -> int:
    log = demo.folder / "hub.log"
    with log.open("wb") as output:
        hub = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(demo.folder / "jupyterhub_config.py")],
            cwd=demo.folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if _becomes_ready(demo, hub, stop, echo):
            _publish(demo, echo)
            while hub.poll() is None and not stop.wait(0.2):
                pass
        if stop.is_set():
            return 0
        echo(_last_lines(log))
        return 1
    finally:
        _end(demo, hub, echo)


def _becomes_ready(demo: Demo, hub: subprocess.Popen[bytes], stop: threading.Event, echo: Echo) -> bool:
    began, reported_at = time.monotonic(), 0.0
    while hub.poll() is None and not stop.is_set():
        if all(map(_answers, demo.signs_of_life)):
            return True
        passed = time.monotonic() - began
        if passed > READY_WITHIN_SECONDS:
            echo(f"The hub was not ready within {READY_WITHIN_SECONDS:.0f} s.")
            return False
        if passed - reported_at >= 5:
            reported_at = passed
            echo(f"Starting the hub ({passed:.0f} s).")
        stop.wait(0.3)
    return False


def _answers(url: str) -> bool:
    # No proxy of the caller's stands between us and the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:  # not there yet: HTTPError and URLError are OSErrors
        return False


def _publish(demo: Demo, echo: Echo) -> None:
    facts: dict[str, object] = {"url": demo.url, "users": list(demo.users), "admin": ADMIN}
    if demo.sign_in is None:
        facts |= {"password": demo.password, "admin_password": demo.admin_password}
        access = (
            f"  people    {', '.join(demo.users)}\n"
            f"  password  {demo.password}\n"
            f"  admin     {ADMIN}, password {demo.admin_password}\n"
        )
    else:
        facts["sign_in_url"] = demo.sign_in.url
        access = (
            f"  people          {', '.join(demo.users)}, {ADMIN}; no passwords\n"
            f"  sign-in service {demo.sign_in.url}/ disables people, takes them out of groups, signs them out\n"
        )
    write_private(demo.folder / "demo.json", json.dumps(facts, indent=2) + "\n")
    echo(
        f"\nJupyterHub runs at {demo.url}\n\n"
        f"{access}\n"
        f"Also in {demo.folder / 'demo.json'}. The hub's log is {demo.folder / 'hub.log'}.\n"
        f"Note: {WARNING}.\n"
        "A server stops when its GPU was idle for 3 min (a warning comes 1 min before), or after 30 min.\n"
        "Ctrl-C stops everything."
    )


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    own = [line for line in lines if line and "ConfigProxy" not in line]
    return "\n".join(["The hub ended. The last lines of its log:", *own[-20:], f"The whole log is {log}."])


def _end(demo: Demo, hub: subprocess.Popen[bytes], echo: Echo) -> None:
    """The hub stops its servers, its service and its proxy."""
    if hub.poll() is None:
        echo("Stopping the hub and all servers.")
        hub.terminate()
    try:
        hub.wait(HUB_STOPS_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        hub.kill()
        hub.wait()
