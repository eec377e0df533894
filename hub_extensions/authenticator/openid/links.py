"""What each session has from the provider, in memory and in the hub's database; and who is which user, in that alone.

Refresh and id tokens are kept encrypted with the hub's `CryptKeeper`, in the database alone: no request
needs them, and in memory they would be the most of it. What the database does not take waits in memory.
Not here: the tables (``adapters/store/sign_on_provider.py``), and when a link is asked about (``recheck.py``).
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
    """What a session is asked about with, and signed out with. Never shown."""

    refresh: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    access: str = field(default="", repr=False)


async def encrypted(tokens: KeptTokens) -> bytes:
    """For the database."""
    return cast(bytes, await CryptKeeper.instance().encrypt([tokens.refresh, tokens.id_token, tokens.access]))


async def decrypted(kept: bytes) -> KeptTokens | None:
    """From the database; None where the hub has the key no more with which they were kept."""
    if not kept:
        return KeptTokens()
    try:
        return KeptTokens(*await CryptKeeper.instance().decrypt(kept))
    except InvalidToken:
        return None


class ProviderLinks:
    """All links of the hub."""

    def __init__(self, store: ProviderStore) -> None:
        self.store = store
        self._links: dict[str, ProviderLink] = {each.session: each for each in store.links()}
        self._unwritten: dict[str, ProviderLink] = {}

    async def tokens_of(self, link: ProviderLink) -> KeptTokens | None:
        """Its tokens; None: there are some, and they cannot be read."""
        return await decrypted(self.store.kept_of(link.session) if link.kept is None else link.kept)

    def of_session(self, session: str) -> ProviderLink | None:
        """What a session has; None: it did not come from the provider."""
        return self._links.get(session)

    def of_user(self, user_id: int) -> Sequence[ProviderLink]:
        """Those of one user's sessions."""
        return [each for each in self._links.values() if each.user_id == user_id]

    def of_logout(self, iss: str, sub: str, sid: str) -> Sequence[ProviderLink]:
        """Whose sessions a logout token ends: those of its session, else all of its person."""
        return [
            each
            for each in self._links.values()
            if each.iss == iss and (each.sid == sid if sid else each.sub == sub) and (not sub or each.sub == sub)
        ]

    def of_person(self, iss: str, sub: str) -> Sequence[ProviderLink]:
        """All of one person."""
        return [each for each in self._links.values() if each.iss == iss and each.sub == sub]

    def all(self) -> Collection[ProviderLink]:
        """All there are."""
        return list(self._links.values())

    def put(self, links: Iterable[ProviderLink]) -> None:
        """Write links, new ones and changed ones; the caller commits."""
        changed = list(links)
        self.store.put_links(changed)
        self._unwritten |= {each.session: each for each in changed if each.session in self._unwritten}
        self._links |= {each.session: self._unwritten.get(each.session, replace(each, kept=None)) for each in changed}

    def keep(self, link: ProviderLink) -> None:
        """The database takes nothing now, and the refresh token of before may be good no more: it is written later."""
        self._links[link.session] = self._unwritten[link.session] = link

    def unwritten(self) -> Sequence[ProviderLink]:
        """What is kept here alone."""
        return list(self._unwritten.values())

    def note_written(self, links: Iterable[ProviderLink]) -> None:
        """They are in the database."""
        for link in links:
            if self._unwritten.get(link.session) == link:
                del self._unwritten[link.session]
                self._links[link.session] = replace(link, kept=None)

    def to_be_asked(self, links: Iterable[ProviderLink]) -> None:
        """They are asked about at once, also after a restart; the caller commits."""
        self.put(replace(each, checked=None) for each in links)

    def keep_only(self, sessions: Collection[str]) -> None:
        """Forget those whose session is over; the caller commits."""
        gone = [session for session in self._links if session not in sessions]
        self.store.remove_links(gone)
        for session in gone:
            del self._links[session]
            self._unwritten.pop(session, None)

    def reload(self) -> None:
        """As the database has it: what was put and not committed is forgotten, but for what is to be written later."""
        self._links = {each.session: each for each in self.store.links()} | self._unwritten


def hub_user_of(app: Any, user_id: int) -> Any:
    """The hub's user with this number; None: there is none."""
    from jupyterhub import orm

    found = app.db.query(orm.User).filter_by(id=user_id).first()
    return None if found is None else app.users[found]
