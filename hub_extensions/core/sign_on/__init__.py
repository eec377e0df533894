"""Sign-on: sign-in at an identity provider, sessions and what ends with them, and the gate in front of other apps.

The provider is the OpenID provider at which users sign in. The gate answers a proxy's question whether a request may
pass to an app (forward auth).
"""

from __future__ import annotations

from hub_extensions.core.sign_on.config import SignOnConfig
from hub_extensions.core.sign_on.events import SignOnEvent
from hub_extensions.core.sign_on.session_end import EndPlan, EndReport, ServerFact, StopOrder, plan_end
from hub_extensions.core.sign_on.sessions import (
    EndCause,
    SignOnSession,
    address_of_browser,
    browser_name,
    browser_text,
    end_sentence,
    limit_passed,
    return_problem,
    short_address,
    surplus_sessions,
)

__all__ = [
    "EndCause",
    "EndPlan",
    "EndReport",
    "ServerFact",
    "SignOnConfig",
    "SignOnEvent",
    "SignOnSession",
    "StopOrder",
    "address_of_browser",
    "browser_name",
    "browser_text",
    "end_sentence",
    "limit_passed",
    "plan_end",
    "return_problem",
    "short_address",
    "surplus_sessions",
]
