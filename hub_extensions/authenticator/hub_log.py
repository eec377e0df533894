"""The hub's log: what JupyterHub and its libraries would write there of a sign-in, at it or at a service of it.

JupyterHub hides the secrets of a request's own query. An address in the query of another one (``next``) has some as
well, and oauthlib writes each code with its state, at DEBUG. Not here: what our own lines say.
"""

from __future__ import annotations

import logging
import re

from tornado.log import access_log

_SECRETS = "state|code|nonce|code_verifier|code_challenge|token|id_token_hint|logout_token|session_state"
_NESTED = re.compile(rf"(%(?:25)*(?:3F|26)(?:{_SECRETS})%(?:25)*3D)(?:(?!%(?:25)*26)[^&\s])+", re.IGNORECASE)
"""``%26state%3D…`` up to the next ``%26``, encoded as often as it is nested."""


class _NestedSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "%3D" in text or "%3d" in text or "%253" in text:
            record.msg, record.args = without_nested_secrets(text), ()
        return True


def without_nested_secrets(text: str) -> str:
    """The text with ``[secret]`` where an address in a query has one."""
    return _NESTED.sub(r"\1[secret]", text)


_FILTER = _NestedSecrets()


def keep_secrets_out() -> None:
    """From now on, in this process. Twice is no more than once."""
    access_log.addFilter(_FILTER)
    logging.getLogger("oauthlib.oauth2").setLevel(logging.INFO)  # JupyterHub sets the level of ``oauthlib`` later
