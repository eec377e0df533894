"""An offer's id is parsed once, and can be used as text."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

import hub_extensions
from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.server_extension import codec

SOURCES = sorted(Path(hub_extensions.__file__).parent.rglob("*.py"))
NOT_AN_OFFER = (
    "class OfferKind",
    "class Mechanism",
    '"cpu": "processors"',  # Kubernetes' name of a resource
    "gpu_cpu_server_name",
    "give_back(self.get_query_argument(",
)
"""Lines that have, or stand right before, a "cpu" that names something else."""


@dataclass(frozen=True)
class Message:
    offer: OfferId
    others: tuple[OfferId, ...] = ()
    last: OfferId | None = None


@pytest.mark.slow
def test_the_id_of_cpu_only_is_written_once() -> None:
    places = []
    for path in SOURCES:
        lines = path.read_text().splitlines()
        if not any("cpu" in line for line in lines):
            continue
        literals = {
            node.lineno
            for node in ast.walk(ast.parse("\n".join(lines)))
            if isinstance(node, ast.Constant) and node.value == "cpu"
        }
        places += [
            f"{path.name}: {lines[number - 1].strip()}"
            for number in sorted(literals)
            if not any(other in line for other in NOT_AN_OFFER for line in lines[max(0, number - 8) : number])
        ]
    assert places == ['offer_id.py: _CPU = "cpu"']


@pytest.mark.parametrize(
    ("code", "file"),
    [(r'partition\("@"\)', "offer_id.py"), (r'user_options\["offer"\]', "user_options.py")],
)
def test_an_id_and_a_choice_are_read_in_one_place(code: str, file: str) -> None:
    found = [path.name for path in SOURCES for _ in re.finditer(code, path.read_text(), re.MULTILINE)]
    assert found == [file]


def test_an_id_that_is_copied_kept_or_read_again_is_the_same() -> None:
    half = OfferId("gpu-0.5@tesla-t4")
    assert OfferId(half) is half
    for again in (copy.copy(half), copy.deepcopy(half), pickle.loads(pickle.dumps(half)), OfferId(str(half))):
        assert (again, again.pool, again.base, again.share) == (half, "gpu@tesla-t4", "gpu", 500)
    assert json.dumps({half: half}) == '{"gpu-0.5@tesla-t4": "gpu-0.5@tesla-t4"}'
    assert (type(str(half)), repr(half), f"{half}") == (str, "'gpu-0.5@tesla-t4'", "gpu-0.5@tesla-t4")


@pytest.mark.parametrize(
    ("device", "share", "gib", "part"),
    [
        ("gpu", 500, 0, "gpu-0.5"),
        ("gpu@tesla-t4", 250, 0, "gpu-0.25@tesla-t4"),
        ("gpu@tesla-t4", 0, 8, "gpu-8gib@tesla-t4"),
        ("mig-3g.20gb", 500, 0, "mig-3g.20gb-0.5"),
        ("gpu", 1000, 0, "gpu"),
    ],
)
def test_a_part_of_a_device_has_an_id_of_its_own(device: str, share: int, gib: int, part: str) -> None:
    found = OfferId(device).part(share, gib)
    assert (found, found.pool, found.gib) == (part, device, gib)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cpu", ("", "", 0, 0)),
        ("gpu", ("gpu", "gpu", 1000, 0)),
        ("gpu-0.5", ("gpu", "gpu", 500, 0)),
        ("gpu-8gib", ("gpu", "gpu", 0, 8)),
        ("gpu-0.25@tesla-t4", ("gpu@tesla-t4", "gpu", 250, 0)),
        ("mig-1g.10gb.me", ("mig-1g.10gb.me", "mig-1g.10gb.me", 1000, 0)),
    ],
)
def test_an_id_says_pool_share_and_memory(text: str, says: tuple[str, str, int, int]) -> None:
    found = OfferId(text)
    assert (found.pool, found.base, found.share, found.gib) == says


def test_a_message_carries_the_text_and_has_the_id_again_at_its_other_end() -> None:
    sent = Message(OfferId("gpu-0.5"), (CPU, OfferId("mig-1g.5gb")))
    text = TypeAdapter(Message).dump_json(sent)
    assert json.loads(text) == {"offer": "gpu-0.5", "others": ["cpu", "mig-1g.5gb"], "last": None}
    for read in (TypeAdapter(Message).validate_json(text, strict=True), codec.decode(Message, codec.encode(sent))):
        assert read == sent
        assert (read.offer.share, [type(each) for each in read.others]) == (500, [OfferId, OfferId])


def test_a_message_with_no_offers_id_names_the_field() -> None:
    bad = b'{"offer": "gpu", "others": ["gpu", "nvidia.com/gpu"]}'
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Message).validate_json(bad)
    (error,) = refused.value.errors()
    assert (error["loc"], type(error["ctx"]["error"])) == (("others", 1), OfferIdError)
    with pytest.raises(codec.CodecError, match=r"Message\.others\[1\]: expected an offer's id"):
        codec.decode(Message, bad)


@pytest.mark.parametrize(
    ("offer", "profile"),
    [
        ("cpu", None),
        ("gpu-0.5@tesla-t4", None),
        ("gpu.shared", None),
        ("mig-1g.10gb.me", "1g.10gb+me"),
        ("mig-3g.20gb-0.5@a100-sxm4-40gb", "3g.20gb"),
        ("mig-1g.5gb.shared", "1g.5gb"),
    ],
)
def test_an_id_says_which_mig_profile_serves_it(offer: str, profile: str | None) -> None:
    found = OfferId(offer).mig
    assert (found and found.name) == profile
