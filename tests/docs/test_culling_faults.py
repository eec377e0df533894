"""The page about culling names a test for each fault, and each of them is there; read from the files, nothing runs."""

from __future__ import annotations

import re

import pytest

from tests.hubs import ROOT

PAGE = (ROOT / "docs" / "explanation" / "culling.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (F\d+) \| (.*) \|$", PAGE, re.M))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [f"F{number}" for number in range(1, 23)])
def test_each_fault_has_tests_that_are_there(fault: str) -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", ROWS[fault])
    assert named
    for file, name in named:
        files = (ROOT / "tests").rglob(file)
        assert any(f"def {name}(" in path.read_text(encoding="utf-8") for path in files), f"{file}::{name}"
