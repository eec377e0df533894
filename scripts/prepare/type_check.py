"""The check ``mypy``: begins with what an earlier clone's mypy knew (``shelf.py``), and leaves what it knows itself."""

from __future__ import annotations

import subprocess
import sys

from place import ROOT, VENV, WORK
from shelf import put, take
from steps import digest, interpreter

KNOWN = WORK / "cache" / "mypy"


def main() -> int:
    """Run mypy. Its files are copied, not linked: mypy writes into them. Returns its exit status."""
    if not KNOWN.exists():
        KNOWN.parent.mkdir(parents=True, exist_ok=True)
        take("mypy", None, [KNOWN], link=False)
    code = subprocess.run([VENV / "bin" / "mypy", "--cache-dir", KNOWN], cwd=ROOT, check=False).returncode
    if code == 0:
        put(
            "mypy",
            digest(interpreter(), ROOT / "requirements" / "test.txt", ROOT / "hub_extensions"),
            [KNOWN],
            link=False,
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
