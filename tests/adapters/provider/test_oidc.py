"""The provider, asked over HTTP: what is taken, what is refused, and what only means that it is away."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from hub_extensions.adapters.provider.forged_assertions import forged_tokens
from hub_extensions.adapters.provider.oidc import (
    FIRST_KEYS_SECONDS,
    KEY_RETRY_SECONDS,
    KEYS_SECONDS,
    Provider,
    ProviderAway,
    ProviderRefused,
    ProviderUnreachable,
    ProviderUnusable,
)
from hub_extensions.core.sign_on.answers import Account
from hub_extensions.core.sign_on.refusal import SignOnRefusal
from tests.cluster.certificates import Authority
from tests.fakes.oidc_provider import (
    CLIENT,
    SECRET,
    Fault,
    OidcProvider,
    SignedWith,
    ThatFails,
    ThatHangs,
    ThatIsHuge,
    ThatRedirects,
    WithAnotherKeyOfTheSameId,
    WithDocument,
    WithManyKeys,
    WithOtherTokens,
    private_key,
    public_jwk,
)
from tests.patience import patient

BACK = "http://127.0.0.1/hub/oauth_callback"
VERIFIER = "v" * 43


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def op() -> Iterator[OidcProvider]:
    with OidcProvider() as provider:
        provider.add("ada", groups=["thesis"])
        yield provider


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def asked(op: OidcProvider, clock: Clock) -> AsyncIterator[Provider]:
    provider = Provider(op.issuer, CLIENT, [SECRET], seconds=5, clock=clock)
    yield provider
    provider.close()


def code_of(op: OidcProvider, at: str = "") -> str:
    """A login's code, without a browser. `at`: where the provider is, if not at its issuer's address."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
    query = {"redirect_uri": BACK, "state": "s", "nonce": "n", "code_challenge": challenge}
    answer = requests.get(
        f"{(at or op.issuer).rstrip('/')}/authorize", params=query, allow_redirects=False, timeout=patient(10)
    )
    return answer.headers["Location"].partition("code=")[2].partition("&")[0]


@pytest.mark.parametrize("path", ["", "/", "/realms/uni", "/realms/uni/"])
async def test_the_document_is_found_also_for_an_issuer_that_ends_with_a_slash(path: str) -> None:
    with OidcProvider(path) as op:
        provider = Provider(op.issuer, CLIENT, [SECRET])
        assert (await provider.metadata()).token == f"{op.issuer.rstrip('/')}/token"
        provider.close()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (WithDocument(issuer="https://another.example"), "other-issuer"),
        (WithDocument(issuer=None), "other-issuer"),
        (WithDocument(token_endpoint=None), "bad-document"),
        (WithDocument(jwks_uri="http://another.example/keys"), "bad-document"),
        (WithDocument(userinfo_endpoint=5), "bad-document"),
        (ThatRedirects("openid-configuration", "http://another.example/"), "redirects"),
        (ThatFails("openid-configuration", 404), "no-document"),
    ],
)
async def test_a_document_that_does_not_fit_is_said_in_words(
    op: OidcProvider, asked: Provider, fault: Fault, code: str
) -> None:
    op.fault = fault
    with pytest.raises(ProviderUnusable) as problem:
        await asked.metadata()
    assert problem.value.code == code


async def test_an_issuer_with_a_slash_too_many_is_another_issuer(op: OidcProvider) -> None:
    provider = Provider(op.issuer + "/", CLIENT, [SECRET])
    with pytest.raises(ProviderUnusable, match="names the issuer"):
        await provider.metadata()
    provider.close()


@pytest.mark.parametrize(
    "fault",
    [
        ThatFails(),
        ThatFails(status=200, body="<html>"),
        ThatFails(status=200, body="[]"),
        ThatFails(status=200, body="[" * 100_000),
        ThatFails(status=429),
        ThatIsHuge("openid-configuration", 1_100_000),
    ],
)
async def test_a_document_that_cannot_be_read_means_that_it_is_away(
    op: OidcProvider, asked: Provider, fault: Fault
) -> None:
    op.fault = fault
    with pytest.raises(ProviderAway) as problem:
        await asked.metadata()
    assert not isinstance(problem.value, ProviderUnreachable)


