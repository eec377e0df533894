"""The audit's two accounts at a real hub: what they may, that they are gone afterwards, and which scopes that takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from hub_extensions.adapters.apps.audit_accounts import AuditHub
from hub_extensions.core.sign_on.audit import ACCOUNT
from tests.hubs import Hub
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.whole]
CONFIG = """
c.JupyterHub.services = [
    {"name": "auditor", "api_token": "auditor-token-0123456789"},
    {"name": "narrow", "api_token": "narrow-token-01234567890"},
    {"name": "mlflow", "info": {"title": "MLflow", "href": "https://apps.example.org/mlflow/"}},
]
c.JupyterHub.load_groups = {"staff": {"users": []}}
c.JupyterHub.load_roles = [
    {"name": "auditor", "services": ["auditor"],
     "scopes": ["admin:users", "tokens", "groups", "list:services", "access:services"]},
    {"name": "mlflow", "groups": ["staff"], "scopes": ["access:services!service=mlflow"]},
]
"""


def scopes_of(hub: Hub, token: str) -> set[str]:
    answer = requests.get(f"{hub.url}/hub/api/user", headers={"Authorization": f"Bearer {token}"}, timeout=patient(30))
    return set(answer.json()["scopes"]) if answer.status_code == 200 else set()


def users_of(hub: Hub) -> list[str]:
    headers = {"Authorization": "Bearer auditor-token-0123456789"}
    return [
        user["name"] for user in requests.get(f"{hub.url}/hub/api/users", headers=headers, timeout=patient(30)).json()
    ]


async def test_one_account_has_the_apps_scope_one_has_not_and_both_are_gone_afterwards(tmp_path: Path) -> None:
    with Hub(tmp_path / "hub", CONFIG) as hub:
        audit = AuditHub(f"{hub.url}/hub/api", "auditor-token-0123456789")
        async with audit.accounts(["staff"]) as accounts:
            assert accounts.why == "" and accounts.member is not None and accounts.outsider is not None
            assert "access:services!service=mlflow" in scopes_of(hub, accounts.member.token)
            assert not any("mlflow" in scope for scope in scopes_of(hub, accounts.outsider.token))
            tokens = [accounts.member.token, accounts.outsider.token]
        assert [scopes_of(hub, token) for token in tokens] == [set(), set()]
        assert [name for name in users_of(hub) if name.startswith(ACCOUNT)] == []
        assert audit.left_over == []
        assert set(await audit.services() or ()) >= {"mlflow", "auditor"}
        narrow = AuditHub(f"{hub.url}/hub/api", "narrow-token-01234567890")
        async with narrow.accounts(["staff"]) as accounts:
            assert (accounts.outsider, accounts.member) == (None, None)
            assert accounts.why == "the hub answers POST users with 403"
        assert await narrow.services() is None and narrow.left_over == []
