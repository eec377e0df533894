"""300 people start servers within a minute while hub, service, both and proxy are killed at random.

Prints what became of every start that the hub accepted: joined, refused with a reason, or lost. Servers are stand-ins,
GPUs are simulated. `--people 20 --seconds 10 --kills 4` is a small one, which the whole run of the tests has too.
`--database URL` puts hub and service into one database, such as an empty one of PostgreSQL.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.loop.crowd import config_for, run
from tests.loop.place import THREE_SMALL, Place


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--database", metavar="URL", default="", help="postgresql+psycopg://user@host/name; else SQLite"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), layout=THREE_SMALL, lab=False, config=config_for(chosen.database))
        with place.open():
            outcome = run(place, chosen.people, chosen.seconds, chosen.kills, chosen.seed, chosen.database)
    database = chosen.database.partition(":")[0].partition("+")[0] or "sqlite"
    print(f"JupyterHub {version('jupyterhub')}, {database}, seed {chosen.seed}: {outcome}")


if __name__ == "__main__":
    main()
