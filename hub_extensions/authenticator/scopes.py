"""The two scopes of sign-on sessions, and the role that gives them to admins."""

from __future__ import annotations

ADMIN_ROLE = "sign-on-admin"
LIST_SCOPE, END_SCOPE = "custom:sign-on:list", "custom:sign-on:end"
SCOPES = {
    LIST_SCOPE: {"description": "See everybody's sign-on sessions, and their audit log."},
    END_SCOPE: {"description": "End anybody's sign-on sessions."},
}
