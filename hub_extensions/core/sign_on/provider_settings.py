"""Names of the settings of the authenticator ``single-sign-on``.

These are the settings that it adds, those that it takes from oauthenticator, and those that it replaces. They are
listed apart from the authenticator class, because ``configure(c)``, ``doctor`` and ``helm check`` may be unable to load
that class. Types and defaults are in ``authenticator/openid/authenticator.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENTRY, CLASS = "single-sign-on", "SingleSignOnOIDCAuthenticator"
SECTIONS = (CLASS, "GenericOAuthenticator", "OAuthenticator", "Authenticator")
"""Config classes, as in ``c.Authenticator``, in which the settings may be set; the first that sets a value wins."""
SECRET_VARIABLE = "JUPYTERHUB_SIGN_ON_CLIENT_SECRET"
CALLBACK = "hub/oauth_callback"
"""Path below the hub's base URL to which the provider redirects a browser after the login."""

OWN = frozenset({
    "issuer", "client_secret", "username_claim", "groups_claim", "group_map", "synced_groups",
    "adopt_existing_users", "signing_algorithms", "leeway_seconds", "ca_file", "manage_groups", "missing_groups",
    "unknown_groups_hours", "request_userinfo", "issuer_connect_url", "account_url", "account_scope",
})  # fmt: skip
GO_ON = frozenset({
    "admin_groups", "admin_users", "allow_all", "allow_existing_users", "allowed_groups", "allowed_users",
    "any_allow_config", "auto_login", "auto_login_oauth2_authorize", "blocked_users", "client_id",
    "delete_invalid_users", "enable_auth_state", "extra_authorize_params", "login_service", "logout_redirect_url",
    "modify_auth_state_hook", "oauth_callback_url", "post_auth_hook", "reconcile_auth_state_hook",
    "refresh_pre_spawn", "refresh_pre_stop", "refresh_user_hook", "scope", "username_map", "username_pattern",
    "whitelist",
})  # fmt: skip
"""Settings of `GenericOAuthenticator` and of the hub that work as they do there."""

_DOCUMENT = "the provider's document, found by issuer, says it"
_ALWAYS = "it is always so"
_GROUPS = "groups_claim takes its place"
_CA = "ca_file takes its place"
_NOBODY = "single-sign-on does not ask for it"
LEFT_OVER: Mapping[str, str] = {
    "authorize_url": _DOCUMENT,
    "token_url": _DOCUMENT,
    "userdata_url": _DOCUMENT,
    "basic_auth": _DOCUMENT,
    "enable_pkce": _ALWAYS,
    "userdata_from_id_token": "the id token is always read, its signature checked; see request_userinfo",
    "auth_state_groups_key": _GROUPS,
    "claim_groups_key": _GROUPS,
    "username_key": "username_claim takes its place",
    "extra_params": "extra_authorize_params takes its place",
    "allowed_scopes": "allowed_groups takes its place: what was granted is not asked about again",
    "tls_verify": _CA,
    "validate_server_cert": _CA,
    "http_request_kwargs": _CA,
    "token_params": _NOBODY,
    "userdata_params": _NOBODY,
    "userdata_token_method": _NOBODY,
    "custom_403_message": "the page says which account it was and what to do",
    "manage_roles": "the provider gives groups: c.JupyterHub.load_roles gives them roles",
    "reset_managed_roles_on_startup": "the provider gives groups: c.JupyterHub.load_roles gives them roles",
    "otp_prompt": "the provider asks for it",
    "request_otp": "the provider asks for it",
    "auth_refresh_age": "c.SignOn.recheck_seconds says how often the provider is asked",
    "auth_refresh_strict": "an admin could not stop the server of who may not sign in any more",
}
"""Settings of `GenericOAuthenticator` and of the hub that do nothing here -> what replaces them."""

NAMES = OWN | GO_ON | LEFT_OVER.keys()


def is_single_sign_on(named: Any) -> bool:
    """Return whether an ``authenticator_class`` is the authenticator ``single-sign-on`` or derives from it.

    Args:
        named: the value of the setting: a name or a class.
    """
    names = [each.__name__ for each in named.__mro__] if isinstance(named, type) else [str(named).rpartition(".")[2]]
    return bool({ENTRY, CLASS} & set(names))
