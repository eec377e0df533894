"""Why a start was refused, or failed: code -> English text.

They are told as the others (``reasons.py``). What a cluster did is in ``cluster_sentences.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from hub_extensions.core.plural import Text

OF_STARTS: Mapping[str, Text] = {
    # refused
    "no-account": (
        "This hub starts each server as its user's own account on the machine, and you have none there. Tell an "
        "administrator of this hub."
    ),
    "choice-gone": "This choice is not there any more as it was. Choose again.",
    "place-ended": "Your place in line has ended.",
    "lease-gone": (
        "Your place in line ended while the server was being started, so it was stopped and its GPU given back. "
        "Choose again."
    ),
    "service-away": "The GPU service has not answered since {since:own}, so no GPU can be given.",
    "service-away-place-kept": ("Your place in line is kept, and the server starts by itself once it answers again."),
    "service-away-later": "Try again later, or start CPU only.",
    # failed
    "start-failed": "The server did not start.",
    "start-failed-why": "{why:foreign}",
    "start-crashed": (
        "Your server was started and ended by itself before it answered. Settings or packages of your own may be why."
    ),
    "start-too-slow": "Your server did not start within {seconds:duration}, so its start was ended.",
    "start-no-answer": "Your server was started and did not answer within {seconds:duration}, so it was ended.",
}
