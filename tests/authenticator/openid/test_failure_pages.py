"""Each page of a failed sign-in, and of a session that ended, as its student reads it in a browser.

The hub leads to the provider by itself (`auto_login`), where a page could go round in a circle: it never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Response, expect

from hub_extensions.core.sign_on import EndCause, end_sentence
from hub_extensions.core.sign_on.failures import FAILURES, FailureAction, failure_of
from tests.authenticator.openid.provider_hub import CLOCKS, provider_hub, sign_in, turn
from tests.authenticator.openid.test_bad_input import DELETED, DISABLED
from tests.authenticator.signed_hub import ids, rest
from tests.authenticator.test_pages_in_browser import a_page, findings
from tests.fakes.oidc_provider import (
    Fault,
    OidcProvider,
    ThatFails,
    ThatRedirects,
    WithClaims,
    WithDocument,
    WithNoName,
    WithRedirect,
    WithUserinfo,
)
from tests.hubs import Hub
from tests.loop.place import browsers

pytestmark = [pytest.mark.hub("6.1"), pytest.mark.whole, pytest.mark.needs("browser")]
SETTINGS = f"""
c.Authenticator.auto_login = True
c.JupyterHub.default_url = "/hub/home"
c.Authenticator.manage_groups = True
c.OAuthenticator.allowed_groups = {{"thesis"}}
c.OAuthenticator.admin_groups = {{"staff"}}
c.SingleSignOnOIDCAuthenticator.adopt_existing_users = "none"
c.SignOn.recheck_seconds = 0
{CLOCKS}
"""
HOUR, DAY = 3_700.0, 90_000.0
"""Longer than a sign-in may take, and than a document is kept; longer than a session may be idle."""
HOME, LOGIN, CALLBACK = "/hub/home", "/hub/oauth_login", "/hub/oauth_callback"
DOCUMENT = "openid-configuration"


@dataclass
class House:
    """A hub, its provider and a browser."""

    hub: Hub
    op: OidcProvider
    browser: Browser
    ahead: float = 0.0

    def student(self, name: str) -> Student:
        """Somebody new, whom the hub would let in."""
        self.op.fault, self.op.ahead = Fault(), self.ahead
        return Student(self, name, self.op.add(name, groups=["thesis"]), a_page(self.browser))

    def later(self, seconds: float = HOUR) -> None:
        """For the hub and for the provider."""
        self.ahead += seconds
        self.op.ahead = turn(self.hub, self.ahead)


@dataclass
class Student:
    """One browser, and how often it was led to which address."""

    house: House
    name: str
    sub: str
    page: Page
    visited: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if request.is_navigation_request():
            self.visited[urlsplit(request.url).path] += 1

    def goes_to(self, address: str) -> Response:
        """Counted from here on."""
        self.visited.clear()
        answer = self.page.goto(address if "://" in address else f"{self.house.hub.url}{address}")
        assert answer is not None
        return answer

    def held_answer(self) -> str:
        """The address with which the provider sends this browser back, to which it has not gone yet."""
        ask = self.page.context.request
        begin = ask.get(f"{self.house.hub.url}{LOGIN}", max_redirects=0)
        return ask.get(begin.headers["location"], max_redirects=0).headers["location"]

    def presses(self, name: str) -> None:
        """The page's button."""
        with self.page.expect_navigation():
            self.page.get_by_role("main").get_by_role("link", name=name).click()

    @property
    def is_in(self) -> bool:
        return urlsplit(self.page.url).path == HOME


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, chromium_path: str) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with OidcProvider() as op, provider_hub(folder, op, SETTINGS) as hub, browsers(chromium_path) as browser:
        yield House(hub, op, browser)


# ---------------------------------------------------------------------- how it comes to each page; where it is shown


Arrange = Callable[[House, Student], str]


def at_fault(fault: Fault) -> Arrange:
    def arrange(house: House, _: Student) -> str:
        house.op.fault = fault
        return HOME

    return arrange


def at_document(fault: Fault) -> Arrange:
    def arrange(house: House, _: Student) -> str:
        house.later()  # it is read again
        house.op.fault = fault
        return HOME

    return arrange


def by_clock(seconds: float) -> Arrange:
    def arrange(house: House, _: Student) -> str:
        house.op.ahead = house.ahead + seconds
        return HOME

    return arrange


def used_code(house: House, student: Student) -> str:
    address = student.held_answer()
    house.op.codes.clear()
    return address


def other_browsers(house: House, student: Student) -> str:
    address = house.student(f"{student.name}-2").held_answer()
    student.held_answer()
    return address


def twice(_: House, student: Student) -> str:
    address, context = student.held_answer(), student.page.context
    before = context.cookies()
    student.goes_to(address)
    assert student.is_in
    context.clear_cookies()
    context.add_cookies(before)  # type: ignore[arg-type]  # what it gives it takes
    return address


def signed_out_and_back(_: House, student: Student) -> str:
    address, context = student.held_answer(), student.page.context
    student.goes_to(address)
    assert student.is_in
    for name in ("jupyterhub-sign-on", "jupyterhub-hub-login"):
        context.clear_cookies(name=name)
    return address


def too_late(house: House, student: Student) -> str:
    address = student.held_answer()
    house.later()
    return address


def without_cookies(_: House, student: Student) -> str:
    address = student.held_answer()
    student.page.context.clear_cookies()
    return address


def out_of_groups(house: House, student: Student) -> str:
    house.op.people[student.sub]["groups"] = ["parking"]
    return HOME


def made_anew(house: House, student: Student) -> str:
    student.goes_to(HOME)
    assert student.is_in
    student.page.context.clear_cookies()
    house.op.add(student.name, groups=["thesis"])
    return HOME


