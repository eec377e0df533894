"""The audit of the gate: requests that should not get through to an app, and what each answer means.

Each such request is called a probe. Its answer means that the app is safe, that it is open, or that nothing was proved,
which counts as *not tried* and never as *safe*. ``adapters/apps/audit_run.py`` sends the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from hub_extensions.core.sign_on.apps import CHECK_PATH, RESERVED, App, address_of
from hub_extensions.core.sign_on.identity_headers import identity_header_names, spellings

AuditCaller = Literal["stranger", "outsider", "member", "browser", "other-browser"]
"""Sender of a probe: nobody; an account without the app's group; an account with it; and signed-in browsers of both."""
CANARY = "audit-somebody-else"
"""User name in forged identity headers. An app that shows this name believed a forged header."""
AUDIT_PATH = f"{RESERVED}/audit"
"""Path at which an audit gets a session for its own account; the request is signed with a secret of gate and hub."""
ACCOUNT = "gpu-audit-"
"""Prefix of the names of the audit's accounts, by which leftovers are recognised."""
EVERYWHERE = "everything"
"""Stands in place of an app's name in results about the apps' host as a whole."""
HEADER_ADVICE = "Take the piece of `jupyterhub-gpu gate config` into the proxy again: it clears every identity header."


class Outcome(str, Enum):
    """The conclusion from the answer to a probe (a request that should not get through to the app)."""

    SAFE = "safe"
    OPEN = "open"
    NOT_TRIED = "not tried"


class Rule(Enum):
    """The answers to a probe that are safe. A probe is a request of the audit that should not get through.

    REFUSED: the gate refuses the request.
    ODD: as REFUSED, or an answer that the request is malformed or that nothing is there.
    HIDDEN: an answer that nothing is there; even a refusal of the gate would reveal too much.
    UNBELIEVED: the app does not show `CANARY`, the user name in a forged identity header.
    UNFRAMED: the page forbids pages of other sites to show it in an HTML frame.
    LISTED: any answer, because the catalogue makes the path public; the report only lists it.
    """

    REFUSED = "refused"
    ODD = "odd"
    HIDDEN = "hidden"
    UNBELIEVED = "unbelieved"
    UNFRAMED = "unframed"
    LISTED = "listed"


@dataclass(frozen=True, slots=True)
class Probe:
    """A request of the audit that should not get through to an app.

    Attributes:
        case: the group of checks that the probe belongs to, such as ``A4``.
        app: name of the app.
        tried: what the probe tries. Probes with the same `tried` are one result of the report.
        way: how this probe differs from others with the same `tried`.
        target: path and query.
        advice: what to do if the app is open.
        rule: which answers are safe.
        caller: the account that sends it; ``stranger`` is a browser without a session.
    """

    case: str
    app: str
    tried: str
    way: str
    target: str
    advice: str
    rule: Rule = Rule.REFUSED
    caller: AuditCaller = "stranger"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The answer to a probe.

    A probe is a request of the audit that should not get through to the app.

    Attributes:
        status: HTTP status; `None` if no answer came.
        location: the header ``Location``; "" if it was not sent.
        text: the body.
        cookies: the ``Set-Cookie`` headers.
        framing: who may show the page in an HTML frame, from `framing_of`.
    """

    status: int | None
    location: str = ""
    text: str = ""
    cookies: tuple[str, ...] = ()
    framing: str = ""

    def __str__(self) -> str:
        if self.status is None:
            return "no answer"
        return f"{self.status} to a sign-in" if self.leads_to_sign_in else str(self.status)

    @property
    def leads_to_sign_in(self) -> bool:
        """Whether this answer redirects to the sign-in of the gate or the hub."""
        path = self.location.split("?")[0]
        path = "/" + path.split("://", 1)[1].partition("/")[2] if "://" in path else path
        sign_in = path.startswith(f"{RESERVED}/start") or "/hub/" in path or path.endswith("/oauth2/authorize")
        return self.status in (302, 303, 307) and sign_in


@dataclass(frozen=True, slots=True)
class AuditResult:
    """A line of the audit's report.

    The audit sends requests to an app that should not get through to it (`Probe`). A line is about one or more such
    requests, or about something else that was checked, such as a certificate.

    Attributes:
        case: the group of checks that the line belongs to, such as ``A4``.
        app: name of the app; `EVERYWHERE` if the line is about the apps' host as a whole.
        tried: what was tried at the app.
        came_back: what the app or the gate answered.
        outcome: whether the answers mean that the app is safe, that it is open, or that nothing was proved.
        advice: what to do; "" if nothing has to be done.
    """

    case: str
    app: str
    tried: str
    came_back: str
    outcome: Outcome
    advice: str = ""


PAGE = (("Accept", "text/html"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"))
PROGRAM = (("Accept", "application/json"), ("X-Requested-With", "XMLHttpRequest"))
SOCKET = (
    *(("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
CROSS = (("Origin", "https://elsewhere.example"), ("Sec-Fetch-Site", "cross-site"))
FRAMES = {
    site: (*PAGE[:2], ("Sec-Fetch-Dest", "iframe"), ("Sec-Fetch-Site", site)) for site in ("cross-site", "same-site")
}
"""Headers of a browser that loads a frame in a page of another address. Users' servers are often on the same site."""
KINDS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "page": ("GET", PAGE),
    "program": ("GET", PROGRAM),
    "POST": ("POST", (*PROGRAM, ("Content-Length", "0"))),
    "WebSocket": ("GET", SOCKET),
}


