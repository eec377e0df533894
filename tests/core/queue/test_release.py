"""The evidence on which a lease on one machine ends, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub_extensions.core.queue.release import LeaseSigns, Sight, is_gone, is_released, is_unproved, marks_are_evidence

HUB, ADA, LOGIN = 990, 1001, 1002
ROOT = Sight(0)
PLAIN = Sight(HUB)


@pytest.mark.parametrize(
    ("sight", "accounts", "seen_here", "tell"),
    [
        (ROOT, (), False, True),
        (ROOT, (ADA,), False, True),
        # root in a container with the machine's processes, without the right to look into them
        (replace(ROOT, unread=frozenset({ADA})), (), False, False),
        (replace(ROOT, unread=frozenset({0})), (), False, False),
        (replace(ROOT, unread=frozenset({0, LOGIN})), (ADA,), True, True),
        (replace(ROOT, unread=frozenset({0, ADA})), (ADA,), True, False),
        # a container with its own processes alone
        (replace(ROOT, whole=False), (), False, False),
        (replace(ROOT, whole=False), (ADA,), False, False),
        (replace(ROOT, whole=False), (ADA,), True, True),
        # a hub that is not root: its own account's servers, beside every login of the machine
        (replace(PLAIN, unread=frozenset({0, LOGIN})), (HUB,), False, True),
        (replace(PLAIN, unread=frozenset({0})), (), False, True),
        (replace(PLAIN, unread=frozenset({0, LOGIN})), (), False, False),
        (replace(PLAIN, unread=frozenset({ADA})), (ADA,), True, False),
        (replace(PLAIN, unread=frozenset({ADA})), (HUB, ADA), True, False),
        # hidepid
        (replace(PLAIN, hidden=True), (HUB,), True, True),
        (replace(PLAIN, hidden=True), (ADA,), True, False),
        (replace(PLAIN, hidden=True), (), False, False),
        (replace(ROOT, hidden=True), (ADA,), True, False),
    ],
)
def test_marks_tell_where_those_of_the_servers_accounts_can_be_read(
    sight: Sight, accounts: tuple[int, ...], seen_here: bool, tell: bool
) -> None:
    assert marks_are_evidence(sight, accounts, seen_here=seen_here) is tell


SIGNS = LeaseSigns(
    process=None,
    has_process=False,
    marked=False,
    marks_are_evidence=False,
    ending=False,
    unseen=False,
    adopted=False,
    stopped=False,
    polled=False,
    on_device=False,
    readable=True,
)


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ({}, False),
        ({"unseen": True}, False),
        ({"unseen": True, "marks_are_evidence": True}, True),
        ({"unseen": True, "marks_are_evidence": True, "marked": True}, False),
        ({"adopted": True}, False),
        ({"adopted": True, "marks_are_evidence": True}, True),
        ({"has_process": True, "process": True, "unseen": True, "marks_are_evidence": True}, False),
        ({"has_process": True, "process": None, "unseen": True}, False),
        ({"has_process": True, "process": False}, True),
        ({"has_process": True, "process": False, "marked": True}, True),
    ],
)
def test_a_running_server_is_gone_by_evidence_alone(said: dict[str, bool | None], gone: bool) -> None:
    assert is_gone(replace(SIGNS, **said)) is gone  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "released"),
    [
        # marks that can be read
        ({"marks_are_evidence": True}, True),
        ({"marks_are_evidence": True, "on_device": None}, True),
        ({"marks_are_evidence": True, "on_device": True}, False),
        ({"marks_are_evidence": True, "marked": True}, False),
        ({"marks_are_evidence": True, "process": True}, False),
        ({"marks_are_evidence": True, "readable": False}, False),
        # marks that cannot: the hub's word or a dead process, and the driver's list
        ({}, False),
        ({"stopped": True}, True),
        ({"stopped": True, "on_device": True}, False),
        ({"stopped": True, "on_device": None}, False),
        ({"stopped": True, "polled": True, "on_device": None}, True),
        ({"stopped": True, "polled": True, "readable": False, "on_device": None}, False),
        ({"has_process": True, "process": False}, True),
        ({"has_process": True, "process": False, "on_device": None}, False),
        ({"has_process": True, "process": False, "readable": False}, False),
        ({"has_process": True, "process": None}, False),
        ({"has_process": True, "process": None, "stopped": True}, True),
    ],
)
def test_a_device_is_free_by_proof_alone(said: dict[str, bool | None], released: bool) -> None:
    signs = replace(SIGNS, ending=True, **said)  # type: ignore[arg-type]
    assert is_released(signs) is released
    held = not released and not (signs.process or signs.marked or signs.on_device or signs.marks_are_evidence)
    assert is_unproved(signs, listed=False) is is_unproved(signs, listed=None) is held
    assert not is_unproved(signs, listed=True), "the hub has it: stop it there"


def test_a_running_lease_is_unproved_only_when_the_hub_has_it_no_more() -> None:
    assert [is_unproved(SIGNS, listed=listed) for listed in (True, None, False)] == [False, False, True]
