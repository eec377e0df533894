"""``SingleSignOnOIDCAuthenticator``: people sign in at an OpenID provider, which is asked again while they are here.

It is oauthenticator's `GenericOAuthenticator`, so ``allowed_users``, ``admin_groups`` and hooks work as there; what the
provider says is checked by ours. Sessions are put in front by ``configure(c)`` (``authenticator/mixin.py``).
Not here: what a browser does (``login.py``), what comes from the provider by itself (``backchannel.py``).
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
from traitlets import Bool, Callable, Dict, Enum, Integer, List, TraitError, Unicode, Union, default

from hub_extensions.adapters.oidc import (
    Provider,
    ProviderAway,
    ProviderRefused,
    ProviderTokens,
    ProviderUnusable,
    ca_file_wrong,
)
from hub_extensions.adapters.provider_address import issuer_wrong
from hub_extensions.adapters.store.sign_on_provider import ProviderStore
from hub_extensions.authenticator.openid.backchannel import BackchannelLogout, LogoutTokens
from hub_extensions.authenticator.openid.failure import SignOnFailed, failed_by
from hub_extensions.authenticator.openid.links import KeptTokens, ProviderLinks, encrypted
from hub_extensions.authenticator.openid.login import OpenIdCallback, OpenIdLogin, OpenIdLogout
from hub_extensions.authenticator.openid.login_state import PendingLogin, UsedLogins
from hub_extensions.authenticator.openid.metrics import LOGINS_REFUSED
from hub_extensions.authenticator.openid.recheck import ProviderRecheck
from hub_extensions.authenticator.openid.sign_in_places import SignInPlaces
from hub_extensions.core.sign_on import EndCause, SignOnEvent
from hub_extensions.core.sign_on.claims import NEVER_ALGORITHMS, SIGNING_ALGORITHMS, Claims
from hub_extensions.core.sign_on.id_token import Expected, IdToken, judge_id_token, userinfo_problem
from hub_extensions.core.sign_on.identity import Adoption, Identity, Pinned, groups_of, name_of, name_taken, pin_of
from hub_extensions.core.sign_on.provider_settings import LEFT_OVER, SECRET_VARIABLE
from hub_extensions.core.sign_on.recheck import ProviderLink
from hub_extensions.core.sign_on.refusal import SignOnRefusal
from hub_extensions.core.translation import ENGLISH, Catalogue

MOST_NAMED = 20
"""So many people a sentence of the admins' page names."""
NO_KEY = f"the hub has no key to keep tokens with: set c.CryptKeeper.keys or {KEY_ENV}"


@dataclass(frozen=True, slots=True)
class SignOnProof:
    """Who came back from the provider, until the session has it. `account`: its name there."""

    identity: Identity
    pinned: Pinned
    sid: str
    account: str
    kept: bytes = field(repr=False)


