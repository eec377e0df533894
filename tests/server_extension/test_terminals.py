"""Which terminals of a server run a program, with real shells under real pseudo-terminals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from terminado import NamedTermManager

from hub_extensions.server_extension.terminals import busy_terminals
from tests.patience import soon

pytestmark = [pytest.mark.programs, pytest.mark.quick]


@pytest.fixture
async def manager() -> Iterator[NamedTermManager]:  # type: ignore[misc]
    made = NamedTermManager(shell_command=["sh"], max_terminals=9)
    yield made
    await made.kill_all()


async def test_a_terminal_is_busy_while_a_program_runs_in_it(manager: NamedTermManager) -> None:
    assert busy_terminals(manager) == 0
    one, other = manager.get_terminal("1"), manager.get_terminal("2")
    assert busy_terminals(manager) == 0, "a shell that waits is no work"
    one.ptyproc.write("cat\n")
    await soon(lambda: busy_terminals(manager) == 1)
    other.ptyproc.write("cat <&9 9<&0 & exec 8>&1; sleep 1000 &\n")
    await soon(lambda: busy_terminals(manager) == 2)
    one.ptyproc.write("\x04")
    await soon(lambda: busy_terminals(manager) == 1)


def test_what_cannot_be_seen_is_not_known() -> None:
    class Elsewhere:
        terminals = {"1": object()}

    assert busy_terminals(None) is None
    assert busy_terminals(Elsewhere()) is None
