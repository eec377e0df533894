"""Check of the progress reports of trainings, inside a user's server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from hub_extensions.server_extension.progress_folder import NAME_LOGGED, VARIABLE, ProgressFolder
from hub_extensions.tools.doctor.diagnosis import Diagnosis

MOST_NAMED = 3
OF_A_SERVER = "JUPYTERHUB_USER"
"""Environment variable that JupyterHub gives to users' servers only."""


def trainings(environ: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Report which files in the server's folder of progress reports are read. Outside of a user's server do nothing.

    Args:
        environ: the environment variables.
    """
    folder = environ.get(VARIABLE, "")
    if not folder:
        if environ.get(OF_A_SERVER):
            text = f"Progress reports of trainings are not read: {VARIABLE} is not set in this server."
            fix = "jupyter server extension list has to name hub_extensions.server_extension. Restart the server then."
            yield Diagnosis("trainings", "warning", text, fix)
        return
    nothing = Diagnosis("trainings", "ok", "Progress reports: no training has reported yet.")
    if not Path(folder).exists():  # the server makes it, not this command
        yield nothing
        return
    reader = ProgressFolder(Path(folder))
    logging.getLogger(reader.__module__).addHandler(logging.NullHandler())  # its warnings are the findings
    runs = len(reader.read(datetime.now(timezone.utc)))
    if reader.problem:
        text = f"Progress reports of trainings are not read: {folder}: {reader.problem}."
        fix = "It has to be a folder of your own with mode 700; if it is deleted, the server makes it again."
        yield Diagnosis("trainings", "warning", text, fix)
        return
    text = f"Progress reports: {runs} {'run' if runs == 1 else 'runs'} read"
    if not reader.left_out:
        yield Diagnosis("trainings", "ok", f"{text}.") if runs else nothing
        return
    named = [f"{name[:NAME_LOGGED]!r} ({why})" for name, why in sorted(reader.left_out.items())]
    others = "" if len(named) <= MOST_NAMED else " …"
    text += (
        f", {len(named)} {'file' if len(named) == 1 else 'files'} left out: {', '.join(named[:MOST_NAMED])}{others}."
    )
    yield Diagnosis(
        "trainings", "warning", text, "Delete what no training of yours has written; a training goes on writing."
    )
