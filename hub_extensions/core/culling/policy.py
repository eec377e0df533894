"""The administrator's limits of culling: the settings, their check, and the sentence about them for users."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.settings import setting
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import duration


@dataclass(frozen=True)
class CullPolicy:
    """The limits by which servers are stopped, so that their GPU goes to the next ticket in line.

    All times are on the running clock, which stands still while hub or service is down. An outage postpones every
    deadline.
    """

    section: ClassVar[str] = "GpuCulling"

    enabled: bool = setting(
        False,
        "True stops servers by the limits below. False only writes into the service's log what would have been "
        "stopped: no server stops, no countdown is shown, and no wait for a GPU in use is said to be at most so long.",
    )
    idle: timedelta = setting(
        timedelta(minutes=30), "A server whose GPU was idle for this long is stopped.", name="idle_minutes", least=0
    )
    idle_by_offer: Mapping[str, timedelta] = setting(
        {},
        'Another idle limit for single offers, by the offer\'s id: {"gpu": 15}.',
        name="idle_minutes_by_offer",
        least=0,
    )
    idle_below_percent: float = setting(
        5.0, "A GPU used less than this is idle. Unit: percent, 0 to 100.", least=0, most=100
    )
    warn: timedelta = setting(
        timedelta(minutes=10), "Users are warned this long before their server stops.", name="warn_minutes", least=0
    )
    keep: timedelta = setting(
        timedelta(minutes=30), "How much time one press of Keep adds.", name="keep_minutes", least=0
    )
    keeps_per_day: int = setting(2, "How often a user may press Keep in 24 hours, whatever server it is for.", least=0)
    lifetime: timedelta | None = setting(
        timedelta(hours=12),
        "A server with a GPU ends after this, busy or not; Keep does not move it. None: no such limit.",
        name="lifetime_hours",
        least=0,
    )
    extend_lifetime: timedelta = setting(
        timedelta(hours=1),
        "How much one press of Keep puts off the end of the lifetime, while the GPU is in use.",
        name="extend_lifetime_hours",
        least=0,
    )
    max_lifetime_extensions: int = setting(
        0, "How often the end of one server's lifetime may be put off; the longest waits are counted with it.", least=0
    )
    grace: timedelta = setting(
        timedelta(minutes=10),
        "No idle time is counted this long after a server's start.",
        name="grace_minutes",
        least=0,
    )
    unopened: timedelta | None = setting(
        timedelta(minutes=15),
        "A server with a GPU that nobody has opened this long after its start, and whose GPU nothing has used, is "
        "stopped, and its user is told. None: never.",
        name="unopened_minutes",
        least=0,
    )
    holds_memory: timedelta | None = setting(
        None,
        "The idle limit of a GPU that computes nothing but holds memory, also where the memory is not known. It counts "
        "where it is longer. None: the usual one.",
        name="holds_memory_minutes",
        least=0,
    )
    never_used: timedelta | None = setting(
        None,
        "The idle limit of a GPU that nothing has used since its server's start. It counts where it is shorter. None: "
        "the usual one.",
        name="never_used_minutes",
        least=0,
    )
    after_run: timedelta = setting(
        timedelta(0),
        "No idle time is counted this long after work of at least 10 minutes has ended.",
        name="after_run_minutes",
        least=0,
    )
    contended_idle: timedelta | None = setting(
        None,
        "The idle limit while somebody waits for such a GPU. It counts where it is shorter. With it a countdown is "
        "shown only while somebody waits, or in the time of the warning. None: the usual one.",
        name="contended_idle_minutes",
        least=0,
    )
    cpu_idle: timedelta | None = setting(
        timedelta(hours=12),
        "A server without a GPU is stopped when its user was away for this long and neither a kernel nor a terminal is "
        "busy. None: never.",
        name="cpu_idle_minutes",
        least=0,
    )
    cpu_lifetime: timedelta | None = setting(
        None,
        "A server without a GPU ends after this, in use or not; Keep does not move it. None: no such limit.",
        name="cpu_lifetime_hours",
        least=0,
    )
    trust_reports: bool = setting(
        False,
        "True: where nobody else can measure a GPU, a low use that its own server reports counts as idle, unless a "
        "kernel or terminal is busy. A user can forge such a report. False: it protects the server and stops nobody.",
    )
    count_progress: bool = setting(
        False,
        "True: while a training program reports that it has time left, its server counts as one with a busy kernel. A "
        "user can forge such a report. False: the report only moves the waits of others.",
    )
    policy_file: str = setting(
        "",
        "A YAML file with rules: other limits by group, user, offer, pool and time, as the service finds it. It is "
        "read again when it changes. Empty: the limits here are everybody's.",
    )
    restart_on_cpu: bool = setting(
        False,
        "True: a server whose GPU is taken back comes back at once as CPU only, with the same name and home, and its "
        "user is told. Variables are lost all the same.",
    )
    warning_webhook_url: str = setting(
        "",
        "Address that both warnings of a stop are sent to, as JSON, with POST, where no page of the server has shown "
        "them. Empty: none is. By e-mail they go where c.GpuNotices has a mail server.",
        secret=True,
    )
    drain: timedelta = setting(
        timedelta(seconds=60),
        "How long a server may take, once its stop has begun, to interrupt its cells, save its open notebooks and run "
        "its user's gpu-before-stop.",
        name="drain_seconds",
        least=0,
    )
    concurrent_stop_limit: int = setting(10, "So many servers are being stopped at the same time at most.", least=1)
    stops_per_minute: int = setting(
        30,
        "So many stops begin in a minute at most, as a mean of two: after a quiet minute twice as many may. Those "
        "whose GPU is wanted most come first.",
        least=1,
    )
    stop_deadline: timedelta = setting(
        timedelta(minutes=5),
        "A stop that is not over so long after its first try has failed: the admin's page, the log and a metric say "
        "so, and it is tried again. Longer than a pod has to end (c.KubeSpawner.delete_grace_period).",
        name="stop_deadline_minutes",
        least=0,
    )
    never: bool = False
    """Whether a rule of the policy file protects the server from every stop by these limits."""


class PolicyError(ValueError):
    """A limit that makes no sense, or contradicts another one.

    Attributes:
        field: name of the field of `CullPolicy`.
        text: what is wrong and what would be right.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


