"""The log of a hub and of users' servers: what JupyterHub and its libraries would write there of a sign-in.

Their access logs hide the secrets of a request's own query. Of a request that failed tornado writes the whole address,
JupyterHub names a ``state`` that does not fit, an address in the query of another one (``next``) has secrets as well,
and oauthlib writes each code with its state, at DEBUG. Not here: what our own lines say.
"""

from __future__ import annotations

import logging
import re

from tornado.log import access_log, app_log, gen_log

_SECRETS = "state|code|nonce|code_verifier|code_challenge|token|id_token_hint|logout_token|session_state"
_NESTED = re.compile(rf"(%(?:25)*(?:3F|26)(?:{_SECRETS})%(?:25)*3D)(?:(?!%(?:25)*26)[^&\s'\"])+", re.IGNORECASE)
"""``%26state%3D…`` up to the next ``%26``, encoded as often as it is nested."""
_PLAIN = re.compile(rf"([?&](?:{_SECRETS})=)[^&\s'\"]+", re.IGNORECASE)
_OTHER_STATE = ("oauth state argument %r != cookie ", "OAuth state mismatch: ")
"""JupyterHub's, and oauthenticator's."""


class _Secrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_OTHER_STATE):
            record.msg, record.args = "the state of a login is not its cookie's", ()
            return True
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  its handler says so, as without us
            return True
        if (kept := without_secrets(text)) != text:
            record.msg, record.args = kept, ()
        return True


def without_secrets(text: str) -> str:
    """The text with ``[secret]`` where an address has one in its query, or in that of an address in it."""
    if "=" not in text and "%" not in text:
        return text
    return _NESTED.sub(r"\1[secret]", _PLAIN.sub(r"\1[secret]", text))


_FILTER = _Secrets()


def keep_secrets_out() -> None:
    """From now on, in this process. Twice is no more than once."""
    for log in (access_log, app_log, gen_log, logging.getLogger("JupyterHub")):
        log.addFilter(_FILTER)
    logging.getLogger("oauthlib.oauth2").setLevel(logging.INFO)  # JupyterHub sets the level of ``oauthlib`` later
