"""People sign in at oidc-provider, the sign-in service of the demo, in a browser: a real hub with real servers."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
import requests
from playwright.sync_api import Browser, BrowserContext, Page, expect

from hub_extensions.tools.demo.sign_in import SignInService, serving
from tests.authenticator.test_pages_in_browser import findings
from tests.fakes.apache import Apache
from tests.hubs import until
from tests.loop.place import Place, browsers
from tests.machine_needs import sign_in_service
from tests.patience import patient
from tests.ports import free_port

pytestmark = [
    pytest.mark.hub,
    pytest.mark.whole,
    pytest.mark.needs("browser", "oidc-provider", "plain-user"),
    pytest.mark.timeout(300),
]
THESIS = "mig-2g.10gb"
ENDED_THERE = re.compile("Your sign-in service (ended|does not renew) this session")
"""By its own call, or by the answer to a question that comes a moment before it."""
PEOPLE = {"ada": ("course", "thesis"), "ben": ("course",), "cem": ("course", "thesis")}


@dataclass(frozen=True)
class ServiceOfMore(SignInService):
    """A sign-in service that knows another client beside the hub."""

    other: Mapping[str, object] = field(default_factory=dict)

    def facts(self, hub: str) -> str:
        return json.dumps({**json.loads(super().facts(hub)), "clients": [self.other]})


@dataclass
class House:
    """A hub, its sign-in service, another site that is not started yet, and browsers."""

    place: Place
    service: SignInService
    wiki: Apache
    browser: Browser

    def visitor(self, name: str) -> Visitor:
        """Somebody with a browser of their own, signed in."""
        visitor = Visitor(self, self._context())
        visitor.sign_in(name)
        return visitor

    def act(self, button: str) -> None:
        """What an admin of the sign-in service does on its board."""
        page = self._context().new_page()
        page.goto(f"{self.service.url}/")
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("listitem").first).to_be_visible()
        page.context.close()

    def _context(self) -> BrowserContext:
        context = self.browser.new_context()
        context.set_default_timeout(patient(30_000))
        return context


class Visitor:
    """Somebody's browser."""

    def __init__(self, house: House, context: BrowserContext) -> None:
        self.house, self.context = house, context
        self.page: Page = context.new_page()
        self.hub = house.place.hub.url

    def sign_in(self, name: str) -> None:
        """On the sign-in service's own page."""
        self.page.goto(f"{self.hub}/hub/home")
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name=name.title()).click()
        self.page.wait_for_url(f"{self.hub}/hub/home")

    def status(self, path: str = "/hub/home") -> int:
        """What a page of the hub, or of a server, answers to this browser."""
        answer = self.context.request.get(f"{self.hub}{path}", max_redirects=0)
        return answer.status

    def is_told(self, words: str | re.Pattern[str]) -> None:
        """The hub's page says why the session ended."""
        self.page.goto(f"{self.hub}/hub/home")
        expect(self.page.get_by_role("heading", name="Your session ended")).to_be_visible()
        expect(self.page.locator("main")).to_contain_text(words)


def answers(url: str) -> bool:
    """Whether something is there."""
    try:
        return requests.get(url, timeout=patient(2)).ok
    except requests.RequestException:
        return False


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, chromium_path: str) -> Iterator[House]:
    folder, program = tmp_path_factory.mktemp("house"), sign_in_service()
    assert program is not None
    wiki, secret, key = Apache(), secrets.token_hex(16), secrets.token_hex(32)
    service = ServiceOfMore(program, free_port(), THESIS, secret, key, people=PEOPLE, other=wiki.client)
    config = f"""
import os
os.environ.update({dict(service.variables)!r})
c.Authenticator.allow_all = False
{service.configuration}
c.SignOn.recheck_seconds = 1
c.SignOn.drain_minutes = 0
"""
    place = Place(folder / "hub", layout="lab-a100", config=config)
    with serving(service, folder, place.hub.url, os.environ, answers), place.open(), browsers(chromium_path) as browser:
        yield House(place, service, wiki, browser)


def test_groups_are_the_hubs_and_offers_follow_them(house: House) -> None:
    ada, hub = house.visitor("ada"), house.place.hub
    assert groups(house, "ada") == ["course", "thesis"]
    assert hub.api("GET", "users/ada").json()["admin"] is False
    assert THESIS in offers(ada)
    house.act("Take Ada out of thesis")
    until(lambda: groups(house, "ada") == ["course"], 30, what="the hub has asked again")
    ada.page.clock.install()
    assert THESIS not in offers(ada)
    assert ada.status() == 200
    # the open form asks by itself; it is its reader who is told, with no click
    house.act("Sign Ada out everywhere")
    ada.page.clock.fast_forward(10_000)
    expect(ada.page.get_by_role("heading", name="Your session ended")).to_be_visible()


