"""Which processes are servers that the hub knows nothing of; whatever leaves a doubt makes none."""

from __future__ import annotations

import pytest

from hub_extensions.core.culling.orphans import ListedServer, ServerProcess, unknown_to_the_hub

ADA = ("ada", "")
FIRST = ServerProcess(11, 900, frozenset({5}), *ADA)
SECOND = ServerProcess(12, 950, frozenset({6}), *ADA)


@pytest.mark.parametrize(
    ("found", "listed", "busy", "orphans"),
    [
        ([FIRST], [], [], [FIRST]),
        ([FIRST], [ListedServer("ben", "", True, 44)], [], [FIRST]),
        ([FIRST], [ListedServer(*ADA, True, 11)], [], []),
        ([FIRST], [ListedServer(*ADA, True, 5)], [], []),  # the hub knows what started it
        ([FIRST], [ListedServer("augusta", "", True, 11)], [], []),  # its user was renamed
        ([FIRST, SECOND], [ListedServer(*ADA, True, 12)], [], [FIRST]),  # started anew, and that one answers
        ([FIRST, SECOND], [ListedServer(*ADA, True, 6)], [], [FIRST]),
        ([FIRST], [ListedServer(*ADA, True, 12)], [], []),  # what the hub knows answers nowhere: it may be a wrapper
        ([FIRST, SECOND], [ListedServer(*ADA, False, 12)], [], []),  # starting or stopping
        ([FIRST], [ListedServer(*ADA, False, None)], [], []),
        ([FIRST], [ListedServer("ben", "", False, None)], [], [FIRST]),
        ([FIRST], [ListedServer("ben", "", True, None)], [], []),  # it may be this one, under another name
        ([FIRST], [], [ADA], []),
        ([FIRST, SECOND], [], [], [FIRST, SECOND]),
        ([], [ListedServer(*ADA, True, 11)], [], []),
    ],
)
def test_a_server_is_an_orphan_only_beyond_doubt(
    found: list[ServerProcess], listed: list[ListedServer], busy: list[tuple[str, str]], orphans: list[ServerProcess]
) -> None:
    assert unknown_to_the_hub(found, listed, busy) == tuple(orphans)
