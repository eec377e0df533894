"""Checks of this machine or of the cluster: installed programs, readable GPUs, visible processes of other accounts."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from itertools import chain

from hub_extensions.adapters.kubernetes.cluster_view import ClusterUnreadable, read_once
from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.nvml.processes import sees_all_processes
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.nodes import renamed_resources
from hub_extensions.core.cluster.pools import VOLUMES_UNREAD, survey_pools
from hub_extensions.core.gpu.devices import GpusUnavailable
from hub_extensions.core.offers.model import config_warnings
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.doctor.diagnosis import Diagnosis
from hub_extensions.tools.use_sources import use_sources

MOST_LEFT_OUT = 5
_ONLY_DCGM = re.compile(r"\bA(?:100|30)\b", re.IGNORECASE)
OLDEST_HUB, NEWEST_HUB = (5, 3), (7, 0)


def place_of_gpus(settings: Settings, *, apart: bool) -> Iterator[Diagnosis]:
    """Check the GPUs on this machine, or in the cluster if servers are pods.

    Args:
        settings: the GPU service's settings.
        apart: whether the service has its own Deployment. It then reads the cluster with its own account, and nothing
            can be checked here.
    """
    if settings.cluster is None:
        return chain(gpus(settings), other_accounts())
    return _cluster_elsewhere(settings.cluster) if apart else _cluster(settings, settings.cluster)


def python() -> Iterator[Diagnosis]:
    """Report the version of Python."""
    yield Diagnosis("python", "ok", f"This is Python {'.'.join(map(str, sys.version_info[:3]))}, at {sys.executable}.")


def hub_version() -> Iterator[Diagnosis]:
    """Check that a supported version of JupyterHub is installed."""
    try:
        found = version("jupyterhub")
    except PackageNotFoundError:
        fix = 'Install it into this environment: pip install "jupyterhub-gpu[hub]".'
        yield Diagnosis("jupyterhub", "problem", "JupyterHub is not installed here.", fix)
        return
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if OLDEST_HUB <= numbers < NEWEST_HUB:
        yield Diagnosis("jupyterhub", "ok", f"JupyterHub {found} is installed.")
    else:
        yield Diagnosis("jupyterhub", "problem", f"JupyterHub {found} is not supported.", "Use 5.3 or newer, below 7.")


def proxy() -> Iterator[Diagnosis]:
    """Check that JupyterHub's default proxy is installed."""
    where = shutil.which("configurable-http-proxy")
    if where is None:
        fix = "Install it (npm install -g configurable-http-proxy), or name another proxy in the hub's configuration."
        yield Diagnosis("proxy", "warning", "JupyterHub's proxy, configurable-http-proxy, is not on the PATH.", fix)
    else:
        yield Diagnosis("proxy", "ok", f"JupyterHub's proxy is at {where}.")


def jupyterlab() -> Iterator[Diagnosis]:
    """Check that JupyterLab is installed. It may be missing if servers run in another environment or in pods."""
    if find_spec("jupyterlab") is None:
        fix = "Where users' servers run from this environment: pip install jupyterlab. [server] does not bring it."
        yield Diagnosis("jupyterlab", "warning", "JupyterLab is not installed here.", fix)
    else:
        yield Diagnosis("jupyterlab", "ok", f"JupyterLab {version('jupyterlab')} is installed.")


def package() -> Iterator[Diagnosis]:
    """Check that our spawners are installed as entry points, so that the hub finds them by name."""
    names = {entry.name for entry in entry_points(group="jupyterhub.spawners")}
    ours = [name for name in ("gpu", "gpu-local") if name in names]
    if ours:
        yield Diagnosis("package", "ok", f"The spawners {' and '.join(ours)} are installed.")
    else:
        fix = "Install it into the hub's environment: pip install jupyterhub-gpu[hub]."
        yield Diagnosis("package", "warning", "The package is used from a folder and is not installed.", fix)


