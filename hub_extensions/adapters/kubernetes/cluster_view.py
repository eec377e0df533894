"""Read the state of a cluster once, for a command that does not keep watching."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import datetime, timezone
from importlib import import_module

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView

READ_SECONDS = 60.0
SOON_SECONDS = 5.0  # a cluster that does not answer for longer is reported as away


class ClusterUnreadable(Exception):
    """The cluster cannot be read. The text explains why and what to do."""


class PackagesMissing(ClusterUnreadable):
    """The Python packages for Kubernetes are not installed."""


def read_once(config: ClusterConfig, seconds: float = READ_SECONDS) -> ClusterView:
    """Return the current state of the cluster. Without a kubeconfig in `config`, ``KUBECONFIG`` is used.

    Raises:
        ClusterUnreadable: packages or the address are missing, or the API server does not answer within `seconds`.
    """
    kubeconfig = config.kubeconfig or os.environ.get("KUBECONFIG", "")
    return asyncio.run(_read(replace(config, kubeconfig=kubeconfig), seconds))


async def _read(config: ClusterConfig, seconds: float) -> ClusterView:
    try:
        from hub_extensions.adapters.kubernetes.api import ClusterError
        from hub_extensions.adapters.kubernetes.watch import ClusterWatch

        import_module("kubernetes.aio")  # the watch would import it only when it opens, in a thread
    except ImportError as problem:
        raise PackagesMissing(
            f"Python's packages for Kubernetes are missing ({problem.name}): pip install 'jupyterhub-gpu[kubernetes]'."
        ) from None
    watch = ClusterWatch(config)
    give_up = asyncio.get_running_loop().time() + seconds
    try:
        await watch.start(min(seconds, SOON_SECONDS))
        view = watch.view(datetime.now(timezone.utc))
        while view.problem and watch.is_reading and asyncio.get_running_loop().time() < give_up:
            await watch.wait_changed(0.5)  # a large cluster takes longer
            view = watch.view(datetime.now(timezone.utc))
        if view.problem:
            raise ClusterUnreadable(view.problem)
        # the mappings of the view change with the watch, so copy them
        return replace(
            view,
            nodes=None if view.nodes is None else dict(view.nodes),
            pods=None if view.pods is None else dict(view.pods),
        )
    except ClusterError as problem:
        raise ClusterUnreadable(f"The cluster cannot be read: {problem.message}") from None
    finally:
        await watch.close()
