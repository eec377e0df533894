"""Does Kubernetes' NetworkPolicy let one pod call another? A small evaluator, of policies as plain objects.

As the API says it: policies only add, a pod that none selects for a direction is open there, and a call needs both
sides. Not here: which calls there have to be (``helm_check/rules/network.py``); whether a cluster's network enforces
policies at all, and networks that do not count pods among ``ipBlock``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

Tree = Mapping[str, Any]
Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True)
class Pod:
    """One end of a call. `ports`: names of its container's ports. `labels` None: no pod, an address only."""

    name: str
    labels: Mapping[str, str] | None
    namespace: str
    ip: str
    ports: Mapping[str, int] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)


_ANYBODY = Pod("anybody", {}, "", "10.0.0.1")


@dataclass(frozen=True, slots=True)
class CallRefused:
    """A call that no rule allows: on which pod's side, and the policies that closed it."""

    side: str
    direction: Direction
    policies: tuple[str, ...]


def refused(policies: Sequence[Tree], caller: Pod, called: Pod, port: int, protocol: str = "TCP") -> CallRefused | None:
    """Which side refuses this call; None: it goes through. A pod always reaches itself."""
    if caller.name == called.name:
        return None
    sides: tuple[tuple[Pod, Pod, Direction], ...] = ((caller, called, "Egress"), (called, caller, "Ingress"))
    for pod, other, direction in sides:
        closing = [policy for policy in policies if _closes(policy, pod, direction)]
        if closing and not any(_allows(policy, direction, other, called, port, protocol) for policy in closing):
            return CallRefused(pod.name, direction, tuple(str(policy["metadata"].get("name")) for policy in closing))
    return None


def lets_out(policies: Sequence[Tree], caller: Pod, port: int) -> bool:
    """Has any policy of this pod a rule for the way out to a TCP port, whoever stands there?"""
    rules = [rule for each in policies if _closes(each, caller, "Egress") for rule in each["spec"].get("egress") or ()]
    return any(_port_fits(rule.get("ports"), _ANYBODY, port, "TCP") for rule in rules)


def _closes(policy: Tree, pod: Pod, direction: Direction) -> bool:
    spec = policy.get("spec") or {}
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    namespace = (policy.get("metadata") or {}).get("namespace", pod.namespace)
    if pod.labels is None or namespace != pod.namespace or direction not in types:
        return False
    return matches(spec.get("podSelector") or {}, pod.labels)


def _allows(policy: Tree, direction: Direction, other: Pod, called: Pod, port: int, protocol: str) -> bool:
    spec = policy.get("spec") or {}
    rules: Iterable[Tree] = spec.get(direction.lower()) or ()
    peers = "from" if direction == "Ingress" else "to"
    home = str((policy.get("metadata") or {}).get("namespace") or called.namespace)
    return any(
        _peer_fits(rule.get(peers), other, home) and _port_fits(rule.get("ports"), called, port, protocol)
        for rule in rules
    )


def _peer_fits(peers: Sequence[Tree] | None, other: Pod, home: str) -> bool:
    return not peers or any(_is_peer(peer, other, home) for peer in peers)


def _is_peer(peer: Tree, other: Pod, home: str) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        return _within(other.ip, [block["cidr"]]) and not _within(other.ip, block.get("except") or ())
    if other.labels is None:
        return False
    spaces, pods = peer.get("namespaceSelector"), peer.get("podSelector")
    here = other.namespace == home if spaces is None else matches(spaces, other.namespace_labels)
    return here and matches(pods or {}, other.labels)


def _within(address: str, blocks: Iterable[str]) -> bool:
    return any(ip_address(address) in ip_network(block, strict=False) for block in blocks)


def _port_fits(ports: Sequence[Tree] | None, called: Pod, port: int, protocol: str) -> bool:
    return not ports or any(_is_port(each, called, port, protocol) for each in ports)


def _is_port(wanted: Tree, called: Pod, port: int, protocol: str) -> bool:
    if wanted.get("protocol", "TCP") != protocol:
        return False
    first = wanted.get("port")
    if first is None:
        return True
    if isinstance(first, str) and not first.isdigit():
        return called.ports.get(first) == port
    return int(first) <= port <= int(wanted.get("endPort", first))


def is_rule(rule: Any, direction: Direction) -> bool:
    """Could this be one rule of a policy? An unknown word in one would leave it open to everybody."""
    peers = "from" if direction == "Ingress" else "to"
    try:
        for peer in rule.get(peers) or ():
            _is_peer(peer, _ANYBODY, "")
            matches(peer.get("namespaceSelector") or {}, {})
            matches(peer.get("podSelector") or {}, {})
        for port in rule.get("ports") or ():
            _is_port(port, _ANYBODY, 1, port.get("protocol", "TCP"))
        return set(rule) <= {peers, "ports"}
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def matches(selector: Tree, labels: Mapping[str, str]) -> bool:
    """Does a label selector choose these labels? An empty one chooses all."""
    wanted: Tree = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_fits(each, labels) for each in selector.get("matchExpressions") or ())


def _fits(expression: Tree, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    operator = expression.get("operator")
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return labels.get(key) in values
    return labels.get(key) not in values  # NotIn
