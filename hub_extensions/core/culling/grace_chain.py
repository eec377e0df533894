"""Check the settings that limit how long a pod has to end.

These are settings of KubeSpawner, of the pods, of the hub, and the deadline after which a stop counts as failed. When
the hub is asked to stop a server, cells are interrupted already, notebooks are saved, and the user's hook has ended.
Code that a kernel runs at its end (`finally`, `atexit`) runs within the time checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

KUBESPAWNERS_OWN = 1.0  # seconds; KubeSpawner's default of ``delete_grace_period``
KERNELS_NEED = 10.0  # seconds; Jupyter ends a kernel within 5 s, and its server after that
HUB_HEARD_FOR = 60.0  # seconds for which this service waits for the hub's answer to a stop


@dataclass(frozen=True, slots=True)
class GraceChain:
    """The settings of one installation that limit how long a pod has to end, in seconds.

    `None` means that a setting is not configured, so that its default counts.

    Attributes:
        deletion: KubeSpawner's ``delete_grace_period``, the time that a pod gets to end when its server is stopped.
        eviction: ``terminationGracePeriodSeconds`` of the pods, which counts when a node is emptied.
        slow_stop: ``slow_stop_timeout``, the longest time before the hub answers a request to stop.
        deadline: the time after which a stop counts as failed (``stop_deadline_minutes``).
    """

    deletion: float | None
    eviction: float | None
    slow_stop: float | None
    deadline: float


@dataclass(frozen=True, slots=True)
class WeakLink:
    """A time in `GraceChain` that is too short or too long.

    Attributes:
        member: name of the field of `GraceChain`.
        text: what is wrong.
        fix: what to set.
        breaks: whether stops fail because of this time.
    """

    member: str
    text: str
    fix: str
    breaks: bool = False


def weak_links(chain: GraceChain) -> Iterator[WeakLink]:
    """Yield each setting that is too short for a kernel to end, or too long or too short for another setting."""
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
