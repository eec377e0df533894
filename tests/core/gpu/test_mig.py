"""Names of MIG profiles and layouts, compared with published figures."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.adapters.files.mig_tables import packed_tables
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.mig import (
    DoesNotFit,
    GpuTable,
    MigProfile,
    MigProfileError,
    Placed,
    fits,
    layouts,
    legal,
    place_in_order,
    problem,
    table_for,
)
from tests.fakes.mig_layouts import arrange

PLAIN = {"1g", "2g", "3g", "4g", "7g"}


def gpu(key: str) -> GpuTable:
    return next(table for table in packed_tables() if table.key == key)


def names(table: GpuTable, kinds: set[str]) -> list[str]:
    return [row.name for row in table.rows if row.kind in kinds]


@pytest.mark.parametrize(
    ("text", "expected", "resource"),
    [
        ("1g.5gb", MigProfile(1, 5), "mig-1g.5gb"),
        ("1g.10gb+me", MigProfile(1, 10, plus="me"), "mig-1g.10gb.me"),
        ("1g.18gb.me", MigProfile(1, 18, plus="me"), "mig-1g.18gb.me"),
        ("1g.24gb+me.all", MigProfile(1, 24, plus="me.all"), "mig-1g.24gb.me.all"),
        ("1g.24gb-me", MigProfile(1, 24, minus="me"), "mig-1g.24gb-me"),
        ("1g.12gb.gfx", MigProfile(1, 12, plus="gfx"), "mig-1g.12gb.gfx"),
        ("1g.12gb+gfx", MigProfile(1, 12, plus="gfx"), "mig-1g.12gb.gfx"),
        ("7g.141gb", MigProfile(7, 141), "mig-7g.141gb"),
        ("1c.2g.10gb", MigProfile(2, 10, compute=1), "mig-1c.2g.10gb"),
        ("mig-1g.10gb.me", MigProfile(1, 10, plus="me"), "mig-1g.10gb.me"),
        ("nvidia.com/mig-2g.35gb", MigProfile(2, 35), "mig-2g.35gb"),
        ("nvidia.com/mig-1g.24gb-me", MigProfile(1, 24, minus="me"), "mig-1g.24gb-me"),
    ],
)
def test_a_profile_name_is_parsed_in_each_of_its_forms(text: str, expected: MigProfile, resource: str) -> None:
    assert MigProfile.parse(text) == expected
    assert MigProfile.parse(text).resource == resource


@pytest.mark.parametrize(
    "text",
    ["", "gpu", "1g", "5gb", "0g.5gb", "1g.0gb", "01g.5gb", "1g.5gb\n", " 1g.5gb", "1g.5GB", "1g.5gb+", "1g.5gb+me,gfx",
     "1g.5gb me", "nvidia.com/gpu", "nvidia.com/1g.5gb", "1g.5gb-0.5", "١g.5gb", "mig-", "amd.com/mig-1g.5gb"],
)  # fmt: skip
def test_a_text_that_is_no_profile_is_refused_in_words(text: str) -> None:
    with pytest.raises(MigProfileError, match="write for example 1g"):
        MigProfile.parse(text)


attributes = st.from_regex(r"[a-z]{1,6}(\.[a-z]{1,4})?", fullmatch=True) | st.just("")
profiles = st.builds(
    MigProfile,
    slices=st.integers(1, 99),
    gb=st.integers(1, 99999),
    plus=attributes,
    minus=attributes,
    compute=st.none() | st.integers(1, 99),
)


@given(profiles)
def test_every_form_of_a_profile_reads_back_as_the_same_profile(profile: MigProfile) -> None:
    assert MigProfile.parse(profile.name) == profile
    assert MigProfile.parse(profile.resource) == profile
    assert MigProfile.parse(f"nvidia.com/{profile.resource}") == profile


@given(st.text(max_size=30))
def test_any_text_is_a_profile_or_refused(text: str) -> None:
    try:
        profile = MigProfile.parse(text)
    except MigProfileError:
        return
    assert MigProfile.parse(profile.name) == profile


@given(profiles)
def test_a_devices_pool_is_its_profiles_resource_form(profile: MigProfile) -> None:
    assert Device(uuid="MIG-1", product="x", profile=profile.name).pool == profile.resource


@pytest.mark.parametrize("table", packed_tables(), ids=lambda table: table.key)
def test_every_row_of_the_table_stays_within_its_gpu(table: GpuTable) -> None:
    for row in table.rows:
        assert row.compute_slices <= table.compute_slices
        assert row.profile.name == row.name
        assert all(start + row.memory_slices <= table.memory_slices for start in row.starts)
        assert row.max_instances <= len(row.starts)
        assert legal(table, [Placed(row.starts[0], row.name)])


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "kinds", "maximal", "multisets", "everything", "all_multisets"),
    [
        ("A100-40GB", PLAIN, 19, 14, 298, 38),
        ("A100-40GB", PLAIN | {"1gx2"}, 78, 38, 723, 78),
        ("A100-80GB", PLAIN, 19, 14, 298, 38),
        ("H100-80GB", PLAIN | {"1gx2"}, 78, 38, 723, 78),
        ("H200-141GB", PLAIN, 19, 14, 298, 38),
        ("B200-180GB", PLAIN, 19, 14, 298, 38),
        ("A30-24GB", PLAIN, 5, 4, 26, 10),
        ("RTX-PRO-6000-Blackwell-96GB", PLAIN, 5, 4, 26, 10),
    ],
)
def test_the_enumerator_agrees_with_the_published_counts(
    key: str, kinds: set[str], maximal: int, multisets: int, everything: int, all_multisets: int
) -> None:
    table = gpu(key)
    full = list(layouts(table, names(table, kinds), maximal=True))
    every = list(layouts(table, names(table, kinds), maximal=False))
    assert (len(full), len({_multiset(layout) for layout in full})) == (maximal, multisets)
    assert (len(every), len({_multiset(layout) for layout in every})) == (everything, all_multisets)
    assert len(set(map(frozenset, every))) == len(every)


def test_without_4g_beside_3g_an_a100_has_18_maximal_layouts() -> None:
    table = gpu("A100-40GB")
    full = [_multiset(layout) for layout in layouts(table, names(table, PLAIN), maximal=True)]
    assert len([layout for layout in full if not {"4g.20gb", "3g.20gb"} <= {name for name, _ in layout}]) == 18


def test_the_lab_layout_takes_7_compute_slices_and_7_of_8_memory_slices() -> None:
    table = gpu("A100-40GB")
    layout = arrange(table, {"1g.5gb": 5, "2g.10gb": 1})
    assert layout is not None
    rows = [table.row(item.profile) for item in layout]
    assert sum(row.compute_slices for row in rows if row) == 7
    assert sum(row.memory_slices for row in rows if row) == 7 < table.memory_slices


@pytest.mark.slow
def test_six_small_ones_beside_a_2g_are_illegal() -> None:
    table = gpu("A100-40GB")
    assert arrange(table, {"1g.5gb": 6, "2g.10gb": 1}) is None
    assert arrange(table, {"1g.6gb": 1}) is None
    assert arrange(table, {}) == ()


def test_the_commands_order_gives_the_published_lab_layout() -> None:
    """19,19,19,19,14,19 gave GPU instances 4 (2g) and 7, 8, 11, 12, 13 (1g): on an A100 these stand at
    2 and at 0, 1, 4, 5, 6 (the guide shows id 13 at 6, 5 at 4:2 and 1 at 0:4)."""
    table = gpu("A100-40GB")
    rows = [table.row_of_id(number) for number in (19, 19, 19, 19, 14, 19)]
    made = place_in_order(table, [row.name for row in rows if row])
    assert {item.start for item in made if item.profile == "1g.5gb"} == {0, 1, 4, 5, 6}
    assert made[4] == Placed(2, "2g.10gb")
    assert legal(table, made)


def test_placing_in_order_agrees_with_the_guides_example() -> None:
    made = place_in_order(gpu("A100-40GB"), ["1g.5gb", "2g.10gb", "4g.20gb"])
    assert made == (Placed(6, "1g.5gb"), Placed(4, "2g.10gb"), Placed(0, "4g.20gb"))


def test_an_order_that_does_not_fit_names_what_is_in_the_way() -> None:
    with pytest.raises(DoesNotFit, match=r"1g\.5gb does not fit beside 7g\.40gb at 0"):
        place_in_order(gpu("A100-40GB"), ["7g.40gb", "1g.5gb"])
    with pytest.raises(DoesNotFit, match=r"A30-24GB has no profile 1g\.5gb"):
        place_in_order(gpu("A30-24GB"), ["1g.5gb"])


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ([Placed(0, "3g.20gb"), Placed(2, "2g.10gb")], "overlap"),
        ([Placed(1, "2g.10gb")], "cannot start at 1: it can at 0, 2, 4"),
        ([Placed(0, "1g.5gb+me"), Placed(1, "1g.5gb+me")], "can have 1 of"),
        ([Placed(0, "1g.10gb"), Placed(0, "1g.5gb")], "overlap"),
        ([Placed(0, "1g.18gb")], "has no profile"),
    ],
)
def test_an_illegal_layout_says_why(layout: list[Placed], words: str) -> None:
    assert words in (problem(gpu("A100-40GB"), layout) or "")


def test_a_profile_with_every_media_engine_stands_only_beside_profiles_without() -> None:
    table = gpu("RTX-PRO-6000-Blackwell-96GB")
    greedy = Placed(0, "1g.24gb+me.all")
    assert legal(table, [greedy, Placed(3, "1g.24gb-me"), Placed(6, "2g.48gb-me")])
    assert "media engine" in (problem(table, [greedy, Placed(3, "1g.24gb")]) or "")


def test_what_still_fits_is_told_by_start_position() -> None:
    table = gpu("A100-40GB")
    lab = arrange(table, {"1g.5gb": 5, "2g.10gb": 1})
    assert lab is not None
    assert fits(table, "1g.5gb", lab) == ()
    assert fits(table, "2g.10gb", [Placed(0, "3g.20gb")]) == (4,)
    assert fits(table, "mig-1g.5gb", [Placed(0, "4g.20gb")]) == (4, 5, 6)
    assert fits(table, "9g.99gb", ()) == ()


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([row.name for row in gpu("A100-40GB").rows])), max_size=5))
def test_a_profile_fits_exactly_where_the_larger_layout_is_legal(items: list[tuple[int, str]]) -> None:
    table = gpu("A100-40GB")
    layout = [Placed(start, name) for start, name in items]
    for row in table.rows:
        for start in fits(table, row.name, layout):
            assert legal(table, [*layout, Placed(start, row.name)])
    if legal(table, layout):
        assert all(legal(table, layout[:index] + layout[index + 1 :]) for index in range(len(layout)))


def test_a_product_as_nvml_names_it_finds_its_table() -> None:
    table = table_for(packed_tables(), "NVIDIA A100-PCIE-40GB")
    assert table is not None
    assert (table.key, table.sm_total) == ("A100-40GB", 98)
    assert table_for(packed_tables(), "NVIDIA A100-PCIE-40GB MIG 1g.5gb") is table
    assert table_for(packed_tables(), "NVIDIA GeForce RTX 2060") is None


def _multiset(layout: tuple[Placed, ...]) -> frozenset[tuple[str, int]]:
    return frozenset(Counter(item.profile for item in layout).items())
