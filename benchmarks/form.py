"""The spawn form with 1,000 GPUs and 200 people in line, against the form of a hub without us, in the same run.

Both are real hubs behind their proxies, asked as a browser asks, in turn. Our hub's service is the real one over
simulated GPUs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import requests

from benchmarks.figures import latency_row, quantile
from tests.fakes.signed import Signs
from tests.hubs import Hub, until
from tests.loop.place import Place

GPUS, WAITING, ASKED = 1000, 200, 200
LAYOUT = (
    'title: "A thousand whole GPUs"\ngpus:\n' + "  - {product: NVIDIA A100-PCIE-40GB, memory_gib: 40, sm: 108}\n" * GPUS
)
STOCK = """
c.Spawner.options_form = '<label><input type="radio" name="size" value="a" checked> A</label>' * 3
"""


def main() -> None:
    """Two hubs, one after the other asked in turn."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "ours", layout=LAYOUT, lab=False, config="c.GpuQueue.max_starting = 5000")
        capacity = Hub(Path(folder) / "stock", STOCK)
        with place.open(), capacity:
            fill(place)
            ours, theirs = (hub.login("ada") for hub in (place.hub, capacity))
            page = ours.get(f"{place.hub.url}/hub/spawn/ada", timeout=30).text
            assert f"0 of {GPUS} free" in page, "the form shows the full house"
            mine, plain = [], []
            for _ in range(ASKED):
                mine.append(timed(ours, f"{place.hub.url}/hub/spawn/ada"))
                plain.append(timed(theirs, f"{capacity.url}/hub/spawn/ada"))
    print(f"{GPUS:,} GPUs, {WAITING} in line, {ASKED} forms each")
    print(latency_row("the hub's own form", plain))
    print(latency_row("our form", mine))
    over = quantile(mine, 0.95) - quantile(plain, 0.95)
    print(f"p95 over the hub's own: {over * 1000:.1f} ms ({quantile(mine, 0.95) / quantile(plain, 0.95):.2f} times)")


def fill(place: Place) -> None:
    """Everything taken and 200 waiting, asked for as the hub asks."""
    url = f"http://127.0.0.1:{place.port}/services/gpu/hub/tickets"
    session = requests.Session()
    session.auth = Signs(place.secret())
    until(lambda: f'"total":{GPUS}' in place.service("hub/form?user=ada&server=&admin=0").text, 30, "the GPUs are read")
    for number in range(GPUS + WAITING):
        body = {"user": f"u{number}", "server": "", "offers": ["gpu"], "options": {"offer": "gpu"}, "groups": []}
        answer = session.post(url, json=body, timeout=30)
        assert answer.ok, answer.text
    assert answer.json()["position"] == WAITING, answer.text


def timed(session: requests.Session, url: str) -> float:
    began = time.perf_counter()
    answer = session.get(url, timeout=30)
    took = time.perf_counter() - began
    assert answer.ok and "spawn_form" in answer.text
    return took


if __name__ == "__main__":
    main()
