"""``jupyterhub-gpu gate config``: writes the configuration with which a proxy asks the gate about requests to apps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from hub_extensions.tools.cli.terminal import refuse

if TYPE_CHECKING:
    from hub_extensions.core.sign_on.apps import AppCatalogue
    from hub_extensions.gate.settings import GateSettings

DEFAULT_GATE = "http://127.0.0.1:8192"
PROXIES = ("nginx", "caddy", "envoy", "traefik", "traefik-kubernetes", "gateway-api", "ingress")
POLICIES = "policies"
"""Writes NetworkPolicies instead of a proxy's configuration: they keep everybody but the proxy from the apps."""
ON_KUBERNETES = ("traefik-kubernetes", "gateway-api", "ingress", POLICIES)
NAMESPACE = "jhub"
"""The gate's namespace if none is given: the hub's, as in our manifests and how-tos."""
_file = click.Path(exists=True, dir_okay=False)


@click.command("config")
@click.argument("proxy", type=click.Choice((*PROXIES, POLICIES)))
@click.option(
    "--config",
    "gate_file",
    type=_file,
    help="The gate's settings, gate.json in the state folder: apps, url, secret and address come from it.",
)
@click.option("--apps", type=_file, help="Another catalogue, a YAML file.")
@click.option("--url", help="The gate's public address, where it is not that of the settings.")
@click.option("--secret-file", type=_file, help="A file with the proxy's secret, where it is not in the settings.")
@click.option("--gate", help="Where the proxy asks the gate.  [default: its own address]")
@click.option("--listen", default="", help="The address that the proxy listens on; all of the machine without it.")
@click.option("--certificate", default="/etc/ssl/apps.pem", show_default=True, help="Of hosts with https.")
@click.option("--key", default="/etc/ssl/apps.key", show_default=True, help="Its key.")
@click.option(
    "--max-body-megabytes",
    "body_megabytes",
    default=1024,
    show_default=True,
    type=click.IntRange(1),
    help="The longest upload to an app.",
)
@click.option(
    "--websocket-minutes",
    default=15,
    show_default=True,
    type=click.IntRange(0),
    help="So long a WebSocket lives; its page connects again, or is signed out. Caddy and Envoy only. 0: it has no "
    "end, as in Caddy 2.6.",
)
@click.option("--namespace", default="apps", show_default=True, help="Of the Gateway, or of the ConfigMaps.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A file, which only its owner may read.")
def config(proxy: str, gate_file: str | None, apps: str | None, output: str | None, **wanted: Any) -> None:
    """Write what a proxy needs to ask the gate about each app of the catalogue. The proxy's secret is in it.

    `policies` writes the NetworkPolicy of each app instead: on Kubernetes only proxy and gate reach it.
    """
    from hub_extensions.tools.gate_config.render import ProxySettings, render
    from hub_extensions.tools.gate_config.sites import ConfigRefused

    known = _settings_of(gate_file) if gate_file else None
    secret_file = wanted.pop("secret_file")
    secret = Path(secret_file).read_text(encoding="utf-8").strip() if secret_file else ""
    if known is not None:
        secret = secret or known.proxy_secret
        wanted["url"] = wanted["url"] or known.url
        wanted["gate"] = wanted["gate"] or _address_of(known, on_kubernetes=proxy in ON_KUBERNETES)
    wanted["gate"] = wanted["gate"] or DEFAULT_GATE
    for there, what in ((apps or gate_file, "--apps"), (wanted["url"], "--url"), (secret, "--secret-file")):
        if not there:
            refuse(f"Nothing was written: --config FILE, or {what}, is needed.")
    try:
        text = render(proxy, _apps(apps, known, wanted["url"]), ProxySettings(secret=secret, **wanted))
    except ConfigRefused as refused:
        refuse(f"Nothing was written: {refused}.")
    _write(text, output)


def _write(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(file, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as written:
        written.write(text)


def _settings_of(file: str) -> GateSettings:
    from hub_extensions.adapters.files.settings_file import SettingsError
    from hub_extensions.gate.settings import GateSettings

    try:
        return GateSettings.load(file)
    except SettingsError as problem:
        refuse(str(problem))


def _address_of(known: GateSettings, *, on_kubernetes: bool) -> str:
    """Return the address at which the proxy reaches the gate.

    If it is the name of a Kubernetes Service without a namespace, the default namespace `NAMESPACE` is added to it, and
    a note is printed.

    Args:
        known: the gate's settings.
        on_kubernetes: the configuration is for a proxy on Kubernetes.
    """
    place = urlsplit(known.connect_url or f"http://{known.host}:{known.port}")
    host = place.hostname or ""
    if not on_kubernetes or host == "localhost" or not host.replace("-", "").isalnum():
        return place.geturl()
    named = place._replace(netloc=place.netloc.replace(host, f"{host}.{NAMESPACE}", 1)).geturl()
    note = f"The gate is at {place.geturl()}: {NAMESPACE} is taken for its namespace. If it is another: --gate {named}"
    click.echo(f"# {note}", err=True)  # a comment, should it come into the file
    return named


def _apps(file: str | None, known: GateSettings | None, url: str) -> AppCatalogue:
    """Return the apps of a catalogue. If it has errors, print them and exit.

    Args:
        file: the file of the catalogue; None to use the apps of the gate's settings. If the settings name a file, its
            current content is used.
        known: the gate's settings; None without settings of a gate. If `file` is None too, no apps are returned.
        url: public address of the gate, at which the apps' host answers. It is used only if `known` is None, to check
            the catalogue; otherwise the address in `known` is used.
    """
    from hub_extensions.adapters.apps.app_catalogue import CatalogueError, checked_catalogue
    from hub_extensions.core.sign_on.apps import check_catalogue
    from hub_extensions.gate.catalogue import check_for

    source = file or (known.apps if known is not None and isinstance(known.apps, str) else None)
    if source is None:
        return known.catalogue if known is not None else ()
    try:
        check = check_for(known) if known is not None else lambda apps: check_catalogue(apps, "", url)
        apps, doubts = checked_catalogue(source, check)
    except CatalogueError as problem:
        refuse(f"Nothing was written: {problem}.")
    for each in doubts:
        click.echo(f"{source}: {each}.", err=True)
    return apps
