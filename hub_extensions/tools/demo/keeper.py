"""Ends what a demo started, should the demo itself be killed: ``python -m hub_extensions.tools.demo.keeper FOLDER``.

It waits for the end of its input, which the demo holds open as long as it lives.
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
    """While the block runs somebody watches over what has this folder's mark."""
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
    """Wait, and end what is left."""
    sys.stdin.read()
    end_marked(folder, lambda text: None, "")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
