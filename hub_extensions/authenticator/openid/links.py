"""The links of sessions: a link has the provider's data of one session (who the person is, when it was checked, its
tokens).

Links are in memory and in the hub's database. Their tokens are encrypted with the hub's `CryptKeeper` and kept in the
database only, because no request needs them and they are large. A link that could not be written to the database is
kept in memory with its tokens until it can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from jupyterhub.crypto import CryptKeeper, InvalidToken

from hub_extensions.adapters.store.sign_on_provider import ProviderStore
from hub_extensions.core.sign_on.recheck import ProviderLink


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """The provider's tokens of one session, with which the session is re-checked and signed out. Not shown in logs.

    Attributes:
        refresh: refresh token; "" if the provider issued none.
        id_token: id token; "" if the provider issued none.
        access: access token; "" if it is not kept.
    """

    refresh: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    access: str = field(default="", repr=False)


async def encrypted(tokens: KeptTokens) -> bytes:
    """Encrypt tokens for the database."""
    return cast(bytes, await CryptKeeper.instance().encrypt([tokens.refresh, tokens.id_token, tokens.access]))


async def decrypted(kept: bytes) -> KeptTokens | None:
    """Decrypt the tokens of a session, as `encrypted` returned them; `None` if the hub no longer has the key."""
    if not kept:
        return KeptTokens()
    try:
        return KeptTokens(*await CryptKeeper.instance().decrypt(kept))
    except InvalidToken:
        return None


class ProviderLinks:
    """All links in memory. A link is the provider's data of one session (see `ProviderLink`).

    The authenticator makes one object per hub. Only sessions that began at the provider have a link.

    Args:
        store: the tables in the hub's database, from which the links are read.
    """

    def __init__(self, store: ProviderStore) -> None:
        self.store = store
        self._links: dict[str, ProviderLink] = {each.session: each for each in store.links()}
        self._unwritten: dict[str, ProviderLink] = {}

    async def tokens_of(self, link: ProviderLink) -> KeptTokens | None:
        """Return the provider's tokens of a session; `None` if they cannot be decrypted."""
        return await decrypted(
            self.store.encrypted_tokens_of(link.session) if link.encrypted_tokens is None else link.encrypted_tokens
        )

    def of_session(self, session: str) -> ProviderLink | None:
        """Return the link (the provider's data) of the session with this public id; `None` if the session did not begin
        at the provider.
        """
        return self._links.get(session)

    def of_user(self, user_id: int) -> Sequence[ProviderLink]:
        """Return the links (the provider's data) of a user's sessions."""
        return [each for each in self._links.values() if each.user_id == user_id]

    def of_logout(self, iss: str, sub: str, sid: str) -> Sequence[ProviderLink]:
        """Return the links (the provider's data of one session) whose sessions a logout token ends.

        Args:
            iss: the provider.
            sub: the provider's id of the account; "" if the token does not name it.
            sid: the provider's id of its session: only this session ends. If it is "", all sessions of the account end.
        """
        return [
            each
            for each in self._links.values()
            if each.iss == iss and (each.sid == sid if sid else each.sub == sub) and (not sub or each.sub == sub)
        ]

    def of_person(self, iss: str, sub: str) -> Sequence[ProviderLink]:
        """Return the links (the provider's data) of the sessions of a person, who is identified by `iss` and `sub`."""
        return [each for each in self._links.values() if each.iss == iss and each.sub == sub]

    def all(self) -> Collection[ProviderLink]:
        return list(self._links.values())

    def put(self, links: Iterable[ProviderLink]) -> None:
        """Write new or changed links (the provider's data of one session) to the database; the caller commits."""
        changed = list(links)
        self.store.put_links(changed)
        self._unwritten |= {each.session: each for each in changed if each.session in self._unwritten}
        self._links |= {
            each.session: self._unwritten.get(each.session, replace(each, encrypted_tokens=None)) for each in changed
        }

    def keep(self, link: ProviderLink) -> None:
        """Keep a link (the provider's data of one session) in memory, because the database could not store it.

        The link's tokens must not be lost: the refresh token that the database still has may be invalid already.
        """
        self._links[link.session] = self._unwritten[link.session] = link

    def unwritten(self) -> Sequence[ProviderLink]:
        """Return the links (the provider's data of one session) that are in memory only, because the database could not
        store them.
        """
        return list(self._unwritten.values())

    def note_written(self, links: Iterable[ProviderLink]) -> None:
        """Note that links are stored in the database now, so that they are not kept in memory with their tokens any
        more.
        """
        for link in links:
            if self._unwritten.get(link.session) == link:
                del self._unwritten[link.session]
                self._links[link.session] = replace(link, encrypted_tokens=None)

    def mark_due(self, links: Iterable[ProviderLink]) -> None:
        """Mark sessions to be checked at the provider at once, also after a restart. The caller commits.

        Args:
            links: the links (the provider's data) of these sessions.
        """
        self.put(replace(each, checked=None) for each in links)

    def keep_only(self, sessions: Collection[str]) -> None:
        """Remove the links (the provider's data) of all sessions except those with these public ids; the caller
        commits.
        """
        gone = [session for session in self._links if session not in sessions]
        self.store.remove_links(gone)
        for session in gone:
            del self._links[session]
            self._unwritten.pop(session, None)

    def reload(self) -> None:
        """Read the links from the database again, after a failed write. Uncommitted changes are lost, except links that
        are kept in memory (see `keep`).
        """
        self._links = {each.session: each for each in self.store.links()} | self._unwritten


def hub_user_of(app: Any, user_id: int) -> Any:
    """Return the hub's user with this id; `None` if the hub does not know it."""
    from jupyterhub import orm

    found = app.db.query(orm.User).filter_by(id=user_id).first()
    return None if found is None else app.users[found]