async def test_what_hangs_has_nobody_waiting_and_what_is_not_there_is_unreachable(op: OidcProvider) -> None:
    op.fault = ThatHangs()
    for issuer in (op.issuer, "http://127.0.0.1:9"):
        provider = Provider(issuer, CLIENT, [SECRET], seconds=0.3)
        with pytest.raises(ProviderUnreachable):
            await provider.metadata()
        provider.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "signed_by", "trusted", "believed"),
    [
        ("127.0.0.1", "site", "site", True),
        ("127.0.0.1", "another", "site", False),
        ("127.0.0.1", "site", None, False),  # the system knows nothing of the site's own authority
        ("login.site.example", "site", "site", False),
    ],
)
async def test_whoever_has_not_the_certificate_of_the_provider_is_not_taken_for_it(
    tmp_path: Path, named: str, signed_by: str, trusted: str | None, believed: bool
) -> None:
    """And nobody is signed out for it, as of one that is away."""
    authorities = {name: Authority(tmp_path / name, name) for name in ("site", "another")}
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authorities[signed_by].issue("provider", "provider", addresses=[named]))
    ca_file = "" if trusted is None else str(authorities[trusted].certificate)
    with OidcProvider(tls=tls) as op:
        provider = Provider(op.issuer, CLIENT, [SECRET], ca_file=ca_file)
        if believed:
            assert (await provider.metadata()).token == f"{op.issuer}/token"
        else:
            with pytest.raises(ProviderAway, match=r"127\.0\.0\.1 does not answer \("):
                await provider.metadata()
        assert op.asked["openid-configuration"] == believed
        provider.close()


async def test_while_it_is_away_the_last_document_is_good(op: OidcProvider, asked: Provider, clock: Clock) -> None:
    first = await asked.metadata()
    op.fault = ThatFails()
    clock.now += KEYS_SECONDS + 1
    assert await asked.metadata() is first
    assert await asked.metadata() is first
    assert op.asked["openid-configuration"] == 2
    op.fault = WithDocument(userinfo_endpoint=None)
    clock.now += KEY_RETRY_SECONDS + 1
    assert (await asked.metadata()).userinfo == ""


@pytest.mark.slow
async def test_a_code_becomes_tokens_once_and_only_with_its_verifier(op: OidcProvider, asked: Provider) -> None:
    code = code_of(op)
    tokens = await asked.exchange(code, VERIFIER, BACK)
    assert (await asked.userinfo(tokens.access))["preferred_username"] == "ada"
    header, claims = await verified(asked, tokens.id_token)
    assert (header["alg"], claims["nonce"]) == ("RS256", "n")
    for used, verifier, back in ((code, VERIFIER, BACK), (code_of(op), "w" * 43, BACK), (code_of(op), VERIFIER, "x")):
        with pytest.raises(ProviderRefused, match="it is invalid_grant"):
            await asked.exchange(used, verifier, back)


async def verified(asked: Provider, token: str) -> tuple[Any, Any]:
    found = await asked.verified(token)
    assert not isinstance(found, SignOnRefusal), found
    return found


async def test_tokens_never_show_themselves(op: OidcProvider, asked: Provider) -> None:
    tokens = await asked.exchange(code_of(op), VERIFIER, BACK)
    assert tokens.access not in repr(tokens)
    assert tokens.refresh not in repr(tokens)


