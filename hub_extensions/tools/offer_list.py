"""``jupyterhub-gpu offers``: the offers of this machine, of a simulated layout, or of a running service."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hub_extensions.core.gpu.devices import WHOLE, GpusUnavailable, InventoryReading
from hub_extensions.core.messages import FormState, OfferState
from hub_extensions.core.offers.model import GpuOffer, OfferConfig, derive_offers
from hub_extensions.core.queue.model import Availability
from hub_extensions.core.queue.wait_bound import starts_now, unknown
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.views.presenters import offer_state
from hub_extensions.tools.running_service import ServiceSilent, answer_of, service_at

GIB = 1024**3


class OffersUnavailable(Exception):
    """The offers cannot be listed now. The text has the reason and the remedy."""


def offers_of_this_machine(layout: str | None) -> Sequence[OfferState]:
    """Return the offers of this machine, or of a simulated one.

    The numbers of free devices and waiting users are not known, because no service is asked.

    Args:
        layout: name or file of the simulated GPUs; None for this machine's own.

    Raises:
        OffersUnavailable: the GPUs cannot be read.
    """
    from hub_extensions.adapters.files.mig_tables import sm_of_product

    reading, fractions = _reading(layout)
    found = derive_offers(reading.devices, OfferConfig(fractions=fractions), sm_of_product=sm_of_product)
    return [_unheld(offer, sum(d.usable and d.pool == offer.pool for d in reading.devices)) for offer in found]


def _reading(layout: str | None) -> tuple[InventoryReading, Mapping[str, tuple[float, ...]]]:
    """Return the GPU devices of this machine or of a simulated one, and the fractions that the simulated one offers.

    Args:
        layout: name or file of the simulated GPUs; None for this machine's own.

    Returns:
        The devices; and pool (devices of one kind) -> fractions of a device that the layout offers, empty for this
        machine.
    """
    from hub_extensions.adapters.nvml.reader import Nvml
    from hub_extensions.adapters.simulated.gpus import SimulatedGpus
    from hub_extensions.adapters.simulated.layouts import load_layout

    now = datetime.now(timezone.utc)
    try:
        if layout is None:
            return Nvml().read(now), {}
        simulated = load_layout(layout)
        return SimulatedGpus(simulated, lambda: ()).read(now), simulated.fractions
    except GpusUnavailable as problem:
        hint = " See the offers of a simulated machine with --layout lab-a100."
        raise OffersUnavailable(problem.reason.message + hint) from None
    except (ValueError, OSError) as problem:
        raise OffersUnavailable(f"--layout {layout}: {problem}") from None


def _unheld(offer: GpuOffer, devices: int) -> OfferState:
    total = devices * (WHOLE // offer.share) if offer.pool else None
    wait = unknown(explain("service-not-asked")) if offer.pool else starts_now(explain("starts-now"))
    return offer_state(Availability(offer, None, total, 0, 0, 0, 0, wait))


def offers_of_service(state_dir: Path | None, url: str | None, token: str | None) -> Sequence[OfferState]:
    """Ask a running service for its offers. Raises OffersUnavailable if it cannot be asked.

    Args:
        state_dir: the GPU service's state folder, in which address and secret are; None for the current folder.
        url: address of the service, to be used with `token`; None to use the state folder instead.
        token: a user's token for `url`; None without one.
    """
    query = urllib.parse.urlencode({"user": "", "server": "", "admin": "1"})
    try:
        service = service_at(state_dir, url, token, for_people="api/offers", for_hub=f"hub/form?{query}")
        return answer_of(service, TypeAdapter(FormState).validate_json).offers
    except ServiceSilent as problem:
        raise OffersUnavailable(str(problem)) from None


def print_offers(listed: Sequence[OfferState], console: Console, *, running: bool) -> None:
    """Print the offers as a table.

    Args:
        listed: the offers.
        console: where they are printed.
        running: the offers come from a running service; then the table shows how many are free and who waits.
    """
    table = Table("offer", "title", "gives", "memory kept apart", "how many", box=None, pad_edge=False)
    if running:
        table.add_column("free")
        table.add_column("in line")
    for offer in listed:
        row = [offer.id, offer.title, _gives(offer), _kept_apart(offer), _number(offer.total, offer)]
        if running:
            row += [_number(offer.free, offer), str(offer.waiting)]
        table.add_row(*map(Text, row))  # an administrator's title is not markup
    console.print(table)
    if any(offer.simulated for offer in listed):
        console.print("simulated GPU: these devices do not exist.", markup=False)


def _gives(offer: OfferState) -> str:
    if not offer.pool:
        return "no GPU"
    memory = "memory not known" if offer.memory_bytes is None else f"{offer.memory_bytes / GIB:.2f} GiB"
    if offer.sm_count is None:
        return memory
    return f"{memory}, {offer.sm_count} SMs"


def _kept_apart(offer: OfferState) -> str:
    if not offer.pool:
        return ""
    words = {"hardware": "yes, by hardware", "soft": "partly", "none": "no, shared"}
    return words.get(offer.isolation["memory"], "not known")


def _number(value: int | None, offer: OfferState) -> str:
    if not offer.pool:
        return "always"
    return "not known" if value is None else str(value)
