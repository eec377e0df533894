"""What only ``scripts/test --whole`` needs: the programs of a Kubernetes cluster, built from Go modules.

They are kept outside the clone (tests/cluster/programs/build.py says where), for building them takes minutes. So they
are built beside the other steps of the set-up, with what these leave of the machine. Not beside the tests: those on the
cluster take longest, and would begin later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kept import STOP, command
from place import ROOT
from steps import Trouble, report

BUILD = [sys.executable, "-I", "-B", str(ROOT / "tests" / "cluster" / "programs" / "build.py")]


@contextmanager
def preparing_cluster(env: MutableMapping[str, str], *, wanted: bool) -> Iterator[None]:
    """Build what is missing beside what the block does, and wait for it at its end; a block that fails ends it.

    Afterwards ``env`` says why something is missing still, and names the folder, so that tests with another home find
    it too.
    """
    env["CLUSTER_MISSING"] = ""
    if not wanted:
        yield
        return
    if named := os.environ.get("JUPYTERHUB_GPU_CLUSTER"):  # of all that begins with JUPYTER, this is for the tests
        env["JUPYTERHUB_GPU_CLUSTER"] = named
    folder, names = (
        subprocess.check_output([*BUILD, word], env=dict(env), text=True, timeout=120).strip()
        for word in ("--cache", "--missing")
    )
    env["JUPYTERHUB_GPU_CLUSTER"] = folder
    with ThreadPoolExecutor(1) as beside:
        try:
            building = beside.submit(_build, folder, names.split(), dict(env))
            yield
            env["CLUSTER_MISSING"] = building.result()
        except BaseException:
            STOP.set()
            raise


def _build(folder: str, names: list[str], env: Mapping[str, str]) -> str:
    """Returns why something is missing still, empty when nothing is."""
    for number, name in enumerate(names, 1):
        title = f"{name} ({number} of {len(names)})"
        report(f"  The cluster's programs, built once in {folder}: {title} ...")
        try:
            command("cluster", title, [*BUILD, name], env=env, nice=19)
        except Trouble as trouble:
            if not STOP.is_set():
                report(f"  {trouble}")
            return str(trouble).split(" Details:")[0]
    return ""
