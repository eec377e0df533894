"""What is asked of Prometheus, of whom, and for how long an answer is believed: with answers as values."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.prometheus import DcgmReading
from hub_extensions.core.gpu.dcgm import DcgmUse, Measured, PodGpu
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import Mechanism
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.hub_service.engine.stops.dcgm import Dcgm, merged
from tests.fakes.cluster_table import A100, ClusterTable, node
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room
from tests.hub_service.engine.room import Room
from tests.hub_service.engine.test_followed_uses import four, lease

pytestmark = pytest.mark.slow

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class PrometheusSays:
    """Answers what it is told to, and keeps what it was asked about."""

    def __init__(self) -> None:
        self.says = DcgmReading()
        self.measured: frozenset[Measured] | DcgmReading = frozenset()
        self.asked: list[tuple[list[Any], list[Any]]] = []
        self.kinds_asked = 0

    async def query(self, wanted: Sequence[Device], devices: Sequence[Device], now: datetime) -> DcgmReading:
        self.asked.append(([each.uuid for each in wanted], [each.uuid for each in devices]))
        return self.says

    async def query_pods(
        self, wanted: Sequence[PodGpu], nodes: Collection[str], now: datetime, *, named: bool = False
    ) -> DcgmReading:
        self.asked.append((list(wanted), sorted(nodes)))
        return self.says

    async def kinds(self) -> frozenset[Measured] | DcgmReading:
        self.kinds_asked += 1
        return self.measured

    def factor(self, profile: str | None, product: str) -> float:
        return len(product) / 10 if profile else 1.0


def dcgm_of(r: Room, said: PrometheusSays) -> Dcgm:
    return Dcgm(r.engine.state, said)  # type: ignore[arg-type]


async def test_on_a_machine_only_leased_devices_are_asked_about_whose_use_is_not_measured_here(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        said, state = PrometheusSays(), r.engine.state
        dcgm = dcgm_of(r, said)
        await dcgm.refresh()
        assert (said.asked, dcgm.reading, dcgm.answers()) == ([], None, True)
        both = ["MIG-small-0", "MIG-large-0"]
        unknown = replace(state.samples["MIG-small-0"], used_percent=None, source="none")
        state.samples = {**state.samples, "MIG-small-0": unknown}
        await dcgm.refresh()
        state.samples = {}
        await dcgm.refresh()
        held = lease(state, "cid")
        del state.leases[held.id]
        await dcgm.refresh()
        state.devices = {
            name: replace(each, present=each.device.uuid != both[0]) for name, each in state.devices.items()
        }
        await dcgm.refresh()
        assert said.asked == [(both[:1], both), (both, both), (both[:1], both)]
        assert Dcgm(state, None).answers() is None and Dcgm(state, None).status() is None


async def test_an_answer_is_believed_until_it_is_a_minute_old(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        said, state = PrometheusSays(), r.engine.state
        dcgm, held, other = dcgm_of(r, said), lease(state, "ada"), lease(state, "cid")
        state.samples = {}
        use = DcgmUse(held.uuid, r.hands.wall - 20 * SECOND, 7.0)
        said.says = DcgmReading({held.uuid: use}, {other.uuid: "old"})
        assert (
            dcgm.use(held) is None and dcgm.why_not(held) == "" and dcgm.status() == "not asked: no leased GPU needs it"
        )
        await dcgm.refresh()
        assert (dcgm.use(held), dcgm.use(other)) == (use, None)
        assert (dcgm.why_not(held), dcgm.why_not(other)) == ("", "old")
        assert dcgm.status() == "answers, with figures of 1 of 2 GPUs"
        r.hands.pass_time(40 * SECOND)
        assert dcgm.use(held) == use
        r.hands.pass_time(0.1 * SECOND)
        assert dcgm.use(held) is None


async def test_a_prometheus_that_is_away_takes_nothing_back_and_is_away_since_then(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        said, state = PrometheusSays(), r.engine.state
        dcgm, held = dcgm_of(r, said), lease(state, "ada")
        state.samples = {}
        said.says = DcgmReading({held.uuid: DcgmUse(held.uuid, r.hands.wall, 7.0)})
        await dcgm.refresh()
        said.says, since = DcgmReading(reason="away", message="No answer."), r.hands.wall
        for _ in range(2):
            await dcgm.refresh()
            assert (dcgm.away_since, dcgm.answers(), dcgm.use(held) is not None) == (since, False, True)
            assert dcgm.status() == f"no figures since {since.isoformat(timespec='seconds')}: No answer."
            r.hands.pass_time(10 * SECOND)
        said.says = DcgmReading()
        await dcgm.refresh()
        assert (dcgm.away_since, dcgm.answers(), dcgm.use(held)) == (None, True, None)
        said.says = DcgmReading(reason="away")
        await dcgm.refresh()
        state.leases.clear()
        await dcgm.refresh()
        assert (dcgm.away_since, dcgm.reading) == (None, None), "there is nothing to ask"


async def test_each_change_of_the_kind_of_answer_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with four(tmp_path) as r:
        said, state = PrometheusSays(), r.engine.state
        dcgm, held, other = dcgm_of(r, said), lease(state, "ada"), lease(state, "cid")
        state.samples = {}
        figures = {held.uuid: DcgmUse(held.uuid, r.hands.wall, 7.0)}
        for answer, level, text in (
            (DcgmReading(figures, {other.uuid: "old"}), logging.WARNING, "no use of 1 of 2 leased GPU(s)"),
            (DcgmReading(reason="away", message="No answer."), logging.WARNING, "No answer. The use"),
            (DcgmReading(figures), logging.INFO, "the use of all 1 leased GPU(s)"),
        ):
            said.says = answer
            with caplog.at_level(logging.INFO, "hub_extensions.hub_service"):
                for _ in range(2):
                    await dcgm.refresh()
            ours = [record for record in caplog.records if record.name.startswith("hub_extensions")]
            assert [record.levelno for record in ours] == [level] and text in caplog.text
            caplog.clear()


@pytest.mark.parametrize(
    ("sample", "use", "expected"),
    [
        (None, None, None),
        (None, 7.0, (7.0, "dcgm", None)),
        (5.0, None, (5.0, "nvml", 9)),
        (5.0, 7.0, (5.0, "nvml", 9)),
        ("none", 7.0, (7.0, "dcgm", 9)),
        ("none", None, (None, "none", 9)),
    ],
)
def test_the_machines_own_figure_comes_first(
    sample: float | str | None, use: float | None, expected: tuple[float | None, str, int | None] | None
) -> None:
    at = datetime(2026, 1, 5, 12)
    own = None
    if sample is not None:
        known = sample if isinstance(sample, float) else None
        own = DeviceSample("u", at, known, 9, None, "none" if known is None else "nvml")
    found = merged(own, None if use is None else DcgmUse("u", at, use))
    assert (found and (found.used_percent, found.source, found.memory_used_bytes)) == expected


# ------------------------------------------------------------------ on a cluster


def of_pods(r: PodRoom, said: PrometheusSays) -> Dcgm:
    return Dcgm(r.engine.state, said)  # type: ignore[arg-type]


async def test_on_a_cluster_the_pods_of_leases_that_live_are_asked_about(tmp_path: Path) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 3)), node("b", (SMALL, 1)))) as r:
        said = PrometheusSays()
        dcgm, state = of_pods(r, said), r.engine.state
        await dcgm.refresh()
        assert (said.asked, said.kinds_asked, dcgm.kinds) == ([], 1, frozenset())
        held = [await r.run(user) for user in ("ada", "ben", "cid", "dan")]
        for each, now in zip(
            held, (LeaseState.STARTING, LeaseState.LOST, LeaseState.ENDING, LeaseState.RUNNING), strict=True
        ):
            state.leases[each.id] = replace(each, state=now)
        by_lease = {each: pod for each, pod in state.pods.by_lease.items() if each != held[3].id}
        state.pods = replace(state.pods, by_lease=by_lease)
        await dcgm.refresh()
        ((wanted, nodes),) = said.asked
        assert [each.lease for each in wanted] == [each.id for each in held[:2]] and nodes == ["a", "b"]
        ada = wanted[0]
        assert (ada.pod, ada.node, ada.uid, ada.profile, ada.devices) == (
            "jupyter-ada",
            "a",
            "uid-jupyter-ada",
            "1g.5gb",
            1,
        )
        assert (ada.shared, ada.factor) == (False, len(A100) / 10)
        state.cluster = None
        await dcgm.refresh()
        (bare, _), nodes = said.asked[1]
        assert nodes == [] and (bare.profile, bare.devices, bare.shared, bare.factor) == ("1g.5gb", 1, False, 0.0)


async def test_which_kinds_there_are_is_asked_once_a_minute_and_at_once_after_no_answer(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        said = PrometheusSays()
        dcgm = of_pods(r, said)
        for seconds, asked in ((0, 1), (59, 1), (1, 2), (59, 2)):
            r.hands.pass_time(seconds * SECOND)
            await dcgm.refresh()
            assert said.kinds_asked == asked
        said.measured = DcgmReading(reason="refused", message="No.")
        r.hands.pass_time(SECOND)
        await dcgm.refresh()
        assert (dcgm.kinds, dcgm.away_since) == (None, r.hands.wall)


@pytest.mark.parametrize(
    ("offer", "share", "changes", "shared"),
    [
        (SMALL, 1000, {}, False),
        (SMALL, 500, {}, True),
        (f"{SMALL}.shared", 1000, {}, True),
        (SMALL, 1000, {"replicas": 2}, True),
        (SMALL, 1000, {"mechanism": Mechanism.HAMI}, True),
    ],
)
async def test_a_gpu_may_be_shared_where_the_pool_or_the_lease_says_so(
    tmp_path: Path, offer: str, share: int, changes: dict[str, Any], shared: bool
) -> None:
    async with pod_room(tmp_path) as r:
        state, held = r.engine.state, await r.run("ada")
        assert state.cluster is not None
        pool = replace(state.cluster.survey.pools[OfferId(SMALL)], **changes)
        survey = replace(state.cluster.survey, pools={OfferId(SMALL): pool})
        state.cluster = replace(state.cluster, survey=survey)
        pod = r.engine.state.pods.of(held)
        assert pod is not None
        dcgm = of_pods(r, PrometheusSays())
        assert dcgm._pod_gpu(replace(held, pool=offer, share=share), pod).shared is shared
        for count, devices in ((0, 1), (3, 3)):
            asks = replace(pod, requests={f"nvidia.com/{SMALL}": count})
            assert dcgm._pod_gpu(held, asks).devices == devices
        assert dcgm._pod_gpu(held, replace(pod, requests={})).devices == 1
