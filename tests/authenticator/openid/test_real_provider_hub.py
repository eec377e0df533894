"""A real hub of both generations whose provider is away, says little, or ends sessions without a word.

What goes well is shown with a real provider: ``test_oidc_provider.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.authenticator.openid.provider_hub import (
    CLOCKS,
    answer_of,
    events,
    go,
    metric,
    new_browser,
    provider_hub,
    secrets_shown,
    sign_in,
    turn,
)
from tests.authenticator.signed_hub import home
from tests.fakes.oidc_provider import Fault, OidcProvider, ThatFails
from tests.hubs import Hub, until
from tests.patience import patient

pytestmark = pytest.mark.hub
GROUPS = """
c.OAuthenticator.allowed_groups = {"thesis", "staff"}
c.OAuthenticator.admin_groups = {"admins"}
c.SignOn.recheck_seconds = 1
c.SignOn.drain_minutes = 0
c.OAuthenticator.enable_auth_state = True
from pathlib import Path
def noted(hook, name):
    with Path("hooks").open("a") as hooks:
        hooks.write(f"{hook} {name}\\n")
def after_sign_in(authenticator, handler, model):
    noted("post_auth_hook", model["name"])
    return model
def with_more(authenticator, state):
    return {**state, "campus": "north"}
def before_going_on(authenticator, user, state):
    noted("refresh_user_hook", f"{user.name} {state['campus']}")
c.Authenticator.post_auth_hook = after_sign_in
c.OAuthenticator.modify_auth_state_hook = with_more
c.OAuthenticator.refresh_user_hook = before_going_on
"""


def group_names(hub: Hub, name: str) -> list[str]:
    return sorted(hub.api("GET", f"users/{name}").json()["groups"])


@pytest.mark.whole
def test_the_provider_is_asked_again_and_being_away_signs_nobody_out(tmp_path: Path) -> None:
    with OidcProvider("/realms/uni/") as op, provider_hub(tmp_path / "hub", op, GROUPS + CLOCKS) as hub:
        ada = op.add("ada", groups=["thesis", "admins"])
        browser, other = sign_in(hub), sign_in(hub)
        ben = op.add("ben", groups=["staff"])
        bens = sign_in(hub)
        fay = op.add("fay", groups=["staff"])
        fays = sign_in(hub)
        assert hub.api("GET", "users/ada").json()["admin"] is True
        # away: the log and the metric say since when, and everybody stays
        op.fault = ThatFails("token", 503)
        until(lambda: away_since(hub) > 0, what="it is seen that the provider is away")
        refreshes = op.asked["token"]
        until(lambda: op.asked["token"] > refreshes, what="it was asked in vain once more")
        assert home(hub, browser) == home(hub, other) == home(hub, bens) == 200
        stranger = go(new_browser(), answer_of(hub, new := new_browser()))
        failed = go(new, answer_of(hub, new))
        assert (stranger.status_code, failed.status_code) == (400, 503)
        assert "Your sign-in service is not answering" in failed.text
        # for an hour, in which its keys are changed and fay is disabled there
        op.disabled.add(fay)
        op.key, refreshes, ahead = "second", op.asked["token"], turn(hub, 3600)
        until(lambda: op.asked["token"] > refreshes, what="it was asked in vain an hour later")
        assert home(hub, browser) == home(hub, other) == home(hub, bens) == home(hub, fays) == 200
        # back, with a clock five minutes ahead: fay is out, nobody comes in, and nobody else is signed out
        op.fault, op.ahead = Fault(), ahead + 300
        until(lambda: home(hub, fays) == 302, 30, what="fay is out")
        clocks = go(new, answer_of(hub, new))
        assert (clocks.status_code, "5 min ahead" in clocks.text) == (502, True)
        assert home(hub, browser) == home(hub, other) == home(hub, bens) == 200
        turn(hub, 3900)
        until(lambda: away_since(hub) == 0, 30, what="it is seen that the clocks agree")
        # groups follow the provider; an unknown claim changes nothing, and makes nobody an admin
        op.people[ada]["groups"] = ["thesis"]
        until(lambda: group_names(hub, "ada") == ["thesis"], 30, what="the groups are those of the provider")
        assert hub.api("GET", "users/ada").json()["admin"] is False
        op.add("root", groups=["admins", "staff"])
        root = sign_in(hub)
        op.add("ben", groups=["staff"])
        assert go(new, answer_of(hub, new)).status_code == 403, "an account that was made anew is another person"
        op.people[ben]["groups"] = {"admins": True}
        until(lambda: "the groups of ben are unknown" in hub.log(), 30, what="ben was asked about")
        assert group_names(hub, "ben") == ["staff"]
        page = root.get(f"{hub.url}/hub/sso/admin", timeout=patient(20)).text
        assert re.search(r"these people; they keep theirs for a while: [^<]*\bben\b", page)
        assert re.search(r"came with these names, and were refused: ben \(", page)
        assert "groups: an object instead of a list" in hub.log()
        op.people[ben]["groups"] = ["staff"]
        # one session is over at the provider, which said nothing: that one ends
        op.ended.add(op.sessions_of(ada)[0])
        until(lambda: home(hub, browser) + home(hub, other) == 502, 30, what="one of the two has ended")
        # out of every group that is let in: all end
        op.people[ada]["groups"] = ["parking"]
        until(lambda: home(hub, browser) == home(hub, other) == 302, 30, what="ada is out")
        assert home(hub, bens) == 200
        # a logout token without a session ends all of a person; a session that nobody knows is no fault
        dan = op.add("dan", groups=["staff"])
        dans = [sign_in(hub), sign_in(hub)]
        assert op.send_logout(sub="nobody", sid="none").status_code == 200
        answer = op.send_logout(sub=dan)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
        assert [home(hub, each) for each in dans] == [302, 302]
        # disabled without a word: the session ends, and so do servers, also of who has no session any more
        cem = op.add("cem", groups=["staff"])
        cems = sign_in(hub)
        for name in ("ben", "cem"):
            hub.spawn(name, {})
            hub.wait_ready(name)
        hooks = (hub.folder / "hooks").read_text().splitlines()
        assert {"post_auth_hook ben", "refresh_user_hook ben north"} <= set(hooks), "at sign-in, and before a start"
        go(cems, f"{hub.url}/hub/logout")  # and never gets to the provider
        assert home(hub, cems) == 302
        op.disabled |= {ben, cem}
        until(lambda: home(hub, bens) == 302, 30, what="ben is out")
        until(lambda: hub.server("ben") is None and hub.server("cem") is None, 30, what="their servers stop")
        assert secrets_shown(hub, op, browser, other, bens, *dans) == []
        kinds = {event["kind"] for event in events(hub)}
        assert {"pinned", "signed-in", "ended", "provider-away", "provider-back", "groups-changed"} <= kinds


def away_since(hub: Hub) -> float:
    return metric(hub, "jupyterhub_sign_on_provider_unreachable_timestamp_seconds")
