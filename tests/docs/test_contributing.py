"""What CONTRIBUTING.md answers to "where would I add …?" is there: each path of its table, and each name beside it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"`([^`]+)`")


def answers() -> list[list[str]]:
    """Of each row of the table, what stands between back-ticks."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| where would I add ")[2].partition("\n\n")[0]
    return [WORD.findall(row) for row in table.splitlines()[2:]]


def found(path: str) -> list[Path]:
    return [place for top in (ROOT, ROOT / "hub_extensions") for place in top.glob(path)]


def test_each_path_and_each_name_of_the_table_is_there() -> None:
    rows = answers()
    assert len(rows) > 10 and all(rows)
    for row in rows:
        paths = [word for word in row if "/" in word and " " not in word and word != "good/"]
        assert paths, row
        assert [path for path in paths if not found(path)] == []
        folders = [file.parent if file.is_file() else file for path in paths for file in found(path)]
        texts = [file.read_text(encoding="utf-8") for each in folders for file in each.rglob("*.py")]
        names = [word for word in row if re.fullmatch(r"[A-Za-z_.]+", word) and not word.endswith(".py")]
        lost = [name for name in names if not any(name.rpartition(".")[2] in text for text in texts)]
        assert lost == [], row
