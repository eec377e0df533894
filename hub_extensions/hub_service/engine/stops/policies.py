"""The limits of servers (idle time, lifetime): those of ``c.GpuCulling``, and the rules of the policy file.

The file is read again when it changes. A file that cannot be used leaves the last good rules in force and is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from hub_extensions.adapters.files.policy_file import PolicyFileError, read_policy_file
from hub_extensions.adapters.files.yaml_file import FileStamp, stamp_of
from hub_extensions.core import culling
from hub_extensions.core.culling import CullPolicy, CullRule, RuledServer

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 5.0  # seconds between two checks whether the file has changed


class Policies:
    """The limits of culling (idle time, lifetime and others) for every server, by the settings and the policy file.

    Attributes:
        base: the limits of ``c.GpuCulling``, which apply where no rule sets another.
        rules: the rules of the policy file that are in force.
        problem: why the present content of the file is not in force; "" if it is, or if no file is configured.
        doubts: entries of the file that are accepted but have no effect, such as a name that does not exist.
    """

    def __init__(self, base: CullPolicy) -> None:
        self.base = base
        self.rules: tuple[CullRule, ...] = ()
        self.problem = ""
        self.doubts: tuple[str, ...] = ()
        self._stamp: FileStamp | None = None
        self._named_users = self._named_groups = frozenset[str]()
        self._groups: Collection[str] | None = None
        self._minute: datetime | None = None
        self._kept: dict[RuledServer, tuple[CullPolicy, str]] = {}

    def read_first(self) -> None:
        """Read the policy file for the first time, if one is configured.

        Raises:
            PolicyFileError: the file cannot be used, and no earlier rules exist.
        """
        if self.base.policy_file:
            self._stamp = stamp_of(self.base.policy_file)
            self.take(read_policy_file(self.base.policy_file, self.base))

    async def read_changed(self) -> Sequence[CullRule] | PolicyFileError | None:
        """Read the policy file again if it has changed.

        Returns:
            The new rules, which the caller passes to `take`, or the problem with the file, which the caller passes to
            `reject`. `None` if the file has not changed.
        """
        path = self.base.policy_file
        # in a thread, so that a slow disk does not block the event loop
        stamp = await asyncio.to_thread(stamp_of, path)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return await asyncio.to_thread(read_policy_file, path, self.base)
        except PolicyFileError as problem:
            return problem

    def take(self, rules: Sequence[CullRule]) -> None:
        """Put the rules of the policy file in force, in place of the earlier ones."""
        self.rules, self.problem = tuple(rules), ""
        self._kept, self._groups = {}, None
        self._named_users = frozenset(name for rule in rules for name in rule.users)
        self._named_groups = frozenset(name for rule in rules for name in rule.groups)

    def reject(self, problem: PolicyFileError) -> None:
        """Keep the last good rules in force, because the policy file cannot be used now.

        Args:
            problem: why it cannot be used.
        """
        self.problem = str(problem)

    @property
    def has_groups(self) -> bool:
        """Whether the names of the hub's groups have been read since the rules of the policy file came into force."""
        return self._groups is not None

    def note_doubts(self, groups: Collection[str] | None, offers: Collection[str], pools: Collection[str]) -> None:
        """Find entries of the rules that have no effect, such as names that do not exist, and log new ones.

        Args:
            groups: names of all groups that users are in; `None` if they are unknown. Only the first names that are
                passed after the rules came into force are used. Until then, groups are not checked.
            offers, pools: the ids of the present offers, and of the pools (devices of one kind).
        """
        if self._groups is None:
            self._groups = groups
        found = tuple(str(each) for each in culling.doubts(self.rules, self._groups, offers, pools))
        for new in sorted(set(found) - set(self.doubts)):
            log.warning("the policy file: %s", new)
        self.doubts = found

    # -------------------------------------------------------------- views

    def of(self, server: RuledServer, now: datetime) -> tuple[CullPolicy, str]:
        """Return the limits of culling for a server, and the name of the rule that sets them; "" if no rule does.

        Args:
            server: user, groups, offer and pool of the server.
            now: the wall-clock time, because rules may apply at certain times only.
        """
        minute = now.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._kept = minute, {}
        # users whom no rule names are treated alike, so only few kinds of servers have to be cached
        groups = None if server.groups is None else server.groups & self._named_groups
        user = server.user if server.user in self._named_users else ""
        kind = RuledServer(user, groups, server.offer, server.pool)
        if kind not in self._kept:
            self._kept[kind] = culling.policy_for(kind, self.rules, self.base, now)
        return self._kept[kind]

    def longest(self, server: RuledServer) -> timedelta | None:
        """Return how long a server runs at most under all rules that may fit it. `None` if it may run without limit."""
        return culling.longest_for(server, self.rules, self.base)

    def longest_of_all(self) -> timedelta | None:
        """Return how long any server runs at most under settings and rules. `None` if some may run without limit."""
        return culling.longest_of_all(self.rules, self.base)

    def valid(self) -> bool | None:
        """Whether the present content of the policy file is in force; `None` if no file is configured."""
        return not self.problem if self.base.policy_file else None

    def status(self) -> str | None:
        """Return a sentence about the policy file for administrators. `None` if no file is configured."""
        if not self.base.policy_file:
            return None
        if self.problem:
            return f"not in force, the {len(self.rules)} rule(s) of before are: {self.problem}"
        said = f"{self.base.policy_file}: {len(self.rules)} rule(s)"
        return "; ".join((said, *self.doubts))
