"""``demo --sso``: three people sign in at the demo's own OpenID provider instead of with a password.

The provider is a Node program in ``scripts/sso``, which ``scripts/demo`` sets up.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from hub_extensions.hub_service.setup.settings import write_private
from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.processes import program

CLIENT = "hub"
THESIS = "thesis"
PEOPLE: Mapping[str, Sequence[str]] = {"ada": ("course", THESIS), "ben": ("course",), "admin": ("course",)}
"""The people of the demo and their groups."""
STARTS_IN_SECONDS = 30.0
FACTS = "sign-in.json"


@dataclass(frozen=True)
class SignInService:
    """The demo's OpenID provider, with the values that the provider and the hub need of each other.

    Attributes:
        program: folder of the Node program.
        port: port of the provider.
        offer: the offer that only the group `thesis` may choose.
        secret: the hub's client secret at the provider.
        key: the hub's encryption key.
        apps: links to the apps for the provider's page, and the commands of its buttons; empty without apps.
        people: user -> groups.
    """

    program: Path
    port: int
    offer: str
    secret: str = field(repr=False)
    key: str = field(repr=False)
    apps: Mapping[str, object] = field(default_factory=dict)
    people: Mapping[str, Sequence[str]] = field(default_factory=lambda: PEOPLE)

    @property
    def url(self) -> str:
        """The provider's address, which is also its issuer.

        The address has another host name than the hub, because cookies of one host are shared by all its ports.
        """
        return f"http://localhost:{self.port}"

    @property
    def configuration(self) -> str:
        """The sign-in settings of the demo's ``jupyterhub_config.py``."""
        return f"""c.JupyterHub.authenticator_class = (
    "hub_extensions.authenticator.openid.authenticator.SingleSignOnOIDCAuthenticator"
)
c.SingleSignOnOIDCAuthenticator.issuer = {self.url!r}
c.SingleSignOnOIDCAuthenticator.client_id = {CLIENT!r}
c.OAuthenticator.allowed_groups = {{"course", {THESIS!r}}}
c.Authenticator.admin_users = {{"admin"}}
c.SignOn.recheck_seconds = 5
c.SignOn.drain_minutes = 1
c.GpuOffers.groups = {{{self.offer!r}: [{THESIS!r}]}}
"""

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of the hub with its secrets: the client secret and the encryption key."""
        return {"JUPYTERHUB_SIGN_ON_CLIENT_SECRET": self.secret, "JUPYTERHUB_CRYPT_KEY": self.key}

    def facts(self, hub: str) -> str:
        """Return the settings of the Node program, as JSON.

        Args:
            hub: the hub's address.
        """
        people = [{"name": name, "title": name.title(), "groups": groups} for name, groups in self.people.items()]
        known = {"port": self.port, "hub": hub, "client": CLIENT, "secret": self.secret, "people": people}
        return json.dumps(known | ({"apps": self.apps} if self.apps else {}), indent=2)


def wanted_port(folder: Path, public: int) -> int:
    """Return the port for the sign-in service; 0 for any free port.

    It is the port of an earlier start of this demo, because the provider's address is a part of users' identities. At
    the first start it is the port after the hub's, or 0 if the hub may have any.

    Args:
        folder: the demo's folder.
        public: the hub's port; 0 for any.
    """
    try:
        return int(json.loads((folder / FACTS).read_text(encoding="utf-8"))["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return public + 1 if public else 0


def planned(
    folder: Path, service: Path, port: int, layout: str | None, apps: Mapping[str, object] | None = None
) -> SignInService:
    """Decide the settings of a demo's sign-in service. The hub's encryption key of an earlier start is used again.

    Args:
        folder: the demo's folder.
        service: folder of the Node program.
        port: port of the provider.
        layout: name or file of the simulated GPUs; None for this machine's own.
        apps: links and commands for the provider's page; None without apps.
    """
    key = folder / "crypt_key"
    if not key.exists():
        write_private(key, secrets.token_hex(32))
    known = key.read_text(encoding="ascii")
    return SignInService(service, port, _largest_offer(layout), secrets.token_hex(16), known, apps or {})


def _largest_offer(layout: str | None) -> str:
    from hub_extensions.adapters.nvml.reader import Nvml
    from hub_extensions.adapters.simulated.gpus import SimulatedGpus
    from hub_extensions.adapters.simulated.layouts import load_layout

    gpus = Nvml() if layout is None else SimulatedGpus(load_layout(layout), lambda: ())
    found = [each for each in gpus.read(datetime.now(timezone.utc)).devices if each.usable]
    return str(max(found, key=lambda each: each.memory_bytes or 0).pool) if found else "gpu"


@contextmanager
def serving(
    service: SignInService,
    folder: Path,
    hub: str,
    environment: Mapping[str, str],
    answers: Callable[[str], bool],
) -> Iterator[None]:
    """Run the sign-in service while the block runs. The block begins when the service answers.

    Args:
        service: the service.
        folder: the demo's folder.
        hub: the hub's address.
        environment: environment variables of the process.
        answers: returns whether a program answers at an address.

    Raises:
        DemoRefused: the service did not start.
    """
    facts, log = folder / FACTS, folder / "sign-in.log"
    write_private(facts, service.facts(hub))
    node = shutil.which("node", path=environment.get("PATH")) or "node"
    with program([node, str(service.program / "provider.js"), str(facts)], log, environment) as process:
        deadline = time.monotonic() + STARTS_IN_SECONDS
        while not answers(f"{service.url}/.well-known/openid-configuration"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DemoRefused(f"The sign-in service did not start. Its log is {log}.")
            time.sleep(0.1)
        yield
