"""``jupyterhub-gpu doctor``: find faults of this machine or of a configuration, and explain how to repair them.

Each check is a function that yields a `Diagnosis` for each thing that it finds, good or bad. The command changes
nothing; it also loads the configuration without writing to the state folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from traitlets.config import Config
from traitlets.config.loader import ConfigFileNotFound, PyFileConfigLoader

from hub_extensions.configuration import dry_run, settings_of
from hub_extensions.tools.doctor.accounts import accounts
from hub_extensions.tools.doctor.config import apart, culling, grace, limits, notices, prometheus, sign_on, wiring
from hub_extensions.tools.doctor.diagnosis import Diagnosis, sentence
from hub_extensions.tools.doctor.machine import (
    gpus,
    hub_version,
    jupyterlab,
    other_accounts,
    package,
    place_of_gpus,
    proxy,
    python,
)
from hub_extensions.tools.doctor.service import (
    clock,
    database,
    evidence,
    failed_stops,
    health_of,
    policy_file,
    port,
    secret_apart,
    state_dir,
)
from hub_extensions.tools.doctor.trainings import trainings


def examine(config: Path | None) -> tuple[Diagnosis, ...]:
    """Run all checks, and return what they found.

    Args:
        config: path of a ``jupyterhub_config.py``. None to check this machine only, without configuration and service.
    """
    findings = [*python(), *hub_version(), *proxy(), *jupyterlab(), *package(), *trainings(os.environ)]
    if config is None:
        return (*findings, *gpus(None), *other_accounts())
    loaded, problem = load_config(config)
    if loaded is None:
        return (*findings, *gpus(None), problem)
    settings = settings_of(loaded)
    findings += [problem, *place_of_gpus(settings, apart=apart(loaded)), *wiring(loaded, settings), *limits(loaded)]
    findings += [*accounts(loaded, settings), *sign_on(loaded)]
    if apart(loaded):
        text = f"The GPU service is not started by the hub; hub and proxy reach it at {settings.origin}."
        health = health_of(settings, secret_apart(loaded, settings.shared_secret))
        findings += [Diagnosis("place", "ok", text), *clock(health), *evidence(health), *policy_file(health)]
        findings += failed_stops(health)
    else:
        findings += [*state_dir(settings), *database(settings), *port(settings)]
    return (*findings, *culling(loaded, settings), *grace(loaded, settings), *prometheus(settings), *notices(settings))


def load_config(path: Path) -> tuple[Config | None, Diagnosis]:
    """Load the configuration as the hub would, without writing files.

    Returns:
        The configuration, None if it cannot be loaded; and a diagnosis that reports whether it could be loaded.
    """
    try:
        with dry_run() as notes:
            loaded = PyFileConfigLoader(path.name, path=str(path.parent.absolute())).load_config()
            settings_of(loaded)
    except ConfigFileNotFound:
        return None, Diagnosis(
            "config", "problem", f"There is no file {path}.", "Give the hub's own file: --config FILE."
        )
    except ValueError as problem:
        return None, Diagnosis("config", "problem", str(problem), f"Correct it in {path}.")
    except (Exception, SystemExit) as problem:  # noqa: BLE001  an admin's file may raise anything
        text = f"{path} does not load: {type(problem).__name__}: {problem}"
        return None, Diagnosis("config", "problem", text, "The hub would not start with it either; correct the file.")
    if notes:
        return loaded, Diagnosis(
            "config",
            "warning",
            f"{path} loads. " + " ".join(map(sentence, notes)),
            "Read what was left alone, and change it where it was not meant.",
        )
    return loaded, Diagnosis("config", "ok", f"{path} loads.")
