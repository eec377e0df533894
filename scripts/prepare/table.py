"""The table *ran / not run, and why*, and the closing line, from what ``tests/report.py`` wrote."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

MANY_FILES = 5
GENERATIONS = {"hub6": "hub 6.1", "hub5": "hub 5.5", "root": "hub 6.1", "root5": "hub 5.5"}


@dataclass(frozen=True)
class Check:
    """One linter or type checker."""

    name: str
    outcome: str
    reason: str
    allowed: bool = False


@dataclass(frozen=True)
class Result:
    """One test on one generation of JupyterHub. `outcome`: passed, failed, not run; `allowed`: CI may leave it out."""

    test: str
    generation: str
    outcome: str
    reason: str
    allowed: bool = False


def read_reports(folder: Path) -> list[Result]:
    """Every test of ``tests/`` with what became of it; tests that nobody selected are *not run: not selected*."""
    found: dict[tuple[str, str], Result] = {}
    known: dict[str, bool] = {}
    for file in sorted(folder.glob("report-*.jsonl")):
        name = file.stem.removeprefix("report-")
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["kind"] == "collected":
                known[row["test"]] = known.get(row["test"], False) or row["hub"]
            elif name != "everything":
                generation = GENERATIONS[name]
                result = Result(row["test"], generation, row["outcome"], row["reason"], row["allowed"])
                _keep_stronger(found, (row["test"], generation), result)
    for test, both in known.items():
        for generation in ("hub 6.1", "hub 5.5") if both else ("hub 6.1",):
            found.setdefault((test, generation), Result(test, generation, "not run", "not selected"))
    return [found[key] for key in sorted(found)]


def _keep_stronger(found: dict[tuple[str, str], Result], key: tuple[str, str], result: Result) -> None:
    rank = {"not run": 0, "passed": 1, "failed": 2}
    if key not in found or rank[result.outcome] >= rank[found[key].outcome]:
        found[key] = result


def print_table(checks: list[Check], results: list[Result]) -> None:
    """One row a file and generation: how many passed, failed and were not run; below it, why."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for one in results:
        rows.setdefault((one.test.split("::")[0], one.generation), Counter())[one.outcome] += 1
    width = max([len(file) for file, _ in rows] + [len(check.name) for check in checks] + [20])
    print(f"{'ran / not run':<{width}}  {'':<8}{'passed':>7}{'failed':>7}{'not run':>8}")
    for check in checks:
        count = [int(check.outcome == word) for word in ("passed", "failed", "not run")]
        print(f"{check.name:<{width}}  {'check':<8}{count[0]:>7}{count[1]:>7}{count[2]:>8}")
    for (file, generation), counts in sorted(rows.items()):
        print(f"{file:<{width}}  {generation:<8}{counts['passed']:>7}{counts['failed']:>7}{counts['not run']:>8}")
    for word, title in (("failed", "Failed"), ("not run", "Not run, and why")):
        chosen = [one for one in results if one.outcome == word]
        if chosen:
            print(f"\n{title}:")
        if word == "failed":
            for one in chosen:
                print(f"  {one.test} ({one.generation}): {one.reason[:200]}")
        else:
            print_reasons(Counter((one.reason, one.generation, one.test.split("::")[0]) for one in chosen))


def print_reasons(reasons: Counter[tuple[str, str, str]]) -> None:
    """Why tests were not run, file by file; one line for what many files share."""
    files = Counter((reason, generation) for reason, generation, _ in reasons)
    told: Counter[tuple[str, str]] = Counter()
    for (reason, generation, file), count in sorted(reasons.items()):
        if files[reason, generation] > MANY_FILES:
            told[reason, generation] += count
        else:
            print(f"  {file} ({generation}), {count}: {reason}")
    for (reason, generation), count in told.items():
        print(f"  {files[reason, generation]} files ({generation}), {count}: {reason}")


def closing_line(checks: list[Check], results: list[Result]) -> str:
    """``N passed, N failed, N skipped``."""
    counts = Counter(one.outcome for one in [*checks, *results])
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} skipped"
