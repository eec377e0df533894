"""Find the nodes that a server can use, by the requirements of its pod, as kube-scheduler's filters do.

`PodDemands` contains the requirements of a pod that does not exist yet (filters ``NodeAffinity``, ``TaintToleration``,
``VolumeBinding`` and ``VolumeZone`` of Kubernetes 1.34 to 1.36). Everything else is not known and restricts nothing:
free processors and memory, affinities of other pods, and the cluster's webhooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hub_extensions.core.cluster.model import NodeFacts, Requirement, Taint, Term, VolumeFacts, Volumes
from hub_extensions.core.offers.pod_request import GPU_TAINT

NAME_FIELD = "metadata.name"
CLOSING = ("NoSchedule", "NoExecute")
ZONES = {
    "topology.kubernetes.io/zone": "",
    "topology.kubernetes.io/region": "",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Zone labels of old volumes without an affinity. Labels from before Kubernetes 1.17 are mapped to today's names."""
LEAST, MOST = -(2**63), 2**63 - 1
"""Range of the 64-bit integers that the operators ``Gt`` and ``Lt`` of a requirement compare."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod. A field that is "" is not set."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class PodDemands:
    """The requirements of a pod on its node.

    Attributes:
        selector: labels that the node must have.
        terms: required node affinity; None for no restriction.
        tolerations: the pod's tolerations.
        claims: ``namespace/name`` of the persistent volume claims that the pod mounts.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    claims: tuple[str, ...] = ()


# ------------------------------------------------------------------ matching


def can_use_node(demands: PodDemands, volumes: Iterable[VolumeFacts], node: NodeFacts) -> bool:
    """Return whether the scheduler's filters accept the node for the pod, regardless of its free resources.

    Args:
        demands: the pod's requirements on its node.
        volumes: the volumes that restrict the pod.
    """
    return (
        all(node.labels.get(key) == value for key, value in demands.selector)
        and matches_any_term(demands.terms, node)
        and all(_tolerated(taint, demands.tolerations) for taint in node.taints if taint.effect in CLOSING)
        and all(matches_any_term(volume.terms, node) and _in_zones(volume, node) for volume in volumes)
    )


def matches_any_term(terms: tuple[Term, ...] | None, node: NodeFacts) -> bool:
    """Return whether a node matches one of the terms of a node affinity. None matches every node."""
    return terms is None or any(term and all(_holds(each, node) for each in term) for term in terms)


def _holds(wanted: Requirement, node: NodeFacts) -> bool:
    """Return whether a node meets a requirement, as in ``apimachinery/pkg/labels``. A missing label meets ``NotIn``.

    Args:
        wanted: the requirement.
    """
    if wanted.of_field:
        there: str | None = node.name if wanted.key == NAME_FIELD else None
        if there is None:
            return False
    else:
        there = node.labels.get(wanted.key)
    if wanted.operator == "Exists":
        return there is not None
    if wanted.operator == "DoesNotExist":
        return there is None
    if wanted.operator == "NotIn":
        return there is None or there not in wanted.values
    if there is None:
        return False
    if wanted.operator == "In":
        return there in wanted.values
    left, right = _number(there), _number(wanted.values[0] if len(wanted.values) == 1 else "")
    if left is None or right is None:
        return False
    return (wanted.operator == "Gt" and left > right) or (wanted.operator == "Lt" and left < right)


def _number(text: str) -> int | None:
    """Parse a number as Go's ``strconv.ParseInt`` does; None if the text is not such a number."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 30):
        return None
    return number if LEAST <= (number := int(text)) <= MOST else None


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    if (taint.key, taint.effect) == (GPU_TAINT, "NoSchedule"):
        return True  # every offer with a GPU adds this toleration
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _in_zones(volume: VolumeFacts, node: NodeFacts) -> bool:
    """Return whether a node is in the volume's zones. A node without any zone label counts as being in every zone."""
    if not volume.zones or not any(label in node.labels for label in ZONES):
        return True
    return all(node.labels.get(label, node.labels.get(ZONES[label])) in values for label, values in volume.zones)


