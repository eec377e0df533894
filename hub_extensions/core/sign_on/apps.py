"""The apps behind the gate, as the administrator's catalogue (`SignOnGate.apps`) describes them.

Also the checks of the catalogue: names, addresses, groups and paths.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["header", "jwt", "oidc", "none"]
"""The way in which an app learns who is calling: from the gate's headers, from the gate's assertion, from the OpenID
provider itself (``oidc``), or from a login of its own in addition to the gate (``none``)."""
HeaderFamily = Literal["X-Auth-Request", "Remote", "X-Forwarded", "X-WEBAUTH"]

CHECK_PATH = "/_gate/check/"
"""Path that a proxy requests before it passes a request on; an app's name follows."""
RESERVED = "/_gate"


@dataclass(frozen=True, slots=True)
class App:
    """An app behind the gate: one entry of the administrator's catalogue.

    Attributes:
        name: name of its service at the hub: the scope ``access:services!service=NAME`` gives access to it.
        title: name that users see.
        icon: an emoji, or a path on the apps' host; "" shows the first letter of the title.
        where: the app's public address with a trailing slash: ``https://apps.example.org/mlflow/``, or a host of its
            own.
        upstream: address at which the proxy reaches the app: ``http://10.0.0.7:5000``.
        mode: how the app learns who is calling: ``header`` (from headers of the gate), ``jwt`` (from a signed token of
            the gate), ``oidc`` (from the OpenID provider itself) or ``none`` (from a login of its own).
        groups: groups of the hub that may open it.
        header_family: key of `FAMILIES`, which has the names of the headers that identify the caller to the app; `None`
            if the app reads only the assertion (a signed token of the gate that names the caller).
        prefix: if True, the app receives the whole path; if False, the proxy removes the path of `where`.
        relay: whether the gate itself relays the app's WebSockets, so that it can close them when the session ends.
        health: path that the gate requests to learn whether the app works; "" for no such checks.
        servers: whether code in a user's server may call the app with the server's own token.
        public: paths that anybody may read without a sign-in, such as `/version`, or `/static/` with all below it.
        offers: the portal (the list of a user's apps) shows the app only to users who may choose one of these offers;
            () shows it to all who may open it.
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
    servers: bool = False
    public: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """The JupyterHub scope that gives access to this app."""
        return f"access:services!service={self.name}"


AppCatalogue = tuple[App, ...]


@dataclass(frozen=True, slots=True)
class AppProblem:
    """A problem of an app in the catalogue.

    Attributes:
        app: name of the app; "" if the problem concerns the whole catalogue.
        key: key of the app's entry that is wrong; "" if the problem concerns the whole entry.
        text: what the value has to be.
        line: line in the catalogue's file; 0 if the catalogue is a dict.
        is_warning: the app works, but probably not as its author intended.
    """

    app: str
    key: str
    text: str
    line: int = 0
    is_warning: bool = False

    def __str__(self) -> str:
        where = f"line {self.line}, " if self.line else ""
        named = f"{where}app {self.app!r}" if self.app else where.removesuffix(", ") or "the catalogue"
        return f"{named}, {self.key}: {self.text}" if self.key else f"{named}: {self.text}"


# ------------------------------------------------------------------ checks of a catalogue

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Allowed names: an app's name is part of a scope, of URLs, of proxies' configuration and of Kubernetes names."""
TAKEN = {"gpu": "the GPU service", "gate": "the gate"}
"""Names of services that the hub already has -> what they are."""
PORTS = {"http": 80, "https": 443}
INSIDE = (".internal", ".local", ".localdomain", ".lan", ".svc", ".home.arpa", ".localhost")
"""Suffixes of host names that no public name server resolves."""
_PATH = re.compile(r"/[A-Za-z0-9_.~/-]*")
_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?(/[^?#\s\\]*)?")


@dataclass(frozen=True, slots=True)
class WebAddress:
    """An http or https URL without user, query and fragment. The default `path` is "/"."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, int]:
        """Host and port of this URL."""
        return self.host, self.port


def address_of(url: str) -> WebAddress | None:
    """Parse a URL; `None` if it is not a plain http or https URL."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return None
    scheme, host, port, path = found.groups()
    number = int(port) if port else PORTS[scheme]
    return WebAddress(scheme, host.lower().strip("[]").rstrip("."), number, path or "/") if 0 < number < 65536 else None


def check_catalogue(
    apps: AppCatalogue,
    hub_url: str,
    gate_url: str,
    known_groups: Collection[str] | None = None,
    known_offers: Collection[str] | None = None,
    *,
    hub_inside: Collection[str] = (),
    subdomain_host: str = "",
) -> Sequence[AppProblem]:
    """Return the problems of the apps in the catalogue; errors come before warnings.

    Args:
        hub_url: public address of the hub; "" if unknown.
        gate_url: public address of the apps' host, at which the gate answers.
        known_groups: all groups of the hub; `None` if unknown, so that no group is reported as missing.
        known_offers: ids of all offers; `None` if unknown, so that no offer is reported as missing.
        hub_inside: other addresses at which the hub is reached.
        subdomain_host: address below which users' servers have their own hosts; "" without such hosts.
    """
    hubs = {found.origin for url in (hub_url, *hub_inside) if (found := address_of(url)) is not None}
    gate = address_of(gate_url)
    public_hub, servers = address_of(hub_url), address_of(subdomain_host)
    problems = [*_conflicts(apps)]
    for app in apps:
        problems += _name_problems(app)
        problems += _address_problems(app, public_hub, servers, gate)
        problems += _upstream_problems(app, hubs, gate)
        problems += _path_problems(app)
        problems += _unknown(app, "groups", app.groups, known_groups, "nobody has this group")
        problems += _unknown(app, "offers", app.offers, known_offers, "there is no such offer")
        if not app.groups:
            text = "it is empty: nobody may open the app but by a role of your own with its scope"
            problems.append(AppProblem(app.name, "groups", text, is_warning=True))
    return sorted(problems, key=lambda each: each.is_warning)


def _conflicts(apps: AppCatalogue) -> Iterator[AppProblem]:
    for place, app in enumerate(apps):
        mine = address_of(app.where)
        for other in apps[:place]:
            if other.name == app.name:
                yield AppProblem(app.name, "name", "another app has this name too")
            theirs = address_of(other.where)
            if mine is None or theirs is None or mine.origin != theirs.origin:
                continue
            if mine.path == theirs.path:
                yield AppProblem(app.name, "where", f"app {other.name!r} has the same address")
            elif mine.path.startswith(theirs.path) or theirs.path.startswith(mine.path):
                inner, outer = (app, other) if mine.path.startswith(theirs.path) else (other, app)
                text = f"{inner.where} lies below {outer.where}: give one of the two a path, or a host, of its own"
                yield AppProblem(app.name, "where", text)


def _name_problems(app: App) -> Iterator[AppProblem]:
    if not NAME.fullmatch(app.name):
        text = "it has to be 1 to 40 small letters, digits and hyphens, with a letter first"
        yield AppProblem(app.name, "name", text)
    elif app.name in TAKEN:
        yield AppProblem(app.name, "name", f"it is the name of {TAKEN[app.name]} at the hub; take another one")
    if app.icon and "://" in app.icon:
        text = "it has to be an emoji, or a path of the apps' host: another host would see who reads the front page"
        yield AppProblem(app.name, "icon", text)


def _address_problems(
    app: App, hub: WebAddress | None, servers: WebAddress | None, gate: WebAddress | None
) -> Iterator[AppProblem]:
    place = address_of(app.where)
    if place is None or not place.path.endswith("/") or not is_plain(place.path):
        text = "it has to be an address such as https://apps.example.org/mlflow/, with a slash at its end"
        yield AppProblem(app.name, "where", text)
        return
    if hub is not None and place.host == hub.host:
        text = f"{place.host} is the hub's host: cookies of the hub go there, and the app's to users' servers"
        yield AppProblem(app.name, "where", text)
    elif servers is not None and f".{place.host}".endswith(f".{servers.host}"):
        text = (
            f"{place.host} is, or is below, {servers.host}, that of c.JupyterHub.subdomain_host: users' servers have "
            "their hosts there and may set its cookies; take a host elsewhere"
        )
        yield AppProblem(app.name, "where", text)
    if place.path.startswith(f"{RESERVED}/"):
        yield AppProblem(app.name, "where", f"{RESERVED} is the gate's own; take another path")
    if gate is None:
        return
    if place.origin == gate.origin and place.path == "/":
        text = f"it hides {RESERVED} and the front page of the apps' host; take a path, or a host of its own"
        yield AppProblem(app.name, "where", text)
    if gate.scheme == "https" and place.scheme == "http":
        yield AppProblem(app.name, "where", "it has to begin with https://: the session's cookie is not sent to http")


def _upstream_problems(app: App, hubs: Collection[tuple[str, int]], gate: WebAddress | None) -> Iterator[AppProblem]:
    upstream, place = address_of(app.upstream), address_of(app.where)
    if upstream is None or upstream.path != "/":
        yield AppProblem(app.name, "upstream", "it has to be an address such as http://10.0.0.7:5000, without a path")
        return
    if upstream.origin in hubs:
        text = "this is the hub, which has its own sign-in; the gate stands before apps without one"
        yield AppProblem(app.name, "upstream", text)
    if (place is not None and upstream.origin == place.origin) or (gate is not None and upstream.origin == gate.origin):
        text = "this is the proxy itself; it has to be where the proxy finds the app"
        yield AppProblem(app.name, "upstream", text)
    if app.mode != "header":
        return
    if app.header_family is None:
        yield AppProblem(app.name, "header_family", "mode 'header' needs one: name it, or take mode 'jwt'")
    inside = is_inside(upstream.host)
    if inside is False:
        text = (
            f"with mode 'header' whoever reaches {upstream.host} is whoever he says, and this address is public: "
            "take an inner address, or mode 'jwt' or 'oidc'"
        )
        yield AppProblem(app.name, "upstream", text)
    elif is_loopback(upstream.host):
        text = (
            f"with mode 'header' each program of the machine is whoever it says at {upstream.host}: where users' "
            "servers run there too, take mode 'jwt', or an address that they do not reach"
        )
        yield AppProblem(app.name, "upstream", text, is_warning=True)
    elif inside is None:
        text = f"with mode 'header' nobody but the proxy may reach {upstream.host}; its name does not say so"
        yield AppProblem(app.name, "upstream", text, is_warning=True)


def _path_problems(app: App) -> Iterator[AppProblem]:
    if app.health and not is_plain(app.health):
        yield AppProblem(app.name, "health", "it has to be a plain path, such as /health")
    for path in app.public:
        if path == "/":
            yield AppProblem(app.name, "public", "/ would open the whole app to everybody: name the paths that may be")
        elif not is_plain(path):
            yield AppProblem(app.name, "public", f"{path!r} has to be a plain path, such as /version, or /static/")


def is_plain(path: str) -> bool:
    """Return whether every browser, proxy and app reads the path in the same way.

    Such a path has only letters, digits and ``_.~/-``, no empty step and no ``.`` or ``..`` step.
    """
    return bool(_PATH.fullmatch(path)) and "//" not in path and not {".", ".."} & set(path.split("/"))


def _unknown(
    app: App, key: str, names: Collection[str], known: Collection[str] | None, text: str
) -> Iterator[AppProblem]:
    for name in sorted(set(names) - set(known or ())) if known is not None else ():
        nearest = difflib.get_close_matches(name, list(known or ()), n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        yield AppProblem(app.name, key, f"{name!r}: {text}{hint}", is_warning=True)


def is_loopback(host: str) -> bool:
    """Return whether only programs on the same machine reach this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_inside(host: str) -> bool | None:
    """Return whether a host is reached only from the internal network.

    Returns:
        `None` if the host is a name whose form does not show it.
    """
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return True if "." not in host or host.endswith(INSIDE) else None
