"""A service that starts while its cluster cannot be read knows no offer: no place in line ends for that."""

from __future__ import annotations

from pathlib import Path

from hub_extensions.core.messages import Ask
from tests.fakes.cluster_table import ClusterTable, node
from tests.hub_service.pod_room import SMALL, pod_room


async def test_a_place_and_a_promised_gpu_are_kept_when_the_hub_asks_anew_before_the_cluster_was_read(
    tmp_path: Path,
) -> None:
    cluster = ClusterTable(node("a", (SMALL, 1)))
    async with pod_room(tmp_path, cluster) as r:
        first, second = await r.ask("ada"), await r.ask("ben")
        assert (first.answer, second.answer) == ("admit", "wait")
        hub, hands = r.hub, r.hands
    away = ClusterTable()
    away.problem = "The cluster has not been read yet."
    async with pod_room(tmp_path, away, hub=hub, hands=hands) as r:
        for user, before in (("ada", first), ("ben", second)):
            told = await r.desk.ask(Ask(user, "", (SMALL,), {}))
            assert (told.ticket, told.answer, told.grant) == (before.ticket, "wait", None)
        assert told.reason == "None of your offers is there now."
        refused = await r.desk.ask(Ask("cem", "", (SMALL,), {}))
        assert (refused.answer, refused.reason_word) == ("refuse", "unknown-offer")
        r.desk.releases.cluster = cluster  # type: ignore[union-attr]
        await r.look()
        told = await r.desk.ask(Ask("ada", "", (SMALL,), {}, ticket=first.ticket))
        assert told.answer == "admit" and told.grant is not None and told.grant.pod is not None
        assert r.positions()["ben"] == 1