def gpus(settings: Settings | None) -> Iterator[Diagnosis]:
    """Check which GPUs of this machine can be offered.

    Args:
        settings: the GPU service's settings. None if no configuration was given; simulation and the settings of offers
            are then not checked.
    """
    if settings is not None and settings.offers.simulate is not None:
        text = f"The GPUs are simulated (layout {settings.offers.simulate})."
        yield Diagnosis("gpus", "warning", text, "Take c.GpuOffers.simulate out to offer this machine's own GPUs.")
        return
    from hub_extensions.adapters.nvml.reader import Nvml

    reader = Nvml()
    try:
        reading = reader.read(datetime.now(timezone.utc))
    except GpusUnavailable as problem:
        fix = 'To try the hub without a card: c.GpuOffers.simulate = "lab-a100".'
        yield Diagnosis("gpus", "problem", problem.reason.message, fix)
        return
    finally:
        reader.close()
    usable = [device for device in reading.devices if device.usable]
    if usable:
        counts = ", ".join(
            f"{sum(d.pool == pool for d in usable)} x {pool}" for pool in sorted({d.pool for d in usable})
        )
        yield Diagnosis("gpus", "ok", f"Devices that can be offered: {counts}.")
    else:
        fix = "nvidia-smi shows its state; a GPU in MIG mode has to be cut first: nvidia-smi mig -cgi … -C."
        yield Diagnosis("gpus", "problem", "The driver answers, but there is no device that could be offered.", fix)
    for device in reading.devices:
        if not device.usable:
            fix = "Make its compute instance: nvidia-smi mig -cci."
            yield Diagnosis("mig", "problem", f"{device.pool} ({device.uuid}) is not usable: {device.reason}", fix)
    for sentence in reading.problems:
        yield Diagnosis("gpus", "problem", sentence, "nvidia-smi and the kernel's log (dmesg) say more.")
    if settings is not None:
        yield from unmeasured(settings, ((device.profile, device.product) for device in reading.devices))
        for sentence in config_warnings(reading.devices, settings.offers):
            yield Diagnosis(
                "offers", "warning", f"c.GpuOffers.{sentence}", "jupyterhub-gpu offers lists those there are."
            )


def _cluster(settings: Settings, config: ClusterConfig) -> Iterator[Diagnosis]:
    """Check what the account that runs ``doctor`` may read of the cluster, and report the cluster's GPUs.

    If the hub has another account in the cluster, the hub may read more or less.

    Args:
        settings: the GPU service's settings.
        config: their part about the cluster, such as the namespace of servers.
    """
    try:
        view = read_once(config)
    except ClusterUnreadable as problem:
        fix = "Give the hub's kubeconfig (c.GpuCluster.kubeconfig, or KUBECONFIG), or run this in the hub's pod."
        yield Diagnosis("cluster", "problem", str(problem), fix)
        return
    manifest = "kubectl apply -f helm-values/manifests/rbac.yaml"
    if view.nodes is None:
        fix = f"{manifest}; or say in c.GpuCluster.capacity how many there are."
        yield Diagnosis("cluster", "warning", "The cluster's nodes may not be read.", fix)
    if view.own_pods_only:
        text = "Only this namespace's pods may be read: what others hold looks free."
        yield Diagnosis("cluster", "warning", text, f"{manifest}.")
    if view.volumes.unread:
        text = "Volumes may not be read: a server whose files only some nodes reach is let in as if all did."
        yield Diagnosis("cluster", "warning", text, f"{manifest}.")
    survey = survey_pools(view, settings.offers, config, names={}, leases=())
    counts = ", ".join(f"{pool.total} x {pool.id}" for pool in survey.pools.values() if pool.total)
    if counts:
        yield Diagnosis("gpus", "ok", f"Devices that can be offered: {counts}.")
    else:
        fix = "jupyterhub-gpu offers --cluster says which nodes were left out, and why."
        yield Diagnosis("gpus", "problem", "The cluster has no GPU that could be offered now.", fix)
    for state, text, fix in use_sources(settings, survey.pools.values()):
        yield Diagnosis("use", state, text, fix)
    yield from renamed(settings.offers.resources, renamed_resources((view.nodes or {}).values()))
    for item in [each for each in survey.left_out if each is not VOLUMES_UNREAD][:MOST_LEFT_OUT]:
        yield Diagnosis(
            "nodes", "warning", f"{item.what}: {item.why}.", "jupyterhub-gpu offers --cluster shows them all."
        )


