"""Send requests with the official Kubernetes client for Python, version 36 or 37. The body of an answer is not read
yet.

Version 36 is supported because version 37 is not compatible with other packages in the chart's hub image.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, cast

import aiohttp

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient, Configuration


async def make_client(settings: Configuration) -> ApiClient:
    """Create a client of the official Kubernetes library. Its version 37 is created in a thread, because loading the
    certificate authorities takes 50 ms.
    """
    from kubernetes.aio.client import ApiClient

    if _is_36():
        return ApiClient(settings)
    return await asyncio.to_thread(ApiClient, settings)


async def send(
    client: ApiClient, method: str, path: str, url: str, headers: dict[str, str], body: Any, timeout: Any
) -> aiohttp.ClientResponse:
    """Send a request with the credentials of the client's settings.

    Args:
        client: the client of the official library.
        method: HTTP method.
        path: path of the URL, which is part of `url` too.
        url: whole URL with the query.
        headers: the headers, to which the credentials are added.
        body: the object that is sent as JSON; `None` to send no body.
        timeout: the time limits, as aiohttp takes them.
    """
    if _is_36():
        await client.update_params_for_auth(headers, [], ["BearerToken"])  # type: ignore[call-arg]
        raw = await client.rest_client.request(  # type: ignore[call-arg,no-untyped-call]
            method, url, headers=headers, body=body, _preload_content=False, _request_timeout=timeout
        )
        return cast("aiohttp.ClientResponse", raw)
    await client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
    call = client.call_api(method, url, headers, body, _request_timeout=timeout, _preload_content=False)
    return cast("aiohttp.ClientResponse", (await call).response)


@functools.cache
def _is_36() -> bool:
    from kubernetes.aio.client import ApiClient

    return "resource_path" not in inspect.signature(ApiClient.update_params_for_auth).parameters
