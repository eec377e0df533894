"""The settings that the hub sends to a service that it does not start, in JupyterHub's field ``info`` of the service.

``configuration.py`` writes the field in the hub, and ``settings_client.py`` reads it in the service. It contains no
secrets; they come from the service's environment. The secret with which the hub signs its requests is derived from the
service's token, unless the environment of both hub and service contains a secret for that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter

from hub_extensions.core.settings import settings_in
from hub_extensions.core.tokens import SHORTEST_TOKEN, token_problem
from hub_extensions.hub_service.setup.settings import Settings, SettingsError, checked

API_URL = "JUPYTERHUB_API_URL"
API_TOKEN = "JUPYTERHUB_API_TOKEN"
BY_ENVIRONMENT = {name: about.variable for name, about in settings_in(Settings).items() if about.variable}
"""Setting -> the environment variable from which the service reads it."""

_PURPOSE = b"jupyterhub-gpu: what the hub proves itself with"


@dataclass(frozen=True)
class ServiceEnvironment:
    """The facts that a service knows before it asks the hub for its settings, if the hub does not start it.

    `of` reads it from the environment and the command line.

    Attributes:
        hub_api_url: address of the hub's API.
        api_token: the service's token for that API.
        state_dir: the service's own folder.
        host: address that the service listens on.
        secrets: setting -> its value, for each environment variable of `BY_ENVIRONMENT` that is set.
    """

    hub_api_url: str
    api_token: str = field(repr=False)
    state_dir: str
    host: str
    secrets: Mapping[str, str] = field(repr=False)

    @property
    def settings(self) -> Mapping[str, str]:
        """Field of `Settings` -> its value, for the fields that the service knows without the hub."""
        known = {name: value for name, value in vars(self).items() if name in OF_ITS_OWN}
        return {**known, **self.secrets, "hub_secret": self.hub_secret}

    @property
    def hub_secret(self) -> str:
        """The secret with which the hub signs its requests to the service, see `hub_secret_of`."""
        return hub_secret_of(self.api_token, self.secrets.get("shared_secret", ""))

    @classmethod
    def of(cls, environ: Mapping[str, str], state_dir: str, host: str) -> ServiceEnvironment:
        """Read address, token and secrets from the environment variables.

        Args:
            environ: the environment variables.
            state_dir: the service's own folder.
            host: address that the service listens on.

        Raises:
            SettingsError: a variable is missing or wrong; the text names it.
        """
        url, token = environ.get(API_URL, ""), environ.get(API_TOKEN, "")
        if not url.startswith(("http://", "https://")):
            raise SettingsError(f"{API_URL} has to be set to the address of the hub's API: http://hub:8081/hub/api.")
        if len(token) < SHORTEST_TOKEN:
            raise SettingsError(
                f"{API_TOKEN} has to be set to the token of the hub's service 'gpu' (in the chart's Secret `hub` the "
                "key hub.services.gpu.apiToken)."
            )
        secrets = {name: value for name in BY_ENVIRONMENT if (value := from_environment(name, environ))}
        return cls(url.rstrip("/"), token, state_dir, host, secrets)


OF_ITS_OWN = {each.name for each in fields(ServiceEnvironment)} & {each.name for each in fields(Settings)}
WITHHELD = frozenset(each.name for each in fields(Settings) if not each.repr) | OF_ITS_OWN
"""Fields that are not sent: secrets, and what the service knows itself."""


def from_environment(name: str, environ: Mapping[str, str]) -> str:
    """Return the value of a setting that the service reads from an environment variable; "" if it is not set.

    Args:
        name: name of the setting in `BY_ENVIRONMENT`.
        environ: the environment variables.

    Raises:
        SettingsError: the value cannot be used. The text names the variable, but not its value.
    """
    about = settings_in(Settings)[name]
    value = environ.get(about.variable, "")
    if value and about.token is not None and (problem := token_problem(value, about.token)):
        raise SettingsError(f"{about.variable} {problem}")
    if value != value.strip() or not value.isprintable():
        raise SettingsError(f"{about.variable} begins or ends with a space, or has a line break in it: take that out.")
    return value


def hub_secret_of(api_token: str, shared: str = "") -> str:
    """Return the secret with which the hub signs its requests to a service that it does not start.

    The service sends the token to the hub's API, so whoever can read it on the network can derive the secret, too.

    Args:
        api_token: the service's token, from which the secret is derived.
        shared: the configured secret, which is used instead; "" if none is configured.
    """
    return shared or hmac.new(api_token.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def to_info(settings: Settings) -> dict[str, Any]:
    """Return the service's field ``info``: its settings as JSON values, and the environment variables that it needs."""
    everything = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    needs = sorted(variable for name, variable in BY_ENVIRONMENT.items() if getattr(settings, name))
    return {"settings": {name: value for name, value in everything.items() if name not in WITHHELD}, "needs": needs}


def from_info(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return settings and needed variables from a service's field ``info``, as the hub sends it.

    `None` if the field contains no settings, because ``configure(c)`` was not called in the hub's configuration.
    """
    settings, needs = info.get("settings"), info.get("needs", [])
    if not isinstance(settings, dict) or not isinstance(needs, list):
        return None
    return {"settings": settings, "needs": needs}


def settings_from(received: Mapping[str, Any], own: ServiceEnvironment) -> Settings:
    """Join the settings that the hub sent with those that the service knows itself.

    Args:
        received: the settings, as `from_info` returns them.
        own: what the service knows itself.

    Raises:
        SettingsError: a field is unknown or wrong (another version wrote it), or a variable is missing here.
    """
    here = {BY_ENVIRONMENT[name] for name in own.secrets}
    missing = ", ".join(str(each) for each in received["needs"] if each not in here)
    if missing:
        raise SettingsError(
            f"The hub's configuration sets what only the environment brings to a service apart from it: set {missing} "
            "for the service too."
        )
    if "shared_secret" in own.secrets and BY_ENVIRONMENT["shared_secret"] not in received["needs"]:
        raise SettingsError(
            f"{BY_ENVIRONMENT['shared_secret']} is set here and not for the hub: set it there too, or take it out here."
        )
    raw = {**{name: value for name, value in received["settings"].items() if name not in WITHHELD}, **own.settings}
    try:
        return checked("What the hub says about the service", raw, Settings)
    except SettingsError as problem:
        raise SettingsError(f"{problem} Hub and service need the same version of jupyterhub-gpu.") from None
