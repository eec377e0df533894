"""Removes secrets of a login from the log lines that JupyterHub and its libraries write.

The access logs already hide the secrets in a request's own query. For a request that failed, tornado logs the whole
address. JupyterHub logs a ``state`` that does not match. An address nested in a query (``next``) can contain secrets
as well, and oauthlib logs each code with its state at level DEBUG.
"""

from __future__ import annotations

import logging
import re

from tornado.log import access_log, app_log, gen_log

_SECRETS = "state|code|nonce|code_verifier|code_challenge|token|id_token_hint|logout_token|session_state"
_NESTED = re.compile(rf"(%(?:25)*(?:3F|26)(?:{_SECRETS})%(?:25)*3D)(?:(?!%(?:25)*26)[^&\s'\"])+", re.IGNORECASE)
"""Matches a secret in an address that is nested in a query: ``%26state%3D…`` up to the next ``%26``, encoded as often
as it is nested.
"""
_PLAIN = re.compile(rf"([?&](?:{_SECRETS})=)[^&\s'\"]+", re.IGNORECASE)
_OTHER_STATE = ("oauth state argument %r != cookie ", "OAuth state mismatch: ")
"""Beginnings of the messages in which JupyterHub and oauthenticator log a ``state`` that does not match."""


class _Secrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_OTHER_STATE):
            record.msg, record.args = "the state of a login is not its cookie's", ()
            return True
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  its handler reports it, as without this filter
            return True
        if (kept := without_secrets(text)) != text:
            record.msg, record.args = kept, ()
        return True


def without_secrets(text: str) -> str:
    """Replace each secret in the query of an address, or of an address nested in it, by ``[secret]``."""
    if "=" not in text and "%" not in text:
        return text
    return _NESTED.sub(r"\1[secret]", _PLAIN.sub(r"\1[secret]", text))


_FILTER = _Secrets()


def hide_login_secrets() -> None:
    """Install the log filters in this process. Calling it again changes nothing."""
    for log in (access_log, app_log, gen_log, logging.getLogger("JupyterHub")):
        log.addFilter(_FILTER)
    logging.getLogger("oauthlib.oauth2").setLevel(logging.INFO)  # JupyterHub sets the level of ``oauthlib`` later
