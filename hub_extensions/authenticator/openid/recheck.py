"""Checks at the provider again whether signed-in users may continue: a few sessions at a time, spread over the
interval.

A provider that is away signs nobody out, and an occasional check detects its return. A provider whose answers cannot be
used, such as one with a wrong clock, signs nobody out either, but is checked as often as usual, because it may refuse
other sessions. ``core/sign_on/recheck.py`` decides which sessions are due and what an answer means.

A link is the provider's data of one session, with which the session is checked.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderRefused, ProviderUnusable, claims_of_token
from hub_extensions.adapters.provider.provider_address import account_address
from hub_extensions.authenticator.openid.failure import SignOnFailed
from hub_extensions.authenticator.openid.links import KeptTokens, encrypted, hub_user_of
from hub_extensions.authenticator.openid.metrics import OVERDUE, PROVIDER_AWAY, RECHECKS
from hub_extensions.core.sign_on import EndCause
from hub_extensions.core.sign_on.answers import Account
from hub_extensions.core.sign_on.identity import Identity
from hub_extensions.core.sign_on.recheck import (
    END_OF_ACCOUNT,
    EXPECTED,
    MIN_CONCURRENT,
    MIN_PER_SECOND,
    PAUSES_SECONDS,
    PROBE_SECONDS,
    RIGHT_LOST,
    ProviderHealth,
    ProviderLink,
    RecheckFailure,
    RecheckOutcome,
    cause_of_error,
    checks_per_second,
    due_links,
    max_concurrent,
    overdue,
)

TICK_SECONDS = 2.0
FRESH = timedelta(seconds=30)
"""A request of the user does not cause another check of a session that was checked less than this ago."""
REQUEST_WAIT_SECONDS = 2.0
"""Maximum time that a request waits for the provider: the gate treats the hub as away after 5 s."""
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


class ProviderRecheck:
    """Checks sessions at the provider again, in a loop and when a user sends a request.

    The authenticator makes one object, with which the loop starts.

    Args:
        authenticator: the hub's `SingleSignOnOIDCAuthenticator`.
        app: the running JupyterHub.

    Attributes:
        away_since: when the provider stopped answering; `None` while it answers.
        away_because: why it does not answer, as a sentence; "" while it answers.
    """

    def __init__(self, authenticator: Any, app: Any) -> None:
        self._auth, self._app = authenticator, app
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._wakes = asyncio.Event()
        self._places, self._most = asyncio.Semaphore(MIN_CONCURRENT), MIN_CONCURRENT
        self._apart = 1 / MIN_PER_SECOND
        self._next_start = 0.0
        self._pause, self._pause_until, self._asked_last = 0.0, 0.0, 0.0
        self._unanswered: dict[str, RecheckFailure] = {}
        self._health = ProviderHealth()
        self.away_since: datetime | None = None
        self.away_because = ""
        self._warned_of_key = False
        self._work = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """Start checking sessions at the provider at once, because some were marked to be checked."""
        self._wakes.set()

    async def check_user(self, user_id: int) -> None:
        """Check those sessions of a user at the provider that were not checked recently.

        If the provider's answer takes longer than a request may wait, this method returns before. The answer takes
        effect when it arrives.

        Args:
            user_id: the hub's id of the user.
        """
        now = self._auth.sign_on_now()
        theirs = ((each, each.last_asked(now)) for each in self._auth.links.of_user(user_id))
        links = [each for each, asked in theirs if asked is None or now - asked >= FRESH]
        steady = time.monotonic()
        waiting = {session for session, last in self._unanswered.items() if steady < last.again_at}
        links = [each for each in links if each.session not in waiting]
        if links and steady >= self._pause_until:
            await asyncio.wait(self._start_checks(links), timeout=REQUEST_WAIT_SECONDS)

    async def _run(self) -> None:
        await self._app._start_future
        while True:
            more = False
            try:
                self._write_unwritten()
                self._remove_links()
                more = await self._round()
            except Exception:
                # a locked or full database signs nobody out; the next round tries again
                self._app.log.exception("The provider was not asked about who is signed in")
                self._reload()
            if more:  # keep the rate of checks while many sessions are due
                continue
            try:
                await asyncio.wait_for(self._wakes.wait(), TICK_SECONDS)
            except asyncio.TimeoutError:
                continue
            self._wakes.clear()

    def _reload(self) -> None:
        """Read the links (the provider's data of each session) from the database again after a failure.

        If this fails too, the links in memory stay.
        """
        try:
            self._app.db.rollback()
            self._auth.links.reload()
        except Exception:
            self._app.log.exception("What sessions have from the provider was not read again")

    async def _round(self) -> bool:
        """Check some of the sessions that are due.

        Returns:
            Whether more sessions are due, so that the next round should follow at once.
        """
        now, steady = self._auth.sign_on_now(), time.monotonic()
        every, known = self._auth.sign_on.config.recheck, self._auth.links.all()
        self._set_pace(len(known), every)
        OVERDUE.set(overdue(known, every, now).total_seconds())
        links = due_links(known, every, now, self._unanswered, steady)
        if not links and self._health.away and steady >= self._asked_last + PROBE_SECONDS:
            # all sessions are in their pause: check the one that has waited longest
            links = due_links(known, every, now, self._unanswered, math.inf)[:1]
        if not links or steady < self._pause_until:
            return False
        # while the provider is silent, one check is enough to detect its return
        asked = links[:1] if self._pause else links[: 8 * self._most]
        await asyncio.wait(self._start_checks(asked))
        return len(asked) < len(links)

    def _set_pace(self, sessions: int, every: timedelta) -> None:
        """Adapt the rate of checks to the number of sessions.

        Args:
            sessions: number of sessions that began at the provider.
            every: the interval in which each session has to be checked.
        """
        questions = checks_per_second(sessions, every)
        self._apart = 1 / questions
        while self._most < max_concurrent(questions):
            self._places.release()
            self._most += 1

    def _start_checks(self, links: Iterable[ProviderLink]) -> list[asyncio.Task[None]]:
        """Start a check of each session, and return the tasks.

        For a session that is already being checked, the task of that check is returned. Two checks of one session at
        the same time would use a one-time refresh token twice, and the provider would refuse the second use.

        Args:
            links: the provider's data of each session.
        """
        tasks = []
        for link in links:
            if link.session not in self._asking:
                task = asyncio.create_task(self._check(link.session))
                self._asking[link.session] = task
                task.add_done_callback(partial(self._check_done, link.session))
            tasks.append(self._asking[link.session])
        return tasks

    def _check_done(self, session: str, _: asyncio.Task[None]) -> None:
        self._asking.pop(session, None)

    async def _check(self, session: str) -> None:
        async with self._places:
            start = self._next_start = max(time.monotonic(), self._next_start + self._apart)
            await asyncio.sleep(start - time.monotonic())
            link = self._auth.links.of_session(session)
            if link is None or time.monotonic() < self._pause_until:
                return
            self._asked_last = time.monotonic()
            try:
                outcome = await self._check_session(link)
            except (ProviderAway, ProviderUnusable, SignOnFailed) as problem:
                self._note_unanswered(session)
                self._set_pause(answers=isinstance(problem, SignOnFailed))
                self._note_no_answer(session, getattr(problem, "sentence", "") or str(problem))
                return
            except Exception:
                self._app.log.exception("A session was not asked about")
                self._note_unanswered(session)
                self._reload()
                return
        self._unanswered.pop(session, None)
        self._note_answer(session)
        RECHECKS.labels(outcome.value).inc()

    async def _check_session(self, link: ProviderLink) -> RecheckOutcome:
        """Check a session at the provider and apply the result: update the user's groups, or end sessions.

        Args:
            link: the provider's data of the session.

        Returns:
            Whether the session stays, has ended, or the person may not sign in any more.
        """
        auth = self._auth
        kept = await auth.links.tokens_of(link)
        user = hub_user_of(self._app, link.user_id)
        if kept is None:
            return self._without_key(link)
        if not kept.refresh:
            return await self._without_token(link, kept)
        try:
            tokens = await auth.provider.refresh(kept.refresh)
        except ProviderRefused as refusal:
            return await self._refused(link, kept, refusal)
        # store the new refresh token first: the old one may be invalid already
        fresh = KeptTokens(tokens.refresh or kept.refresh, tokens.id_token or kept.id_token, tokens.access)
        before, link = link.checked, replace(link, encrypted_tokens=await encrypted(fresh), checked=auth.sign_on_now())
        if auth.links.of_session(link.session) is None or user is None:
            return RecheckOutcome.ENDS  # it ended meanwhile
        try:
            self._write(link)
        except Exception:
            auth.links.keep(replace(link, checked=before))
            raise
        try:
            if tokens.id_token:
                _, claims = await auth.claims_of(tokens, nonce=None, sub=link.sub)
            else:
                claims = await auth.userinfo_claims(tokens, link.sub)
        except ProviderRefused as refusal:
            return await self._refused(link, kept, refusal)
        if not await auth.apply_claims(user, link, claims, tokens):
            self._drop(link)
            return RecheckOutcome.RIGHT_LOST
        auth.sign_on.ender.note_known(link.user_id, "renewed")
        account = None if auth.links.store.has_seen_account(_person(link)) else await self._account(link, fresh)
        return RecheckOutcome.STAYS if account not in END_OF_ACCOUNT else self._ends(link, END_OF_ACCOUNT[account])

    async def _refused(self, link: ProviderLink, kept: KeptTokens, refusal: ProviderRefused) -> RecheckOutcome:
        """Handle a session whose tokens the provider refuses to renew: end it, and all sessions if the account is gone.

        The userinfo endpoint and the administration API may show whether the account still exists.

        Args:
            link: the provider's data of the session.
            kept: the session's tokens.
            refusal: the provider's error.

        Returns:
            Whether only this session has ended, or the person may not sign in any more.

        Raises:
            ProviderAway, ProviderUnusable: the provider's administration API is not available.
        """
        cause = cause_of_error(refusal.description, refusal.code)
        if cause is not EndCause.NOT_RENEWED or self._auth.sign_on.registry.cause_of(link.session) in EXPECTED:
            return self._ends(link, cause)
        with suppress(ProviderAway, ProviderUnusable):
            try:
                if kept.access:
                    await self._auth.provider.userinfo(kept.access)
            except ProviderRefused as also:
                cause = cause_of_error(also.description, also.code)
        account = None if cause in RIGHT_LOST else await self._account(link, kept)
        if account in END_OF_ACCOUNT:
            cause = END_OF_ACCOUNT[account]
        elif cause not in RIGHT_LOST:
            cause = EndCause.NOT_RENEWED
        user = hub_user_of(self._app, link.user_id)
        asks_on = account is None and self._auth.account_url and user is not None and user.active
        if cause in RIGHT_LOST or not asks_on:
            return self._ends(link, cause, account_unknown=account is None)
        # the person has a server: the administration API is asked again later
        left = await encrypted(KeptTokens("", kept.id_token))
        self._end_sessions(link, cause, account_unknown=True)
        self._write(replace(link, encrypted_tokens=left, checked=self._auth.sign_on_now()))
        return RecheckOutcome.ENDS

    async def _account(self, link: ProviderLink, kept: KeptTokens) -> Account | None:
        """Return the account's state according to the provider's administration API.

        `None` if the state is unknown, or the setting `account_url` is empty. If the API has no record of the account,
        the account counts as gone only if the API had a record of it before. Otherwise its state is unknown, because a
        wrong id in `account_url` finds no account either.

        Args:
            link: the provider's data of a session of the account.
            kept: the session's tokens, whose claims give the address of the account's record.
        """
        auth, store = self._auth, self._auth.links.store
        address, id_there = account_address(auth.account_url, {**claims_of_token(kept.id_token), "sub": link.sub})
        if not address:
            return None
        found: Account | None = await auth.provider.account(address, id_there, auth.account_scope)
        if found is Account.GONE and not store.has_seen_account(_person(link)):
            self._app.log.warning(
                "sign-on: account_url has no record of somebody who signs in: is its claim the right one?"
            )
            return None
        if found in (Account.THERE, Account.DISABLED):
            with auth.sign_on.registry.store.transaction():
                store.note_account_seen(_person(link), auth.sign_on_now())
        return found

    async def _without_token(self, link: ProviderLink, kept: KeptTokens) -> RecheckOutcome:
        """Check a session that has no refresh token.

        Only the provider's administration API can show that the session's account is gone. If it does not, the session
        ends at its own limits.

        Args:
            link: the provider's data of the session.
            kept: the session's tokens, whose claims give the address of the account's record at the provider.

        Returns:
            Whether the session stays, or the person may not sign in any more.
        """
        account = await self._account(link, kept)
        if account in END_OF_ACCOUNT:
            return self._ends(link, END_OF_ACCOUNT[account])
        if account is Account.THERE:
            self._auth.sign_on.ender.note_known(link.user_id, "in the provider's records")
        if self._auth.links.of_session(link.session) is not None:
            self._write(replace(link, checked=self._auth.sign_on_now()))
        return RecheckOutcome.STAYS

    def _without_key(self, link: ProviderLink) -> RecheckOutcome:
        """End a session whose tokens cannot be decrypted, because it cannot be checked. Warn once in the log.

        Args:
            link: the provider's data of the session.
        """
        if not self._warned_of_key:
            self._warned_of_key = True
            self._app.log.warning(
                "sign-on: sessions end, as what the hub keeps of them cannot be read with its key. To change the key, "
                "keep the old one beside the new one for a while: JUPYTERHUB_CRYPT_KEY='NEW;OLD'"
            )
        return self._ends(link, EndCause.NOT_RENEWED)

    def _ends(self, link: ProviderLink, cause: EndCause, *, account_unknown: bool = False) -> RecheckOutcome:
        self._end_sessions(link, cause, account_unknown=account_unknown)
        self._drop(link)
        return RecheckOutcome.RIGHT_LOST if cause in RIGHT_LOST else RecheckOutcome.ENDS

    def _end_sessions(self, link: ProviderLink, cause: EndCause, *, account_unknown: bool) -> None:
        """End this session, or all sessions of the person if the person may no longer sign in.

        If only this session ends and the state of the account is unknown, the person's other sessions are marked to be
        checked at once.

        Args:
            link: the provider's data of this session.
            cause: why the session ends.
            account_unknown: it is unknown whether the provider still has the account.
        """
        sign_on, links, lost = self._auth.sign_on, self._auth.links, cause in RIGHT_LOST
        theirs = sign_on.registry.of_user(link.user_id)
        sessions = [each for each in theirs if lost or each.id == link.session]
        others = {each.id for each in theirs} - {each.id for each in sessions}
        unknown = account_unknown and not lost and not others
        if sessions or lost or (unknown and not sign_on.is_unknown(link.user_id)):
            sign_on.ender.end(link.user_id, sessions, cause, lost_right=lost, account_unknown=unknown)
        if account_unknown and others:
            with sign_on.registry.store.transaction():
                links.mark_due([each for each in links.of_user(link.user_id) if each.session in others])
            self.wake()

    def _drop(self, link: ProviderLink) -> None:
        """Remove the link (the provider's data) of a session, so that the session is not checked again."""
        self._keep_only({each.session for each in self._auth.links.all() if each.session != link.session})

    def _write(self, link: ProviderLink) -> None:
        with self._auth.sign_on.registry.store.transaction():
            self._auth.links.put([link])

    def _write_unwritten(self) -> None:
        links = self._auth.links
        unwritten = links.unwritten()
        if unwritten:
            with self._auth.sign_on.registry.store.transaction():
                links.put(unwritten)
            links.note_written(unwritten)

    def _remove_links(self) -> None:
        """Remove the links (the provider's data) of sessions that are over.

        If a user has a server but no session, the link that was checked last stays, so that the account can still be
        checked.
        """
        registry, links = self._auth.sign_on.registry, self._auth.links
        kept = registry.ids()
        over = [each for each in links.all() if each.session not in kept]
        for user_id in {each.user_id for each in over} - set(registry.users()):
            user = hub_user_of(self._app, user_id)
            if user is not None and user.active:
                last = max(links.of_user(user_id), key=lambda each: each.checked or _NEVER)
                kept.add(last.session)
        if any(each.session not in kept for each in over):
            self._keep_only(kept)

    def _keep_only(self, sessions: Collection[str]) -> None:
        with self._auth.sign_on.registry.store.transaction():
            self._auth.links.keep_only(sessions)
        self._unanswered = {each: last for each, last in self._unanswered.items() if each in sessions}

    def _note_unanswered(self, session: str) -> None:
        before = self._unanswered.get(session)
        self._unanswered[session] = RecheckFailure(time.monotonic(), 1 if before is None else before.times + 1)

    def _set_pause(self, *, answers: bool) -> None:
        """Set the pause until the next check of any session.

        The pause is 0 if the provider answers, else twice the last pause.

        Args:
            answers: the provider answered, even if its answer could not be used.
        """
        self._pause = 0.0 if answers else min(PROBE_SECONDS, 2 * self._pause or PAUSES_SECONDS[0])
        self._pause_until = time.monotonic() + self._pause

    def _note_no_answer(self, session: str, because: str) -> None:
        RECHECKS.labels("away").inc()
        if because != self.away_because:
            self._app.log.warning("sign-on: the provider does not answer, and nobody is signed out for it: %s", because)
        self.away_because = because
        self._health = self._health.after_silence(session, self._unanswered)
        if self._health.away and self.away_since is None:
            self.away_since = self._auth.sign_on_now()
            PROVIDER_AWAY.set(self.away_since.timestamp())
            self._auth.record("provider-away")

    def _note_answer(self, session: str) -> None:
        self._set_pause(answers=True)
        self._health = self._health.after_answer(session, self._unanswered)
        if not self._unanswered:
            self.away_because = ""
        if self.away_since is not None and not self._health.away:
            self.away_since = None
            PROVIDER_AWAY.set(0)
            self._app.log.info("sign-on: the provider answers again")
            self._auth.record("provider-back")


def _person(link: ProviderLink) -> Identity:
    return Identity(link.iss, link.sub)
