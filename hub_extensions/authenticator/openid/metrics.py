"""Metrics about the provider in the hub's ``/hub/metrics``. No label contains a user name."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

LOGINS_REFUSED = Counter(
    "jupyterhub_sign_on_refused_total", "Sign-ins that ended with a page that says why not.", ["reason"]
)
LOGOUT_TOKENS = Counter("jupyterhub_sign_on_logout_tokens_total", "Logout tokens that came from outside.", ["result"])
RECHECKS = Counter("jupyterhub_sign_on_rechecks_total", "Sessions that the provider was asked about again.", ["result"])
OVERDUE = Gauge(
    "jupyterhub_sign_on_recheck_overdue_seconds",
    "By how much the session that has waited longest for a question to the provider is past its time; 0: none is.",
)
PROVIDER_AWAY = Gauge(
    "jupyterhub_sign_on_provider_unreachable_timestamp_seconds",
    "Since when the provider has not answered, in seconds since 1970; 0: it answers.",
)
