"""Signing in before an app: out to the hub, back once, in the browser that began it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from hub_extensions.gate import sessions
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import BOARD_ORIGIN, DASK, ORIGIN, Standing


async def test_a_page_leads_to_the_hub_and_back_to_where_it_was_wanted(standing: Standing) -> None:
    ada = standing.browser()
    back = await ada.sign_in("mlflow", "/mlflow/exp/7?x=a%2Fb")
    assert (back.status, back["Location"]) == (302, f"{ORIGIN}/mlflow/exp/7?x=a%2Fb")
    flags = next(value for key, value in back.headers if value.startswith("__Host-gate=")).lower()
    assert all(flag in flags for flag in ("secure", "httponly", "samesite=lax", "path=/")) and "domain" not in flags
    passed = await ada.check()
    assert (passed.status, passed["X-Auth-Request-User"], passed["X-Auth-Request-Groups"]) == (200, "ada", "lab")
    assert passed["Cookie"] == "", "the gate's own cookies are for nobody else"


async def test_the_log_says_who_signed_in_and_from_which_network_and_nothing_that_opens(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hub_extensions.gate")
    told = {"X-Forwarded-For": "203.0.113.5, 192.0.2.9"}
    for trusted, network in (((), "127.0.0.0/24"), (("127.0.0.1",), "192.0.2.0/24")):
        monkeypatch.setattr(standing.gate, "settings", replace(standing.gate.settings, trusted_proxies=trusted))
        ada = standing.browser()
        out = await ada.get(f"{ORIGIN}/_gate/start?app=mlflow")
        back = await ada.at_the_hub(out["Location"])
        await ada.get(back, **told)
        assert caplog.messages[-1] == f"'ada' signed in, from {network}"
        await ada.get(back, **told)
        assert caplog.messages[-1] == f"a sign-in failed (sign-in-over), from {network}"
        sent = [value for values in parse_qs(urlsplit(back).query).values() for value in values]
        assert not [each for each in (ada.cookie, *sent) if each in caplog.text]


async def test_each_sign_in_has_a_new_cookie_and_the_one_before_is_worth_nothing(standing: Standing) -> None:
    ada = standing.browser()
    await ada.sign_in()
    old = ada.cookie
    start = await ada.get(f"{ORIGIN}/_gate/start?app=mlflow")
    await ada.get(await ada.at_the_hub(start["Location"]))
    assert ada.cookie != old
    assert (await ada.check()).status == 200
    ada.jars["apps.example.org"]["__Host-gate"] = old
    assert (await ada.check()).status == 401


async def test_an_app_on_a_host_of_its_own_has_a_session_of_its_own_there(standing: Standing) -> None:
    ada = standing.browser()
    back = await ada.sign_in("board", "/x?y=1")
    assert back["Location"] == f"{BOARD_ORIGIN}/x?y=1"
    assert (await ada.check("board")).status == 200
    assert (await ada.check("mlflow")).status == 401, "no cookie is for two hosts"


async def test_a_new_right_is_noticed_by_one_silent_round(standing: Standing, hub: GateHub) -> None:
    ada = standing.browser()
    await ada.sign_in()
    first = await ada.check("dask", kind="answer")
    assert first.status == 302
    hub.users["ada"]["scopes"].append(DASK.scope)
    out = await ada.get(first["Location"])
    back = await ada.get(await ada.at_the_hub(out["Location"]))
    assert back["Location"] == f"{ORIGIN}/dask/"
    assert (await ada.check("dask")).status == 200


async def test_who_is_put_back_into_a_group_waits_for_no_minute(standing: Standing, hub: GateHub) -> None:
    ada = standing.browser()

    async def round_for_dask(*new: str) -> None:
        asked = await ada.check("dask", kind="answer")
        assert asked.status == 302
        hub.users["ada"]["scopes"] += new  # only now: the hub gives no scope to a token that is there
        out = await ada.get(asked["Location"])
        await ada.get(await ada.at_the_hub(out["Location"]))

    def is_put_into(group: str) -> None:
        hub.users["ada"]["groups"].append(group)
        for session in standing.gate.sessions.of("ada", None):
            session.known.forget()

    await ada.sign_in()
    await round_for_dask()
    assert (await ada.check("dask", kind="answer")).status == 403
    is_put_into("staff")
    await round_for_dask()
    assert (await ada.check("dask", kind="answer")).status == 403, "once for each group, or it would never end"
    is_put_into("thesis")
    await round_for_dask(DASK.scope)
    assert (await ada.check("dask")).status == 200


async def test_who_has_no_right_reads_so_after_one_round(standing: Standing, hub: GateHub) -> None:
    hub.signed_in = "ben"
    ben = standing.browser()
    await ben.sign_in()
    refused = await ben.check(kind="answer")
    assert refused.status == 403 and "<h1>MLflow</h1>" in refused.body and "the GPU team" in refused.body
    assert (await ben.check("dask", kind="answer")).status == 302
    assert (await ben.check(kind="answer", Sec_Fetch_Mode="cors")).status == 403


async def test_somebody_else_at_the_hub_gets_a_session_of_his_own(standing: Standing, hub: GateHub) -> None:
    browser = standing.browser()
    await browser.sign_in()
    hub.signed_in = "ben"
    out = await browser.get(f"{ORIGIN}/_gate/start?app=mlflow")
    await browser.get(await browser.at_the_hub(out["Location"]))
    assert (await browser.check()).status == 403
    assert len(standing.gate.sessions) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "no-state",
        "other-state",
        "long-state",
        "twice",
        "other-browser",
        "no-browser",
        "no-code",
        "old",
        "error",
        "again",
    ],
)
async def test_a_sign_in_that_does_not_fit_opens_nothing(standing: Standing, change: str) -> None:
    ada, eve = standing.browser(), standing.browser()
    out = await ada.get(f"{ORIGIN}/_gate/start?app=mlflow&next=/mlflow/")
    back = await ada.at_the_hub(out["Location"])
    sent = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    who = ada
    if change == "twice":
        await ada.get(back)
        ada.jars["apps.example.org"].pop("__Host-gate")
    elif change == "again":  # the code once more, with a state of its own
        await ada.get(back)
        ada.jars["apps.example.org"].pop("__Host-gate")
        other = await ada.get(f"{ORIGIN}/_gate/start?app=mlflow")
        sent["state"] = parse_qs(urlsplit(other["Location"]).query)["state"][0]
    elif change == "other-browser":
        await eve.get(f"{ORIGIN}/_gate/start?app=mlflow")
        who = eve
    elif change == "no-browser":
        who = eve
    elif change == "old":
        standing.ahead += timedelta(minutes=16)
    changes = {"no-state": ("state", ""), "other-state": ("state", "x" * 43), "long-state": ("state", "x" * 4096)}
    changes |= {"no-code": ("code", ""), "error": ("error", "access_denied")}
    if change in changes:
        sent[changes[change][0]] = changes[change][1]
    answer = await who.get(f"{ORIGIN}/_gate/callback?" + "&".join(f"{key}={value}" for key, value in sent.items()))
    assert (answer.status, "__Host-gate" in who.jars["apps.example.org"]) == (403 if change == "error" else 400, False)
    assert sent["code"] not in answer.text or not sent["code"]
    if change in ("other-browser", "no-browser"):
        assert (await ada.get(back)).status == 302, "the right one still can"


@pytest.mark.slow
async def test_where_to_go_back_to_stays_with_the_app(standing: Standing) -> None:
    for odd in ("https://evil.example/", "//evil.example", "/dask/", "/mlflow/../dask/", "/_gate/sign-out", "\\evil"):
        ada = standing.browser()
        assert (await ada.sign_in("mlflow", odd))["Location"] == f"{ORIGIN}/mlflow/", odd
        out = await ada.get(f"{ORIGIN}/_gate/start?app=mlflow&next={odd.replace('/', '%2f')}")
        back = await ada.get(await ada.at_the_hub(out["Location"]))
        assert back["Location"] == f"{ORIGIN}/mlflow/", odd


async def test_a_stranger_sees_no_difference_between_an_app_and_none(standing: Standing) -> None:
    found = [await standing.browser().get(f"{ORIGIN}/_gate/start?app={name}") for name in ("mlflow", "no-such-app")]
    assert [each.status for each in found] == [302, 302]
    assert len({each["Location"].partition("state=")[0] for each in found}) == 1


async def test_a_flood_of_starts_is_turned_away(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_STARTS", 0)
    assert (await standing.browser().get(f"{ORIGIN}/_gate/start?app=mlflow")).status == 503
