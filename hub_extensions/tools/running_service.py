"""Requests of a command to a running service, which is found by its state folder or by an address with a token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from hub_extensions.adapters.service.signed_request import get_once
from hub_extensions.hub_service.setup.settings import Settings, SettingsError

T = TypeVar("T")


class ServiceSilent(Exception):
    """The service does not answer now. The text has the reason and the remedy."""


@dataclass(frozen=True)
class AskedService:
    """The address and the credentials for requests to a running service.

    Attributes:
        address: the complete URL.
        token: a user's token; "" if `secret` is used.
        secret: the hub's secret, with which the request is signed; "" if `token` is used.
        account: uid under which the service must run on this machine; None if that is not known.
    """

    address: str
    token: str = ""
    secret: str = ""
    account: int | None = None


def service_at(
    state_dir: Path | None, url: str | None, token: str | None, *, for_people: str, for_hub: str
) -> AskedService:
    """Return how to ask the service, by `url` and `token` or by its state folder.

    Args:
        for_people: the route to use with a user's token.
        for_hub: the route to use with the hub's secret from the state folder.

    Raises:
        ServiceSilent: a token or the settings are missing.
    """
    if url:
        if not token:
            raise ServiceSilent("--url needs a token: make one on the hub's page Token, and give it with --token.")
        return AskedService(f"{url.rstrip('/')}/{for_people}", token)
    file = Path(state_dir or ".") / "service.json"
    try:
        settings = Settings.load(file)
    except SettingsError as problem:
        raise ServiceSilent(str(problem)) from None
    return AskedService(f"{settings.url}/{for_hub}", secret=settings.hub_secret, account=file.stat().st_uid)


def answer_of(service: AskedService, read: Callable[[bytes], T]) -> T:
    """Ask the service and return its answer, parsed by `read`.

    Raises:
        ServiceSilent: the service does not answer, refuses, or is of another version.
    """
    try:
        headers = {"Authorization": f"Bearer {service.token}"} if service.token else {}
        status, body = get_once(service.address, secret=service.secret, headers=headers, account=service.account)
        if status != 200:
            advice = " The token has to have access to the service gpu." if status in {401, 403} else ""
            raise ServiceSilent(f"The GPU service answered {status}.{advice}")
        return read(body)
    except ValidationError:
        raise ServiceSilent(f"{service.address} answers, but not as the GPU service of this version.") from None
    except OSError as problem:
        raise ServiceSilent(
            f"The GPU service does not answer at {service.address} ({problem}). Is the hub running?"
        ) from None
