"""Makes the bytecode of package and tests before pytest's workers read them: each takes ten seconds to make it.

It runs in the tests' environment, as the clone's owner, and executes nothing of what it reads; so root may run what it
leaves. How pytest rewrites assertions is not public, and pinned by the lock; a test finds a version that does it in
another way, and then each worker makes its own again.
"""

from __future__ import annotations

import compileall
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _pytest.assertion import AssertionState, rewrite
from _pytest.config import Config, get_config


def rewritten(files: Iterable[Path]) -> list[Path]:
    """Those of the files whose bytecode pytest would make anew; it is made."""
    stale = [file for file in files if rewrite._read_pyc(file, _cached(file)) is None]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_rewrite, stale, chunksize=8))
    return stale


def _cached(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)


def _rewrite(file: Path) -> None:
    config: Config = get_config()
    try:
        source, code = rewrite._rewrite_test(file, config)
    except SyntaxError:
        return  # pytest says so, with the line
    _cached(file).parent.mkdir(exist_ok=True)
    rewrite._write_pyc(AssertionState(config, "rewrite"), code, source, _cached(file))


if __name__ == "__main__":
    package, tests = map(Path, sys.argv[1:])
    for folder in (package, tests):
        compileall.compile_dir(folder, quiet=2, rx=re.compile(r"(/test_[^/]*|/conftest)\.py$"), workers=0)
    rewritten(file for name in ("test_*.py", "conftest.py") for file in sorted(tests.rglob(name)))
