"""``jupyterhub-gpu gate config``: a proxy's configuration for the apps of the catalogue."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from hub_extensions.core.sign_on.apps import App
from hub_extensions.tools.cli.terminal import refuse

PROXIES = ("nginx", "caddy", "envoy", "traefik", "gateway-api", "ingress")
_file = click.Path(exists=True, dir_okay=False)


@click.command("config")
@click.argument("proxy", type=click.Choice(PROXIES))
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
def config(proxy: str, gate_file: str | None, apps: str | None, output: str | None, **wanted: Any) -> None:
    """Write what a proxy needs to ask the gate about each app of the catalogue. The proxy's secret is in it."""
    from hub_extensions.tools.gate_config.render import ProxySettings, render
    from hub_extensions.tools.gate_config.sites import ConfigRefused

    known = _settings_of(gate_file) if gate_file else {}
    secret_file = wanted.pop("secret_file")
    secret = Path(secret_file).read_text(encoding="utf-8").strip() if secret_file else known.get("proxy_secret", "")
    wanted["url"] = wanted["url"] or known.get("url", "")
    wanted["gate"] = wanted["gate"] or f"http://{known.get('host', '127.0.0.1')}:{known.get('port', 8192)}"
    rows = _catalogue(apps) if apps else ((row.get("name", ""), row) for row in known.get("catalogue", ()))
    for there, what in ((apps or gate_file, "--apps"), (wanted["url"], "--url"), (secret, "--secret-file")):
        if not there:
            refuse(f"Nothing was written: --config FILE, or {what}, is needed.")
    try:
        text = render(proxy, [_app(name, row) for name, row in rows], ProxySettings(secret=secret, **wanted))
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


def _settings_of(file: str) -> Mapping[str, Any]:
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as problem:
        refuse(f"{file} is not JSON: {problem}.")
    return found if isinstance(found, dict) else refuse(f"{file} has to hold one JSON object.")


def _catalogue(file: str) -> Iterator[tuple[str, Any]]:
    import yaml

    try:
        rows = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except yaml.YAMLError as problem:
        refuse(f"{file} is no YAML: {problem}")
    if not isinstance(rows, Mapping):
        refuse(f"{file}: it has to hold names of apps, each with its keys")
    yield from ((str(name), row) for name, row in rows.items())


def _app(name: str, row: Any) -> App:
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(row, Mapping):
        refuse(f"app {name!r}: its keys have to follow")
    if unknown := sorted(set(map(str, row)) - {each.name for each in fields(App)}):
        refuse(f"app {name!r}: {', '.join(unknown)} unknown")
    try:
        return TypeAdapter(App).validate_python({"name": name, "title": name, **row})
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        refuse(f"app {name!r}, {'.'.join(map(str, first['loc']))}: {first['msg']}")