def renamed(mapped: Mapping[str, str], there: Mapping[str, int]) -> Iterator[Diagnosis]:
    """Report GPU resources whose names are not NVIDIA's, and whether ``c.GpuOffers.resources`` makes offers of them.

    Args:
        mapped: resource name -> offer, from the setting.
        there: resource name -> number of such GPUs on the nodes.
    """
    for name, offer in mapped.items():
        if name in there:
            yield Diagnosis("resources", "ok", f"{there[name]} x {name} is offered as {offer}.")
        else:
            fix = f"c.GpuOffers.resources: kubectl describe nodes says under which name they are, if not {name}."
            yield Diagnosis("resources", "warning", f"No node has {name} now.", fix)
    for name in sorted(there.keys() - mapped.keys()):
        fix = f'c.GpuOffers.resources = {{"{name}": "gpu"}}, if one of it is a whole card for a pod.'
        yield Diagnosis("resources", "warning", f"{there[name]} x {name} is no offer: its name is not known.", fix)


def unmeasured(settings: Settings, kinds: Iterable[tuple[str | None, str]]) -> Iterator[Diagnosis]:
    """Warn if culling cannot recognise idle servers on some MIG devices.

    The use of a MIG device on some cards is measured only by DCGM. Its measurements are read from Prometheus, so the
    warning is given if culling is enabled and Prometheus is not set.

    Args:
        settings: the GPU service's settings.
        kinds: MIG profile (None for a whole card) and product name of each device.
    """
    if not settings.culling.enabled or settings.prometheus_url:
        return
    cards = sorted({card for profile, card in kinds if profile is not None and _ONLY_DCGM.search(card)})
    if cards:
        text = f"{', '.join(cards)}: the use of a MIG device is known to DCGM alone, so none is stopped for idleness."
        fix = "c.GpuService.prometheus_url (in the chart helm-values/monitoring.yaml); or take culling out."
        yield Diagnosis("culling", "warning", text, fix)


def _cluster_elsewhere(config: ClusterConfig) -> Iterator[Diagnosis]:
    """Report that the cluster is not checked here.

    A service in its own Deployment reads the cluster with its own account, so the hub's account needs no such right.
    """
    place = f"-n {config.namespace} " if config.namespace else ""
    text = (
        "The cluster is read by the GPU service in its own Deployment, with its own account: the hub's needs no right "
        f"to. Ask there: kubectl exec {place}deploy/jupyterhub-gpu -- "
        "python3 -m hub_extensions.tools.cli offers --cluster. Who measures the GPUs' use the admins' page says."
    )
    yield Diagnosis("cluster", "ok", text)


def other_accounts() -> Iterator[Diagnosis]:
    """Check that this account can inspect processes of other accounts.

    Without that, a process that still uses a GPU after its server has stopped is not found.
    """
    scan, whole = procfs.scan(), sees_all_processes()
    if os.geteuid() == 0 and whole and not scan.hidden and not scan.unread:
        yield Diagnosis("processes", "ok", "Left-overs of servers can be found and ended: this account is root.")
        return
    unseen = procfs.unreadable()
    held = (
        "Where the marks of servers' processes cannot be read, a lease ends only when the hub says that its server "
        "stopped, or its process is dead, and the driver lists nothing on the GPU; else the admins' page lists it, and "
        "releases it with a reason."
    )
    if not whole:
        text = "This is a container: it sees its own processes alone, and the driver's list of processes says nothing"
        fix = "With servers elsewhere give it the machine's processes: --pid=host and --cap-add=SYS_PTRACE."
    elif os.geteuid() == 0:
        text = "This account is root and may not look into all processes (CAP_SYS_PTRACE is missing)"
        fix = "Give it that right: --cap-add=SYS_PTRACE, CapabilityBoundingSet= of a unit."
    elif scan.hidden:
        text = "/proc does not show this account the processes of others (hidepid)"
        fix = "Mount /proc with hidepid=0, or with gid= of a group of the hub, or run the hub as root."
    else:
        text = "This account is not root and cannot look into other accounts' processes"
        fix = "With gpu-local run the hub as root, else a process that outlives its server keeps its GPU held."
    fix = f"Nothing has to be done where servers run as the hub's own account, beside it. {fix} {held}"
    yield Diagnosis("processes", "warning", text + (f" ({unseen} run now)." if unseen else "."), fix)
