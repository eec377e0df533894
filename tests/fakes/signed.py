"""The hub's signature for tests that ask the GPU service as the hub does."""

from __future__ import annotations

from functools import partial
from typing import Any

import requests
from requests.auth import AuthBase

from hub_extensions.adapters.service.signer import OutgoingRequest, Signer
from hub_extensions.core.signing import ANSWER_HEADER, SIGN_AGAIN


class Signs(AuthBase):
    """``requests.get(url, auth=Signs(secret))``: signs, and fails where the answer is not the service's own."""

    def __init__(self, secret: str) -> None:
        self.signer = Signer(secret)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body or b""
        sent = body.encode() if isinstance(body, str) else body
        outgoing = self.signer.sign(request.method or "", request.path_url, sent)
        request.headers.update(outgoing.headers)
        request.register_hook("response", partial(self._heard, outgoing))  # type: ignore[no-untyped-call]
        return request

    def _heard(self, outgoing: OutgoingRequest, response: requests.Response, **options: Any) -> requests.Response:
        if options.get("stream") and response.status_code != SIGN_AGAIN:
            return response  # it may have no end
        if outgoing.verify(response.status_code, response.content, response.headers.get(ANSWER_HEADER)):
            return response
        again = response.request.copy()
        again.hooks["response"] = []
        return response.connection.send(self(again), **options)  # type: ignore[attr-defined, no-any-return]
