"""Rules about single sign-on: where the client's secret is, the encryption key, https, and the callback address."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatch
from typing import Any
from urllib.parse import urlsplit

from hub_extensions.core.sign_on.identity import MissingGroups
from hub_extensions.core.sign_on.provider_settings import (
    CALLBACK,
    CLASS,
    SECRET_VARIABLE,
    SECTIONS,
    is_single_sign_on,
)
from hub_extensions.tools.helm_check.model import Findings, Release
from hub_extensions.tools.helm_check.trees import as_tree, kind_of

VARIABLE = f"hub.extraEnv.{SECRET_VARIABLE}"
KEYS = "hub.config.CryptKeeper.keys"
KEY_BYTES = 32
LETS_IN = ("allow_all", "allowed_users", "allowed_groups", "admin_users", "admin_groups", "allow_existing_users")
"""Settings of an authenticator that allow people to sign in; without any of them nobody is allowed."""
_FROM_A_SECRET = (
    f"Put it into a Secret, and name that in {VARIABLE}.valueFrom.secretKeyRef, as helm-values/sign-on.yaml does."
)
_BOOLEANS = (
    *("allow_all", "allow_existing_users", "any_allow_config", "auto_login", "enable_auth_state", "manage_groups"),
    *("delete_invalid_users", "refresh_pre_spawn", "refresh_pre_stop", "request_userinfo"),
)
_NAMES = ("allowed_users", "allowed_groups", "admin_users", "admin_groups", "blocked_users", "synced_groups")
_CLAIMS = ("groups_claim", "username_claim")


def has_single_sign_on(release: Release) -> bool:
    """Whether users of this hub sign in with our authenticator for OpenID providers."""
    return is_single_sign_on(release.at("hub.config.JupyterHub.authenticator_class"))


def has_sessions(release: Release) -> bool:
    """Whether this hub keeps sign-on sessions, with our authenticator or another one (``c.SignOn.enabled``)."""
    return has_single_sign_on(release) or release.at("hub.config.SignOn.enabled") is True


def provider_setting(release: Release, name: str) -> tuple[str, Any]:
    """Return the key that sets a trait of our authenticator, and its value.

    If no key sets it, the value is None, and the key is that at which it should be set.

    Args:
        release: the release to check.
        name: name of the trait.
    """
    section = next((each for each in SECTIONS if name in release.tree(f"hub.config.{each}")), CLASS)
    return f"hub.config.{section}.{name}", release.at(f"hub.config.{section}.{name}")


def check_sign_on(release: Release) -> Findings:
    """Report mistakes about signing in; most of them are mistakes only with our authenticator."""
    yield from check_kinds(release)
    if has_single_sign_on(release):
        yield from _secret(release)
        yield from _nobody(release)
        yield from _key(release)
        yield from _callback(release)
        yield from _https(release)


def check_kinds(release: Release) -> Findings:
    """Report settings of any authenticator that have a wrong type, with which JupyterHub does not start."""
    for section, settings in release.tree("hub.config").items():
        for name, value in as_tree(settings).items() if section.endswith("Authenticator") else ():
            wanted, fix = _wanted(name, value, is_ours=section == CLASS)
            if wanted:
                text = f"It is {kind_of(value)}, where {wanted} belongs: the hub does not start."
                yield release.found("sign-on-kind", ("hub", "config", section, name), text, fix)


def _wanted(name: str, value: object, *, is_ours: bool) -> tuple[str, str]:
    """Return which values a setting of the authenticator may have, and the fix; two "" if the value is right.

    Args:
        name: name of the setting.
        value: its value.
        is_ours: whether the authenticator is ours. Some settings are checked only then.
    """
    if name in _BOOLEANS and not isinstance(value, bool):
        is_written = isinstance(value, str) and value.lower() in ("true", "false")
        return "true or false", "Write it without quotes." if is_written else "Write true or false."
    if name in _NAMES and not isinstance(value, (list, Mapping)):
        return "a list of names", "Write [one, another]."
    choices = [each.value for each in MissingGroups]
    if is_ours and name == "missing_groups" and value not in (None, *choices):
        named = " or ".join(map(repr, choices))
        return named, f"Write {named}, or leave it out."
    if is_ours and name in _CLAIMS and not (isinstance(value, str) or "$object" in as_tree(value)):
        return "the name of one claim", "Write one name; a function in hub.extraConfig can join several claims."
    return "", ""


def _secret(release: Release) -> Findings:
    key, written = provider_setting(release, "client_secret")
    variable = release.variables("hub.extraEnv").get(SECRET_VARIABLE)
    fix = f"{_FROM_A_SECRET} Have the provider make a new one."
    if written:
        text = "The client's secret stands in plain values: `helm get values` prints it to whoever may ask."
        yield release.found("sign-on-secret", key, text, fix)
    elif variable and "valueFrom" not in as_tree(variable):
        text = "The client's secret stands in plain values, as a variable's own text: `helm get values` prints it."
        yield release.found("sign-on-secret", VARIABLE, text, fix)
    elif not variable and not any("client_secret" in code or SECRET_VARIABLE in code for _, code in release.python):
        text = "Nothing brings the client's secret: the hub does not start."
        yield release.found("sign-on-secret", VARIABLE, text, _FROM_A_SECRET)


def _nobody(release: Release) -> Findings:
    is_named = any(provider_setting(release, name)[1] for name in LETS_IN)
    if not is_named and not any(f".{name}" in code for _, code in release.python for name in LETS_IN):
        key, given = provider_setting(release, "allow_all")
        how = "allow_all is false" if given is False else "allow_all is not set"
        text = f"{how}, and no setting names somebody who may come in: nobody can sign in."
        fix = f"Set allow_all to true, or one of {', '.join(LETS_IN[1:])} below hub.config.{CLASS}."
        yield release.found("sign-on-nobody", key, text, fix)


def _key(release: Release) -> Findings:
    """Report an encryption key (``CryptKeeper.keys``) of a wrong length, or code that removes the chart's own key."""
    given = release.at(KEYS)
    if not all(map(_is_key, given.split(";") if isinstance(given, str) else release.items(KEYS))):
        text = f"One of its keys has not {KEY_BYTES} bytes: the hub does not start."
        fix = "Leave it out: the chart makes one and keeps it. Else write what `openssl rand -hex 32` prints."
        yield release.found("sign-on-key", KEYS, text, fix)
    change = release.change_of(tuple(KEYS.split(".")))
    if change is not None and not change.value:
        text = "It takes the key away that the chart makes (c.CryptKeeper.keys): sign-on keeps tokens with it."
        yield release.found("sign-on-key", change.path, text, "Take that line out.")


