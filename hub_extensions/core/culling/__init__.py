"""Stopping servers that hold a GPU for nothing: evidence + policy + now -> keep | warn | stop, with a reason.

A busy or an unknown GPU is never stopped for idleness. A lifetime ends every server that has one, with the same
warning.
One round of the service for one server: `observe` its sample, `decide`, `settle` the facts, then act on the decision.
Not here: who reads the samples, who asks the user to save, and who stops the server.
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
from hub_extensions.core.culling.drain_time import (
    PagesHeard,
    awaits_sample,
    begins_before,
    is_after_hook,
    may_be_work,
    may_stop_now,
)
from hub_extensions.core.culling.drains import drain, give_back, undo
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
from hub_extensions.core.culling.failed_stops import TO_DO, OpenStop, StopFault, fault_of
from hub_extensions.core.culling.keeps import DAY, keep, keep_by_admin, keeps_left, recent_keeps, why_not_kept
from hub_extensions.core.culling.policy import (
    CullPolicy,
    PolicyError,
    check_policy,
    culling_rule,
    culling_sentence,
    longest_use,
)
from hub_extensions.core.culling.returns import (
    ReturnSeen,
    ReturnStep,
    ServerReturn,
    comes_back,
    cpu_options,
    next_step,
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
from hub_extensions.core.culling.signs import cpu_signs, gpu_signs
from hub_extensions.core.culling.stops import COUNTED, DueStop, StopPause, pause_after, stops_to_begin
from hub_extensions.core.culling.warnings import PAGE, announced, begun_again, is_announced, last_warning, reached
from hub_extensions.core.stops import BY_ADMIN, ORDERED, Cause, Order

__all__ = [
    "BY_ADMIN",
    "COUNTED",
    "DAY",
    "ORDERED",
    "PAGE",
    "SHOWN_AFTER",
    "TO_DO",
    "Action",
    "Cause",
    "CullDecision",
    "CullPolicy",
    "CullRule",
    "DueStop",
    "Evidence",
    "OpenStop",
    "Order",
    "PagesHeard",
    "PolicyError",
    "ReturnSeen",
    "ReturnStep",
    "RoutesRenewed",
    "RuleProblem",
    "RuleWindow",
    "RuledServer",
    "ServerFacts",
    "ServerReturn",
    "StopFault",
    "StopPause",
    "activity_counts",
    "announced",
    "awaits_sample",
    "begins_before",
    "begun_again",
    "check_policy",
    "check_rules",
    "comes_back",
    "cpu_options",
    "cpu_signs",
    "culling_rule",
    "culling_sentence",
    "decide",
    "decisive_use",
    "doubts",
    "drain",
    "evidence_of",
    "fault_of",
    "give_back",
    "gpu_signs",
    "holds_memory",
    "idle_limit",
    "is_after_hook",
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
    "may_be_work",
    "may_stop_now",
    "next_step",
    "observe",
    "opened",
    "pause_after",
    "policy_for",
    "proves_idle",
    "reached",
    "recent_keeps",
    "remember_quiet",
    "reported",
    "routes_renewed",
    "settle",
    "stops_to_begin",
    "undo",
    "why_not_kept",
]
