"""``SingleSignOnOIDCAuthenticator``: sign-in at an OpenID provider, which is asked again while users are signed in.

It derives from oauthenticator's `GenericOAuthenticator`, so ``allowed_users``, ``admin_groups`` and hooks work as
there; tokens and claims are checked by this package. ``configure(c)`` adds the sessions (``authenticator/mixin.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from inspect import isawaitable
from typing import Any, ClassVar

from jupyterhub import orm, roles
from jupyterhub.crypto import KEY_ENV, CryptKeeper
from jupyterhub.utils import maybe_future
from oauthenticator.generic import GenericOAuthenticator
from traitlets import Bool, Callable, Dict, Enum, Float, Integer, List, TraitError, Unicode, Union, default

from hub_extensions.adapters.provider.oidc import (
    Provider,
    ProviderAway,
    ProviderRefused,
    ProviderTokens,
    ProviderUnusable,
    ca_file_problem,
)
from hub_extensions.adapters.provider.provider_address import (
    account_url_problem,
    connect_url_problem,
    issuer_setting_problem,
)
from hub_extensions.adapters.store.sign_on_provider import ProviderStore
from hub_extensions.authenticator.openid.backchannel import BackchannelLogout, LogoutTokens
from hub_extensions.authenticator.openid.failure import SignOnFailed, failure_for
from hub_extensions.authenticator.openid.links import KeptTokens, ProviderLinks, encrypted
from hub_extensions.authenticator.openid.login import OpenIdCallback, OpenIdLogin, OpenIdLogout
from hub_extensions.authenticator.openid.login_state import PendingLogin, UsedLogins
from hub_extensions.authenticator.openid.recheck import ProviderRecheck
from hub_extensions.authenticator.openid.sign_in_places import SignInPlaces
from hub_extensions.core.sign_on import EndCause, SignOnEvent
from hub_extensions.core.sign_on.claims import NEVER_ALGORITHMS, SIGNING_ALGORITHMS, Claims, merged
from hub_extensions.core.sign_on.id_token import Expected, IdToken, judge_id_token, userinfo_problem
from hub_extensions.core.sign_on.identity import (
    Adoption,
    ClaimedGroups,
    Identity,
    MissingGroups,
    Pinned,
    claimed_groups,
    judge_groups,
    name_of,
    name_taken,
    pin_of,
)
from hub_extensions.core.sign_on.provider_settings import LEFT_OVER, SECRET_VARIABLE
from hub_extensions.core.sign_on.recheck import RIGHT_LOST, ProviderLink, cause_of_error
from hub_extensions.core.sign_on.refusal import SignOnRefusal
from hub_extensions.core.text.translation import ENGLISH, Catalogue

MOST_NAMED = 20
"""Maximum number of people that a sentence of the admins' page names."""
NO_KEY = f"the hub has no key to keep tokens with: set c.CryptKeeper.keys or {KEY_ENV}"


@dataclass(frozen=True, slots=True)
class IdentifiedPerson:
    """A person who came back from the provider.

    The object is kept with the request until the new session is linked to the person.

    Attributes:
        identity: the person's account at the provider (``iss`` and ``sub``).
        pinned: the hub user that this provider account belongs to, and whether that is recorded only now.
        sid: the provider's id of its session; "" if it sent none.
        account: the person's name at the provider.
        encrypted_tokens: refresh token, id token and access token, encrypted.
        model: the authentication model of the user, as it was returned to the hub.
        groups_known: whether the provider reported the groups.
    """

    identity: Identity
    pinned: Pinned
    sid: str
    account: str
    encrypted_tokens: bytes = field(repr=False)
    model: dict[str, Any] = field(default_factory=dict, repr=False)
    groups_known: bool = False


