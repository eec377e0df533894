"""An app gets its own cookies unchanged, and never the gate's, in any spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.sign_on.identity_headers import cookies_without
from tests.examples import many

GATE = "__Host-gate"


@pytest.mark.parametrize(
    ("header", "left"),
    [
        ("", ""),
        (f"{GATE}=x", ""),
        (f"a=1; {GATE}=x; b=2", "a=1; b=2"),
        (f"{GATE}=x; {GATE}=y", ""),
        (f"a=1;{GATE}=x;b=2", "a=1; b=2"),
        (f"a=1;  {GATE} = x ; b", "a=1; b"),
        (f'"{GATE}"=x; a=1', "a=1"),
        (f"{GATE.lower()}=x; {GATE.upper()}=y; a=1", "a=1"),
        (f"\0{GATE}=x; {GATE}\t=y; a=1", "a=1"),
        (f"{GATE}", ""),
        (f"a=1,{GATE}=x; b=2", "b=2"),
        (f"a={GATE}; {GATE}2=1; x{GATE}=3", f"a={GATE}; {GATE}2=1; x{GATE}=3"),
        ('_xsrf=2|1:a"b; c=d=e', '_xsrf=2|1:a"b; c=d=e'),
        (
            "; ".join(f"c{number}={number}" for number in range(200)),
            "; ".join(f"c{number}={number}" for number in range(200)),
        ),
    ],
)
def test_the_gates_cookie_goes_and_the_others_stay(header: str, left: str) -> None:
    assert cookies_without(header, (GATE, "gate")) == left


@many(300)
@given(
    st.lists(
        st.sampled_from(["a=1", f"{GATE}=s", f" {GATE}=s ", f'"{GATE}"=s', "b", "", f"x,{GATE}=s", GATE.upper() + "=s"])
    )
)
def test_no_mixture_keeps_the_gates_value(pairs: list[str]) -> None:
    left = cookies_without(";".join(pairs), (GATE,))
    assert "=s" not in left
    assert left.count("a=1") == pairs.count("a=1")
