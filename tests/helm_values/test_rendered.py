"""Each example, as its hub would be told it: a real JupyterHub on the tests' cluster, from the offer to the stop.

The values files are those of the example's own README, in its order. Real: hub, service, spawner, API server, scheduler
and the rights of our manifests. Played: the nodes with the example's devices, and their pods, at whose addresses a
small responder answers. Not here: the chart's own objects (``--chart``), images, volumes, and anything that only a
kubelet does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from playwright.sync_api import expect

from tests.cluster.played_nodes import PlayedNodes
from tests.helm_values.conftest import Released
from tests.helm_values.release import Release
from tests.helm_values.rendering import EXAMPLES, read
from tests.hubs import ROOT, USERS, until
from tests.loop.place import Person, browsers
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300), pytest.mark.hub]

APART = "helm-values/service-deployment.yaml"
STARTED = 90.0
"""Seconds that seven servers take at most, on two cores that others use too."""


@dataclass(frozen=True)
class Example:
    """What an example's nodes have, and who does what there.

    Attributes:
        devices: allocatable resource -> how many, of the one node that is played.
        labels: of that node.
        choices: offers that are taken, one a user, until `choices[-1]` is full; one more user waits for that.
        group: a group that all of them are in.
    """

    devices: dict[str, int]
    labels: dict[str, str]
    choices: tuple[str, ...]
    group: str = ""


def gpu(product: str, **more: str) -> dict[str, str]:
    """Labels as GPU Feature Discovery writes them: ``gpu_memory="40960"`` is ``nvidia.com/gpu.memory``."""
    found = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": product}
    return found | {f"nvidia.com/{key.replace('_', '.')}": value for key, value in more.items()}


def mig(profile: str, count: int, memory: int, sms: int) -> dict[str, str]:
    """Labels of one profile under the mixed strategy."""
    said = {"count": count, "memory": memory, "multiprocessors": sms, "replicas": 1, "sharing-strategy": "none"}
    return {f"nvidia.com/mig-{profile}.{key}": str(value) for key, value in said.items()}


MIXED = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.config.state": "success", "nvidia.com/mig.capable": "true"}
A100 = gpu("NVIDIA-A100-PCIE-40GB", gpu_count="1", gpu_replicas="0") | MIXED
DGX = gpu("NVIDIA-A100-SXM4-80GB", gpu_count="8", gpu_memory="81920") | MIXED
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
FOUND = {
    "lab-a100-40gb": Example(
        {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 5, "nvidia.com/mig-2g.10gb": 1},
        A100 | mig("1g.5gb", 5, 4864, 14) | mig("2g.10gb", 1, 9856, 28),
        ("mig-2g.10gb", *["mig-1g.5gb"] * 5),
    ),
    "dgx-mixed": Example(
        {
            "nvidia.com/gpu": 4,
            "nvidia.com/mig-3g.40gb": 4,
            "nvidia.com/mig-2g.20gb": 4,
            "nvidia.com/mig-1g.10gb": 8,
        },
        DGX
        | {"jupyterhub-gpu/use": "interactive"}
        | mig("3g.40gb", 4, 40192, 42)
        | mig("2g.20gb", 4, 19968, 28)
        | mig("1g.10gb", 8, 9728, 14),
        ("mig-1g.10gb", "mig-3g.40gb", "gpu", "gpu", "gpu", "gpu"),
        group="thesis",
    ),
    "one-node-time-sliced": Example(
        {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 4},
        gpu("NVIDIA-L4", gpu_count="1", gpu_memory="23034") | SHARED,
        ("cpu", *["gpu.shared"] * 4),
    ),
    "class-of-300": Example(  # one of its twenty machines
        {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 7}, A100 | mig("1g.5gb", 7, 4864, 14), ("mig-1g.5gb",) * 7
    ),
}


SHOWN = (
    ("lab-a100-40gb", "in the hub's pod", "6.1"),
    ("lab-a100-40gb", "apart", "5.5"),
    ("class-of-300", "in the hub's pod", "5.5"),
    ("class-of-300", "apart", "6.1"),
    ("dgx-mixed", "in the hub's pod", "5.5"),  # on 6.1: that of its group
    ("one-node-time-sliced", "in the hub's pod", "6.1"),
)
"""Each example on one generation of the hub, each place of the service on both."""


def files_of(example: str) -> list[Path]:
    """The values files that the example's README puts after the admin's own."""
    said = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    found = [ROOT / file for file in re.findall(r"^ +-f (helm-values/\S+)", said, re.MULTILINE)]
    assert found[-1] == EXAMPLES / example / "values.yaml" and found[0].name == "gpu.yaml", found
    return found


@contextmanager
def running(example: str, released: Released, played_nodes: PlayedNodes, *, apart: bool) -> Iterator[Release]:
    """The example as a release, on a node that is as its README wants it."""
    facts, files = FOUND[example], [file for file in files_of(example) if file != ROOT / APART]
    files[-1:-1] = [ROOT / APART] if apart else []
    name = f"{example[:12].strip('-')}-{'apart' if apart else 'in-hub'}"
    with played_nodes.node(example, facts.devices, labels=facts.labels):
        restricted = any(file.name == "restricted.yaml" for file in files)
        release = released(name, apart=apart, restricted=restricted)
        release.install(*read(*files))
        release.hub.add_users(*USERS)
        if facts.group:
            release.hub.add_group(facts.group, *USERS)
        yield release


def free(release: Release) -> dict[str, int | None]:
    """What is free of each offer, as an admin's form has it."""
    answer = release.service("hub/form?user=root-admin&admin=1")
    answer.raise_for_status()
    return {offer["id"]: offer["free"] for offer in answer.json()["offers"] if offer["id"] != "cpu"}


