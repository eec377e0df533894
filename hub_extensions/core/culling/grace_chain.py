"""How long a pod has to end, by all who may cut it short: KubeSpawner, the node, the hub, and the alarm of a stop.

A drain comes first, and is over before the hub is asked to stop anything: then the cells are interrupted, the notebooks
saved, and the user's hook has ended. What a kernel does at its end (`finally`, `atexit`) comes after it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

KUBESPAWNERS_OWN = 1.0
"""Seconds: KubeSpawner's ``delete_grace_period`` where nobody sets it."""
KERNELS_NEED = 10.0
"""Seconds: Jupyter ends a kernel within 5 s, and its server after it."""
HUB_HEARD_FOR = 60.0
"""Seconds for which this service waits for the hub's answer to a stop."""


@dataclass(frozen=True, slots=True)
class GraceChain:
    """Seconds; None: nobody sets it.

    Attributes:
        deletion: ``delete_grace_period``. eviction: ``terminationGracePeriodSeconds`` of the pods, for a node that is
            emptied. slow_stop: ``slow_stop_timeout``, how long the hub thinks before it answers. deadline: after that
            a stop has failed.
    """

    deletion: float | None
    eviction: float | None
    slow_stop: float | None
    deadline: float


@dataclass(frozen=True, slots=True)
class WeakLink:
    """A member of `GraceChain` that is too short or too long; `breaks`: stops fail by it."""

    member: str
    text: str
    fix: str
    breaks: bool = False


def weak_links(chain: GraceChain) -> Iterator[WeakLink]:
    """Every one."""
    deletion = KUBESPAWNERS_OWN if chain.deletion is None else chain.deletion
    if deletion < KERNELS_NEED:
        whose = "KubeSpawner's own " if chain.deletion is None else ""
        text = (
            f"A pod that is stopped is killed after {whose}{deletion:g} s: kernels do not get the 5 s in which what is "
            "in finally and atexit is done."
        )
        yield WeakLink("deletion", text, "Set it to 30.")
    if deletion >= chain.deadline:
        text = (
            f"A pod may take {deletion:g} s to end, and after {chain.deadline:g} s its stop has failed: each slow one "
            "would be an alarm."
        )
        yield WeakLink("deletion", text, "Set c.GpuCulling.stop_deadline_minutes to more than that.", breaks=True)
    if chain.eviction is not None and chain.eviction < deletion:
        text = f"A node that is emptied gives servers {chain.eviction:g} s, and a stop gives them {deletion:g} s."
        yield WeakLink("eviction", text, f"Set it to {deletion:g}, or leave it out: 30 is Kubernetes' own.")
    if chain.slow_stop is not None and chain.slow_stop >= HUB_HEARD_FOR:
        text = (
            f"slow_stop_timeout is {chain.slow_stop:g}: the GPU service waits {HUB_HEARD_FOR:g} s for the hub's answer,"
            " so a slow stop counts as failed, and is asked for again."
        )
        yield WeakLink("slow_stop", text, "Leave it out: 10 is JupyterHub's own.", breaks=True)
