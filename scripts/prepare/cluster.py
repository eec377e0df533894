"""What only ``scripts/test --whole`` needs: the programs of a Kubernetes cluster, built from Go modules.

They are kept outside the clone (tests/cluster/programs/build.py says where), for building them takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import MutableMapping

from place import ROOT
from steps import Trouble, command, say

BUILD = ROOT / "tests" / "cluster" / "programs" / "build.py"


def prepare_cluster(env: MutableMapping[str, str]) -> str:
    """Build what is missing. Returns why something is missing still, empty when nothing is.

    Afterwards ``env`` names the folder, so that tests with another home find it too.
    """
    if named := os.environ.get("JUPYTERHUB_GPU_CLUSTER"):  # of all that begins with JUPYTER, this is for the tests
        env["JUPYTERHUB_GPU_CLUSTER"] = named
    python = [sys.executable, "-I", "-B", str(BUILD)]
    env["JUPYTERHUB_GPU_CLUSTER"] = _asked([*python, "--cache"], env)
    names = _asked([*python, "--missing"], env).split()
    if not names:
        return ""
    say(f"  The cluster's programs, to be built once: {', '.join(names)} (in {env['JUPYTERHUB_GPU_CLUSTER']})")
    for number, name in enumerate(names, 1):
        title = f"{name} ({number} of {len(names)})"
        say(f"  {title} ...")
        try:
            command("cluster", title, [*python, name], env=env)
        except Trouble as trouble:
            say(f"  {trouble}")
            return str(trouble).split(" Details:")[0]
    return ""


def _asked(words: list[str], env: MutableMapping[str, str]) -> str:
    done = subprocess.run(words, env=dict(env), capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Trouble(f"The cluster's programs: {done.stderr.strip() or 'no answer'}")
    return done.stdout.strip()
