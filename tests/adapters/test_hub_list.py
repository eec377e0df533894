"""The list of the hub's servers: our one answer, JupyterHub's pages where the hub lacks that, and pages that move."""

from __future__ import annotations

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway
from tests.fakes.hub import FakeServer, FakeUser, HubWhoseListMoves, HubWithoutOurList


async def test_a_hub_without_our_list_is_asked_for_it_again_after_ten_minutes_or_once_it_came_back() -> None:
    clock = 0.0
    async with HubWithoutOurList() as fake:
        fake.users["ada"] = FakeUser(servers={"": FakeServer()})
        api = HubApi(fake.url, fake.token, monotonic=lambda: clock)

        async def asked_by_a_look() -> int:
            """How often a look, which finds everybody, asks for our list."""
            fake.asked.clear()
            assert [each.user for each in await api.servers()] == ["ada"]
            return len([path for path, _ in fake.sent("GET") if path.endswith("/gpu/servers")])

        assert await asked_by_a_look() == 1
        clock = 599.0
        assert await asked_by_a_look() == 0
        clock = 600.0
        assert [await asked_by_a_look() for _ in range(2)] == [1, 0]
        fake.away = True
        with pytest.raises(HubAway):
            await api.servers()
        fake.away = False
        assert [await asked_by_a_look() for _ in range(2)] == [1, 0]
        clock, fake.ours = 1200.0, 500
        assert [await asked_by_a_look() for _ in range(2)] == [1, 1], "its database was locked: it may have the list"
        fake.ours = 403
        assert [await asked_by_a_look() for _ in range(2)] == [1, 0]
        api.close()


async def test_a_list_that_moves_between_two_pages_misses_nobody() -> None:
    """Offsets of a list that shrinks pass over somebody: it is read again."""
    async with HubWhoseListMoves(times=1, page_limit=3) as fake:
        fake.users.update((f"u{number}", FakeUser(servers={"": FakeServer()})) for number in range(8))
        api = HubApi(fake.url, fake.token)
        assert [each.user for each in await api.servers()] == [f"u{number}" for number in range(1, 8)]
        api.close()


async def test_a_list_that_never_holds_still_is_the_union_of_what_was_seen() -> None:
    async with HubWhoseListMoves(times=100, page_limit=5) as fake:
        fake.users.update((f"u{number:02}", FakeUser(servers={"": FakeServer()})) for number in range(30))
        api = HubApi(fake.url, fake.token)
        seen = {each.user for each in await api.servers()}
        assert seen >= set(fake.users)
        api.close()
