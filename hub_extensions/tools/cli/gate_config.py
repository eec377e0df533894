"""``jupyterhub-gpu gate config``: a proxy's configuration for the apps of the catalogue."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from hub_extensions.core.sign_on.apps import App
from hub_extensions.tools.cli.terminal import refuse

PROXIES = ("nginx", "caddy", "envoy", "traefik", "gateway-api", "ingress")


@click.command("config")
@click.argument("proxy", type=click.Choice(PROXIES))
@click.option("--apps", required=True, type=click.Path(exists=True, dir_okay=False), help="The catalogue, a YAML file.")
@click.option("--url", required=True, help="The gate's public address, as c.SignOnGate.url has it.")
@click.option(
    "--secret-file", required=True, type=click.Path(exists=True, dir_okay=False), help="The proxy's secret at the gate."
)
@click.option("--gate", default="http://127.0.0.1:8192", show_default=True, help="Where the proxy asks the gate.")
@click.option("--listen", default="", help="The address that the proxy listens on; all of the machine without it.")
@click.option("--certificate", default="/etc/ssl/apps.pem", show_default=True, help="Of hosts with https.")
@click.option("--key", default="/etc/ssl/apps.key", show_default=True, help="Its key.")
@click.option(
    "--body-megabytes", default=1024, show_default=True, type=click.IntRange(1), help="The longest upload to an app."
)
@click.option(
    "--websocket-minutes",
    default=15,
    show_default=True,
    type=click.IntRange(1),
    help="So long a WebSocket lives; its page connects again, or is signed out. Caddy and Envoy only.",
)
@click.option("--namespace", default="apps", show_default=True, help="Of the Gateway, or of the ConfigMaps.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A file, which only its owner may read.")
def config(proxy: str, apps: str, secret_file: str, output: str | None, **settings: Any) -> None:
    """Write what a proxy needs to ask the gate about each app of the catalogue. The proxy's secret is in it."""
    from hub_extensions.tools.gate_config.render import ProxySettings, render
    from hub_extensions.tools.gate_config.sites import ConfigRefused

    secret = Path(secret_file).read_text(encoding="utf-8").strip()
    try:
        text = render(proxy, _read(apps), ProxySettings(secret=secret, **settings))
    except ConfigRefused as refused:
        refuse(f"Nothing was written: {refused}.")
    if output is None:
        click.echo(text, nl=False)
        return
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(file, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as written:
        written.write(text)


def _read(file: str) -> tuple[App, ...]:
    import yaml

    try:
        rows = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except yaml.YAMLError as problem:
        refuse(f"{file} is no YAML: {problem}")
    if not isinstance(rows, Mapping):
        refuse(f"{file}: it has to hold names of apps, each with its keys")
    return tuple(_app(file, str(name), row) for name, row in rows.items())


def _app(file: str, name: str, row: Any) -> App:
    known = {each.name for each in fields(App)} - {"name"}
    wrong = sorted(set(row) - known) if isinstance(row, Mapping) else ["its keys"]
    lacking = [] if wrong else [key for key in ("where", "upstream") if not isinstance(row.get(key), str)]
    if wrong or lacking:
        refuse(
            f"{file}: app {name!r}: {', '.join(map(str, wrong or lacking))} {'unknown' if wrong else 'is not there'}"
        )
    keys: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return App(name=name, **{"title": name, **keys})
