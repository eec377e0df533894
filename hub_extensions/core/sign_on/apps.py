"""An app behind the gate, as the catalogue of apps has it, and what is wrong with a catalogue.

Not here: reading the catalogue (``adapters/app_catalogue.py``), and who may open an app (``access.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["header", "jwt", "oidc", "none"]
"""How an app knows who is calling: by headers of the gate, by its assertion, by asking the provider itself, or by a
login of its own, in front of which the gate stands all the same."""
HeaderFamily = Literal["X-Auth-Request", "Remote", "X-Forwarded", "X-WEBAUTH"]

CHECK_PATH = "/_gate/check/"
"""Followed by an app's name: what a proxy asks."""
RESERVED = "/_gate"


@dataclass(frozen=True, slots=True)
class App:
    """An app.

    Attributes:
        name: its name at the hub: the scope ``access:services!service=NAME`` opens it.
        title: for people. icon: an emoji or an address below the apps' host; "": its first letter.
        where: public address, with a slash at its end: ``https://apps.example.org/mlflow/`` or a host of its own.
        upstream: where the proxy finds it: ``http://10.0.0.7:5000``.
        mode: how it knows who is calling.
        groups: the hub's groups that may open it.
        header_family: under which names it is told who is calling; None: no such header, the assertion alone.
        prefix: True: the app knows its path (`where`'s) and gets it whole; False: the proxy takes it off.
        relay: the gate carries the app's WebSockets, and ends them with the session.
        health: path asked for its state; "": not asked, so its state is not known.
        public: paths that need no sign-in. servers: a user's server may call it with the server's own token.
        offers: it is shown only to those who may choose one of these offers; (): to all that may open it.
    """

    name: str
    title: str
    where: str
    upstream: str
    icon: str = ""
    mode: Mode = "header"
    groups: tuple[str, ...] = ()
    header_family: HeaderFamily | None = "X-Auth-Request"
    prefix: bool = True
    relay: bool = False
    health: str = ""
    public: tuple[str, ...] = ()
    servers: bool = False
    offers: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """What opens it, in the hub's words."""
        return f"access:services!service={self.name}"


AppCatalogue = tuple[App, ...]


@dataclass(frozen=True, slots=True)
class AppProblem:
    """What is wrong with an app: its name, the key, and what would be right."""

    app: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"app {self.app!r}, {self.key}: {self.text}" if self.key else f"app {self.app!r}: {self.text}"
