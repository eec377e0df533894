"""Commands that run the gate, which decides who may use an app, and that change its signing key."""

from __future__ import annotations

import sys

import click

from hub_extensions.tools.cli.terminal import refuse, write


@click.group("gate")
def gate() -> None:
    """The gate (c.SignOnGate): apps without a login, behind the hub's."""


_settings_file = click.option(
    "--config",
    "config",
    metavar="FILE",
    required=True,
    help="The gate's settings, gate.json in the state folder: configure(c) writes it at the hub's start.",
)


@gate.command("run")
@_settings_file
def gate_run(config: str) -> None:
    """Run the gate until it is stopped."""
    from hub_extensions.gate.__main__ import run

    sys.exit(run(config))


@gate.command("rotate")
@_settings_file
def gate_rotate(config: str) -> None:
    """Change the key that signs assertions, now: the next one signs, and the one before is published no more."""
    from hub_extensions.adapters.files.settings_file import SettingsError
    from hub_extensions.adapters.provider.assertions import rotate
    from hub_extensions.adapters.store.errors import StoreUnavailable
    from hub_extensions.gate.keys import keys_of
    from hub_extensions.gate.settings import GateSettings

    try:
        key = rotate(keys_of(GateSettings.load(config)))[-1]
    except (SettingsError, StoreUnavailable, OSError) as problem:
        refuse(f"Nothing was changed: {problem}", code=1)
    write(f"Made {key.kid}, which is the next key. Every gate that runs takes the change within a minute.")
