"""The command ``jupyterhub-gpu``: its groups and their options.

The commands only print texts and tables. The packages beside this one, such as ``tools/demo/`` and ``tools/doctor/``,
do the work. Exit codes: 0 all is well, 1 something is wrong, 2 the command line is wrong.
"""

from __future__ import annotations

import click

from hub_extensions import __version__
from hub_extensions.tools.cli import gate, gate_audit, gate_config, installation, records, sign_on, training


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jupyterhub-gpu")
def main() -> None:
    """GPUs for JupyterHub: choose a slice, wait in line, use the GPU, give it back."""


for command in (
    *(installation.demo, installation.doctor, installation.offers, installation.helm),
    *(records.store, records.usage, records.audit, records.forecast, records.cull),
    sign_on.sign_on,
    gate.gate,
    training.training,
):
    main.add_command(command)
gate.gate.add_command(gate_config.config)
gate.gate.add_command(gate_audit.audit)
