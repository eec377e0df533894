"""One signed question to the GPU service, from an admin's shell. Standard library only.

Not here: what is asked, and what an answer means (``tools/``).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from urllib.parse import urlsplit

from hub_extensions.adapters.listeners import ProvingHandler
from hub_extensions.adapters.signer import ATTEMPTS, Signer, Unproved
from hub_extensions.core.signing import ANSWER_HEADER

SECONDS = 10.0


def signed_get(url: str, secret: str, account: int | None = None, seconds: float = SECONDS) -> tuple[int, bytes]:
    """Status and body of the service's answer. Raises OSError: nobody answers, or not the service.

    `account`: the uid of who has to listen there; None: it is not looked at.
    """
    # the service is near: no proxy of the caller's stands between
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), ProvingHandler(account))
    signer, place = Signer(secret), urlsplit(url)
    target = f"{place.path}?{place.query}" if place.query else place.path
    for _ in range(ATTEMPTS):
        letter = signer.sign("GET", target)
        request = urllib.request.Request(url, headers=dict(letter.headers))
        try:
            with opener.open(request, timeout=seconds) as answer:
                status, body, headers = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as problem:
            with problem:
                status, body, headers = problem.code, problem.read(), problem.headers
        if letter.heard(status, body, headers.get(ANSWER_HEADER)):
            return status, body
    raise Unproved("answered only that the request is to be signed again")
