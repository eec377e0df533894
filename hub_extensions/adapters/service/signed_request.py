"""One signed question to the GPU service, from an admin's shell. Standard library only.

Not here: what is asked, and what an answer means (``tools/``).
"""

from __future__ import annotations

import urllib.request
from urllib.parse import urlsplit

from hub_extensions.adapters.service.plain_request import fetch_plain
from hub_extensions.adapters.service.signer import ATTEMPTS, Signer, Unproved
from hub_extensions.core.signing import ANSWER_HEADER

SECONDS = 10.0


def signed_get(url: str, secret: str, account: int | None = None, seconds: float = SECONDS) -> tuple[int, bytes]:
    """Status and body of the service's answer. Raises OSError: nobody answers, or not the service.

    `account`: the uid of who has to listen there; None: it is not looked at.
    """
    signer, place = Signer(secret), urlsplit(url)
    target = f"{place.path}?{place.query}" if place.query else place.path
    for _ in range(ATTEMPTS):
        letter = signer.sign("GET", target)
        request = urllib.request.Request(url, headers=dict(letter.headers))
        status, body, headers = fetch_plain(request, seconds, account)
        if letter.heard(status, body, headers.get(ANSWER_HEADER)):
            return status, body
    raise Unproved("answered only that the request is to be signed again")