async def test_a_refresh_says_no_for_who_is_disabled_and_the_session_that_is_ended(
    op: OidcProvider, asked: Provider
) -> None:
    tokens = await asked.exchange(code_of(op), VERIFIER, BACK)
    tokens = await asked.refresh(tokens.refresh)
    _, claims = await verified(asked, tokens.id_token)
    assert "nonce" not in claims
    op.disabled.add(op.who)
    with pytest.raises(ProviderRefused):
        await asked.refresh(tokens.refresh)
    with pytest.raises(ProviderRefused):
        await asked.userinfo(tokens.access)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ThatFails("token", 400, '{"error": "invalid_grant"}'), ProviderRefused),
        (ThatFails("token", 401, '{"error": "invalid_grant"}'), ProviderRefused),
        (ThatFails("token", 401, "nothing to read"), ProviderUnusable),
        (ThatFails("token", 401, "<html>Maintenance: sign in first</html>"), ProviderUnusable),
        (ThatFails("token", 401, '{"error": "access_denied", "error_description": "Unauthorized"}'), ProviderUnusable),
        (ThatFails("token", 401, '{"error": "invalid_client"}'), ProviderUnusable),
        (ThatFails("token", 400, '{"error": "unauthorized_client"}'), ProviderUnusable),
        (ThatFails("token", 500, '{"error": "invalid_grant"}'), ProviderAway),
        (ThatFails("token", 400, '{"error": "interaction_required"}'), ProviderRefused),
        (ThatFails("token", 200, '{"error": "bad_refresh_token"}'), ProviderRefused),
        (ThatFails("token", 200, '{"error": "incorrect_client_credentials"}'), ProviderUnusable),
        (
            ThatFails("token", 400, '{"error": "invalid_client", "error_description": "User disabled"}'),
            ProviderUnusable,
        ),
        (ThatFails("token", 503), ProviderAway),
        (ThatFails("token", 429, '{"error": "slow_down"}'), ProviderAway),
        (ThatFails("token", 404), ProviderAway),
        (ThatFails("token", 400, '{"error": "invalid_request"}'), ProviderAway),
        (ThatFails("token", 200, '{"access_token": 5}'), ProviderAway),
        (ThatFails("token", 200, "{}"), ProviderAway),
        (ThatFails("token", 200, "oops"), ProviderAway),
        (ThatRedirects("token", "/elsewhere"), ProviderAway),
        (ThatIsHuge("token", 10_000_000), ProviderAway),
    ],
)
async def test_only_a_no_about_the_person_is_one(
    op: OidcProvider, asked: Provider, fault: Fault, kind: type[Exception]
) -> None:
    tokens = await asked.exchange(code_of(op), VERIFIER, BACK)
    op.fault = fault
    with pytest.raises(kind) as problem:
        await asked.refresh(tokens.refresh)
    assert tokens.refresh not in str(problem.value)
    assert SECRET not in str(problem.value)
    assert op.asked["elsewhere"] == 0


async def test_a_secret_that_is_being_changed_is_tried_second(op: OidcProvider) -> None:
    provider = Provider(op.issuer, CLIENT, ["the old one", SECRET])
    assert (await provider.exchange(code_of(op), VERIFIER, BACK)).access
    provider.close()
    provider = Provider(op.issuer, CLIENT, ["the old one", "another"])
    with pytest.raises(ProviderUnusable) as problem:
        await provider.exchange(code_of(op), VERIFIER, BACK)
    assert problem.value.code == "client-unknown"
    provider.close()


async def test_a_provider_that_takes_no_secret_in_a_header_gets_it_in_the_body(
    op: OidcProvider, asked: Provider
) -> None:
    op.fault = WithDocument(token_endpoint_auth_methods_supported=["client_secret_post"])
    assert (await asked.exchange(code_of(op), VERIFIER, BACK)).access


async def test_a_provider_without_user_information_says_nothing_more(op: OidcProvider, asked: Provider) -> None:
    op.fault = WithDocument(userinfo_endpoint=None)
    assert await asked.userinfo("whatever") == {}


async def test_an_answer_without_id_token_has_none(op: OidcProvider, asked: Provider) -> None:
    op.fault = WithOtherTokens(id_token=None, refresh_token=None)
    tokens = await asked.exchange(code_of(op), VERIFIER, BACK)
    assert (tokens.id_token, tokens.refresh) == ("", "")


# ---------------------------------------------------------------- signatures


def hs256_with_the_public_key(op: OidcProvider) -> str:
    head, body = ({"alg": "HS256", "kid": op.key}, {"sub": "u-1"})
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, body)]
    return ".".join([*parts, "c2lnbmF0dXJl"])


