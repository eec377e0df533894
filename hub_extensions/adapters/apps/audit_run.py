"""Runs the audit, which tries whether each app behind the gate is closed to users without access.

It sends the probes (test requests) and collects the results, and changes nothing except its own two accounts.
``core/sign_on/audit.py`` decides what is tried and what an answer means.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from hub_extensions.adapters.apps.audit_accounts import AuditAccount, AuditAccounts, AuditHub, HubDeclined
from hub_extensions.adapters.apps.raw_http import HttpTarget, RawAnswer, certificate_fault, request_raw
from hub_extensions.adapters.provider.assertions import AssertionKey
from hub_extensions.adapters.provider.forged_assertions import forged_assertions, true_assertions
from hub_extensions.core.sign_on.apps import App, is_loopback
from hub_extensions.core.sign_on.audit import (
    EVERYWHERE,
    PAGE,
    AuditCaller,
    AuditResult,
    Outcome,
    Probe,
    ProbeAnswer,
    Rule,
    certificate_result,
    cookie_faults,
    framing_of,
    known_limits,
    merged,
    mismatched_apps,
    probes_of,
    real_cookie_probes,
    verdict,
)
from hub_extensions.core.sign_on.identity_headers import ASSERTION

SECONDS = 5.0
AT_ONCE = 8
DEAD_SECONDS = 30.0
"""After a session or token has ended, it is tried for this long. If it still works then, the case is reported as
open.
"""
SIGN_OUT = "/_gate/sign-out"
OWN_POST = (("Sec-Fetch-Site", "same-origin"), ("Content-Length", "0"))
Credentials = Mapping[AuditCaller, tuple[tuple[str, str], ...]]


def own_addresses() -> tuple[str, ...]:
    """Return this machine's IPv4 addresses that other machines can reach: the addresses of its host name, and the
    address from which it connects to other networks. The audit tries whether an app on loopback answers there.
    """
    found: set[str] = set()
    with contextlib.suppress(OSError):
        named = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
        found |= {str(each[4][0]) for each in named}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect(("192.0.2.1", 9))  # nothing is sent
        found.add(str(towards.getsockname()[0]))
    return tuple(sorted(each for each in found if not is_loopback(each)))


@dataclass(frozen=True)
class AuditConfig:
    """Parameters of an audit.

    Attributes:
        apps: the catalogue of apps.
        hub: the hub, at which the audit creates its accounts.
        url: public address of the apps' host.
        hub_url: public address of the hub, ending in ``/hub/``.
        listeners: ``address:port`` of the proxy to use instead of the public names; () uses the names.
        cookie: the Cookie header of a browser that is signed in; without it, nothing is tried that needs a browser.
        cookie_name: name of the gate's cookie.
        from_gate: the audit runs in the gate. The gate has to reach the apps to check their health, so the audit then
            does not try whether an app that is not on loopback answers without the proxy.
        addresses: addresses of this machine at which an app that listens on loopback must not answer.
        dead_seconds: for how many seconds an ended session or token is tried again. If it still works after that time,
            the case is reported as open.
        session_for: returns the cookie of a session, expired or not, for an account's token; `None` if the gate cannot
            be reached directly.
        key: the gate's signing key; `None` if it cannot be read from here.
        cases: names of the cases (groups of checks) to try, such as ``A7``; empty for all.
    """

    apps: Sequence[App]
    url: str
    hub_url: str
    hub: AuditHub
    listeners: tuple[str, ...] = ()
    cookie: str = field(default="", repr=False)
    cookie_name: str = "__Host-gate"
    from_gate: bool = False
    addresses: tuple[str, ...] = field(default_factory=own_addresses)
    dead_seconds: float = DEAD_SECONDS
    session_for: Callable[[str, bool], Awaitable[str]] | None = field(default=None, repr=False)
    key: AssertionKey | None = field(default=None, repr=False)
    cases: frozenset[str] = frozenset()


class AuditRun:
    """One run of the audit, which tries whether the apps behind the gate are closed to users without access.

    Args:
        config: what is tried, and where.
    """

    def __init__(self, config: AuditConfig) -> None:
        self.config = config
        self._few = asyncio.Semaphore(AT_ONCE)
        self._cookies: dict[str, set[str]] = {}
        self._sessions: dict[AuditCaller, str] = {}
        self._why_no_session = self._expired = ""

    async def results(self) -> list[AuditResult]:
        """Run the audit and return the lines of its report, sorted by app and case.

        A line states what was tried at an app, what came back, and whether that means that the app is open. A case is a
        group of checks, such as ``A4``.
        """
        groups = sorted({group for app in self.config.apps for group in app.groups})
        if self.config.cases == {"A7"}:  # needs neither hub nor gate, so it may run where they cannot be reached
            return [line for app in self.config.apps for line in await self._direct(app)]
        async with self.config.hub.accounts(groups) as accounts:
            found = await self._with(accounts)
        found += [
            AuditResult(
                "A2", EVERYWHERE, "removing an account", why, Outcome.NOT_TRIED, f"Remove the user {name} at the hub."
            )
            for name, why in self.config.hub.left_over
        ]
        order = {app.name: place for place, app in enumerate(self.config.apps)}
        return sorted(
            found, key=lambda result: (order.get(result.app, len(order)), int(result.case[1:]), result.outcome)
        )

    async def _with(self, accounts: AuditAccounts) -> list[AuditResult]:
        results: list[AuditResult] = []
        await self._sign_in(accounts)
        for app in self.config.apps:
            for listener in self.config.listeners or ("",):
                results += await self._through_proxy(app, listener, accounts)
            results += await self._direct(app)
        services = await self.config.hub.services()
        results += await self._of_hub(services)
        if not self._expired:
            why = self._why_no_session or "there is none"
            results.append(AuditResult("A4", EVERYWHERE, "a cookie that expired", why, Outcome.NOT_TRIED))
        results += await self._signed_out()
        for caller in self._sessions:  # the audit leaves no session behind
            await self._sign_out(caller)
        results += await self._dead(accounts)
        results += await self._certificates()
        results += [*self._of_host(), *known_limits(self.config.apps)]
        return [each for each in results if not self.config.cases or each.case in self.config.cases]

    async def _sign_in(self, accounts: AuditAccounts) -> None:
        """Get a session at the gate for each account, because some cases need the cookie that a signed-in browser would
        have.
        """
        if self.config.session_for is None:
            self._why_no_session = "the gate's own address is not known"
            return
        pairs: tuple[tuple[AuditCaller, AuditAccount | None], ...] = (
            ("browser", accounts.member),
            ("other-browser", accounts.outsider),
        )
        self._why_no_session = accounts.why
        for caller, account in pairs:
            if account is not None:
                try:
                    self._sessions[caller] = await self.config.session_for(account.token, False)
                    if caller == "browser":
                        self._expired = await self.config.session_for(account.token, True)
                except HubDeclined as problem:
                    self._why_no_session = str(problem)

    # ---------------------------------------------------------------- through the proxy

    async def _through_proxy(self, app: App, listener: str, accounts: AuditAccounts) -> list[AuditResult]:
        place, path = HttpTarget.of(app.where, listener), urlsplit(app.where).path or "/"
        callers = self._credentials(accounts)
        name, mine = self.config.cookie_name, self._sessions.get("browser", "")
        probes = [*probes_of(app, path, name), *await self._assertions(app, place, path)]
        probes += real_cookie_probes(app, path, name, mine, self._sessions.get("other-browser", ""), self._expired)
        probes = [each for each in probes if not self.config.cases or each.case in self.config.cases]
        member = accounts.member
        plain = {
            caller: await self._ask(place, replace(_plain(app, path, caller), headers=PAGE), callers)
            for caller in callers
        }
        tried = [each for each in probes if each.caller in callers]

        async def one(probe: Probe) -> tuple[Probe, ProbeAnswer, Outcome]:
            answer = await self._ask(place, probe, callers)
            return probe, answer, verdict(probe, answer, plain[probe.caller], member.name if member else "")

        results = merged(await asyncio.gather(*map(one, tried)))
        left = [each for each in probes if each.caller not in callers]
        why = accounts.why or "there is no such account"
        lacks = self._why_no_session or "there is none"
        reasons = {"browser": f"needs a signed-in browser's cookie (--cookie-file): {lacks}", "other-browser": lacks}
        for probe in {(each.case, each.caller): each for each in left}.values():
            reason = reasons.get(probe.caller, why)
            results.append(
                AuditResult(probe.case, app.name, probe.tried.split(" sent by")[0], reason, Outcome.NOT_TRIED)
            )
        return results

    def _credentials(self, accounts: AuditAccounts) -> Credentials:
        found: dict[AuditCaller, tuple[tuple[str, str], ...]] = {"stranger": ()}
        if accounts.outsider is not None:
            found["outsider"] = _bearer(accounts.outsider)
        if accounts.member is not None:
            found["member"] = _bearer(accounts.member)
        if self.config.cookie:
            found["browser"] = (("Cookie", self.config.cookie),)
        for caller, value in self._sessions.items():
            found[caller] = (("Cookie", f"{self.config.cookie_name}={value}"),)
        return found

    async def _ask(self, place: HttpTarget, probe: Probe, callers: Credentials) -> ProbeAnswer:
        sent = [("Host", place.host), ("Connection", "close"), *callers.get(probe.caller, ()), *probe.headers]
        if any(name == "Upgrade" for name, _ in probe.headers):
            sent.remove(("Connection", "close"))
        raw = [(name.encode("latin-1"), b" " + value.encode("latin-1")) for name, value in sent]
        async with self._few:
            try:
                answer = await request_raw(place, probe.method, probe.target, raw, SECONDS)
            except OSError:
                return ProbeAnswer(None)
        self._cookies.setdefault(probe.app, set()).update(answer.all("set-cookie"))
        return _seen(answer)

    async def _assertions(self, app: App, place: HttpTarget, path: str) -> list[Probe]:
        """Return the requests of case A6, each with an assertion that the app must not accept.

        An assertion is the signed token that identifies the caller to an app. These are forged, expired, or for another
        app.

        Args:
            app: the app to try.
            place: address of the app behind the proxy.
            path: path of the page to request.
        """
        advice = "The app has to check the signature by the gate's keys, its own name (aud) and the time."
        keys = HttpTarget.of(self.config.url, self.config.listeners[0] if self.config.listeners else "")
        try:
            got = await request_raw(keys, "GET", "/_gate/jwks.json", [(b"Host", keys.host.encode())], SECONDS)
            known = json.loads(got.body)["keys"][0]["kid"]
        except (OSError, ValueError, LookupError, TypeError):
            known = "1"
        return [
            Probe(
                "A6",
                app.name,
                "an assertion that is not the gate's",
                way,
                path,
                advice,
                Rule.ODD,
                headers=((ASSERTION, token), *PAGE),
            )
            for way, token in (
                *forged_assertions(app.name, self.config.url, str(known)),
                *(true_assertions(app.name, self.config.url, self.config.key) if self.config.key is not None else ()),
            )
        ]

    # ---------------------------------------------------------------- beside the proxy

    async def _direct(self, app: App) -> list[AuditResult]:
        """Try case A7: whether the app answers without the proxy. An app on loopback is tried at this machine's other
        addresses.
        """
        place = HttpTarget.of(app.upstream)
        here = is_loopback(place.address)
        if not here and self.config.from_gate:
            why = "the gate has to reach it for its health: run the audit from elsewhere, such as a user's pod"
            return [AuditResult("A7", app.name, "past the proxy", why, Outcome.NOT_TRIED)]
        targets = (
            [HttpTarget(each, place.port, place.secure, place.host) for each in self.config.addresses]
            if here
            else [place]
        )
        if not targets:
            return [
                AuditResult("A7", app.name, "past the proxy", "this machine has no other address", Outcome.NOT_TRIED)
            ]
        callers: Credentials = {"stranger": ()}
        forged = await self._assertions(app, place, "/") if app.mode == "jwt" else []
        probe = Probe("A7", app.name, "past the proxy", "", "/", "", headers=PAGE)
        results = []
        if here and app.mode == "header":
            why, advice = (
                "its programs, users' servers too, reach it as the proxy does",
                "Take mode: jwt where they run.",
            )
            results.append(AuditResult("A7", app.name, "from this machine itself", why, Outcome.NOT_TRIED, advice))
        for target in targets:
            answers = [await self._ask(target, each, callers) for each in (probe, *forged)]
            reached = [each for each in answers if each.status is not None]
            is_open = any(verdict(probe, each) is Outcome.OPEN for each in reached)
            came_back = ", ".join(sorted({str(each) for each in reached})) or "not reached"
            advice = (
                "Let it listen where only the proxy reaches it, or check the assertion (mode: jwt)." if is_open else ""
            )
            outcome = Outcome.OPEN if is_open else Outcome.SAFE
            results.append(
                AuditResult(
                    "A7", app.name, f"past the proxy, at {target.address}:{target.port}", came_back, outcome, advice
                )
            )
        return results

    async def _of_hub(self, services: Mapping[str, Mapping[str, object]] | None) -> list[AuditResult]:
        """Try case A10 (what the hub's own proxy serves) and case A13 (whether hub and catalogue list the same apps).

        Args:
            services: the hub's services by name; `None` if the token may not read them.
        """
        if services is None:
            why = "the token may not read the hub's services (list:services)"
            return [
                AuditResult(case, EVERYWHERE, "the hub's services", why, Outcome.NOT_TRIED) for case in ("A10", "A13")
            ]
        results = list(mismatched_apps(self.config.apps, {name: _is_app(each) for name, each in services.items()}))
        hub, base = HttpTarget.of(self.config.hub_url), urlsplit(self.config.hub_url).path.removesuffix("hub/") or "/"
        for name, each in services.items():
            if not each.get("url"):
                continue
            target = str(each.get("prefix") or f"{base}services/{name}/")
            advice = (
                "The hub's proxy serves it to everybody: it has to ask who is calling, or become an app of the gate."
            )
            probe = Probe("A10", name, "the hub's service, by a stranger", target, target, advice, headers=PAGE)
            answer = await self._ask(hub, probe, {"stranger": ()})
            results += merged([(probe, answer, verdict(probe, answer))])
        return results

    async def _sign_out(self, caller: AuditCaller) -> ProbeAnswer:
        """Sign out as the button of the front page does, and return the gate's answer.

        Args:
            caller: which of the audit's browsers signs out.
        """
        place = HttpTarget.of(self.config.url, *self.config.listeners[:1])
        probe = Probe("A5", EVERYWHERE, "", "", SIGN_OUT, "", Rule.REFUSED, caller, "POST", OWN_POST)
        return await self._ask(place, probe, self._credentials(AuditAccounts(None, None)))

    async def _signed_out(self) -> list[AuditResult]:
        """Try cases A5 and A12: whether a copy of the member's cookie opens the apps after a sign-out, and for how
        long.
        """
        apps, callers = self.config.apps, self._credentials(AuditAccounts(None, None))
        if not apps or "browser" not in self._sessions:
            why = self._why_no_session or "there is no app"
            return [AuditResult("A5", EVERYWHERE, "a cookie copied before a sign-out", why, Outcome.NOT_TRIED)]
        pages = [
            (
                HttpTarget.of(app.where, *self.config.listeners[:1]),
                _plain(app, urlsplit(app.where).path or "/", "browser"),
            )
            for app in apps
        ]
        before = [await self._ask(place, probe, callers) for place, probe in pages]
        opened = [(app, *page) for app, page, answer in zip(apps, pages, before, strict=True) if answer.status == 200]
        tried = "a cookie copied before a sign-out"
        why = "" if opened else f"the member's browser opened nothing: {before[0]}"
        if not why:
            answer = await self._sign_out("browser")
            why = "" if answer.status == 303 else f"the sign-out answers {answer}"
        if why:
            return [AuditResult("A5", EVERYWHERE, tried, why, Outcome.NOT_TRIED)]
        began, still = time.monotonic(), opened

        async def all_refused() -> bool:
            nonlocal still
            still = [each for each in still if not await self._is_refused(each[1], each[2], callers)]
            return not still

        await _until(all_refused, self.config.dead_seconds)
        took = time.monotonic() - began
        if still:
            advice = "The sign-out does not reach the gate that answers its checks, or it is not behind the gate."
            late = f"still open after {self.config.dead_seconds:g} s"
            return [AuditResult("A5", app.name, tried, late, Outcome.OPEN, advice) for app, _, _ in still]
        return [
            AuditResult("A5", EVERYWHERE, f"{tried}, at {len(opened)} apps", "refused by all", Outcome.SAFE),
            AuditResult("A12", EVERYWHERE, "a sign-out", f"dead after {took:.1f} s", Outcome.SAFE),
        ]

    async def _dead(self, accounts: AuditAccounts) -> list[AuditResult]:
        """Try case A12 of the audit: how long a token opens an app after its owner was removed from the hub.

        The owner is the audit's own test account that is a member of the app's group. This has to be the last step.
        """
        app = await self._closed_app()
        if app is None or accounts.member is None:
            why = accounts.why or "there is no app that refuses a stranger"
            return [AuditResult("A12", EVERYWHERE, "after the end", why, Outcome.NOT_TRIED)]
        place, path = HttpTarget.of(app.where, *self.config.listeners[:1]), urlsplit(app.where).path or "/"
        probe, callers = _plain(app, path, "member"), self._credentials(accounts)
        if (before := await self._ask(place, probe, callers)).status != 200:
            why = f"the member's token opened nothing: {before}"
            return [AuditResult("A12", app.name, "after the end", why, Outcome.NOT_TRIED)]
        try:
            await self.config.hub.remove(accounts.member.name)
        except HubDeclined as problem:
            return [AuditResult("A12", app.name, "after the end", str(problem), Outcome.NOT_TRIED)]
        began = time.monotonic()
        dead = await _until(lambda: self._is_refused(place, probe, callers), self.config.dead_seconds)
        took = (
            f"dead after {time.monotonic() - began:.1f} s"
            if dead
            else f"still open after {self.config.dead_seconds:g} s"
        )
        outcome = Outcome.SAFE if dead else Outcome.OPEN
        advice = "" if dead else "The gate asks the hub too seldom, or not at all: see cache_seconds."
        return [AuditResult("A12", app.name, "a token copied before its end", took, outcome, advice)]

    async def _closed_app(self) -> App | None:
        """Return the first app that refuses a request without credentials; `None` if no app does.

        Only such an app shows whether an ended token still works.
        """
        for app in self.config.apps:
            place, path = HttpTarget.of(app.where, *self.config.listeners[:1]), urlsplit(app.where).path or "/"
            if await self._is_refused(place, _plain(app, path, "stranger"), {"stranger": ()}):
                return app
        return None

    async def _is_refused(self, place: HttpTarget, probe: Probe, callers: Credentials) -> bool:
        answer = await self._ask(place, probe, callers)
        return answer.status in (401, 403) or answer.leads_to_sign_in

    async def _certificates(self) -> list[AuditResult]:
        """Try case A14: verify the certificate of each https origin, as a browser on this machine would."""
        addresses = [self.config.url, *(app.where for app in self.config.apps)]
        origins = dict.fromkeys("{0.scheme}://{0.netloc}".format(urlsplit(each)) for each in addresses)
        results = []
        for origin in (each for each in origins if each.startswith("https:")):
            try:
                code, words = await certificate_fault(HttpTarget.of(origin, *self.config.listeners[:1]), SECONDS)
            except OSError as problem:
                results.append(certificate_result(origin, None, str(problem) or type(problem).__name__))
            else:
                results.append(certificate_result(origin, code, words))
        return results

    def _of_host(self) -> Iterator[AuditResult]:
        """Try case A14: whether the apps are served with TLS, and whether the cookies of all answers are safe."""
        parts = urlsplit(self.config.url)
        secure = parts.scheme == "https"
        if not secure:
            here = is_loopback(parts.hostname or "")
            outcome = Outcome.NOT_TRIED if here else Outcome.OPEN
            yield AuditResult(
                "A14", EVERYWHERE, "TLS", "plain http", outcome, "" if here else "Serve the apps by https."
            )
        for app, cookies in self._cookies.items():
            faults = sorted(
                {
                    f"{each.partition('=')[0]}: {', '.join(wrong)}"
                    for each in cookies
                    if (wrong := cookie_faults(each, secure))
                }
            )
            advice = "A cookie with Domain goes to every host below it, users' servers too." if faults else ""
            outcome = Outcome.OPEN if faults else Outcome.SAFE
            yield AuditResult("A14", app, f"{len(cookies)} cookies", "; ".join(faults) or "host-only", outcome, advice)


def _plain(app: App, target: str, caller: AuditCaller) -> Probe:
    return Probe("A0", app.name, "", "", target, "", caller=caller)


def _seen(answer: RawAnswer) -> ProbeAnswer:
    text = answer.body.decode("utf-8", "replace") + "\n" + "\n".join(value for _, value in answer.headers)
    framing = framing_of(answer.all("content-security-policy"), answer.header("x-frame-options"))
    return ProbeAnswer(answer.status, answer.header("location"), text, answer.all("set-cookie"), framing)


def _bearer(account: AuditAccount) -> tuple[tuple[str, str], ...]:
    return (("Authorization", f"Bearer {account.token}"),)


def _is_app(service: Mapping[str, object]) -> bool:
    """Return whether ``configure(c)`` created this service for an app: it has no ``url``, and its ``info`` has a
    link.
    """
    info = service.get("info")
    return not service.get("url") and isinstance(info, Mapping) and bool(info.get("href"))


async def _until(is_so: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if await is_so():
            return True
        await asyncio.sleep(0.1)
    return False