def groups(house: House, name: str) -> list[str]:
    return sorted(house.place.hub.api("GET", f"users/{name}").json()["groups"])


def offers(visitor: Visitor) -> list[str]:
    """Those of the form."""
    visitor.page.goto(f"{visitor.hub}/hub/spawn")
    shown = visitor.page.locator("#spawn_form input[type=radio]")
    expect(shown.first).to_be_visible()
    return [str(each.get_attribute("value")) for each in shown.all()]


def test_a_sign_out_at_the_hub_is_one_at_the_service_which_asks_nothing(house: House) -> None:
    first, second = house.visitor("ben"), house.visitor("ben")
    first.page.get_by_role("button", name="Logout").or_(first.page.get_by_role("link", name="Logout")).click()
    first.page.wait_for_url(f"{first.hub}/hub/login*")
    first.page.get_by_role("button", name="Sign in").click()
    expect(first.page.get_by_role("heading", name="Who are you?")).to_be_visible()
    assert (first.status(), second.status()) == (302, 200)
    first.page.get_by_role("button", name="Cancel").click()
    expect(first.page.get_by_role("heading", name="You did not agree at your sign-in service")).to_be_visible()
    assert findings(first.page) == []


def test_what_the_service_ends_is_over_at_the_hub_and_in_servers(house: House) -> None:
    first, second, hub = house.visitor("cem"), house.visitor("cem"), house.place.hub
    hub.spawn("cem", {"offer": THESIS})
    hub.wait_ready("cem", seconds=60)
    for each in (first, second):
        assert each.context.request.get(f"{hub.url}/user/cem/lab").ok
        assert each.status("/user/cem/api/status") == 200
    # the service's own sign-out ends this browser's session, and its pages of the server
    first.page.goto(f"{house.service.url}/end_session")
    first.page.get_by_role("button", name="Sign out").click()
    until(lambda: first.status("/user/cem/api/status") == 403, what="the server's pages are closed to it")
    assert (first.status(), second.status(), second.status("/user/cem/api/status")) == (302, 200, 200)
    first.is_told(ENDED_THERE)
    # an admin of the service ends all
    house.act("Sign Cem out everywhere")
    until(lambda: second.status("/user/cem/api/status") == 403, what="the server's pages are closed")
    second.is_told(ENDED_THERE)
    assert hub.ready("cem"), "what runs goes on"
    # disabled without a word: found out by asking again, and the server ends with the right
    second.page.get_by_role("link", name="Sign in again").click()
    second.page.get_by_role("button", name="Cem").click()
    second.page.wait_for_url(f"{hub.url}/hub/home")
    house.act("Disable Cem")
    until(lambda: second.status() == 302, 30, what="it was asked about")
    until(lambda: hub.server("cem") is None, 30, what="the server stops")
    second.is_told("Your sign-in service says that this account is disabled.")
    second.page.get_by_role("link", name="Sign in again").click()
    expect(second.page.get_by_role("button", name="Cem")).to_be_disabled()


@pytest.mark.needs("apache")
def test_one_sign_out_ends_the_hub_and_another_site_of_the_service(
    house: House, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wiki = house.wiki
    with wiki.serving(tmp_path_factory.mktemp("apache"), house.service.url):
        ben = house.visitor("ben")
        other = house.visitor("ben")

        def wiki_says(visitor: Visitor) -> int:
            return visitor.context.request.get(f"{wiki.url}/", max_redirects=0).status

        for each in (ben, other):
            each.page.goto(f"{wiki.url}/")
            # the service knows who it is, and asks nothing
            expect(each.page.get_by_role("heading", name="The wiki")).to_be_visible()
        # signed out at the hub
        ben.page.goto(f"{ben.hub}/hub/logout")
        ben.page.wait_for_url(f"{ben.hub}/hub/login*")
        until(lambda: wiki_says(ben) == 302, what="the other site wants a sign-in")
        assert (ben.status(), other.status(), wiki_says(other)) == (302, 200, 200)
        # signed out at the other site
        other.page.goto(wiki.sign_out)
        expect(other.page.get_by_role("heading", name="Goodbye")).to_be_visible()
        until(lambda: other.status() == 302, what="the hub wants a sign-in")
        assert wiki_says(other) == 302
        other.is_told(ENDED_THERE)