def probes_of(app: App, path: str, cookie_name: str) -> Iterator[Probe]:
    """Yield all probes of one app through the proxy, except those that need a real cookie (`real_cookie_probes`).

    A probe is a request of the audit that should not get through to the app.

    Args:
        path: path of the app's public address, with a trailing slash.
        cookie_name: name of the gate's session cookie.
    """
    yield from _access_probes(app, path)
    yield from _header_probes(app, path)
    yield from _cookie_probes(app, path, cookie_name)
    yield from _path_probes(app, path)
    yield from _public_probes(app, path)
    yield from _internal_route_probes(app)
    advice = "Let the check see Sec-Fetch-Dest and Sec-Fetch-Site, or the app say frame-ancestors 'self'."
    for site, headers in FRAMES.items():
        yield Probe(
            "A14", app.name, "in a frame of another page", site, path, advice, Rule.UNFRAMED, "browser", "GET", headers
        )


def real_cookie_probes(app: App, path: str, name: str, mine: str, other: str, expired: str) -> Iterator[Probe]:
    """Yield probes of case A4, which send real cookies of the gate that were changed, cut, combined or have expired.

    A probe is a request of the audit that should not get through to the app.

    Args:
        path: path of the app's public address, with a trailing slash.
        name: name of the gate's session cookie.
        mine: cookie of a user who may open the app; "" skips its probes.
        other: cookie of a user without the app's group; "" skips its probe.
        expired: cookie of a user with the group, whose session has ended; "" skips its probe.
    """
    if expired:
        sent, old = (("Cookie", f"{name}={expired}"), *PAGE), "The gate took a cookie that is over: compare its clock."
        yield Probe("A4", app.name, "a cookie that expired", "a session's", path, old, Rule.ODD, headers=sent)
    advice = "The gate took one cookie for another: ask for help, and stop it meanwhile."
    changed = (
        mine[:-2] + ("A" if mine[-2:-1] != "A" else "B") + mine[-1:]
    )  # only some bits of the last letter are significant
    ways = {"changed": changed, "cut": mine[:-1], "beside one's own": f"{other}; {name}={mine}" if other else ""}
    for way, value in ways.items():
        if mine and value:
            sent = (("Cookie", f"{name}={value}"), *PAGE)
            yield Probe("A4", app.name, "a cookie that is somebody else's", way, path, advice, Rule.ODD, headers=sent)


