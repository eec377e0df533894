"""Groups the apps by their public hosts, as the templates of a proxy's configuration need them.

All texts that become part of another program's configuration are checked here, so that none can add directives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hub_extensions.core.sign_on.apps import PORTS, RESERVED, App, AppProblem, WebAddress
from hub_extensions.core.sign_on.apps import address_of as plain_address_of

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_PATH = re.compile(r"/([A-Za-z0-9._~-]+/)*")


class ConfigRefused(Exception):
    """No configuration can be written; the text is the reason."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """An address without a path: scheme, host and port of an http or https server."""

    scheme: str
    hostname: str
    port: int

    @property
    def netloc(self) -> str:
        return self.hostname if self.port == PORTS[self.scheme] else f"{self.hostname}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    @property
    def tls(self) -> bool:
        return self.scheme == "https"


@dataclass(frozen=True, slots=True)
class PlacedApp:
    """An app with its place at a public host.

    Attributes:
        app: the app of the catalogue.
        path: path at the public host; "/" if the app has the host to itself.
        upstream: address at which the proxy reaches the app.
    """

    app: App
    path: str
    upstream: HostAddress

    @property
    def name(self) -> str:
        return self.app.name

    @property
    def stripped(self) -> bool:
        """Whether the proxy removes the app's path from a request before it forwards the request."""
        return self.path != "/" and not self.app.prefix


@dataclass(frozen=True, slots=True)
class Site:
    """A public host with the apps that are reached at it. `sites_of` makes it.

    Attributes:
        public: the host.
        apps: its apps, those with longer paths first.
        portal: the portal (the page with the links to all apps) is on this host.
    """

    public: HostAddress
    apps: tuple[PlacedApp, ...]
    portal: bool

    @property
    def whole(self) -> bool:
        """Whether one app has this public host to itself."""
        return any(each.path == "/" for each in self.apps)


def sites_of(apps: Sequence[App], portal: str) -> tuple[Site, ...]:
    """Return the public hosts of these apps and of the portal (the page with the links to all apps).

    Args:
        apps: the apps of the catalogue.
        portal: the gate's public address, at which the portal is.

    Raises:
        ConfigRefused: an app's address is malformed or used twice.
    """
    home = address_of(portal, "the gate's url")
    placed: dict[HostAddress, list[PlacedApp]] = {home: []}
    for app in apps:
        public, each = _placed(app)
        if any(each.path == other.path for other in placed.get(public, ())):
            raise ConfigRefused(str(AppProblem(app.name, "where", f"another app is at {public.origin}{each.path} too")))
        placed.setdefault(public, []).append(each)
    longest_first = {
        public: sorted(found, key=lambda each: (-len(each.path), each.path)) for public, found in placed.items()
    }
    return tuple(Site(public, tuple(found), public == home) for public, found in longest_first.items())


def address_of(url: str, key: str) -> HostAddress:
    """Parse a URL that must not have a path. Raises ConfigRefused.

    Args:
        url: the URL.
        key: name of the setting, for the error.
    """
    parts = _split(url)
    if parts is None or parts.path != "/":
        raise ConfigRefused(f"{key}: {url!r} is not http:// or https:// with a host and no path")
    return _address(parts)


def _placed(app: App) -> tuple[HostAddress, PlacedApp]:
    if not _NAME.fullmatch(app.name):
        raise ConfigRefused(str(AppProblem(app.name, "name", "small letters, digits and - make a name")))
    where, upstream = _split(app.where), _split(app.upstream)
    if where is None or not _PATH.fullmatch(where.path):
        raise ConfigRefused(str(AppProblem(app.name, "where", f"{app.where!r} is no address with a slash at its end")))
    if upstream is None or upstream.path != "/":
        raise ConfigRefused(str(AppProblem(app.name, "upstream", f"{app.upstream!r} is no http address of a host")))
    path = where.path
    if path.startswith(f"{RESERVED}/") or ".." in path.split("/"):
        raise ConfigRefused(str(AppProblem(app.name, "where", f"{path} is the gate's own")))
    return _address(where), PlacedApp(app, path, _address(upstream))


def _split(url: str) -> WebAddress | None:
    found = plain_address_of(url)
    return found if found is not None and _HOST.fullmatch(found.host) else None


def _address(parts: WebAddress) -> HostAddress:
    return HostAddress(parts.scheme, parts.host, parts.port)