def from_before(house: House, student: Student) -> str:
    house.hub.add_users(student.name)
    return HOME


ARRANGED: dict[str, Arrange] = {
    "provider-away": at_fault(ThatFails("token", 503)),
    "other-issuer": at_document(WithDocument(issuer="https://another.example")),
    "bad-document": at_document(WithDocument(token_endpoint="http://a.example/")),
    "no-document": at_document(ThatFails(DOCUMENT, 404)),
    "redirects": at_document(ThatRedirects(DOCUMENT, "http://127.0.0.2:9/")),
    "client-unknown": at_fault(WithRedirect(code=None, error="unauthorized_client")),
    "clock": by_clock(600),
    "clock-behind": by_clock(-600),
    "token": at_fault(WithClaims(nonce=None)),
    "code": used_code,
    "other-login": other_browsers,
    "other-login, by Back": signed_out_and_back,
    "used": twice,
    "too-late": too_late,
    "cookies": without_cookies,
    "consent": at_fault(WithRedirect(code=None, error="access_denied")),
    "not-allowed": out_of_groups,
    "disabled": at_fault(ThatFails("token", 400, DISABLED)),
    "deleted": at_fault(ThatFails("token", 400, DELETED)),
    "name-taken": made_anew,
    "name-from-before": from_before,
    "no-name": at_fault(WithNoName()),
    "bad-name": at_fault(WithUserinfo(preferred_username="a/b")),
}
"""By its code, and what else there is to say."""
OVER_WITH_IT = {"code", "other-login", "used", "too-late", "cookies"}
"""Another try is all that it needs."""
BUTTONS = {FailureAction.AGAIN: "Sign in", FailureAction.OTHER_ACCOUNT: "Sign in as somebody else"}


def test_each_failure_is_arranged() -> None:
    assert {each.partition(",")[0] for each in ARRANGED} == set(FAILURES)


@pytest.mark.parametrize("case", ARRANGED)
def test_a_student_reads_what_happened_and_is_led_nowhere_by_itself(house: House, case: str) -> None:
    code = case.partition(",")[0]
    student = house.student(f"p{list(ARRANGED).index(case)}")
    page = student.page
    answer = student.goes_to(ARRANGED[case](house, student))
    read(student, code, answer)
    assert max(student.visited[LOGIN], student.visited[CALLBACK]) <= 1
    # its button is one try more, which is at the provider's page for another account where that is what it says
    before, action = student.visited.copy(), FAILURES[code].action
    student.presses(BUTTONS[action])
    assert student.visited[LOGIN] == before[LOGIN] + 1
    assert student.visited[CALLBACK] <= before[CALLBACK] + 1
    if action is FailureAction.OTHER_ACCOUNT:
        assert house.op.queries[-1]["prompt"] == "select_account"
    if code in OVER_WITH_IT:
        assert student.is_in
    else:
        expect(page.get_by_role("heading", level=1)).to_have_text(FAILURES[code].title)
    page.context.close()


def read(student: Student, code: str, answer: Response) -> None:
    """The page as it is for a person: all of its words, one button, a number, nothing that moves it."""
    page = student.page
    known = {"account": student.name, "name": student.name, "claim": "preferred_username", "off": "600"}
    failure = failure_of(code, known)
    assert answer.status == failure.status
    assert "refresh" not in answer.headers
    expect(page.locator("meta[http-equiv]:not([http-equiv='X-UA-Compatible'])")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text(failure.title)
    expect(page.get_by_role("alert").locator("p")).to_have_text([failure.text, failure.advice])
    expect(page.get_by_role("main").get_by_role("link")).to_have_text([BUTTONS[failure.action]])
    expect(page.get_by_role("main").locator("code")).to_have_text(sign_on_number(student.house.hub))
    assert findings(page) == []


def sign_on_number(hub: Hub) -> str:
    """The last one in the log."""
    return hub.log().rpartition("sign-on refused (")[2][:8]


# ---------------------------------------------------------------------- sessions that ended


def by_owner(house: House, student: Student) -> None:
    other = sign_in(house.hub)
    (first,) = ids(house.hub, other, student.name)[False]
    assert rest(house.hub, other, "DELETE", f"users/{student.name}/sessions/{first}").ok


def by_admin(house: House, student: Student) -> None:
    house.op.add("teacher", groups=["thesis", "staff"])
    assert rest(house.hub, sign_in(house.hub), "DELETE", f"users/{student.name}/sessions").ok


def by_provider(house: House, student: Student) -> None:
    assert house.op.send_logout(sub=student.sub).ok


def by_limit(house: House, _: Student) -> None:
    house.later(DAY)


ENDED = {
    EndCause.BY_OWNER: by_owner,
    EndCause.BY_ADMIN: by_admin,
    EndCause.PROVIDER: by_provider,
    EndCause.IDLE: by_limit,
}


@pytest.mark.parametrize("cause", ENDED)
def test_a_student_reads_who_ended_the_session_and_signs_in_by_hand(house: House, cause: EndCause) -> None:
    student = house.student(f"e-{cause.value}")
    student.goes_to(HOME)
    assert student.is_in
    ENDED[cause](house, student)
    student.goes_to(HOME)
    expect(student.page.get_by_role("heading", level=1)).to_have_text("Your session ended")
    expect(student.page.get_by_role("main")).to_contain_text(end_sentence(cause))
    assert findings(student.page) == []
    assert student.visited[LOGIN] == 0
    house.op.who = student.sub
    student.presses("Sign in again")
    assert (student.is_in, student.visited[LOGIN]) == (True, 1)
    student.page.context.close()