class SingleSignOnOIDCAuthenticator(GenericOAuthenticator):  # type: ignore[misc]  # oauthenticator has no types
    """Sign-on with any OpenID Connect provider, which is asked again while users are signed in."""

    login_handler = OpenIdLogin
    callback_handler = OpenIdCallback
    logout_handler = OpenIdLogout

    issuer = Unicode(
        config=True,
        help="The provider's issuer, exactly as in its document: https://login.site.example/realms/uni",
    )
    client_secret = Union(
        [Unicode(), List(Unicode())],
        config=True,
        help=f"The client's secret; better in the environment variable {SECRET_VARIABLE}. While it is changed, two "
        "secrets: a list, or one per line in the variable.",
    )
    username_claim = Union(
        [Unicode("preferred_username"), Callable()],
        default_value="preferred_username",
        config=True,
        help="The claim with a person's name; a dotted path leads into an object. iss and sub identify "
        "the person, not the name.",
    )
    groups_claim = Union(
        [Unicode("groups"), Callable()],
        default_value="groups",
        config=True,
        help="The claim with a person's groups, a list or one text; a dotted path leads into an object. For any other "
        "form: a function that gets all claims and returns a list of names, or None without groups.",
    )
    missing_groups = Enum(
        [each.value for each in MissingGroups],
        None,
        allow_none=True,
        config=True,
        help="Meaning of a missing groups claim. none: no groups, for providers that omit an empty claim. unknown: the "
        "groups are unknown and stay for unknown_groups_hours. None: no groups at a sign-in, unknown at a re-check. A "
        "claim that was omitted as too large is always unknown.",
    )
    unknown_groups_hours = Float(
        24.0,
        min=0.0,
        config=True,
        help="Unknown groups end this long after the provider last reported them. Administrator rights by a group end "
        "at once.",
    )
    request_userinfo = Bool(
        True,
        config=True,
        help="False: the userinfo endpoint is never called, for providers where it refuses or adds nothing. Then the "
        "id token has to contain all claims.",
    )
    issuer_connect_url = Unicode(
        config=True,
        help="Address at which the hub itself reaches the provider, if not at issuer: "
        'http://keycloak.auth.svc:8080/realms/uni. Browsers and tokens keep using issuer. "": issuer.',
    )
    account_url = Unicode(
        config=True,
        help="URL of a person's record in the provider's administration API, with {sub} or another claim of the id "
        "token: https://login.site.example/admin/realms/uni/users/{sub}. Called if a session is not renewed, with a "
        'token of the hub\'s own client (client_credentials), which needs the right to read it. "": not called.',
    )
    account_scope = Unicode(config=True, help="Scope of that token, if the provider requires one.")
    group_map = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        config=True,
        help="The provider's name of a group -> the hub's. Other groups keep their names.",
    )
    synced_groups = List(
        Unicode(), config=True, help="The hub's names of the groups to use. Empty: all groups in the claim."
    )
    adopt_existing_users = Enum(
        [each.value for each in Adoption],
        Adoption.FIRST.value,
        config=True,
        help="Users who existed before this sign-on. first: the first person with a name gets it. none: an admin "
        "assigns it.",
    )
    signing_algorithms = List(
        Unicode(), list(SIGNING_ALGORITHMS), config=True, help="Algorithms that the provider may sign with."
    )
    leeway_seconds = Integer(
        60, min=0, max=600, config=True, help="Tolerated difference between the provider's clock and the hub's."
    )
    ca_file = Unicode(
        config=True,
        help='File with the certificates of the authorities to trust for the provider. "": those of the system.',
    )
    manage_groups = Bool(True, config=True, help=GenericOAuthenticator.class_traits()["manage_groups"].help)

    @default("client_secret")
    def _client_secret_default(self) -> str | list[str]:
        return [line for line in os.environ.get(SECRET_VARIABLE, "").split("\n") if line]

    @default("login_service")
    def _login_service_default(self) -> str:
        return "your account"

    @default("scope")
    def _scope_default(self) -> list[str]:
        return ["openid", "profile"]

    sign_on: Any = None
    """The hub's sessions, set by `SignOnMixin`, which ``configure(c)`` adds."""
    refresh_seconds: ClassVar[int] = 300
    """Interval in seconds at which requests of a user cause a check of the user; the hub's own setting
    `auth_refresh_age` has no effect here.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        secrets = [self.client_secret] if isinstance(self.client_secret, str) else list(self.client_secret)
        self.provider = Provider(
            self.issuer,
            self.client_id,
            secrets or [""],
            algorithms=tuple(self.signing_algorithms),
            ca_file=self.ca_file,
            issuer_connect_url=self.issuer_connect_url,
        )
        self.used_logins = UsedLogins()
        self._places = SignInPlaces()
        self._groups_unknown: dict[str, str] = {}
        self._unknown_since: dict[Identity, datetime] = {}
        self._userinfo_unused = ""
        self._app: Any = None

    def get_handlers(self, app: Any) -> list[Any]:
        """Return the handlers of sign-in, sign-out and back-channel logout. Raises ValueError for wrong settings."""
        problem = "" if self.sign_on is not None else "call configure(c), which puts sessions in front of it"
        problem = problem or self.settings_problem() or ("" if CryptKeeper.instance().keys else NO_KEY)
        if problem:
            raise ValueError(f"SingleSignOnOIDCAuthenticator: {problem}.")
        self._app = app
        self.links = ProviderLinks(ProviderStore(app.db))
        with self.sign_on.registry.store.transaction():
            self.links.store.note_users()
        self._warn_of_admins_without_pin()
        self._end_unlinked_sessions()
        self.recheck = ProviderRecheck(self, app)
        tokens = LogoutTokens(self)
        return [*super().get_handlers(app), (r"/sso/backchannel-logout", BackchannelLogout, {"tokens": tokens})]

    def settings_problem(self, *, whole: bool = True) -> str:
        """Return what is wrong with the settings, as a text that follows the name of the class; "" if nothing is.

        Args:
            whole: False leaves out what may exist only in the hub's environment, such as the file at ca_file.
        """
        secrets = [self.client_secret] if isinstance(self.client_secret, str) else self.client_secret
        if wrong := issuer_setting_problem(self.issuer):
            return f"issuer {wrong}"
        if not self.client_id:
            return "client_id is not set"
        if not secrets or not all(secrets) or len(secrets) > 2:
            return f"client_secret is not set, nor is {SECRET_VARIABLE}: one secret, or two while it is changed"
        if not self.signing_algorithms or any(each.startswith(NEVER_ALGORITHMS) for each in self.signing_algorithms):
            return "signing_algorithms has to have an algorithm, and none of those that prove nothing (none, HS256, …)"
        if any(each not in SIGNING_ALGORITHMS for each in self.signing_algorithms):
            return f"signing_algorithms: only {', '.join(SIGNING_ALGORITHMS)} are known"
        for name in ("username_claim", "groups_claim"):
            path = getattr(self, name)
            if isinstance(path, str) and (path or name == "username_claim") and not all(path.split(".")):
                return f"{name} is {path!r}, which is no claim's name and no path to one"
        if wrong := connect_url_problem(self.issuer_connect_url):
            return f"issuer_connect_url {wrong}"
        if wrong := account_url_problem(self.account_url):
            return f"account_url {wrong}"
        if whole and (wrong := ca_file_problem(self.ca_file)):
            return f"ca_file {wrong}"
        if "openid" not in self.scope or "offline_access" in self.scope:
            return "scope has to have openid, and never offline_access: such a sign-in does not end with the provider's"
        return ""

    @classmethod
    def problem_in(cls, c: Any, *, whole: bool = True) -> str:
        """Return what is wrong in a configuration, as a sentence; "" if it is usable.

        Args:
            c: the configuration of the hub.
            whole: False leaves out what may exist only in the hub's environment: the secret, the key and the file at
                ca_file.
        """
        for name in sorted(set(c.get(cls.__name__, {})) - set(cls.class_trait_names(config=True)) - LEFT_OVER.keys()):
            return f"c.{cls.__name__}.{name} is not a setting."
        try:
            made = cls(config=c)
            if not whole and not made.client_secret:
                made.client_secret = "in the hub's environment"
            problem = made.settings_problem(whole=whole)
        except (TraitError, ValueError) as error:
            if "'client_secret'" in str(error):  # the error would quote the secret
                return f"c.{cls.__name__}.client_secret is no text and no list of them."
            return f"c.{cls.__name__}: {error}"
        if problem:
            return f"c.{cls.__name__}.{problem}."
        has_key = bool(os.environ.get(KEY_ENV) or ("CryptKeeper" in c and c.CryptKeeper.get("keys")))
        return "" if has_key or not whole else f"c.{cls.__name__}: {NO_KEY}."

    # ------------------------------------------------------------------ signing in

    async def authenticate(self, handler: Any, data: Any = None, **_: Any) -> Any:
        """Identify the person who came back from the provider, and return the hub's model of the user.

        The person is stored as `identified_person` of the handler.

        Args:
            handler: the handler of the callback.
            data: ``code``, the authorization code, and ``login``, the pending sign-in of this browser.

        Raises:
            SignOnFailed: the person may not sign in, or the provider's answer cannot be used.
        """
        login = data["login"]
        tokens, token, claims = await self._redeem(data["code"], login)
        name = self._name_of(claims)
        identity = Identity(token.iss, token.sub)
        users = [name] if orm.User.find(self._app.db, name) is not None else []
        adoption = Adoption(self.adopt_existing_users)
        with self.sign_on.registry.store.transaction():
            self.links.store.follow_users()
        pins = self.links.store.pins_of(identity, name)
        pinned = pin_of(identity, name, pins=pins, users=users, adoption=adoption)
        if isinstance(pinned, Pinned) and pinned.adopted and self._has_other_person(name, identity):
            pinned = name_taken(name)
        if isinstance(pinned, SignOnRefusal):
            if pinned.code == "name-taken":
                self.record("name-taken", name)
            raise failure_for(pinned)
        kept = await encrypted(KeptTokens(tokens.refresh, tokens.id_token, tokens.access))
        model, known = await self.auth_model(pinned.user, claims, tokens, identity, at_sign_in=True)
        handler.identified_person = IdentifiedPerson(identity, pinned, token.sid, name, kept, model, known)
        return model

    async def _redeem(self, code: str, login: PendingLogin) -> tuple[ProviderTokens, IdToken, Claims]:
        """Redeem an authorization code at the provider. Return the tokens, the verified id token, and all claims.

        The number of simultaneous calls is limited. If the hub waits for a slow disk, it reads the provider's answers
        late. With many calls, every call would then exceed its time limit.

        Args:
            code: the authorization code.
            login: the pending sign-in that the code belongs to.

        Raises:
            SignOnFailed: the provider refuses the code, is away, or its answer cannot be used.
        """
        try:
            async with self._places.taken():
                tokens = await self.provider.exchange(code, login.verifier, login.redirect_uri)
                return tokens, *await self.claims_of(tokens, nonce=login.nonce, sub="")
        except (ProviderAway, ProviderRefused, ProviderUnusable) as problem:
            raise failure_for(problem) from problem

    def _has_other_person(self, name: str, identity: Identity) -> bool:
        """Return whether this hub user has sessions that were begun from another provider account.

        Such sessions exist if an admin renamed the user while the person with the other account had a session.

        Args:
            name: name of the hub user.
            identity: the provider account that the user now belongs to.
        """
        user = orm.User.find(self._app.db, name)
        theirs = self.links.of_user(user.id) if user is not None else ()
        return any(Identity(each.iss, each.sub) != identity for each in theirs)

    async def get_authenticated_user(self, handler: Any, data: Any) -> Any:
        """Return the hub's model of the user as the hub's own method does; `None` if the hub does not allow the user.

        If a person is allowed in for the first time, the store records which provider account the user belongs to.
        Afterwards no other account can sign in as this user.

        Args:
            handler: the handler of the callback, to which `authenticate` adds the person as `identified_person`.
            data: is passed on to `authenticate`.

        Raises:
            SignOnFailed: the person may not sign in.
        """
        model = await super().get_authenticated_user(handler, data)
        proof = handler.identified_person
        if model and model["name"] != proof.pinned.user:
            # the hub has applied username_map again, or a hook changed the name: that user may be another person
            problem = f"The user {proof.pinned.user!a} became {model['name']!a} (username_map, post_auth_hook)."
            raise SignOnFailed("not-allowed", problem, {"account": proof.account})
        if not model and not proof.pinned.new:
            self._revoke_rights(proof)
        if model and not proof.pinned.new:
            self._record_changes(model)
        if not model or not proof.pinned.new:
            return model
        # another person may have been pinned to the name in the meantime
        adoption = Adoption.FIRST if proof.pinned.adopted else Adoption(self.adopt_existing_users)
        users = [proof.pinned.user] if proof.pinned.adopted else []
        pins = self.links.store.pins_of(proof.identity, proof.pinned.user)
        again = pin_of(proof.identity, proof.pinned.user, pins=pins, users=users, adoption=adoption)
        if isinstance(again, SignOnRefusal):
            raise failure_for(again)
        if again.new:
            with self.sign_on.registry.store.transaction():
                self.links.store.pin(proof.identity, again.user, self.sign_on_now())
            self.record("pinned", again.user)
        return model

    def _record_changes(self, model: Mapping[str, Any]) -> None:
        """Record in the audit log whether this sign-in changes the user's admin rights or groups.

        Args:
            model: the hub's authentication model of the user, with the new rights and groups.
        """
        user = orm.User.find(self._app.db, model["name"])
        if user is None:
            return
        if model["admin"] is not None and bool(model["admin"]) != user.admin:
            self.record("admin-given" if model["admin"] else "admin-ended", str(user.name))
        if self.manage_groups and set(model["groups"]) != {each.name for each in user.groups}:
            self.record("groups-changed", str(user.name))

    def _revoke_rights(self, proof: IdentifiedPerson) -> None:
        """End the sessions and rights of a hub user who came back from the provider and is now refused by the hub.

        The hub refuses the user because of the provider's latest claims, such as missing groups.

        Args:
            proof: the person who came back.
        """
        found = orm.User.find(self._app.db, proof.pinned.user)
        if found is None:
            return
        user = self._app.users[found]
        self._apply(user, proof.model)
        self._app.db.commit()
        self.sign_on.grant_admins(user)
        self._end_all(user, in_doubt=not proof.groups_known)

    def not_allowed(self, handler: Any) -> SignOnFailed:
        """Return the failure for a person whom the provider knows but the hub does not allow in."""
        proof = handler.identified_person
        account = proof.account if proof is not None else ""
        return SignOnFailed("not-allowed", f"The account {account!a} is not let in by this hub.", {"account": account})

    def link(self, handler: Any, user: Any, proof: IdentifiedPerson) -> None:
        """Store the link (the provider's data) of the session that began with this request.

        With the link, the session can be checked again and signed out at the provider.

        Args:
            handler: the handler of the request.
            user: the hub's user who has signed in.
            proof: the person whom the provider has identified, with the encrypted tokens.
        """
        registry = self.sign_on.registry
        session = next(each for each in registry.of_user(user.id) if each.hub_session == handler.get_session_cookie())
        link = ProviderLink(
            session.id,
            user.id,
            proof.identity.iss,
            proof.identity.sub,
            proof.sid,
            proof.encrypted_tokens,
            self.sign_on_now(),
        )
        try:
            with registry.store.transaction():
                self.links.put([link])
                self.links.store.note_user(str(user.name))
                if proof.groups_known:
                    self._note_groups_named(proof.identity)
        except Exception:
            self.links.keep(link)  # the session exists already and has to be re-checked
            raise

    async def id_token_hint(self, handler: Any) -> str:
        """Return the id token of the session that this browser has or recently had, for the sign-out at the provider;
        "" if unknown.
        """
        session = self.sign_on.session_of(handler) or self.sign_on.ended_session_of(handler)
        link = self.links.of_session(session.id) if session is not None else None
        kept = await self.links.tokens_of(link) if link is not None else None
        return "" if kept is None else kept.id_token

    # ------------------------------------------------------------------ claims of the provider

    async def claims_of(self, tokens: ProviderTokens, *, nonce: str | None, sub: str) -> tuple[IdToken, Claims]:
        """Return the verified id token, which identifies the person, and all claims about the person.

        Args:
            tokens: the tokens that the provider has issued.
            nonce: the nonce of the sign-in; `None` when tokens are renewed, which does not use a nonce.
            sub: the provider's id of the account to which the tokens have to belong; "" at a sign-in, where it is not
                known yet.

        Raises:
            SignOnFailed: a token is refused.
            ProviderAway, ProviderRefused, ProviderUnusable: the provider did not give the keys or the claims.
        """
        if not tokens.id_token:
            raise SignOnFailed("token", "The provider gave no id token.")
        found = await self.provider.verified(tokens.id_token)
        if isinstance(found, SignOnRefusal):
            raise failure_for(found)
        expected = Expected(
            self.issuer,
            self.client_id,
            tuple(self.signing_algorithms),
            timedelta(seconds=self.leeway_seconds),
            nonce=nonce,
            access_token=tokens.access if nonce is not None else None,
            sub=sub,
        )
        token = judge_id_token(*found, expected, self.sign_on_now())
        if isinstance(token, SignOnRefusal):
            raise failure_for(token)
        if nonce is None and self._claimed(token.claims).names is not None:
            return token, token.claims  # a re-check needs the groups only
        return token, merged(token.claims, await self._userinfo_claims(tokens, token))

    async def _userinfo_claims(self, tokens: ProviderTokens, token: IdToken) -> Claims:
        """Return the claims of the provider's userinfo endpoint; {} if it is not used.

        If the call fails, {} is returned too, provided that the id token has all claims that are needed. A failure that
        shows that the account may not sign in, or that the claims are about another account, is always raised.

        Args:
            tokens: the tokens that the provider issued.
            token: the verified id token.
        """
        if not self.request_userinfo:
            return {}
        try:
            return await self.userinfo_claims(tokens, token.sub)
        except (ProviderAway, ProviderRefused, ProviderUnusable, SignOnFailed) as problem:
            of_account = (
                isinstance(problem, ProviderRefused) and cause_of_error(problem.description, problem.code) in RIGHT_LOST
            )
            of_another = isinstance(problem, SignOnFailed) and problem.code != "no-subject"
            if of_account or of_another or not self._has_all(token.claims):
                raise
            why = getattr(problem, "sentence", "") or str(problem)
            if why != self._userinfo_unused:
                text = "sign-on: the user information is not used, as the id token has all that is asked for: %s"
                self.log.warning(text, why)
            self._userinfo_unused = why
            return {}

    def _has_all(self, claims: Claims) -> bool:
        """Return whether the claims contain a usable name and, if the hub manages groups by a claim, the groups."""
        try:
            self._name_of(claims)
        except Exception:  # noqa: BLE001  the admin's own function may read other claims
            return False
        return not (self.manage_groups and self.groups_claim) or self._claimed(claims).names is not None

    def _claimed(self, claims: Claims) -> ClaimedGroups:
        return claimed_groups(claims, self.groups_claim, names=self.group_map, kept=self.synced_groups)

    async def userinfo_claims(self, tokens: ProviderTokens, sub: str) -> Claims:
        """Return the claims of the provider's userinfo endpoint; {} if the provider does not have that endpoint.

        Args:
            tokens: the tokens that the provider has issued.
            sub: the provider's id of the account that the claims have to be about.

        Raises:
            SignOnFailed: the claims name no account, or another one than `sub`.
            ProviderAway, ProviderRefused, ProviderUnusable: the provider gave no claims.
        """
        info = await self.provider.userinfo(tokens.access)
        problem = userinfo_problem(info, sub) if info else None
        if problem is not None:
            raise failure_for(problem)
        return info

    def _name_of(self, claims: Claims) -> str:
        """Return the user name from the claims in the hub's spelling. Raises SignOnFailed if the hub cannot use it."""
        path = self.username_claim
        claims, path = ({"name": path(dict(claims))}, "name") if callable(path) else (claims, str(path))
        name = name_of(claims, path)
        if isinstance(name, SignOnRefusal):
            raise failure_for(name)
        normalized = str(self.normalize_username(name))
        if not self.validate_username(normalized):
            problem = f"The hub takes no user of this name ({path}): {normalized[:80]!a}."
            raise SignOnFailed("bad-name", problem, {"claim": path})
        return normalized

    async def auth_model(
        self, name: str, claims: Claims, tokens: ProviderTokens, identity: Identity, *, at_sign_in: bool
    ) -> tuple[dict[str, Any], bool]:
        """Return the hub's authentication model of a user, and whether the groups are known.

        Args:
            name: the user's name at the hub.
            claims: the provider's claims about the user.
            tokens: the tokens that the provider issued.
            identity: the user's account at the provider.
            at_sign_in: True at a sign-in, False at a re-check. Unless the setting `missing_groups` decides, a missing
                groups claim means *no groups* at a sign-in, and *unknown groups* at a re-check.
        """
        info = {"access_token": tokens.access, "id_token": tokens.id_token, "scope": tokens.scope}
        state = self.build_auth_state_dict({**info, "token_type": "Bearer"}, dict(claims))
        state = await state if isawaitable(state) else state
        if self.modify_auth_state_hook is not None:
            state = await self._call_modify_auth_state_hook(state)
        model = {"name": name, "admin": True if name in self.admin_users else None, "auth_state": state}
        model = await self.update_auth_model(model)
        if not self.manage_groups:
            return model, True
        if not self.groups_claim:
            return {**model, **self._stored_groups(name)}, True
        return self._with_groups(model, claims, identity, at_sign_in=at_sign_in)

    def _with_groups(
        self, model: dict[str, Any], claims: Claims, identity: Identity, *, at_sign_in: bool
    ) -> tuple[dict[str, Any], bool]:
        name, now, claimed = model["name"], self.sign_on_now(), self._claimed(claims)
        user = orm.User.find(self._app.db, name)
        before = set() if user is None else {each.name for each in user.groups}
        named = self.links.store.groups_named(identity)
        if claimed.names is None and named is None:
            named = self._unknown_since.setdefault(identity, now)
        judged = judge_groups(
            claimed,
            before,
            named,
            now,
            at_sign_in=at_sign_in,
            missing=None if self.missing_groups is None else MissingGroups(self.missing_groups),
            keep=timedelta(hours=self.unknown_groups_hours),
        )
        admin = model["admin"]
        if self.admin_groups and not admin:
            admin = judged.is_known and bool(judged.groups & self.admin_groups)
        self._note_unknown_groups(name, "" if judged.is_known else claimed.words, claimed, judged.has_ended)
        return {**model, "groups": sorted(judged.groups), "admin": admin}, judged.is_known

    def _note_unknown_groups(self, name: str, words: str, claimed: ClaimedGroups, has_ended: bool) -> None:
        """Note whether a user's groups are unknown, and whether the stored groups are no longer used.

        Each of the two is logged and recorded in the audit log once.

        Args:
            name: name of the user.
            words: why the groups are unknown, as a sentence; "" if they are known.
            claimed: the groups claim of the provider, and what is wrong with it.
            has_ended: the groups have been unknown for so long that the stored ones are dropped.
        """
        problem = "" if claimed.problem is None else claimed.problem.value
        if words and self._groups_unknown.get(name) != words:
            claim = self.groups_claim if isinstance(self.groups_claim, str) else "by a function"
            stay = f"they stay for at most {self.unknown_groups_hours:g} h after they were last named"
            self.log.warning("sign-on: the groups of %s are unknown (%s: %s): %s", name, claim, words, stay)
            self.record("groups-unknown", name, problem)
        if has_ended:
            self.record("groups-ended", name, problem)
        if words:
            self._groups_unknown[name] = words
        else:
            self._groups_unknown.pop(name, None)

    def _note_groups_named(self, identity: Identity) -> None:
        self._unknown_since.pop(identity, None)
        self.links.store.note_groups_named(identity, self.sign_on_now())

    def _stored_groups(self, name: str) -> dict[str, Any]:
        """Return the user's stored groups and admin right, as a part of the hub's authentication model.

        A user in ``admin_users`` is an admin. Another admin stays an admin if one of the groups gives that right. No
        other user becomes an admin here.

        Args:
            name: name of the hub user. If the hub does not know the user, the groups are empty.
        """
        user = orm.User.find(self._app.db, name)
        if user is None:
            return {"groups": []}
        groups = {each.name for each in user.groups}
        is_admin = name in self.admin_users or bool(user.admin and groups & self.admin_groups)
        return {"groups": sorted(groups), "admin": True if is_admin else None}

    # ------------------------------------------------------------------ re-checks

    async def refresh_user(self, user: Any, handler: Any = None, **_: Any) -> Any:
        """Return whether this user may continue, by the hub's allow lists and, if a check is due, by the provider.

        False makes the browser sign in. If the administrator's ``refresh_user_hook`` returns something other than
        `None`, that value is returned instead.

        Args:
            user: the hub's user.
            handler: the handler of the request; `None` if no request is being handled.
        """
        known = await self._stored_model(user)
        if not await self._is_allowed(user, known):
            blocked = not await maybe_future(self.check_blocked_users(str(user.name), known))
            self._end_all(user, in_doubt=not blocked and self.sign_on.is_unknown(user.id))
            return False
        await self.recheck.check_user(user.id)
        if self.refresh_user_hook is not None:
            state = await user.get_auth_state() if self.enable_auth_state else None
            answer = await self._call_refresh_user_hook(user, state)
            if answer is not None:
                return answer
        if handler is None or getattr(handler, "_token_authenticated", False):
            return True
        session = self.sign_on.session_of(handler)
        # a request about another user must not end a session
        return session is None or session.user_id != user.id or self.links.of_session(session.id) is not None

    async def apply_claims(self, user: Any, link: ProviderLink, claims: Claims, tokens: ProviderTokens) -> bool:
        """Apply the provider's latest claims about a user: groups, admin rights and auth state.

        If the hub's allow lists refuse the user now, end the user's sessions.

        Args:
            user: the hub's user.
            link: the provider's data of the session that was checked.
            claims: the latest claims.
            tokens: the latest tokens.

        Returns:
            False if the hub refuses the user now.
        """
        identity = Identity(link.iss, link.sub)
        model, known = await self.auth_model(str(user.name), claims, tokens, identity, at_sign_in=False)
        if known and self.manage_groups:
            self._note_groups_named(identity)
        self._apply(user, model)
        if not await self._is_allowed(user, model):
            self._app.db.commit()
            self._end_all(user, in_doubt=not known)
            return False
        self._app.db.commit()
        if self.enable_auth_state:
            await user.save_auth_state(model["auth_state"])
        self.sign_on.grant_admins(user)
        return True

    def _apply(self, user: Any, model: Mapping[str, Any]) -> None:
        """Give the hub's user the groups and admin rights of an authentication model. The caller commits."""
        if model["admin"] is not None and model["admin"] != user.admin:
            user.admin = model["admin"]
            roles.assign_default_roles(self._app.db, entity=user.orm_user)
            self.record("admin-given" if model["admin"] else "admin-ended", str(user.name))
        before = {each.name for each in user.groups}
        if self.manage_groups and set(model["groups"]) != before:
            user.sync_groups(model["groups"])
            self.record("groups-changed", str(user.name))

    async def _is_allowed(self, user: Any, model: Mapping[str, Any]) -> bool:
        name = str(user.name)
        if not await maybe_future(self.check_blocked_users(name, model)):
            return False
        return bool(self.allow_all or await maybe_future(self.check_allowed(name, model)))

    async def _stored_model(self, user: Any) -> dict[str, Any]:
        """Return the hub's model of a user, built from the groups and auth state that the hub has stored, without
        asking the provider.
        """
        state = await user.get_auth_state() if self.enable_auth_state else None
        return {"name": user.name, "admin": None, "auth_state": state or {}, **self._stored_groups(str(user.name))}

    def _end_all(self, user: Any, *, in_doubt: bool = False) -> None:
        """End the sessions of a user whom the hub refuses now, and what depends on them: tokens and servers.

        Args:
            in_doubt: the hub refuses the user only because the groups are unknown. Servers that are busy then keep
                running.
        """
        sessions = self.sign_on.registry.of_user(user.id)
        settled = self.sign_on.is_unknown(user.id) if in_doubt else self.sign_on.ender.is_settled(user)
        if sessions or (user.active and not settled):
            self.sign_on.ender.end(
                user.id, sessions, EndCause.NOT_ALLOWED, lost_right=not in_doubt, account_unknown=in_doubt
            )

    def _warn_of_admins_without_pin(self) -> None:
        """Warn once in the log about admins whose provider account is not recorded yet. The first person who signs in
        with such a name becomes that admin.
        """
        waiting = sorted(set(self.admin_users) - self.links.store.pinned_names())
        if waiting and self.adopt_existing_users == Adoption.FIRST.value:
            self.log.warning(
                "sign-on: nobody has signed in yet as %s (admin_users), and whoever first comes with such a name gets "
                "its rights. Pin them with `jupyterhub-gpu sign-on pin`, or set adopt_existing_users to 'none'.",
                ", ".join(waiting[:MOST_NAMED]),
            )

    def _end_unlinked_sessions(self) -> None:
        """End sessions for which the store has no data of the provider, because they cannot be re-checked.

        These are sessions of another authenticator, and those that a crash left behind.
        """
        registry = self.sign_on.registry
        for user_id in registry.users():
            theirs = [each for each in registry.of_user(user_id) if self.links.of_session(each.id) is None]
            if theirs:
                self.sign_on.ender.end(user_id, theirs, EndCause.REPLACED)

    def sign_on_now(self) -> datetime:
        return datetime.now(timezone.utc)

    # ------------------------------------------------------------------ for admins

    def provider_sentences(self, t: Catalogue = ENGLISH) -> list[str]:
        """Return sentences for the admins' page: whether the provider answers, and users with unknown groups.

        A further sentence names the hub users as whom another provider account tried to sign in.
        """
        said = [t("The sign-in service %1 answers.", self.issuer)]
        if self.recheck.away_since is not None:
            since = self.recheck.away_since.isoformat(timespec="seconds")
            away = t(
                "The sign-in service %1 has not answered since %2. Nobody is signed out for it.", self.issuer, since
            )
            said = [f"{away} {self.recheck.away_because}"]
        there = self._app.db.query(orm.User.name).filter(orm.User.name.in_(self._groups_unknown))
        if self._groups_unknown and (names := [name for (name,) in there]):
            shown = ", ".join(sorted(names)[:MOST_NAMED])
            said.append(
                t(
                    "The sign-in service does not name the groups of these people; they keep theirs for a while: %1",
                    shown,
                )
            )
        taken = ", ".join(
            f"{name} ({time.isoformat(timespec='seconds')})" for name, time in self.links.store.taken_names(MOST_NAMED)
        )
        if taken:
            said.append(t("Other accounts of the sign-in service came with these names, and were refused: %1", taken))
        return said

    def record(self, kind: Any, user: str | None = None, cause: str = "") -> None:
        """Write an event to the audit log.

        Args:
            kind: the kind of the event.
            user: name of the user; `None` if the event is about no known user.
            cause: why it happened; "" if that needs no explanation.
        """
        self.sign_on.record(SignOnEvent(self.sign_on_now(), kind, user, cause=cause))
