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
    """The complete address, the credentials for it, and the account under which the service runs on this machine."""

    address: str
    token: str = ""
    secret: str = ""
    account: int | None = None


def service_at(
    state_dir: Path | None, url: str | None, token: str | None, *, for_people: str, for_hub: str
) -> AskedService:
    """Return the service to ask. `for_people` is the route for a user's token, `for_hub` the one for the hub's secret.

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
    """Return the answer of the service.

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
