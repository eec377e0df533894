"""Decide which servers are stopped because they hold a GPU without using it, or for too long.

A decision is keep, warn or stop, with a reason. It follows from the evidence about a server, the limits (the policy)
and the time. A server is never stopped for idleness while its GPU is busy or its GPU use is not known. A lifetime ends
every server that has one, after the same warning.

In each round the service does four things for each server: `observe` the last measurement of its GPU, `decide`,
`settle` what is remembered about the server, and act on the decision. ``core/stops`` describes how a stop proceeds. The
end of a server is the time at which it stops for one cause; a countdown is the display of that time to its user.
"""

from hub_extensions.core.culling.activity import RoutesRenewed, last_used, remember_quiet, routes_renewed
from hub_extensions.core.culling.decision import (
    SHOWN_AFTER,
    Action,
    CullDecision,
    decide,
    idle_limit,
    lifetime_end,
    settle,
)
from hub_extensions.core.culling.evidence import (
    Evidence,
    ServerFacts,
    activity_counts,
    decisive_use,
    evidence_of,
    holds_memory,
    is_empty,
    is_forged,
    observe,
    opened,
    proves_idle,
    reported,
)
from hub_extensions.core.culling.keeps import (
    DAY,
    extend,
    extensions_left,
    keep,
    keep_by_admin,
    keeps_left,
    recent_keeps,
    undo,
    why_not_kept,
)
from hub_extensions.core.culling.policy import (
    CullPolicy,
    PolicyError,
    check_policy,
    culling_rule,
    culling_sentence,
    longest_use,
)
from hub_extensions.core.culling.rules import (
    CullRule,
    RuledServer,
    RuleProblem,
    RuleWindow,
    check_rules,
    doubts,
    longest_for,
    longest_of_all,
    policy_for,
)
from hub_extensions.core.culling.signs import cpu_signs, gpu_signs, training_sign, with_training
from hub_extensions.core.culling.warnings import PAGE, announced, begun_again, is_announced, last_warning, reached
from hub_extensions.core.stops import ORDERED, Cause

__all__ = [
    "DAY",
    "ORDERED",
    "PAGE",
    "SHOWN_AFTER",
    "Action",
    "Cause",
    "CullDecision",
    "CullPolicy",
    "CullRule",
    "Evidence",
    "PolicyError",
    "RoutesRenewed",
    "RuleProblem",
    "RuleWindow",
    "RuledServer",
    "ServerFacts",
    "activity_counts",
    "announced",
    "begun_again",
    "check_policy",
    "check_rules",
    "cpu_signs",
    "culling_rule",
    "culling_sentence",
    "decide",
    "decisive_use",
    "doubts",
    "evidence_of",
    "extend",
    "extensions_left",
    "gpu_signs",
    "holds_memory",
    "idle_limit",
    "is_announced",
    "is_empty",
    "is_forged",
    "keep",
    "keep_by_admin",
    "keeps_left",
    "last_used",
    "last_warning",
    "lifetime_end",
    "longest_for",
    "longest_of_all",
    "longest_use",
    "observe",
    "opened",
    "policy_for",
    "proves_idle",
    "reached",
    "recent_keeps",
    "remember_quiet",
    "reported",
    "routes_renewed",
    "settle",
    "training_sign",
    "undo",
    "why_not_kept",
    "with_training",
]