def form_of(release: Release, user: str) -> set[str]:
    """The offers on this user's own form."""
    page = release.hub.login(user).get(f"{release.hub.url}/hub/spawn/{user}", timeout=patient(20)).text
    return set(re.findall(r'name="offer"[^>]*value="([^"]+)"', page))


@pytest.mark.parametrize(
    ("example", "apart"),
    [
        pytest.param(example, place == "apart", id=f"{example}, {place}", marks=pytest.mark.hub(generation))
        for example, place, generation in SHOWN
    ],
)
def test_an_example_from_the_offer_to_the_stop(
    example: str, apart: bool, released: Released, played_nodes: PlayedNodes
):
    taken = FOUND[example].choices
    with running(example, released, played_nodes, apart=apart) as release:
        hub, last = release.hub, taken[-1]
        totals = {key.removeprefix("nvidia.com/"): count for key, count in FOUND[example].devices.items() if count}
        until(lambda: free(release) == totals, 30, lambda: f"{free(release)} is {totals}")

        people = {user: hub.login(user) for user in USERS[: len(taken) + 1]}
        for user, offer in zip(people, taken, strict=False):
            choose(release, people[user], user, offer)
            hub.wait_ready(user, seconds=STARTED)
            answer = people[user].get(f"{hub.url}/user/{user}/", timeout=patient(10))
            assert "played" in answer.json(), "the server answers through the proxy"
            print(f"{user}: {offer}, {release.limits(user) or 'no GPU'}")
        used = Counter(offer for offer in taken if offer != "cpu")
        left = {offer: total - used[offer] for offer, total in totals.items()}
        until(lambda: free(release) == left, 30, lambda: f"{free(release)} is {left}")

        waits = USERS[len(taken)]
        choose(release, people[waits], waits, last)
        until(lambda: release.waiting() == [waits], 30, lambda: f"{release.line()}")
        assert hub.pending(waits) == "spawn" and waits not in release.pods(), "who waits has no pod"
        page = people[waits].get(f"{hub.url}/hub/spawn-pending/{waits}", timeout=patient(10))
        assert 'You are <span class="gpu-place">1st</span> in line' in page.text
        print(f"{waits}: 1st in line for {last}")

        gone = USERS[len(taken) - 1]
        assert hub.stop_server(gone).status_code in (202, 204)
        hub.wait_ready(waits, seconds=STARTED)
        print(f"{gone} stopped; {waits}: {release.limits(waits)}")
        for user in people:
            hub.stop_server(user)
        until(lambda: free(release) == totals, 30, lambda: f"{free(release)} is {totals}")
        until(lambda: not release.pods(), 30, lambda: f"{list(release.pods())}")


def choose(release: Release, session: requests.Session, user: str, offer: str) -> None:
    """Take the offer on the form, as a browser does."""
    address = f"{release.hub.url}/hub/spawn/{user}"
    form = session.get(address, timeout=patient(20))
    assert f'value="{offer}"' in form.text, (user, offer, form.text)
    xsrf = session.cookies.get("_xsrf", path="/hub/") or ""
    answer = session.post(address, data={"offer": offer, "_xsrf": xsrf}, timeout=patient(30))
    assert answer.ok, answer.text


@pytest.mark.hub("6.1")
def test_an_offer_of_a_group_is_for_that_group(released: Released, played_nodes: PlayedNodes):
    with running("dgx-mixed", released, played_nodes, apart=False) as release:
        release.hub.add_users("zoe")
        until(lambda: free(release).get("gpu") == 4, 30, lambda: f"{free(release)}")
        assert form_of(release, "zoe") == {"mig-1g.10gb", "mig-2g.20gb", "cpu"}
        assert form_of(release, USERS[0]) == {"gpu", "mig-3g.40gb", "mig-2g.20gb", "mig-1g.10gb", "cpu"}


@pytest.mark.hub("5.5")  # as the chart's
@pytest.mark.needs("browser")
def test_seven_people_with_browsers_share_six_pieces(released: Released, played_nodes: PlayedNodes, chromium_path: str):
    taken = FOUND["lab-a100-40gb"].choices
    with running("lab-a100-40gb", released, played_nodes, apart=False) as release, browsers(chromium_path) as browser:
        release.until_offered("mig-1g.5gb", 5)
        url, names = release.hub.url, USERS[:7]
        people = {name: Person(browser, url, name) for name in names}
        people[names[0]].form()
        form = people[names[0]].page.locator("#spawn_form")
        expect(form).to_contain_text("5 of 5 free")
        expect(form).to_contain_text("There is only one of these.")
        for name, offer in zip(names, taken, strict=False):
            people[name].take(offer)
            people[name].is_in_lab(STARTED)
            expect(people[name].page.locator("body")).to_contain_text("played")
        seventh = people[names[6]]
        seventh.take("mig-1g.5gb")
        seventh.waits("1st")
        expect(seventh.page.locator("#gpu-waiting")).to_contain_text("are in use")
        assert set(release.pods()) == set(names[:6]), "who waits has no pod"
        people[names[5]].stop_at_home()
        seventh.is_in_lab(STARTED)
        for person in people.values():
            person.leave()
