"""Whatever sign-on says to somebody, the page about its sentences says what to do; read from the code, nothing runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from hub_extensions.core.sign_on import EndCause, end_sentence
from hub_extensions.core.sign_on.failures import FAILURES
from hub_extensions.core.sign_on.provider_settings import LEFT_OVER
from tests.hubs import ROOT

PAGE = (ROOT / "docs" / "howto" / "sign-on-troubleshooting.md").read_text(encoding="utf-8")
HOWTO = (ROOT / "docs" / "howto" / "sign-on.md").read_text(encoding="utf-8")
PLACES = ("adapters/provider/oidc.py", "authenticator/openid", "core/sign_on")
CALLS = {"SignOnRefusal": 0, "SignOnFailed": 0, "ProviderUnusable": 0, "ProviderRefused": 0, "_refuse": 1}
"""What makes a reason not to take something, and which of its arguments is the code."""


def codes() -> Iterator[str]:
    for file in sorted((ROOT / "hub_extensions").rglob("*.py")):
        if not any(place in file.as_posix() for place in PLACES):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", getattr(getattr(node, "func", None), "attr", ""))
            if isinstance(node, ast.Call) and name in CALLS and len(node.args) > CALLS[name]:
                code = node.args[CALLS[name]]
                if isinstance(code, ast.Constant):
                    yield str(code.value)


@pytest.mark.parametrize("title", sorted({each.title for each in FAILURES.values()}))
def test_every_page_about_a_sign_in_has_a_row(title: str) -> None:
    assert f"\n| *{title}* |" in PAGE


@pytest.mark.parametrize("cause", EndCause)
def test_every_end_of_a_session_has_a_row(cause: EndCause) -> None:
    assert f"\n| *{end_sentence(cause.value)}* |" in PAGE


@pytest.mark.slow
def test_every_code_of_the_log_and_of_the_metrics_is_there() -> None:
    found = set(codes())
    assert len(found) > 25
    by_title = FAILURES.keys() - {"other-issuer", "bad-document", "no-document", "redirects", "client-unknown"}
    assert {code for code in found - by_title if f"`{code}`" not in PAGE} == set()


def test_the_table_of_settings_that_are_left_over_is_the_codes() -> None:
    table = HOWTO.split("\n| without effect | what replaces it |\n| --- | --- |\n")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert {name: words for names, words in rows for name in re.findall(r"`(\w+)`", names)} == LEFT_OVER