def longest_use(policy: CullPolicy) -> timedelta | None:
    """Return how long a server with a GPU may run at most, with all extensions; `None` if no lifetime is enforced."""
    if not policy.enabled or policy.never or policy.lifetime is None:
        return None
    return policy.lifetime + policy.extend_lifetime * policy.max_lifetime_extensions


def without_effect(policy: CullPolicy, named: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each setting that changes nothing because of another one: its name, a sentence and what to do about it.

    With a policy file only those are reported that no rule can set.

    Args:
        policy: the limits.
        named: names of the settings that the administrator has written.
    """
    if policy.count_progress and not policy.enabled:
        text = "Culling is off, so no server is stopped for being idle, with or without the report of a training."
        yield "count_progress", text, "Set enabled to true when the service's log looks right, or take this out."
    if policy.policy_file:
        return
    if "extend_lifetime_hours" in named and policy.max_lifetime_extensions == 0:
        text = "It has no effect: max_lifetime_extensions is 0, so nobody can ask for more time."
        fix = "Set max_lifetime_extensions to how often the lifetime of one server may be put off, or take this out."
        yield "extend_lifetime_hours", text, fix
    if policy.max_lifetime_extensions > 0 and policy.lifetime is None:
        text = "It has no effect: lifetime_hours is None, so no lifetime ends that could be put off."
        yield "max_lifetime_extensions", text, "Set lifetime_hours, or take this out."


def culling_rule(*policies: CullPolicy) -> Reason | None:
    """Return the sentence for users about when a GPU server stops; `None` if no policy stops servers, as in a dry run.

    Args:
        policies: the limits that may apply to the user's servers. If they differ, the sentence names the shortest idle
            limit, the shortest warning and the longest lifetime.
    """
    policies = tuple(policy for policy in policies if policy.enabled)
    stopping = [policy for policy in policies if not policy.never]
    if not stopping:
        return None
    limits = [limit for policy in stopping for limit in (policy.idle, *policy.idle_by_offer.values())]
    code, lengths = "rule", dict[str, Any](idle=min(limits), warn=min(policy.warn for policy in stopping))
    wanted = [
        policy.contended_idle
        for policy in stopping
        if policy.contended_idle is not None and policy.contended_idle < min(limits)
    ]
    if min(limits) != max(limits):
        code, lengths["longest"] = f"{code}-by-offer", max(limits)
    elif wanted:
        code, lengths["wanted"] = f"{code}-wanted", min(wanted)
    ends = [None if policy.never else policy.lifetime for policy in policies]
    known = [end for end in ends if end is not None]
    if len(known) == len(ends):
        code, lengths["limit"] = f"{code}-at-most", max(known)
    return explain(code, **lengths)


def culling_sentence(*policies: CullPolicy) -> str:
    """Return the sentence of `culling_rule` in English, for the spawn form; "" if no policy stops servers."""
    rule = culling_rule(*policies)
    return "" if rule is None else rule.message


def check_policy(policy: CullPolicy) -> None:
    """Check that the limits make sense and do not contradict each other.

    Raises:
        PolicyError: the first field that is wrong.
    """
    for offer in policy.idle_by_offer:
        _check_offer(offer)
    if not 0 < policy.idle_below_percent <= 100:
        text = f"it has to be above 0 and at most 100, not {policy.idle_below_percent:g}"
        raise PolicyError("idle_below_percent", text)
    for name, number in (
        ("keeps_per_day", policy.keeps_per_day),
        ("max_lifetime_extensions", policy.max_lifetime_extensions),
    ):
        if number < 0:
            raise PolicyError(name, f"it has to be 0 or more, not {number}")
    for name, number in (
        ("concurrent_stop_limit", policy.concurrent_stop_limit),
        ("stops_per_minute", policy.stops_per_minute),
    ):
        if number < 1:
            raise PolicyError(name, f"it has to be 1 or more, not {number}")
    for name, value in (("grace", policy.grace), ("after_run", policy.after_run)):
        if value < timedelta(0):
            raise PolicyError(name, "it has to be 0 or more")
    lengths = {
        "warn": policy.warn,
        "keep": policy.keep,
        "extend_lifetime": policy.extend_lifetime,
        "stop_deadline": policy.stop_deadline,
    }
    for name, value in lengths.items():
        if value <= timedelta(0):
            raise PolicyError(name, "it has to be longer than 0")
    _check_limits(policy)


def _check_limits(policy: CullPolicy) -> None:
    """Check that every limit is at least as long as the warning.

    A shorter limit could never take effect at its own time.
    """
    limits = {
        "idle": policy.idle,
        **{f"idle_by_offer[{offer!r}]": limit for offer, limit in policy.idle_by_offer.items()},
        "lifetime": policy.lifetime,
        "unopened": policy.unopened,
        "cpu_idle": policy.cpu_idle,
        "cpu_lifetime": policy.cpu_lifetime,
        "holds_memory": policy.holds_memory,
        "never_used": policy.never_used,
        "contended_idle": policy.contended_idle,
    }
    for name, limit in limits.items():
        if limit is not None and limit <= timedelta(0):
            raise PolicyError(name, "it has to be longer than 0")
        if limit is not None and limit < policy.warn:
            raise PolicyError(name, f"it has to be as long as the warning at least ({duration(policy.warn)})")


def _check_offer(offer: str) -> None:
    try:
        OfferId(offer)
    except OfferIdError as error:
        raise PolicyError(f"idle_by_offer[{offer!r}]", str(error)) from error
    if offer == CPU:
        raise PolicyError(f"idle_by_offer[{offer!r}]", "CPU-only servers have a limit of their own: cpu_idle")
