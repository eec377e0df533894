"""An address of a provider, as text."""

from __future__ import annotations

import pytest

from hub_extensions.adapters.provider.provider_address import address_problem, issuer_setting_problem


@pytest.mark.parametrize(
    ("address", "fits"),
    [
        ("https://login.site.example", True),
        ("https://login.site.example:8443/realms/uni/", True),
        ("http://127.0.0.1:8080/", True),
        ("http://localhost:8080", True),
        ("http://[::1]:8080", True),
        ("http://login.site.example", False),
        ("http://127.0.0.1.site.example", False),
        ("http://localhost.site.example", False),
        ("ftp://127.0.0.1", False),
        ("https://", False),
        ("https://ada:pw@login.site.example", False),
        ("https://login.site.example:port", False),
        ("https://login.site.example/ x", False),
        ("https://login.site.example/#x", False),
        ("https://login.site.example\n", False),
        ("login.site.example", False),
        ("", False),
    ],
)
def test_a_secret_goes_over_tls_or_nowhere(address: str, fits: bool) -> None:
    assert (address_problem(address) == "") is fits


@pytest.mark.parametrize(
    ("issuer", "wrong"),
    [
        (None, "is not set"),
        (5, "is not set"),
        ("http://login.site.example", "has to begin with https:// (http only on this machine itself)"),
        ("https://login.site.example?x=1", "has a query, as no issuer has"),
        ("https://login.site.example/realms/uni/", ""),
    ],
)
def test_an_issuer_is_an_address_of_tls_without_a_query(issuer: object, wrong: str) -> None:
    assert issuer_setting_problem(issuer) == wrong