def _is_key(given: Any) -> bool:
    """Whether JupyterHub accepts this as an encryption key: 64 hexadecimal digits, or base64 of 32 bytes."""
    with suppress(ValueError, TypeError):
        return len(bytes.fromhex(given)) == KEY_BYTES
    with suppress(ValueError, TypeError):
        return len(base64.b64decode(given, validate=True)) == KEY_BYTES
    return False


def _callback(release: Release) -> Findings:
    key, given = provider_setting(release, "oauth_callback_url")
    if not isinstance(given, str) or not given:
        return
    wanted = f"{release.base_url}{CALLBACK}"
    parts, host = urlsplit(""), ""
    with suppress(ValueError):  # no address at all
        parts = urlsplit(given)
        host = parts.hostname or ""
    if parts.scheme != "https" or not host:
        text = "It is no address with https: providers send nobody to another."
        yield release.found("sign-on-callback", key, text, f"Write https://YOUR-HOST{wanted}.")
        return
    if parts.path != wanted:
        text = f"It ends in {parts.path or '/'}, where the hub does not listen: nobody can sign in."
        fix = f"Write https://{parts.netloc.rpartition('@')[2]}{wanted}, here and at the provider."
        yield release.found("sign-on-callback", key, text, fix)
    hosts = public_hosts(release)
    if hosts and not any(fnmatch(host, each.lower()) for each in hosts):
        text = f"People come to {', '.join(hosts)}, and the provider sends them to {host}: cookies stay behind."
        fix = "Name the host here that people open, and tell the provider."
        yield release.found("sign-on-callback", key, text, fix)


def public_hosts(release: Release) -> list[str]:
    """Return the host names at which users reach the hub: those of its Ingress, HTTPRoute and proxy."""
    keys = {"ingress": "hosts", "httpRoute": "hostnames", "proxy.https": "hosts"}
    ways = [f"{way}.{name}" for way, name in keys.items() if release.at(f"{way}.enabled") is True]
    return list(dict.fromkeys(str(host) for key in ways for host in release.items(key)))


def _https(release: Release) -> Findings:
    """Report that nothing in the values shows that users reach the hub by https.

    If TLS ends before the cluster, only an https address in the values shows it.
    """
    by_ingress = release.at("ingress.enabled") is True
    ends_here = release.at("proxy.https.enabled") is True or release.at("httpRoute.enabled") is True
    is_public = str(release.at("hub.config.JupyterHub.public_url") or "").startswith("https:")
    has_callback = provider_setting(release, "oauth_callback_url")[1]  # which is judged by itself
    if not (ends_here or is_public or has_callback or (by_ingress and release.items("ingress.tls"))):
        key = "ingress.tls" if by_ingress else "proxy.https.enabled"
        text = "Nothing here shows that people come by https: providers send nobody back to http, "
        fix = "Set ingress.tls or proxy.https. Where TLS ends before the cluster, set "
        fix += f"hub.config.{CLASS}.oauth_callback_url to https://YOUR-HOST{release.base_url}{CALLBACK}."
        yield release.found("sign-on-https", key, f"{text}and cookies can be read.", fix, "look at")