def _access_probes(app: App, path: str) -> Iterator[Probe]:
    advice = "Put the check of `jupyterhub-gpu gate config` before this address in the proxy."
    group = "Its check has to ask for this very app: the name stands in the path of the check."
    cross = "The check has to see Origin and Sec-Fetch-Site as the browser sent them."
    for way, (method, headers) in KINDS.items():
        yield Probe("A1", app.name, "a stranger", way, path, advice, method=method, headers=headers)
        yield Probe("A2", app.name, "without the group", way, path, group, Rule.REFUSED, "outsider", method, headers)
    yield Probe("A2", app.name, "without the group", "browser", path, group, Rule.REFUSED, "other-browser", "GET", PAGE)
    for way in ("POST", "WebSocket"):
        method, headers = KINDS[way]
        sent = (*headers, *CROSS)
        yield Probe("A11", app.name, "from another site", way, path, cross, Rule.REFUSED, "browser", method, sent)


def _header_probes(app: App, path: str) -> Iterator[Probe]:
    for name in identity_header_names():
        for spelled in spellings(name):
            for way, sent in forged_headers(spelled):
                sent_too = (*PAGE, *sent)
                yield Probe(
                    "A3",
                    app.name,
                    "a stranger with identity headers",
                    way,
                    path,
                    HEADER_ADVICE,
                    Rule.ODD,
                    headers=sent_too,
                )
                tried = f"{name} sent by somebody signed in"
                yield Probe("A3", app.name, tried, way, path, HEADER_ADVICE, Rule.UNBELIEVED, "member", headers=sent)


