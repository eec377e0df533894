"""The configuration of the demo's hub: ``jupyterhub_config.py`` and the environment variables."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from hub_extensions.tools.demo.plan import ADMIN, STATE_DIR, WARNING, Demo
from hub_extensions.tools.demo.processes import MARK

DROPPED = ("JUPYTERHUB_", "CONFIGPROXY_", "JUPYTER_", "JPY_", "IPYTHON", "PYTHONPATH", "PYTHONHOME", "XDG_RUNTIME_DIR")


def clean_environment(folder: Path, caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for the demo's hub.

    They are the caller's, without those of Jupyter or another hub. One is added (`MARK`), by which the demo's processes
    are recognised.

    Args:
        folder: the demo's folder.
        caller: environment variables of the command.
    """
    kept = {name: value for name, value in caller.items() if not name.startswith(DROPPED)}
    here = Path(__file__).resolve().parents[3]
    if here not in {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}:
        kept["PYTHONPATH"] = str(here)  # run from a checkout
    programs = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join([programs, kept.get("PATH", os.defpath)])
    for name in ("no_proxy", "NO_PROXY"):
        kept[name] = ",".join(filter(None, [kept.get(name, ""), "127.0.0.1", "localhost"]))
    return kept | {MARK: str(folder)}


def configuration_of(demo: Demo) -> str:
    """Return the text of the demo's ``jupyterhub_config.py``."""
    folder, ports = demo.folder, demo.ports
    simulate = "" if demo.simulate is None else f"c.GpuOffers.simulate = {demo.simulate!r}\n"
    sign_in = _passwords_configuration(demo) if demo.sign_in is None else demo.sign_in.configuration
    apps = "" if demo.apps is None else demo.apps.configuration
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

c.GpuService.state_dir = {str(folder / STATE_DIR)!r}
c.GpuService.port = {ports.service}
{simulate}c.GpuQueue.max_starting = 4
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = c.GpuCulling.unopened_minutes = 3
c.GpuCulling.warn_minutes = 1
c.GpuCulling.keep_minutes = 3
c.GpuCulling.keeps_per_day = 2
c.GpuCulling.lifetime_hours = 0.5
c.GpuCulling.grace_minutes = 0

{apps}
configure(c)
service_environment(c)[{MARK!r}] = {str(folder)!r}
'''


def _announcement(demo: Demo) -> str:
    found = [(demo.apps.url, "apps")] if demo.apps else []
    found += [(demo.sign_in.url, "sign-in service")] if demo.sign_in else []
    links = " and its ".join(f'<a href="{url}/" target="_blank">{name}</a>' for url, name in found)
    return f"A demo: {WARNING}." + (f" Its {links}." if links else "")


def _passwords_configuration(demo: Demo) -> str:
    return f"""c.JupyterHub.authenticator_class = "jupyterhub.authenticators.shared.SharedPasswordAuthenticator"
c.SharedPasswordAuthenticator.user_password = {demo.password!r}
c.SharedPasswordAuthenticator.admin_password = {demo.admin_password!r}
c.Authenticator.allowed_users = {set(demo.users)!r}
c.Authenticator.admin_users = {{{ADMIN!r}}}
"""
