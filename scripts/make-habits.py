#!/usr/bin/env python3
"""Make a history for tests and pictures (``tests/fixtures/forecast/habits.csv``): 240 sessions of ten people, 40 hours.

All of it is made up: nobody used a GPU so. It is the same at each run. ``--check`` changes nothing and fails when the
files are not what this writes. Standard library only.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "forecast"
SEED = 16
SESSIONS, PEOPLE = 240, 10
APART_SECONDS = 600.0
"""Mean time between two sessions. With it five GPUs are in use for four fifths of the time, and often all at once."""
MIDDLE_SECONDS, SPREAD = 2400.0, 0.35
"""Median length of a session, and its standard deviation in log time: two of three last 28 to 57 min."""
LIMIT_SECONDS = 4 * 3600
ABOUT = {
    "made_up_by": "scripts/make-habits.py",
    "note": "Nobody used a GPU so: sessions drawn at random, for tests.",
    "slices_per_gpu": 7,
    "pools": [{"gpus": 5, "policy": "strict"}],
}


def sessions() -> str:
    """The sessions as a trace."""
    chance = random.Random(SEED)
    at, lines = 0.0, ["submit,duration,num_gpu,slices,user,limit"]
    for _ in range(SESSIONS):
        at += chance.expovariate(1 / APART_SECONDS)
        lasted = min(LIMIT_SECONDS, MIDDLE_SECONDS * chance.lognormvariate(0, SPREAD))
        user = f"made-up-{chance.randrange(PEOPLE) + 1:02}"
        lines.append(f"{at:.0f},{lasted:.0f},1,7,{user},{LIMIT_SECONDS}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the files, or check them; the exit status."""
    made = {
        FOLDER / "habits.csv": sessions(),
        FOLDER / "habits.json": json.dumps(ABOUT, indent=1) + "\n",
    }
    if "--check" in arguments:
        old = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        for path in old:
            print(f"{path} is not what scripts/make-habits.py writes")
        return 1 if old else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
