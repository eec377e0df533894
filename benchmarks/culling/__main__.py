"""What culling costs, ours beside jupyterhub-idle-culler: decisions, a hub with 5,000 servers, Prometheus, notebooks.

python -m benchmarks.culling                      # the decisions alone
python -m benchmarks.culling hub --stock PYTHON   # a real hub and proxy, 5,000 servers
python -m benchmarks.culling prometheus           # 1,000 leased pods
python -m benchmarks.culling truth --stock PYTHON # what is taken for use: real JupyterLabs, who would be stopped
python -m benchmarks.culling stories              # 20,000 random stories against an oracle
python -m benchmarks.culling kills                # a stop on a real kubelet, one part killed at each stage; as root
"""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.culling import decisions, hub_load, kills, prometheus, stories, truth


def main() -> None:
    """One of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.culling", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("decisions", "hub", "prometheus", "truth", "stories", "kills"), default="decisions"
    )
    parser.add_argument("--stock", metavar="PYTHON", help="a Python with jupyterhub-idle-culler 2.0.0")
    parser.add_argument("--servers", type=int, default=5000)
    parser.add_argument("--times", type=int, default=3, help="looks of each (3)")
    parser.add_argument("--quiet", type=float, default=300.0, help="seconds in which nothing changes (300)")
    parser.add_argument("--stories", type=int, default=20_000, help="random stories (20,000)")
    parser.add_argument("--stores", nargs="+", choices=kills.STORES, default=kills.STORES)
    parser.add_argument("--stages", nargs="+", choices=kills.STAGES, default=kills.STAGES)
    parser.add_argument("--parts", nargs="+", choices=kills.PARTS, default=kills.PARTS, help="what is killed")
    parser.add_argument("--side-by-side", type=int, choices=(1, 2), default=1, help="hubs of each store at once (1)")
    chosen = parser.parse_args()
    if chosen.what == "decisions":
        asyncio.run(decisions.main())
    elif chosen.what == "prometheus":
        prometheus.main()
    elif chosen.what == "stories":
        stories.main(chosen.stories)
    elif chosen.what == "kills":
        kills.main(chosen.stores, chosen.stages, chosen.parts, chosen.side_by_side)
    elif chosen.stock is None:
        parser.error("--stock names a Python with jupyterhub-idle-culler (benchmarks/README.md)")
    elif chosen.what == "hub":
        hub_load.main(chosen.servers, chosen.stock, chosen.quiet, chosen.times)
    else:
        truth.main(chosen.stock)


if __name__ == "__main__":
    main()
