"""``jupyterhub-gpu offers --cluster``: reads a cluster once and explains every offer that its GPUs make.

The report has the nodes of each offer, why it is not free, which nodes were left out and why, and what a pod requests
for it. The cluster is read with the caller's own rights; what the caller may not read is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hub_extensions.adapters.kubernetes.cluster_view import ClusterUnreadable, PackagesMissing, read_once
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView
from hub_extensions.core.cluster.offers import ClusterOffers, derive_cluster_offers
from hub_extensions.core.cluster.pools import Pool, PoolSurvey, survey_pools
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer, OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import PodAsk
from hub_extensions.hub_service.setup.settings import Settings, SettingsError


def explain_cluster(state_dir: Path | None, console: Console, *, as_json: bool) -> int:
    """Read the cluster once and print the report.

    Args:
        state_dir: the GPU service's state folder, in which the hub's settings are; None for default settings.
        as_json: print JSON for programs instead of tables.

    Returns:
        The exit status: 0 after the report, 1 if the cluster cannot be read, 2 if the Python packages for it are
        missing.
    """
    try:
        offers, config = _settings(state_dir)
        view = read_once(config)
        survey = survey_pools(view, offers, config, names={}, leases=_leases(view))
        _refuse_without_nodes(view, survey)
        found = derive_cluster_offers(survey.pools, offers, config, sm_of_product=_sms())
    except (ClusterUnreadable, SettingsError) as problem:
        console.print(str(problem), markup=False, soft_wrap=True)
        return 2 if isinstance(problem, PackagesMissing) else 1
    if as_json:
        console.print(json.dumps(_as_dict(survey, found), indent=2), markup=False, soft_wrap=True)
    else:
        _print(console, view, survey, found)
    return 0


def _refuse_without_nodes(view: ClusterView, survey: PoolSurvey) -> None:
    """Refuse a report in which every number would be unknown.

    Args:
        view: what could be read of the cluster; without nodes if they may not be read.
        survey: the pools (devices of one kind) that follow from the nodes or from the settings.

    Raises:
        ClusterUnreadable: the nodes may not be read, and no setting gives the numbers of GPUs instead. The text has the
            command that can answer.
    """
    if view.nodes is not None or survey.pools:
        return
    place = f"-n {view.namespace} " if view.namespace else ""
    raise ClusterUnreadable(
        "This account may not read the cluster's nodes: what they have is not known here. In the hub's pod that is "
        "right where the GPU service has its own Deployment, whose account may. Ask there: "
        f"kubectl exec {place}deploy/jupyterhub-gpu -- python3 -m hub_extensions.tools.cli offers --cluster. "
        "Else the ClusterRole is missing: kubectl apply -k helm-values/manifests, or, for its own Deployment, "
        "helm-values/manifests/service-deployment."
    )


def _settings(state_dir: Path | None) -> tuple[OfferConfig, ClusterConfig]:
    if state_dir is None:
        return OfferConfig(), ClusterConfig()
    settings = Settings.load(state_dir / "service.json")
    if settings.cluster is None:
        raise ClusterUnreadable(
            f"The hub of {state_dir} starts servers on its own machine: there is no cluster to look at."
        )
    return settings.offers, settings.cluster


def _leases(view: ClusterView) -> frozenset[str]:
    """Return the ids of the leases (servers' rights to GPUs) that pods in the hub's namespace have as a label.

    They are read from the cluster, because the GPU service may not run.

    Args:
        view: what was read from the cluster, with the pods.
    """
    return frozenset(pod.lease for pod in (view.pods or {}).values() if pod.lease and pod.namespace == view.namespace)


def _sms() -> Any:
    from hub_extensions.adapters.files.mig_tables import sm_of_product

    return sm_of_product


# ------------------------------------------------------------------ texts


def _print(console: Console, view: ClusterView, survey: PoolSurvey, found: ClusterOffers) -> None:
    if survey.configured:
        unread = "The nodes may not be read" if view.nodes is None else "Others' pods may not be read"
        console.print(f"{unread}: the totals below are what c.GpuCluster.capacity says.", markup=False)
    if view.own_pods_only:
        console.print(
            f"Only pods of the namespace {view.namespace} may be read: others' use is not known.", markup=False
        )
    table = Table("offer", "title", "by", "free", "in all", "others hold", "why not free", box=None, pad_edge=False)
    for offer in found.offers:
        table.add_row(*map(Text, _row(offer, survey, found.asks[offer.id])))
    console.print(table)
    if any("@" in pool for pool in survey.pools):
        text = "A new hub would give these ids. Yours keeps those that it gave first: Services, gpu, The cluster."
        console.print(f"\n{text}", markup=False, soft_wrap=True)
    _print_nodes(console, survey)
    if survey.left_out:
        console.print("\nLeft out:", markup=False)
        for item in survey.left_out:
            console.print(f"  {item.what}: {item.why}", markup=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"\nc.GpuOffers.{note}", markup=False, soft_wrap=True)
    console.print("\nWhat a pod asks for each:", markup=False)
    for offer in found.offers:
        console.print(f"  {offer.id}: {request_text(found.asks[offer.id])}", markup=False, soft_wrap=True)


def _row(offer: GpuOffer, survey: PoolSurvey, ask: PodAsk) -> Iterable[str]:
    if not offer.pool:
        return offer.id, offer.title, ask.mechanism.value, "always", "", "", ""
    pool = survey.pools[OfferId(offer.pool)]
    free = sum(room // offer.share * count for room, count in pool.room.items())
    known = survey.known and not (pool.unknown and not free)
    why = "" if free else _why(pool, known)
    shown = str(free) if known else "not known"
    total = str(pool.total * (WHOLE // offer.share)) if known or pool.total else "not known"
    return offer.id, offer.title, ask.mechanism.value, shown, total, str(pool.foreign), why


def _why(pool: Pool, known: bool) -> str:
    total, foreign = pool.total, pool.foreign
    if not known:
        return _why_not_known(pool)
    if not total:
        return "no node counts now: see below"
    if foreign >= total:
        return "all are held outside this hub"
    return f"all are held, {foreign} of them outside this hub" if foreign else "all are held by this hub's servers"


def _why_not_known(pool: Pool) -> str:
    if not pool.unknown:
        return "no pods may be read"
    if pool.claim_template:
        return "the claims may not be read"
    return "see its nodes below" if any(node.why for node in pool.nodes) else "others' pods may not be read"


def _print_nodes(console: Console, survey: PoolSurvey) -> None:
    console.print("\nFrom which nodes:", markup=False)
    for pool in sorted(survey.pools.values(), key=lambda pool: pool.id):
        what = pool.resource or f"claim template {pool.claim_template}"
        console.print(f"  {pool.id} ({what}{', ' + pool.product if pool.product else ''})", markup=False)
        if pool.costs:
            others = ", ".join(sorted(pool.costs))
            text = f"    of the same cards as {others}: what is given of the one is missing to the other"
            console.print(text, markup=False, soft_wrap=True)
        for node in pool.nodes:
            stands = f"does not count: {node.why}" if node.why else f"{node.free} free of {node.total}"
            console.print(f"    {node.node}: {stands}", markup=False, soft_wrap=True)


def request_text(ask: PodAsk) -> str:
    """Return on one line everything that an offer asks of a pod, such as limits, labels and the scheduler."""
    parts = [f"{key}={value}" for key, value in ask.limits.items()]
    parts += [f"annotation {key}={value}" for key, value in ask.annotations.items()]
    parts += [f"label {key}={value}" for key, value in ask.labels.items()]
    parts += [f"claim template {ask.claim_template}"] if ask.claim_template else []
    parts += [f"scheduler {ask.scheduler}"] if ask.scheduler else []
    parts += [f"runtime class {ask.runtime_class}"] if ask.runtime_class else []
    for key, values in ask.node_labels.items():
        parts.append(f"node with {key} in {', '.join(values)}" if values else f"node without {key}")
    parts += ["nothing at /dev/shm"] if ask.forbids_shm else []
    parts += [f"{key}={value}" for key, value in ask.environment.items()]
    return "; ".join(parts) or "nothing"


def _as_dict(survey: PoolSurvey, found: ClusterOffers) -> dict[str, Any]:
    return {
        "configured": survey.configured,
        "known": survey.known,
        "offers": [
            {"id": offer.id, "title": offer.title, "pool": offer.pool, "asks": request_text(found.asks[offer.id])}
            for offer in found.offers
        ],
        "pools": [
            {
                "id": pool.id,
                "mechanism": pool.mechanism.value,
                "resource": pool.resource,
                "product": pool.product,
                "total": pool.total,
                "free": pool.free if survey.known and (pool.free or not pool.unknown) else None,
                "held_by_others": pool.foreign,
                "nodes": [asdict(node) for node in pool.nodes],
            }
            for pool in sorted(survey.pools.values(), key=lambda pool: pool.id)
        ],
        "left_out": [asdict(item) for item in survey.left_out],
        "notes": list(found.notes),
    }
