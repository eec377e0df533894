"""The real node's network: a bridge of its own that pods and host share, without address translation or forwarding.

Pods get addresses of a subnet that nothing on this machine uses yet. The bridge's address is the host as pods see it:
a hub that listens there reaches pods and is reached by them. Neither iptables nor the kernel's settings change.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import patient

CNI_PROGRAMS = Path("/usr/lib/cni")
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""A path that has ``ip``, whatever the caller's is."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge that is there: its name, the subnet of the pods, and the host's address in it."""

    name: str
    subnet: str
    address: str


def make_bridge(name: str) -> Bridge:
    """Make it, with the first address of a free subnet."""
    subnet = free_subnet()
    address = str(subnet[1])
    _ip("link", "add", name, "type", "bridge")
    _ip("addr", "add", f"{address}/{subnet.prefixlen}", "dev", name)
    _ip("link", "set", name, "up")
    return Bridge(name, str(subnet), address)


def bridge_name() -> str:
    """A name nobody else has; a link's name has at most 15 characters."""
    return f"jhgpu{uuid.uuid4().hex[:8]}"


def remove_bridge(name: str) -> None:
    """Remove it with everything that hangs on it; one that is not there is no error."""
    if name not in links():
        return
    for port in links(master=name):
        # a link between network namespaces may go by itself while its pod's namespace is being taken down
        subprocess.run(["ip", "link", "del", port], env=PATH, capture_output=True, timeout=patient(30), check=False)
    _ip("link", "del", name)


def links(*, master: str | None = None) -> list[str]:
    """The names of this machine's links; with ``master``, those that hang on it."""
    words = ["ip", "-j", "link", "show", *(["master", master] if master else [])]
    return [str(link["ifname"]) for link in _json(words)]


def write_cni(folder: Path, bridge: Bridge, leases: Path) -> None:
    """The one CNI network, for containerd."""
    folder.mkdir(parents=True, exist_ok=True)
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": bridge.subnet, "gateway": bridge.address}]],
        "routes": [{"dst": "0.0.0.0/0", "gw": bridge.address}],
        "dataDir": str(leases),
    }
    # isGateway would give the bridge its address, which it has, and switch the whole machine's forwarding on
    plugin = {"type": "bridge", "bridge": bridge.name, "isGateway": False, "ipMasq": False, "ipam": ipam}
    network = {"cniVersion": "1.0.0", "name": bridge.name, "plugins": [plugin]}
    (folder / "10-tests.conflist").write_text(json.dumps(network), encoding="utf-8")


def free_subnet() -> ipaddress.IPv4Network:
    """A /24 that no address and no route of this machine touches.

    Raises:
        RuntimeError: every candidate is in use.
    """
    used = [ipaddress.ip_network(text, strict=False) for text in _routes()]
    for third in range(256):
        candidate = ipaddress.IPv4Network(f"10.214.{third}.0/24")
        if not any(candidate.overlaps(other) for other in used if isinstance(other, ipaddress.IPv4Network)):
            return candidate
    raise RuntimeError("every subnet of 10.214.0.0/16 is in use on this machine")


def _routes() -> list[str]:
    destinations = [route["dst"] for route in _json(["ip", "-j", "-4", "route", "show", "table", "all"])]
    return [text for text in destinations if text != "default"]


def _json(words: list[str]) -> list[dict[str, Any]]:
    said = subprocess.run(words, env=PATH, check=True, capture_output=True, text=True, timeout=patient(30)).stdout
    return [entry for entry in json.loads(said or "[]") if entry]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], env=PATH, check=True, capture_output=True, text=True, timeout=patient(30))