class SingleSignOnOIDCAuthenticator(GenericOAuthenticator):  # type: ignore[misc]  # oauthenticator has no types
    """Sign-on with any OpenID Connect provider."""

    login_handler = OpenIdLogin
    callback_handler = OpenIdCallback
    logout_handler = OpenIdLogout

    issuer = Unicode(
        config=True,
        help="The provider's name, letter by letter as its document has it: https://login.site.example/realms/uni",
    )
    client_secret = Union(
        [Unicode(), List(Unicode())],
        config=True,
        help=f"The client's secret; better in the environment variable {SECRET_VARIABLE}. While it is changed, two of "
        "them: a list, or a line each in the variable.",
    )
    username_claim = Union(
        [Unicode("preferred_username"), Callable()],
        default_value="preferred_username",
        config=True,
        help="The claim with a person's name; a dotted path leads into an object. It does not say who somebody is.",
    )
    groups_claim = Unicode(
        "groups", config=True, help="The claim with a person's groups; a dotted path leads into an object."
    )
    group_names = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        config=True,
        help="The provider's name of a group -> the hub's. Others keep theirs.",
    )
    groups_kept = List(
        Unicode(), config=True, help="The hub's names of the groups that are taken over. Empty: all that the claim has."
    )
    adopt_existing_users = Enum(
        [each.value for each in Adoption],
        Adoption.FIRST.value,
        config=True,
        help="Users from before this sign-on. first: who comes first with a name gets it. none: an admin gives it.",
    )
    signing_algorithms = List(
        Unicode(), list(SIGNING_ALGORITHMS), config=True, help="With which algorithms the provider may sign."
    )
    leeway_seconds = Integer(60, min=0, max=600, config=True, help="So far the provider's clock may be off.")
    ca_file = Unicode(
        config=True, help="A file with the certificates that the provider's is signed with. \"\": the system's."
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
    """Sessions; `SignOnMixin`, which ``configure(c)`` puts in front, sets it."""
    refresh_seconds: ClassVar[int] = 300
    """So often a person's requests ask; `auth_refresh_age` does nothing here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        secrets = [self.client_secret] if isinstance(self.client_secret, str) else list(self.client_secret)
        self.provider = Provider(
            self.issuer,
            self.client_id,
            secrets or [""],
            algorithms=tuple(self.signing_algorithms),
            ca_file=self.ca_file,
        )
        self.used_logins = UsedLogins()
        self._places = SignInPlaces()
        self._groups_unknown: set[str] = set()
        self._app: Any = None

    def get_handlers(self, app: Any) -> list[Any]:
        """Signing in and out, and where the provider says that somebody signed out there."""
        problem = "" if self.sign_on is not None else "call configure(c), which puts sessions in front of it"
        problem = problem or self.settings_problem() or ("" if CryptKeeper.instance().keys else NO_KEY)
        if problem:
            raise ValueError(f"SingleSignOnOIDCAuthenticator: {problem}.")
        self._app = app
        self.links = ProviderLinks(ProviderStore(app.db))
        with self.sign_on.registry.store.transaction():
            self.links.store.note_users()
        self._end_sessions_of_others()
        self.recheck = ProviderRecheck(self, app)
        tokens = LogoutTokens(self)
        return [*super().get_handlers(app), (r"/sso/backchannel-logout", BackchannelLogout, {"tokens": tokens})]

    def settings_problem(self, *, whole: bool = True) -> str:
        """What is wrong with the settings, to stand behind the class's name; "": nothing. `whole`: see `problem_in`."""
        secrets = [self.client_secret] if isinstance(self.client_secret, str) else self.client_secret
        if wrong := issuer_wrong(self.issuer):
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
        if whole and (wrong := ca_file_wrong(self.ca_file)):
            return f"ca_file {wrong}"
        if "openid" not in self.scope or "offline_access" in self.scope:
            return "scope has to have openid, and never offline_access: such a sign-in does not end with the provider's"
        return ""

    @classmethod
    def problem_in(cls, c: Any, *, whole: bool = True) -> str:
        """What is wrong with a configuration, as a sentence; "": nothing.

        Args:
            whole: False: without what the hub's environment may bring: the secret, the key and the file at ca_file.
        """
        for name in sorted(set(c.get(cls.__name__, {})) - set(cls.class_trait_names(config=True)) - LEFT_OVER.keys()):
            return f"c.{cls.__name__}.{name} is not a setting."
        try:
            made = cls(config=c)
            if not whole and not made.client_secret:
                made.client_secret = "in the hub's environment"
            problem = made.settings_problem(whole=whole)
        except (TraitError, ValueError) as error:
            if "'client_secret'" in str(error):  # which it would quote
                return f"c.{cls.__name__}.client_secret is no text and no list of them."
            return f"c.{cls.__name__}: {error}"
        if problem:
            return f"c.{cls.__name__}.{problem}."
        has_key = bool(os.environ.get(KEY_ENV) or ("CryptKeeper" in c and c.CryptKeeper.get("keys")))
        return "" if has_key or not whole else f"c.{cls.__name__}: {NO_KEY}."

    # ------------------------------------------------------------------ signing in

    async def authenticate(self, handler: Any, data: Any = None, **_: Any) -> Any:
        """Who came back, as the hub wants to know it. Raises SignOnFailed."""
        login = data["login"]
        tokens, token, claims = await self._answer_to(data["code"], login)
        name = self._name_of(claims)
        identity = Identity(token.iss, token.sub)
        users = [name] if orm.User.find(self._app.db, name) is not None else []
        adoption = Adoption(self.adopt_existing_users)
        with self.sign_on.registry.store.transaction():
            self.links.store.follow_users()
        pins = self.links.store.pins_of(identity, name)
        pinned = pin_of(identity, name, pins=pins, users=users, adoption=adoption)
        if isinstance(pinned, Pinned) and pinned.adopted and self._is_somebody_elses(name, identity):
            pinned = name_taken(name)
        if isinstance(pinned, SignOnRefusal):
            if pinned.code == "name-taken":
                self.record("name-taken", name)
            raise failed_by(pinned)
        kept = await encrypted(KeptTokens(tokens.refresh, tokens.id_token))
        handler.sign_on_proof = SignOnProof(identity, pinned, token.sid, name, kept)
        return await self.auth_model(pinned.user, claims, tokens)

    async def _answer_to(self, code: str, login: PendingLogin) -> tuple[ProviderTokens, IdToken, Claims]:
        """What the provider gives for a code. Raises SignOnFailed.

        A hub that waits for a slow disk reads an answer late: of many at once each would come after its time-out.
        """
        try:
            async with self._places.taken():
                tokens = await self.provider.exchange(code, login.verifier, login.redirect_uri)
                return tokens, *await self.claims_of(tokens, nonce=login.nonce, sub="")
        except (ProviderAway, ProviderRefused, ProviderUnusable) as problem:
            raise failed_by(problem) from problem

    def _is_somebody_elses(self, name: str, identity: Identity) -> bool:
        """An admin gave this user a new name while its person has a session: the pin is by the old one."""
        user = orm.User.find(self._app.db, name)
        theirs = self.links.of_user(user.id) if user is not None else ()
        return any(Identity(each.iss, each.sub) != identity for each in theirs)

    async def get_authenticated_user(self, handler: Any, data: Any) -> Any:
        """As the hub does; who is let in for the first time is pinned."""
        model = await super().get_authenticated_user(handler, data)
        proof = handler.sign_on_proof
        if model and model["name"] != proof.pinned.user:
            # the hub has applied username_map once more, or a hook has: that user may be somebody else
            problem = f"The user {proof.pinned.user!a} became {model['name']!a} (username_map, post_auth_hook)."
            raise SignOnFailed("not-allowed", problem, {"account": proof.account})
        if not model or not proof.pinned.new:
            return model
        # somebody else may have got the name meanwhile
        adoption = Adoption.FIRST if proof.pinned.adopted else Adoption(self.adopt_existing_users)
        users = [proof.pinned.user] if proof.pinned.adopted else []
        pins = self.links.store.pins_of(proof.identity, proof.pinned.user)
        again = pin_of(proof.identity, proof.pinned.user, pins=pins, users=users, adoption=adoption)
        if isinstance(again, SignOnRefusal):
            raise failed_by(again)
        if again.new:
            with self.sign_on.registry.store.transaction():
                self.links.store.pin(proof.identity, again.user, self.sign_on_now())
            self.record("pinned", again.user)
        return model

    def not_allowed(self, handler: Any) -> SignOnFailed:
        """Why somebody whom the provider knows is not let in."""
        proof = handler.sign_on_proof
        account = proof.account if proof is not None else ""
        return SignOnFailed("not-allowed", f"The account {account!a} is not let in by this hub.", {"account": account})

    def link(self, handler: Any, user: Any, proof: SignOnProof) -> None:
        """The session that began with this request gets what the provider gave."""
        registry = self.sign_on.registry
        session = next(each for each in registry.of_user(user.id) if each.hub_session == handler.get_session_cookie())
        link = ProviderLink(
            session.id, user.id, proof.identity.iss, proof.identity.sub, proof.sid, proof.kept, self.sign_on_now()
        )
        try:
            with registry.store.transaction():
                self.links.put([link])
                self.links.store.note_user(str(user.name))
        except Exception:
            self.links.keep(link)  # the session is there already, and is to be asked about
            raise

    async def hint_of(self, handler: Any) -> str:
        """The id token of the session that this browser has, or had a moment ago; "": none is known."""
        session = self.sign_on.session_of(handler) or self.sign_on.ended_session_of(handler)
        link = self.links.of_session(session.id) if session is not None else None
        kept = await self.links.tokens_of(link) if link is not None else None
        return "" if kept is None else kept.id_token

    # ------------------------------------------------------------------ what the provider says

    async def claims_of(self, tokens: ProviderTokens, *, nonce: str | None, sub: str) -> tuple[IdToken, Claims]:
        """Who the tokens are about, and all that is said of them.

        Args:
            nonce: of the login; None: a refresh. sub: who it has to be; "": a login.

        Raises:
            SignOnFailed: it is not believed. ProviderAway, ProviderRefused, ProviderUnusable.
        """
        if not tokens.id_token:
            raise SignOnFailed("token", "The provider gave no id token.")
        found = await self.provider.verified(tokens.id_token)
        if isinstance(found, SignOnRefusal):
            raise failed_by(found)
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
            raise failed_by(token)
        if nonce is None and groups_of(token.claims, self.groups_claim, names={}, kept=()) is not None:
            return token, token.claims  # all there is to know at a re-check
        return token, {**token.claims, **await self.user_information(tokens, token.sub)}

    async def user_information(self, tokens: ProviderTokens, sub: str) -> Claims:
        """What the provider says of this person beside; nothing where it has no address for it. Raises as above."""
        info = await self.provider.userinfo(tokens.access)
        problem = userinfo_problem(info, sub) if info else None
        if problem is not None:
            raise failed_by(problem)
        return info

    def _name_of(self, claims: Claims) -> str:
        """The name as the hub writes it. Raises SignOnFailed."""
        path = self.username_claim
        claims, path = ({"name": path(dict(claims))}, "name") if callable(path) else (claims, str(path))
        name = name_of(claims, path)
        if isinstance(name, SignOnRefusal):
            raise failed_by(name)
        normalized = str(self.normalize_username(name))
        if not self.validate_username(normalized):
            problem = f"The hub takes no user of this name ({path}): {normalized[:80]!a}."
            raise SignOnFailed("bad-name", problem, {"claim": path})
        return normalized

    async def auth_model(self, name: str, claims: Claims, tokens: ProviderTokens) -> dict[str, Any]:
        """A user as the hub wants to know it."""
        info = {"access_token": tokens.access, "id_token": tokens.id_token, "scope": tokens.scope}
        state = self.build_auth_state_dict({**info, "token_type": "Bearer"}, dict(claims))
        state = await state if isawaitable(state) else state
        if self.modify_auth_state_hook is not None:
            state = await self._call_modify_auth_state_hook(state)
        model = {"name": name, "admin": True if name in self.admin_users else None, "auth_state": state}
        model = await self.update_auth_model(model)
        return self._with_groups(model, claims) if self.manage_groups else model

    def _with_groups(self, model: dict[str, Any], claims: Claims) -> dict[str, Any]:
        groups = groups_of(claims, self.groups_claim, names=self.group_names, kept=self.groups_kept)
        if groups is None:
            self._groups_unknown.add(model["name"])
            self.log.warning("sign-on: the groups of %s are unknown (%s): they stay", model["name"], self.groups_claim)
            return {**model, **self._known_groups(model["name"])}
        self._groups_unknown.discard(model["name"])
        admin = model["admin"]
        if self.admin_groups and not admin:
            admin = bool(groups & self.admin_groups)
        return {**model, "groups": sorted(groups), "admin": admin}

    def _known_groups(self, name: str) -> dict[str, Any]:
        """The groups that the hub has of somebody, and whether that is an admin by them. Nobody becomes one so."""
        user = orm.User.find(self._app.db, name)
        if user is None:
            return {"groups": []}
        groups = {each.name for each in user.groups}
        is_admin = name in self.admin_users or bool(user.admin and groups & self.admin_groups)
        return {"groups": sorted(groups), "admin": True if is_admin else None}

    # ------------------------------------------------------------------ asking again

    async def refresh_user(self, user: Any, handler: Any = None, **_: Any) -> Any:
        """May this person go on? The lists of whom the hub lets in are asked, and the provider where it is time."""
        if not await self._is_let_in(user, await self._known_model(user)):
            self._end_all(user)
            return False
        await self.recheck.ask_user(user.id)
        if self.refresh_user_hook is not None:
            state = await user.get_auth_state() if self.enable_auth_state else None
            answer = await self._call_refresh_user_hook(user, state)
            if answer is not None:
                return answer
        if handler is None or getattr(handler, "_token_authenticated", False):
            return True
        session = self.sign_on.session_of(handler)
        # a request about somebody else ends nobody's session
        return session is None or session.user_id != user.id or self.links.of_session(session.id) is not None

    async def take_over(self, user: Any, claims: Claims, tokens: ProviderTokens) -> bool:
        """What the provider says of somebody now; False: the hub does not let them in any more."""
        model = await self.auth_model(str(user.name), claims, tokens)
        if not await self._is_let_in(user, model):
            self._end_all(user)
            return False
        if model["admin"] is not None and model["admin"] != user.admin:
            user.admin = model["admin"]
            roles.assign_default_roles(self._app.db, entity=user.orm_user)
        before = {each.name for each in user.groups}
        if self.manage_groups and set(model["groups"]) != before:
            user.sync_groups(model["groups"])
            self.record("groups-changed", str(user.name))
        self._app.db.commit()
        if self.enable_auth_state:
            await user.save_auth_state(model["auth_state"])
        self.sign_on.grant_admins(user)
        return True

    async def _is_let_in(self, user: Any, model: Mapping[str, Any]) -> bool:
        name = str(user.name)
        if not await maybe_future(self.check_blocked_users(name, model)):
            return False
        return bool(self.allow_all or await maybe_future(self.check_allowed(name, model)))

    async def _known_model(self, user: Any) -> dict[str, Any]:
        """What the hub knows of somebody without asking anybody."""
        state = await user.get_auth_state() if self.enable_auth_state else None
        return {"name": user.name, "admin": None, "auth_state": state or {}, **self._known_groups(str(user.name))}

    def _end_all(self, user: Any) -> None:
        sessions = self.sign_on.registry.of_user(user.id)
        if sessions or (user.active and not self.sign_on.ender.is_settled(user)):
            self.sign_on.ender.end(user.id, sessions, EndCause.NOT_ALLOWED, lost_right=True)

    def _end_sessions_of_others(self) -> None:
        """Sessions that began under another authenticator, or whose beginning was cut off."""
        registry = self.sign_on.registry
        for user_id in registry.users():
            theirs = [each for each in registry.of_user(user_id) if self.links.of_session(each.id) is None]
            if theirs:
                self.sign_on.ender.end(user_id, theirs, EndCause.REPLACED)

    def sign_on_now(self) -> datetime:
        """The hub's clock; `SignOnMixin` has the same."""
        return datetime.now(timezone.utc)

    # ------------------------------------------------------------------ what admins see

    def provider_words(self, t: Catalogue = ENGLISH) -> list[str]:
        """For the admins' page: how the provider is doing, whose groups it does not say, which names came twice."""
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
                t("What the sign-in service says of groups cannot be read; these people keep theirs: %1", shown)
            )
        taken = ", ".join(
            f"{name} ({time.isoformat(timespec='seconds')})" for name, time in self.links.store.taken_names(MOST_NAMED)
        )
        if taken:
            said.append(t("Other accounts of the sign-in service came with these names, and were refused: %1", taken))
        return said

    def note_failure(self, code: str) -> None:
        """Somebody was shown a page with a failure."""
        LOGINS_REFUSED.labels(code).inc()

    def record(self, kind: Any, user: str | None = None, cause: str = "") -> None:
        """A line of the audit log."""
        self.sign_on.record(SignOnEvent(self.sign_on_now(), kind, user, cause=cause))
