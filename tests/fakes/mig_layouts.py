"""A legal layout of a card for numbers of MIG profiles, found by trying every place, as mig-parted does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hub_extensions.core.gpu.mig import GpuTable, Placed, ProfileRow, fits


def arrange(table: GpuTable, counts: Mapping[str, int]) -> tuple[Placed, ...] | None:
    """Return a legal layout with these numbers of instances (``{"1g.5gb": 5, "2g.10gb": 1}``), or None."""
    wanted = [(name, table.row(name)) for name, count in counts.items() for _ in range(count)]
    rows = [row for _, row in wanted if row is not None]
    if len(rows) < len(wanted):
        return None
    rows.sort(key=lambda row: (-row.memory_slices, row.name))
    return _arrange(table, rows, ())


def _arrange(table: GpuTable, rows: Sequence[ProfileRow], layout: tuple[Placed, ...]) -> tuple[Placed, ...] | None:
    if not rows:
        return tuple(sorted(layout))
    for start in fits(table, rows[0].name, layout):
        found = _arrange(table, rows[1:], (*layout, Placed(start, rows[0].name)))
        if found is not None:
            return found
    return None