class NodeSets:
    """Finds the nodes that a pod can use, and remembers the result until a node or a volume changes."""

    def __init__(self) -> None:
        self._nodes: Mapping[str, NodeFacts] = {}
        self._volumes = Volumes()
        self._matched: dict[PodDemands, dict[str, tuple[NodeFacts, bool]]] = {}
        self._found: dict[PodDemands, frozenset[str]] = {}

    def know(self, nodes: Mapping[str, NodeFacts], volumes: Volumes) -> bool:
        """Set the current nodes and volumes. Return whether something has changed since the last call."""
        same = nodes.keys() == self._nodes.keys() and volumes == self._volumes
        if same and all(node is self._nodes[name] for name, node in nodes.items()):
            return False
        self._nodes, self._volumes = nodes, volumes
        self._matched = {demands: self._matched[demands] for demands in self._found if demands in self._matched}
        self._found = {}
        return True

    def of(self, demands: PodDemands | None) -> frozenset[str] | None:
        """Return the names of the nodes that meet these requirements.

        Args:
            demands: None if the requirements are not known.

        Returns:
            None if the requirements or the nodes are not known.
        """
        if demands is None or not self._nodes:
            return None
        volumes = self._volumes.of(demands.claims)
        alike = replace(demands, claims=tuple(sorted(map(repr, volumes))))  # one entry for equal volumes
        if alike not in self._found:
            known, now = self._matched.get(alike, {}), dict[str, tuple[NodeFacts, bool]]()
            for name, node in self._nodes.items():
                before = known.get(name)
                now[name] = before if before and before[0] is node else (node, can_use_node(demands, volumes, node))
            self._matched[alike] = now
            self._found[alike] = frozenset(name for name, (_, fits) in now.items() if fits)
        return self._found[alike]


# ------------------------------------------------------------------ reading


def demands_of(pod: Mapping[str, Any], namespace: str) -> PodDemands:
    """Return a pod's requirements from its JSON.

    Args:
        namespace: namespace in which the pod will be created.

    Raises:
        TypeError, AttributeError, KeyError, ValueError: an API server would not accept this pod.
    """
    spec = pod["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    named = ((volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in spec.get("volumes") or ())
    return PodDemands(
        selector=tuple(sorted((str(key), str(value)) for key, value in (spec.get("nodeSelector") or {}).items())),
        terms=None if required is None else terms_of(required),
        tolerations=tuple(_toleration_of(each) for each in spec.get("tolerations") or ()),
        claims=tuple(sorted({f"{namespace}/{claim}" for claim in named if claim})),
    )


def terms_of(selector: Mapping[str, Any]) -> tuple[Term, ...]:
    """Return the terms of a NodeSelector from its JSON."""
    return tuple(
        (
            *(_requirement_of(each, False) for each in term.get("matchExpressions") or ()),
            *(_requirement_of(each, True) for each in term.get("matchFields") or ()),
        )
        for term in selector.get("nodeSelectorTerms") or ()
    )


def terms_text(terms: tuple[Term, ...]) -> str:
    """Describe terms for administrators: ``pool=a and zone in b, c or gpu``."""
    return " or ".join(" and ".join(map(_requirement_text, term)) or "nothing" for term in terms)


def _requirement_text(wanted: Requirement) -> str:
    values = ", ".join(wanted.values)
    if wanted.operator == "In":
        return f"{wanted.key}={values}" if len(wanted.values) == 1 else f"{wanted.key} in {values}"
    return {
        "Exists": wanted.key,
        "DoesNotExist": f"no {wanted.key}",
        "NotIn": f"{wanted.key} not in {values}",
    }.get(wanted.operator, f"{wanted.key} {wanted.operator} {values}")


def _requirement_of(raw: Mapping[str, Any], of_field: bool) -> Requirement:
    values = tuple(str(value) for value in raw.get("values") or ())
    return Requirement(str(raw["key"]), str(raw["operator"]), values, of_field)


def _toleration_of(raw: Mapping[str, Any]) -> Toleration:
    return Toleration(*(str(raw.get(name) or "") for name in ("key", "operator", "value", "effect")))


def volume_of(raw: Mapping[str, Any]) -> VolumeFacts | None:
    """Return the requirements of a PersistentVolume from its JSON; None if every node can use it."""
    labels = (raw.get("metadata") or {}).get("labels") or {}
    required = ((raw.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    zones = tuple((label, tuple(str(labels[label]).split("__"))) for label in ZONES if label in labels)
    terms = None if required is None else _terms_of_volume(terms_of(required))
    return None if terms is None and not zones else VolumeFacts(terms, zones)


def _terms_of_volume(terms: tuple[Term, ...]) -> tuple[Term, ...] | None:
    """Remove requirements on a node's name, which the scheduler ignores for volumes (``CheckNodeAffinity``).

    None if nothing restricts the nodes any more.
    """
    by_label = tuple(tuple(each for each in term if not each.of_field) for term in terms)
    return None if any(term and not labels for term, labels in zip(terms, by_label, strict=True)) else by_label