def forged_headers(name: str) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Yield (description, headers to send) for each way in which the audit forges the identity header `name`."""
    yield name, HEADER_FORMS["once"](name, CANARY)
    if "-" in name and name[0].isupper() and not name.isupper():
        for way, form in (("twice", "twice"), ("with spaces", "spaces"), ("folded", "folded")):
            yield f"{name} {way}", HEADER_FORMS[form](name, CANARY)


HEADER_FORMS: Mapping[str, Callable[[str, str], tuple[tuple[str, str], ...]]] = {
    "once": lambda name, value: ((name, value),),
    "twice": lambda name, value: ((name, value), (name, value)),
    "spaces": lambda name, value: ((name, f" \t {value} "),),
    "folded": lambda name, value: ((name, f"\r\n {value}"),),
    "space before": lambda name, value: ((f"{name} ", value),),
}
"""Ways to write a header to get past a proxy: form -> the headers to send for a name and a value."""


def _cookie_probes(app: App, path: str, name: str) -> Iterator[Probe]:
    advice = "The gate answered a cookie that it never gave: ask for help, and stop it meanwhile."
    made_up = "A" * 43
    for way, value in (
        ("made up", made_up),
        ("quoted", f'"{made_up}"'),
        ("twice", f"{made_up}; {name}={made_up}"),
        ("with a NUL", f"{made_up}\0"),
        ("4 kB", "A" * 4096),
        ("empty", ""),
    ):
        sent = (("Cookie", f"{name}={value}"), *PAGE)
        yield Probe("A4", app.name, "a cookie that is nobody's", way, path, advice, Rule.ODD, headers=sent)


def _path_probes(app: App, path: str) -> Iterator[Probe]:
    advice = "Let the proxy bring paths into one form before it decides."
    base = path.rstrip("/")
    encoded = (f"{base}/%2e%2e{path}", f"{base}/%252e%252e{path}", f"{base}%2f", f"{base}/..%2f..{path}", f"{base}%5c")
    marks = (f"{base}/;/", f"{base};a=b/", f"{base}/..;{path}", f"{base}/%00", f"{base}/%0a")
    for way in (f"/{path}", f"{base}//", f"/.{path}", *marks, *encoded):
        yield Probe("A8", app.name, "its path in other spellings", way, way, advice, Rule.ODD, headers=PAGE)


def _public_probes(app: App, path: str) -> Iterator[Probe]:
    """Yield probes of an app's public paths, and attempts to get from there to the rest of the app.

    A probe is a request of the audit that should not get through to the app.

    Args:
        app: the app.
        path: path of the app's public address, with a trailing slash.
    """
    advice = "What is public leads to the rest: let the proxy pass paths on as they came, or take it out of `public`."
    for each in app.public:
        at = path.rstrip("/") + each
        said = f"public, as the catalogue says: {each}"
        yield Probe("A8", app.name, said, "a stranger", at, "", Rule.LISTED, headers=PAGE)
        base = at.rstrip("/")
        deep = base.count("/")  # number of steps up to the root, from which `path` leads to the app
        ways = [f"{base}{up * deep}{path}" for up in ("/..", "/%2e%2e", "/%252e%252e", "/..;", "%2f..", "%5c..")]
        marks = (
            f"{base};{'/..' * deep}{path}",
            f"{base}/;{'/..' * (deep + 1)}{path}",
            f"{base}//{'../' * deep}{path[1:]}",
            f"{base}/%00",
        )
        for way in (*ways, *marks, f"{path}?{each}", f"{path}%23{each}"):
            tried = f"past what is public, by {each}"
            yield Probe("A8", app.name, tried, way, way, advice, Rule.ODD, headers=PAGE)


def _internal_route_probes(app: App) -> Iterator[Probe]:
    advice = "The proxy may not pass these paths on, and the gate has to listen where only the proxy reaches it."
    asked = (f"{RESERVED}/{each}/{app.name}" for each in ("answer", "away", "relay"))
    paths = (f"{CHECK_PATH}{app.name}", *asked, f"{RESERVED}/ended", AUDIT_PATH)
    for target in paths:
        yield Probe("A9", app.name, "the proxy's own question, from outside", target, target, advice, Rule.HIDDEN)


ANY_PAGE = Probe("A1", "", "", "", "", "")


def verdict(probe: Probe, answer: ProbeAnswer, plain: ProbeAnswer | None = None, owner: str = "") -> Outcome:
    """Decide what an answer to a probe means.

    A probe is a request of the audit that should not get through to the app.

    Args:
        plain: the answer to the same caller's ordinary request to the app, without what the probe adds to it; `None` if
            that request was not sent.
        owner: name of the user who sent both requests. The ordinary answer contains it if the app shows who is calling.
    """
    status = answer.status
    if status is None or (status >= 500 and probe.rule is not Rule.UNBELIEVED):
        return Outcome.NOT_TRIED
    if probe.rule is Rule.LISTED:
        return Outcome.SAFE
    if probe.rule is Rule.UNBELIEVED:
        return _judge_canary(answer, plain, owner)
    if probe.rule is Rule.HIDDEN:
        return Outcome.SAFE if status in (400, 403, 404, 405, 421) else Outcome.OPEN
    if status in (401, 403) or answer.leads_to_sign_in:
        return Outcome.SAFE
    if probe.rule is Rule.UNFRAMED:
        return _judge_framing(answer, plain)
    if probe.rule is Rule.ODD and plain is not None and verdict(ANY_PAGE, plain) is Outcome.OPEN:
        return Outcome.NOT_TRIED  # it is open without the probe's additions, which case A1 reports
    # a redirect to another spelling of the same path reveals nothing
    odd = status in (301, 308, 400, 404, 405, 414, 421, 431)
    return Outcome.SAFE if odd and probe.rule is Rule.ODD else Outcome.OPEN


def _judge_canary(answer: ProbeAnswer, plain: ProbeAnswer | None, owner: str) -> Outcome:
    """Decide whether the app believed a forged identity header, that is, whether its page shows the forged user name.

    The outcome is *not tried* if the app's page does not show the user name `owner` in the ordinary answer `plain`.
    """
    if CANARY in answer.text:
        return Outcome.OPEN
    if plain is None or plain.status != 200 or owner not in plain.text:
        return Outcome.NOT_TRIED
    return Outcome.SAFE if answer.status in (200, 400, 401, 403, 431) else Outcome.NOT_TRIED


def _judge_framing(answer: ProbeAnswer, plain: ProbeAnswer | None) -> Outcome:
    """Decide whether other sites may show the page in an HTML frame.

    The outcome is *not tried* if the page neither forbids it nor opens in the ordinary request, which does not ask for
    a frame.

    Args:
        answer: the answer to a request that loads the page in a frame.
        plain: the answer to the ordinary request; `None` if it was not sent.
    """
    if _restricts_framing(answer.framing):
        return Outcome.SAFE
    return Outcome.OPEN if plain is not None and plain.status == 200 else Outcome.NOT_TRIED


def framing_of(policies: Iterable[str], frame_options: str) -> str:
    """Return who may show a page in an HTML frame, according to ``Content-Security-Policy`` and ``X-Frame-Options``.

    Browsers apply all policies of a page, so the strictest counts. Within one policy the first ``frame-ancestors``
    counts. If any policy has ``frame-ancestors``, ``X-Frame-Options`` is ignored.

    Args:
        policies: the ``Content-Security-Policy`` headers of the page.
        frame_options: the header ``X-Frame-Options``; "" if it was not sent.

    Returns:
        The value of ``frame-ancestors``, or else of ``X-Frame-Options``; "" if the page sets neither.
    """
    found = []
    for policy in ",".join(policies).split(","):
        words = [directive.split() for directive in policy.split(";")]
        named = [each[1:] for each in words if each and each[0].lower() == "frame-ancestors"]
        found += [" ".join(each) or "'none'" for each in named[:1]]
    strict = [each for each in found if _restricts_framing(each)]
    return (strict or found or [frame_options])[0]


def _restricts_framing(framing: str) -> bool:
    allowed = framing.lower().split()
    return bool(allowed) and not _EVERYBODY & set(allowed)


_EVERYBODY = frozenset({"*", "*:*", "https:", "http:", "https://*", "http://*", "allowall", "allow-from"})
"""Values that allow everybody. The last two are values of ``X-Frame-Options`` that browsers ignore."""


def merged(found: Iterable[tuple[Probe, ProbeAnswer, Outcome]]) -> list[AuditResult]:
    """Merge probes that try the same at the same app, with the same outcome, into one line of the report.

    The line names the ways in which the probes differ, or counts them if there are many.

    Args:
        found: each probe (a request that should not get through to the app), its answer, and the conclusion.
    """
    groups: dict[tuple[str, str, str, Outcome], list[tuple[Probe, ProbeAnswer]]] = {}
    for probe, answer, outcome in found:
        tried = probe.tried if outcome is Outcome.OPEN or probe.rule is not Rule.UNBELIEVED else _ALL_HEADERS
        groups.setdefault((probe.case, probe.app, tried, outcome), []).append((probe, answer))
    return [_result(*key, each) for key, each in groups.items()]


_ALL_HEADERS = "identity headers sent by somebody signed in"


def _result(
    case: str, app: str, tried: str, outcome: Outcome, each: Sequence[tuple[Probe, ProbeAnswer]]
) -> AuditResult:
    ways = list(dict.fromkeys(probe.way for probe, _ in each))
    named = (
        ", ".join(ways)
        if len(ways) <= 4
        else f"{len(ways)} ways" + (f", as {ways[0]}" if outcome is Outcome.OPEN else "")
    )
    came_back = ", ".join(sorted({str(answer) for _, answer in each}))
    advice = each[0][0].advice if outcome is Outcome.OPEN else ""
    if outcome is Outcome.NOT_TRIED and each[0][0].rule is Rule.UNBELIEVED:
        advice = "It shows no name of whoever asks, so that its answer proves nothing: ask its author what it believes."
    return AuditResult(case, app, f"{tried}: {named}", came_back, outcome, advice)


def cookie_faults(cookie: str, secure: bool) -> tuple[str, ...]:
    """Return the faults of a cookie that the apps' host sets (case A14), such as ``no HttpOnly``.

    Args:
        cookie: the header ``Set-Cookie``.
        secure: whether it was set over https.
    """
    parts = [each.strip().lower() for each in cookie.split(";")]
    names = {each.partition("=")[0] for each in parts[1:]}
    faults = ["Domain"] if "domain" in names else []
    if "gate" in parts[0].partition("=")[0]:
        faults += [
            f"no {flag}" for flag, key in (("HttpOnly", "httponly"), ("SameSite", "samesite")) if key not in names
        ]
        faults += ["no Secure"] if secure and "secure" not in names else []
        faults += ["no __Host-"] if secure and not parts[0].startswith("__host-") else []
    return tuple(faults)


def certificate_result(origin: str, code: int | None, words: str) -> AuditResult:
    """Return the audit's result about the certificate of an https origin (case A14).

    An issuer that is unknown on this machine may be known to the users' browsers, so the outcome is *not tried*.

    Args:
        code: OpenSSL's verification code; 0 if the certificate is valid, `None` if nothing answered in TLS.
        words: OpenSSL's message; "" if the certificate is valid.
    """
    outcome = Outcome.SAFE if code == 0 else Outcome.OPEN
    if code is None or code in _UNKNOWN_ISSUER:
        outcome = Outcome.NOT_TRIED
    advice = "Give the proxy a certificate that browsers take for this host." if outcome is Outcome.OPEN else ""
    return AuditResult("A14", EVERYWHERE, f"the certificate of {origin}", words or "trusted", outcome, advice)


_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
"""Codes ``X509_V_ERR_*`` of a missing issuer, a self-signed certificate and an incomplete chain."""


def known_limits(apps: Sequence[App]) -> Iterator[AuditResult]:
    """Yield risks that no request can show: apps that share an origin, and apps with a login of their own."""
    origins: dict[tuple[str, int], list[str]] = {}
    for app in apps:
        if (place := address_of(app.where)) is not None:
            origins.setdefault(place.origin, []).append(app.name)
    for names in (each for each in origins.values() if len(each) > 1):
        advice = "Give what shows users' own content, TensorBoard or notebooks, a host of its own."
        why = "a script of one may read the others in its reader's name"
        yield AuditResult("A14", EVERYWHERE, f"apps of one origin: {', '.join(names)}", why, Outcome.NOT_TRIED, advice)
    for app in (each for each in apps if each.mode == "none"):
        why = "mode none: its own accounts are not the hub's, and behind the gate a sign-out does not end them"
        advice = "Switch its own login off; where it can only be hidden (Portainer's), give it a password nobody types."
        yield AuditResult("A3", app.name, "a login of its own", why, Outcome.NOT_TRIED, advice)


def mismatched_apps(apps: Sequence[App], services: Mapping[str, bool]) -> Iterator[AuditResult]:
    """Yield the results of case A13: apps of the catalogue without a service at the hub, and services without an app.

    Args:
        services: name of a service at the hub -> whether its description marks it as an app of the gate.
    """
    restart = "Restart the hub: configure(c) makes its service, and until then nobody's right is known."
    take_out = "Take its service and its groups' scope out of the hub, or write it into the catalogue."
    for name in sorted({app.name for app in apps} - set(services)):
        yield AuditResult("A13", name, "the app at the hub", "no such service", Outcome.OPEN, restart)
    for name in sorted({name for name, ours in services.items() if ours} - {app.name for app in apps}):
        yield AuditResult("A13", name, "the service in the catalogue", "no such app", Outcome.OPEN, take_out)
