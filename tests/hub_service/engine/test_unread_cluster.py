"""A service that starts while its cluster cannot be read knows nothing of what is there, which is not *nothing*."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hub_extensions.core.messages import Ask
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.engine.engine import NONE_CAN_BE_GIVEN, UNREAD
from tests.fakes.cluster_table import ClusterTable, node
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room

pytestmark = pytest.mark.slow

UNKNOWN = "It is not known which GPUs are free now; once it is known, the line goes on."


def away() -> ClusterTable:
    table = ClusterTable()
    table.problem = "The cluster has not been read yet."
    return table


@asynccontextmanager
async def started_anew(path: Path, before: PodRoom) -> AsyncIterator[PodRoom]:
    """The service starts again on its store, and the API server does not answer."""
    async with pod_room(path, away(), hub=before.hub, hands=before.hands) as r:
        yield r


async def read(r: PodRoom, cluster: ClusterTable) -> None:
    """The API server answers at last."""
    r.pods.cluster = cluster
    await r.refresh()


async def test_a_place_and_a_promised_gpu_are_kept_when_the_hub_asks_anew_before_the_cluster_was_read(
    tmp_path: Path,
) -> None:
    cluster = ClusterTable(node("a", (SMALL, 1)))
    async with pod_room(tmp_path, cluster) as before:
        first, second, third = await before.ask("ada"), await before.ask("ben"), await before.ask("cem")
        assert (first.answer, second.answer) == ("admit", "wait")
    async with started_anew(tmp_path, before) as r:
        for user, told_before in (("ada", first), ("ben", second), ("cem", third)):
            told = await r.engine.ask(Ask(user, "", (OfferId(SMALL),), {}))
            assert (told.ticket, told.answer, told.grant) == (told_before.ticket, "wait", None)
            assert told.position == told_before.position
        assert (told.position, told.reason.message) == (2, f"{UNKNOWN} 1 person is ahead of you.")
        assert r.positions() == {"ada": 0, "ben": 1, "cem": 2}
        await read(r, cluster)
        told = await r.engine.ask(Ask("ada", "", (OfferId(SMALL),), {}, ticket=first.ticket))
        assert told.answer == "admit" and told.grant is not None and told.grant.pod is not None
        assert r.positions() == {"ada": 0, "ben": 1, "cem": 2}


async def test_the_form_has_the_offers_of_before_with_nothing_known_of_them_and_says_why(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as before:
        (known, cpu) = before.engine.form("eve", "", (), False).offers
        assert (known.free, known.total) == (2, 2)
    async with started_anew(tmp_path, before) as r:
        form = r.engine.form("eve", "", (), False)
        assert [offer.id for offer in form.offers] == [known.id, cpu.id]
        assert (form.offers[0].title, form.offers[0].free, form.offers[0].total) == (known.title, None, None)
        assert (form.caution, form.as_of) == (UNREAD, None)
        await read(r, ClusterTable(node("a", (SMALL, 2))))
        assert r.engine.form("eve", "", (), False).caution == ""


async def test_a_form_with_cpu_only_says_that_there_are_gpus_that_nobody_can_be_given(tmp_path: Path) -> None:
    uncut = node("a", labels={"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "0"})
    async with pod_room(tmp_path, ClusterTable(uncut)) as r:
        form = r.engine.form("eve", "", (), False)
        assert ([offer.id for offer in form.offers], form.caution) == (["cpu"], NONE_CAN_BE_GIVEN)
        assert "MIG is switched on and nothing is cut" in str(r.pods.info().left_out)
        await read(r, ClusterTable())
        assert r.engine.form("eve", "", (), False).caution == ""


async def test_an_offer_that_is_hidden_or_for_other_groups_by_now_is_so_before_the_cluster_was_read(
    tmp_path: Path,
) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2), ("mig-2g.10gb", 1)))) as before:
        assert len(before.engine.form("eve", "", (), False).offers) == 3
    async with started_anew(tmp_path, before) as r:
        r.engine.state.offer_config = OfferConfig(groups={SMALL: ("course-a",)}, hidden=("mig-2g.10gb",))
        r.engine.state.expect_cluster()
        assert [offer.id for offer in r.engine.form("eve", "", (), False).offers] == ["cpu"]
        assert (await r.ask("eve", SMALL)).reason.reason == "unknown-offer"
        assert (await r.ask("eve", "mig-2g.10gb")).reason.reason == "unknown-offer"


async def test_whoever_joins_before_the_cluster_was_ever_read_waits_and_is_admitted_once_it_is(tmp_path: Path) -> None:
    async with pod_room(tmp_path, away()) as r:
        told = await r.ask("ada")
        assert (told.answer, told.position, told.reason.message) == ("wait", 1, f"{UNKNOWN} You are next.")
        assert (await r.ask("ben", SMALL)).position == 2
        assert [offer.id for offer in r.engine.form("ben", "", (), False).offers] == ["cpu"]
        assert (await r.ask("ada", server="two")).reason.reason == "own-ticket-limit"
        assert (await r.ask("dan", "cpu")).answer == "admit"
        await read(r, ClusterTable(node("a", (SMALL, 1))))
        assert r.holds("ada") and r.positions()["ben"] == 1


async def test_whoever_joined_for_something_that_is_not_there_is_told_so_once_the_cluster_was_read(
    tmp_path: Path,
) -> None:
    async with pod_room(tmp_path, away()) as r:
        assert (await r.ask("ada", "mig-7g.80gb")).answer == "wait"
        assert (await r.ask("ben")).answer == "wait"
        await read(r, ClusterTable(node("a", (SMALL, 1))))
        assert not any(ticket.user == "ada" for ticket in r.engine.state.tickets.values())
        (notice,) = r.engine.form("ada", "", (), False).notices
        assert notice.text == "There is no offer \u201cmig-7g.80gb\u201d here. Offers: cpu, mig-1g.5gb."
        assert r.holds("ben")


async def test_an_offer_that_went_away_later_costs_no_place_and_nobody_is_told_to_be_first(tmp_path: Path) -> None:
    cluster = ClusterTable(node("a", (SMALL, 1)))
    async with pod_room(tmp_path, cluster) as r:
        await r.ask("ada")
        assert (await r.ask("ben")).position == 1
        r.engine.state.offers = tuple(offer for offer in r.engine.state.offers if offer.id == "cpu")
        told = await r.engine.ask(Ask("ben", "", (OfferId(SMALL),), {}))
        assert (told.answer, told.position, told.reason.message) == ("wait", 0, "None of your offers is there now.")
