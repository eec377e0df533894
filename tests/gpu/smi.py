"""What nvidia-smi says of this machine's GPUs, and where the product's reading says otherwise."""

from __future__ import annotations

import csv
import re
import subprocess
from dataclasses import dataclass
from xml.etree import ElementTree

from hub_extensions.core.gpu.devices import InventoryReading
from tests.patience import patient

MIB = 1 << 20
NEAR_BYTES = 64 * MIB
"""The two look one after the other, and nvidia-smi rounds: so much may lie between them."""


@dataclass(frozen=True)
class Said:
    """One GPU or MIG device, as nvidia-smi prints it. `profile` None: a whole GPU; bytes None: N/A."""

    uuid: str
    product: str
    profile: str | None
    total_bytes: int | None
    used_bytes: int | None


def ask(program: str = "nvidia-smi") -> dict[str, Said]:
    """Everything a server can be given, by UUID: GPUs that are not in MIG mode, and MIG devices."""
    query = "--query-gpu=uuid,name,memory.total,memory.used,mig.mode.current"
    table = _run(program, query, "--format=csv,noheader,nounits")
    return {one.uuid: one for one in parse(table, _run(program, "-L"), _run(program, "-q", "-x"))}


def parse(table: str, listing: str, xml: str) -> list[Said]:
    """Of the csv table the GPUs, of ``-L`` the UUIDs of MIG devices, of ``-q -x`` their memory."""
    memory = _memory_of_mig_devices(xml)
    listed = _mig_devices(listing)
    found = []
    for uuid, product, total, used, mode in csv.reader(table.splitlines(), skipinitialspace=True):
        if mode != "Enabled":
            found.append(Said(uuid, product, None, _bytes(total), _bytes(used)))
            continue
        for number, (profile, mig) in enumerate(listed.get(uuid, [])):
            sizes = memory.get((uuid, number), (None, None))
            found.append(Said(mig, product, profile, *sizes))
    return found


def differences(reading: InventoryReading, said: dict[str, Said]) -> list[str]:
    """Sentences; empty where the two say the same. Only the devices in `reading` are compared."""
    found = []
    for device in reading.devices:
        if device.uuid not in said:
            found.append(f"{device.uuid}: nvidia-smi does not list it")
            continue
        other, sample = said[device.uuid], reading.samples.get(device.uuid)
        used = None if sample is None else sample.memory_used_bytes
        if (device.product, device.profile) != (other.product, other.profile):
            found.append(f"{device.uuid}: {device.product} {device.profile}, nvidia-smi: {other}")
        for what, ours, theirs in (
            ("memory", device.memory_bytes, other.total_bytes),
            ("used memory", used, other.used_bytes),
        ):
            if (ours is None) != (theirs is None) or abs((ours or 0) - (theirs or 0)) > NEAR_BYTES:
                found.append(f"{device.uuid}: {what} {ours}, nvidia-smi: {theirs}")
    return found


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=patient(60)).stdout


def _bytes(text: str | None) -> int | None:
    """Of ``1234`` or ``1234 MiB``."""
    match = re.fullmatch(r"(\d+)(?: MiB)?", (text or "").strip())
    return int(match.group(1)) * MIB if match else None


def _mig_devices(listing: str) -> dict[str, list[tuple[str, str]]]:
    """GPU -> profile and UUID of its MIG devices, in the order of their numbers."""
    found: dict[str, list[tuple[str, str]]] = {}
    gpu = ""
    for line in listing.splitlines():
        if match := re.match(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line):
            gpu = match.group(1)
        elif match := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            found.setdefault(gpu, []).append((match.group(1), match.group(2)))
    return found


def _memory_of_mig_devices(xml: str) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """(GPU, position in its list) -> total and used."""
    found = {}
    for gpu in ElementTree.fromstring(xml).iter("gpu"):
        uuid = gpu.findtext("uuid") or ""
        for number, mig in enumerate(gpu.iter("mig_device")):
            total, used = mig.findtext("fb_memory_usage/total"), mig.findtext("fb_memory_usage/used")
            found[uuid, number] = (_bytes(total), _bytes(used))
    return found
