"""The official client, asked for answers that are not read yet: as version 36 and as version 37 want to be asked.

The chart's hub image has packages that version 37 does not take; 36 goes with them. Not here: what is asked
(``api.py``).
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
    """The client for these settings. It reads the authorities, 50 ms: in a thread where it needs no loop for that."""
    from kubernetes.aio.client import ApiClient

    if _is_36():
        return ApiClient(settings)
    return await asyncio.to_thread(ApiClient, settings)


async def send(
    client: ApiClient, method: str, path: str, url: str, headers: dict[str, str], body: Any, timeout: Any
) -> aiohttp.ClientResponse:
    """Ask as the account that the settings name. `url` has the path, and the query."""
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
