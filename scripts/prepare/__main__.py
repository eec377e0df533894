"""Started by ``scripts/demo``, ``scripts/test`` and ``scripts/release``, whose name is the first word.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys

from demo import demo
from release import release
from steps import Trouble
from testing import test


def main(words: list[str]) -> int:
    """Run ``demo``, ``release`` or ``test``; what stops us is a sentence, not a traceback."""
    os.umask(0o022)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        if words[:1] == ["demo"]:
            demo(words[1:])
        return (release if words[:1] == ["release"] else test)(words[1:])
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. What was finished is kept; start it again to go on.", file=sys.stderr)
        return 130
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"Stopped: {error.strerror or error}{where}.", file=sys.stderr)
        return 1


def _interrupted(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
