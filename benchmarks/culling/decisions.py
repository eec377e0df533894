"""What it costs to decide about 5,000 servers: the rules alone, and a whole turn of the service with its longest step.

Real state, store and rules; devices and hub are tables. A step is what the loop runs without anything else having a
turn. Times are of a processor.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from benchmarks.figures import latency_row
from benchmarks.loop_steps import Steps
from hub_extensions.adapters.store import Changes
from hub_extensions.core.culling import CullPolicy, CullRule, ServerFacts, decide
from hub_extensions.core.gpu.devices import WHOLE, Device
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from tests.fakes.machine import GIB
from tests.hub_service.engine.room import Room, room, settings

SERVERS, TURNS = 5000, 40
GPU = OfferId("gpu")
HALF = OfferId("gpu-0.5")


def devices() -> tuple[Device, ...]:
    """Two servers share a card, but for every fourth, which has none."""
    cards = SERVERS * 3 // 8
    return tuple(Device(f"GPU-{n}", "NVIDIA A100-PCIE-40GB", memory_bytes=40 * GIB) for n in range(cards))


async def fill(r: Room) -> None:
    """All of them run, as if they had come one after the other; a quarter without a GPU."""
    now = r.engine.state.clock.now()
    cards, leases, facts = devices(), [], []
    for n in range(SERVERS):
        user = f"user-{n}"
        r.hub.run(user, "")
        r.engine.state.note_groups(user, ("class",) if n % 2 else ())
        if n >= 2 * len(cards):
            facts.append(ServerFacts(user, "", CPU, now, opened=now, opened_known=True))
            continue
        card = cards[n // 2]
        leases.append(
            Lease(
                f"l{n}", "", user, "", HALF, card.identity, card.uuid, card.pool, WHOLE // 2,
                LeaseState.RUNNING, now, now, now + timedelta(hours=12),
            )
        )  # fmt: skip
        facts.append(ServerFacts(user, "", HALF, now, lease=f"l{n}", opened=now, opened_known=True))
        r.gpus.used[card.uuid] = 60.0 if n % 3 else 0.0
    await r.engine.state.commit(Changes(leases=tuple(leases), facts=tuple(facts)))


async def one_turn(r: Room) -> tuple[float, float]:
    """Seconds of a processor of one turn of the runner of stops, and of its longest step."""
    gc.collect()
    with Steps() as steps:
        began = time.thread_time()
        await asyncio.ensure_future(r.engine.stop_runner.decide_all())
        return time.thread_time() - began, max(steps.taken)


async def turns(r: Room, name: str) -> None:
    """A first turn notes that GPUs are idle and busy; of the others nothing is to be written."""
    whole, longest, state = [], [], r.engine.state
    for number in range(TURNS + 2):
        r.hands.pass_time(timedelta(seconds=5))
        state.see(r.gpus.read(r.hands.wall), state.devices)  # nobody asks for the processes of the leases
        took, step = await one_turn(r)
        if number > 1:
            whole.append(took)
            longest.append(step)
    print(latency_row(f"{name}: a turn of the service", whole))
    print(latency_row("    its longest step", longest), flush=True)


def rules_alone(r: Room) -> None:
    """`decide` for each, with the evidence as it is."""
    runner, state = r.engine.stop_runner, r.engine.state
    now = state.clock.now()
    known = [
        (runner.evidence(facts), state.policy_of(facts.user, facts.offer), facts) for facts in state.facts.values()
    ]
    taken = []
    for _ in range(TURNS):
        gc.collect()
        began = time.thread_time()
        for evidence, policy, facts in known:
            decide(evidence, policy, now, facts.warned, facts.cause, facts.promised)
        taken.append(time.thread_time() - began)
    print(latency_row(f"the rules for {SERVERS:,} servers", taken), flush=True)


async def figures(name: str, policy: CullPolicy, rules: tuple[CullRule, ...] = ()) -> None:
    """All figures under one policy."""
    with tempfile.TemporaryDirectory() as folder:
        offers = OfferConfig(fractions={"gpu": (0.5,)})
        made = replace(settings(Path(folder)).queue, max_starting=SERVERS)
        async with room(Path(folder), *devices(), queue=made, offers=offers, culling=policy) as r:
            r.engine.state.policies._take(rules)
            await fill(r)
            gc.freeze()  # as the service does with what it begins with
            await turns(r, name)
            rules_alone(r)
            gc.unfreeze()


async def main() -> None:
    """With the limits as shipped, and with a rule of the policy file for a group."""
    print(f"{SERVERS:,} servers, three of four with half a card; {TURNS} turns each")
    shipped = CullPolicy(enabled=True)
    rule = CullRule("class", groups=frozenset({"class"}), limits={"idle": timedelta(minutes=20)})
    await figures("as shipped", shipped)
    await figures("with a rule and `contended_idle`", replace(shipped, contended_idle=timedelta(minutes=10)), (rule,))


if __name__ == "__main__":
    asyncio.run(main())
