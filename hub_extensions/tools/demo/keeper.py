"""Ends the programs of a demo that was killed: ``python -m hub_extensions.tools.demo.keeper FOLDER``.

It waits for the end of its standard input, which the demo keeps open while it lives.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hub_extensions.tools.demo.processes import end_marked


@contextmanager
def keeping(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a process, while the block runs, that ends all programs with this folder's mark if the demo is killed."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "hub_extensions.tools.demo.keeper", str(folder)],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        keeper.kill()
        keeper.communicate()


def main(folder: Path) -> None:
    """Wait for the demo's end, then end its remaining programs."""
    sys.stdin.read()
    end_marked(folder, lambda text: None, "")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