def changed(token: str) -> str:
    """Another letter in the middle of its signature."""
    head, _, signature = token.rpartition(".")
    return f"{head}.{signature[:9]}{'A' if signature[9] != 'A' else 'B'}{signature[10:]}"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_each_algorithm_of_the_list_is_taken(algorithm: str) -> None:
    with OidcProvider(algorithm=algorithm, key=f"of-{algorithm}") as op:
        provider = Provider(op.issuer, CLIENT, [SECRET])
        header, claims = await verified(provider, op.logout_token(sub="u-1"))
        assert (header["alg"], claims["sub"]) == (algorithm, "u-1")
        provider.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "code"),
    [
        (lambda op: "", "no-token"),
        (lambda op: "a.b.c", "no-token"),
        (lambda op: "ä.ö.ü", "no-token"),
        (lambda op: changed(op.logout_token()), "signature"),
        (lambda op: "x" * 70_000, "size"),
        (lambda op: op.logout_token({"crit": ["exp"]}), "no-token"),
        (lambda op: op.logout_token(sign=SignedWith(algorithm="none").signed), "algorithm"),
        (lambda op: op.logout_token(sign=SignedWith(algorithm="HS256").signed), "algorithm"),
        (lambda op: op.logout_token(sign=SignedWith(algorithm="RS512").signed), "algorithm"),
        (lambda op: op.logout_token(sign=SignedWith(key="another").signed), "signature"),
        (lambda op: op.logout_token(sign=SignedWith(kid="unknown").signed), "key"),
        (lambda op: op.logout_token(sign=SignedWith(kid="encrypts", key="encrypts").signed), "key"),
        (lambda op: op.logout_token(sign=SignedWith(key="elliptic", algorithm="ES256").signed), "key"),
        (hs256_with_the_public_key, "algorithm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_the_provider_did_not_sign_is_not_taken(
    op: OidcProvider, asked: Provider, token: Any, code: str
) -> None:
    found = await asked.verified(token(op))
    assert isinstance(found, SignOnRefusal)
    assert found.code == code


async def test_what_the_gates_audit_forges_is_not_taken_either(op: OidcProvider, asked: Provider) -> None:
    for way, token in forged_tokens({"iss": op.issuer, "sub": "u-1"}, op.key):
        assert isinstance(await asked.verified(token), SignOnRefusal), way


async def test_a_short_key_proves_nothing(op: OidcProvider, asked: Provider) -> None:
    class WithShortKey(Fault):
        def keys(self, keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [*keys, public_jwk("short")]

    op.fault = WithShortKey()
    short = jwt.encode({"sub": "u-1"}, private_key("short"), algorithm="RS256", headers={"kid": "short"})
    found = await asked.verified(short)
    assert isinstance(found, SignOnRefusal)
    assert found.code == "signature"


async def test_a_token_without_id_of_its_key_is_taken_where_only_one_fits(op: OidcProvider, asked: Provider) -> None:
    token = jwt.encode({"sub": "u-1"}, private_key(op.key), algorithm="RS256")
    await verified(asked, token)

    class WithTwoKeys(Fault):
        def keys(self, keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [*keys, public_jwk("second")]

    op.fault = WithTwoKeys()
    other = Provider(op.issuer, CLIENT, [SECRET])
    assert isinstance(await other.verified(token), SignOnRefusal)
    other.close()


async def test_twenty_unknown_keys_are_asked_for_once(op: OidcProvider, asked: Provider, clock: Clock) -> None:
    await verified(asked, op.logout_token(sub="u-1"))
    assert op.asked["keys"] == 1
    clock.now += KEY_RETRY_SECONDS + 1
    for number in range(20):
        token = op.logout_token(sign=SignedWith(kid=f"unknown-{number}").signed)
        assert isinstance(await asked.verified(token), SignOnRefusal)
    assert op.asked["keys"] == 2


async def test_keys_that_were_changed_are_found_within_a_minute(
    op: OidcProvider, asked: Provider, clock: Clock
) -> None:
    await verified(asked, op.logout_token(sub="u-1"))
    op.key = "rotated"
    assert isinstance(await asked.verified(op.logout_token(sub="u-1")), SignOnRefusal)
    clock.now += KEY_RETRY_SECONDS
    await verified(asked, op.logout_token(sub="u-1"))
    assert op.asked["keys"] == 2


async def test_a_key_that_was_taken_back_is_worth_nothing_after_an_hour(
    op: OidcProvider, asked: Provider, clock: Clock
) -> None:
    old = op.logout_token(sub="u-1")
    await verified(asked, old)
    op.key = "rotated"
    clock.now += KEYS_SECONDS + 1
    assert isinstance(await asked.verified(old), SignOnRefusal)


async def test_while_it_is_away_the_last_keys_are_good(op: OidcProvider, asked: Provider, clock: Clock) -> None:
    token = op.logout_token(sub="u-1")
    before = await verified(asked, token)
    op.fault = ThatFails()
    clock.now += KEYS_SECONDS + 1
    assert await verified(asked, token) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        WithManyKeys(),
        ThatIsHuge("keys", 10_000_000),
        ThatFails("keys", 200, "oops"),
        ThatFails("keys"),
        ThatHangs("keys"),
    ],
    ids=["a thousand", "10 MB", "no JSON", "500", "hangs"],
)
async def test_keys_that_cannot_be_read_are_asked_for_again_soon(op: OidcProvider, clock: Clock, fault: Fault) -> None:
    asked = Provider(op.issuer, CLIENT, [SECRET], seconds=0.5, clock=clock)
    op.fault = fault
    token = op.logout_token(sub="u-1")
    for _ in range(2):
        with pytest.raises(ProviderAway):
            await asked.verified(token)
    assert op.asked["keys"] == 1
    op.fault = Fault()
    clock.now += FIRST_KEYS_SECONDS
    await verified(asked, token)
    asked.close()


async def test_keys_are_not_looked_for_elsewhere(op: OidcProvider, asked: Provider) -> None:
    op.fault = ThatRedirects("keys", "http://127.0.0.2:9/keys")
    with pytest.raises(ProviderUnusable, match="not followed"):
        await asked.verified(op.logout_token(sub="u-1"))


@pytest.mark.slow
async def test_a_key_that_was_made_anew_under_its_old_id_is_read_again_once_a_minute(
    op: OidcProvider, asked: Provider, clock: Clock
) -> None:
    await verified(asked, (await asked.exchange(code_of(op), VERIFIER, BACK)).id_token)
    assert op.asked["keys"] == 1
    op.fault = WithAnotherKeyOfTheSameId()
    token = (await asked.exchange(code_of(op), VERIFIER, BACK)).id_token
    clock.now += KEY_RETRY_SECONDS + 1
    _, claims = await verified(asked, token)
    assert claims["sub"] == op.who and op.asked["keys"] == 2
    forged = SignedWith("third").signed({"alg": "RS256", "kid": "first"}, {"sub": "x"}, None)
    for _ in range(20):
        found = await asked.verified(forged)
        assert isinstance(found, SignOnRefusal) and found.code == "signature"
    assert op.asked["keys"] == 2, "not for each bad token"
    clock.now += KEY_RETRY_SECONDS + 1
    await asked.verified(forged)
    assert op.asked["keys"] == 3
    await verified(asked, token)


async def test_a_provider_is_asked_where_the_hub_reaches_it_and_keeps_its_name() -> None:
    """Browsers find it at the issuer's address, which this machine cannot reach."""
    with OidcProvider("/realms/uni") as op:
        op.add("ada")
        inner, op.issuer = op.issuer, "https://login.site.example/realms/uni"
        provider = Provider(op.issuer, CLIENT, [SECRET], issuer_connect_url=inner)
        metadata = await provider.metadata()
        assert metadata.authorization == "https://login.site.example/realms/uni/authorize"
        assert metadata.end_session == "https://login.site.example/realms/uni/end_session"
        assert (metadata.token, metadata.keys) == (f"{inner}/token", f"{inner}/keys")
        tokens = await provider.exchange(code_of(op, inner), VERIFIER, BACK)
        _, claims = await verified(provider, tokens.id_token)
        assert claims["iss"] == op.issuer
        assert (await provider.userinfo(tokens.access))["sub"] == op.who
        # another issuer at that address is still another issuer
        op.issuer = "https://login.other.example/realms/uni"
        other = Provider("https://login.site.example/realms/uni", CLIENT, [SECRET], issuer_connect_url=inner)
        with pytest.raises(ProviderUnusable, match="names the issuer"):
            await other.metadata()
        provider.close()
        other.close()


async def test_the_administration_says_whether_an_account_is_there(op: OidcProvider, asked: Provider) -> None:
    ada, address = op.who, f"{op.issuer}/admin/users"
    assert await asked.account(f"{address}/{ada}", ada, "") is Account.THERE
    op.disabled.add(ada)
    assert await asked.account(f"{address}/{ada}", ada, "") is Account.DISABLED
    del op.people[ada]
    assert await asked.account(f"{address}/{ada}", ada, "") is Account.GONE
    assert op.asked["token"] == 1, "its own token is kept for some seconds"
    op.own_token = "another"
    assert await asked.account(f"{address}/{ada}", ada, "") is None
    assert await asked.account(f"{address}/{ada}", ada, "") is Account.GONE, "with a new token"
    op.fault = ThatFails("account", 500, '{"error": "User not found"}')
    assert await asked.account(f"{address}/{ada}", ada, "") is None
