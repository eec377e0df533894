"""The packed MIG table: read once, complete, and honest about what it does not know."""

from __future__ import annotations

import pytest

from hub_extensions.adapters.files.mig_tables import (
    MigTablesError,
    packed_tables,
    parse_tables,
    sm_of_product,
)

GOOD = """
gpus:
- key: X
  product_examples: [NVIDIA-X]
  compute_slices_total: 2
  memory_slices_total: 2
  source_values: a listing
  source_placements: a listing
  placements_basis: observed
  profiles:
  - {name: 1g.5gb, kind: 1g, compute_slices: 1, memory_slices: 1, memory_gib: null, sm: null,
     max_instances: 2, placement_starts: [1, 0]}
"""


def test_the_packed_table_has_11_gpus_and_76_profiles_each_with_its_sources() -> None:
    tables = packed_tables()
    assert (len(tables), sum(len(table.rows) for table in tables)) == (11, 76)
    assert all(table.source_values and table.source_placements for table in tables)
    assert packed_tables() is tables


def test_the_real_memory_is_not_the_names_figure() -> None:
    h200 = next(table for table in packed_tables() if table.key == "H200-141GB")
    row = h200.row("mig-1g.18gb")
    assert row is not None
    assert row.memory_gib == 16.0


def test_what_has_no_source_stays_unknown() -> None:
    b200 = next(table for table in packed_tables() if table.key == "B200-180GB")
    row = b200.row("3g.90gb")
    assert row is not None
    assert (row.memory_gib, row.sm, row.profile_id) == (None, None, None)
    assert b200.sm_total is None
    assert sm_of_product("NVIDIA B200") is None


def test_the_sms_of_a_product_are_those_of_its_largest_profile() -> None:
    assert sm_of_product("NVIDIA A100-PCIE-40GB") == 98
    assert sm_of_product("NVIDIA H100 PCIe") == 114
    assert sm_of_product("NVIDIA H100 80GB HBM3") == 132
    assert sm_of_product("something else") is None


def test_a_table_is_read_with_what_is_not_known_as_none() -> None:
    (table,) = parse_tables(GOOD, "tables.yaml")
    assert table.rows[0].starts == (0, 1)
    assert table.rows[0].sm is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kind: 1g, ", "", "`kind` is not a text"),
        ("sm: null", "sm: many", "`sm` is neither a whole number nor null"),
        ("memory_gib: null", "memory_gib: -1", "`memory_gib` is neither"),
        ("max_instances: 2", "max_instances: 0", "`max_instances` is not a number above 0"),
        ("[1, 0]", "[a]", "`placement_starts`"),
        ("name: 1g.5gb", "name: small", "`name`: 'small' is no MIG profile"),
        ("name: 1g.5gb", "name: 2g.5gb", "the name is 2g.5gb"),
        ("gpus:", "cards:", "has no list `gpus`"),
        ("[NVIDIA-X]", "[1]", "`product_examples` is not a list of texts"),
        ("- key: X", "- key: [", "is not YAML"),
    ],
)
def test_a_bad_table_is_a_sentence_that_names_the_field(old: str, new: str, words: str) -> None:
    with pytest.raises(MigTablesError) as caught:
        parse_tables(GOOD.replace(old, new), "tables.yaml")
    assert words in str(caught.value)
    assert "tables.yaml" in str(caught.value)
