"""What only ``scripts/test --whole`` needs: the programs of a Kubernetes cluster, built from Go modules.

They are kept outside the clone (tests/cluster/programs/build.py says where), for building them takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import MutableMapping

from kept import command
from place import ROOT
from steps import Trouble, report

BUILD = [sys.executable, "-I", "-B", str(ROOT / "tests" / "cluster" / "programs" / "build.py")]


def prepare_cluster(env: MutableMapping[str, str]) -> str:
    """Build what is missing. Returns why something is missing still, empty when nothing is.

    Afterwards ``env`` names the folder, so that tests with another home find it too.
    """
    if named := os.environ.get("JUPYTERHUB_GPU_CLUSTER"):  # of all that begins with JUPYTER, this is for the tests
        env["JUPYTERHUB_GPU_CLUSTER"] = named
    folder, names = (
        subprocess.check_output([*BUILD, word], env=dict(env), text=True, timeout=120).strip()
        for word in ("--cache", "--missing")
    )
    env["JUPYTERHUB_GPU_CLUSTER"] = folder
    for number, name in enumerate(names.split(), 1):
        title = f"{name} ({number} of {len(names.split())})"
        report(f"  The cluster's programs, built once in {folder}: {title} ...")
        try:
            command("cluster", title, [*BUILD, name], env=env, nice=19)
        except Trouble as trouble:
            report(f"  {trouble}")
            return str(trouble).split(" Details:")[0]
    return ""
