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
    """The GPU service cannot be asked now. The text has the reason and the remedy."""


@dataclass(frozen=True)
class AskedService:
    """The address and the credentials of a command's request to a running service. Made by `service_at`.

    Attributes:
        address: the complete URL.
        token: a user's token; "" if `secret` is used.
        secret: the hub's secret, with which the request is signed; "" if `token` is used.
        account: uid under which the GPU service must run on this machine; None if that is not known.
    """

    address: str
    token: str = ""
    secret: str = ""
    account: int | None = None


def service_at(
    state_dir: Path | None, url: str | None, token: str | None, *, for_people: str, for_hub: str
) -> AskedService:
    """Return where and with which credentials to ask the GPU service.

    With `url` it is asked in the name of a user, otherwise in the name of the hub with the secret in the state folder.

    Args:
        state_dir: the service's state folder; None for the current folder.
        url: address of the service; None to take it from the state folder.
        token: the user's token for `url`; None without one.
        for_people: path of the request with a user's token.
        for_hub: path of the request with the hub's secret.

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
    """Send the request to the GPU service and return its answer.

    Args:
        service: where and how to ask, from `service_at`.
        read: parses the body of the answer.

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
