"""The messages between hub, service, server extension and panel, as frozen dataclasses.

In the messages, a ticket is a user's place in the line, and a lease is the right of one server to a share of a device.

Hub and service read and write them with pydantic's ``TypeAdapter``, the server extension with the standard library.
The OpenAPI document and the panel's TypeScript types are generated from them. All times are aware UTC wall-clock
times; the service converts from its running clock before it sends them.
"""

from hub_extensions.core.messages.admin import (
    ClusterInfo,
    CulledServer,
    CullingView,
    FailedStop,
    ForecastRecord,
    ForecastReport,
    ForgottenPod,
    Health,
    LeaseInfo,
    LeftOutInfo,
    NodePart,
    OfferEvidence,
    PoolInfo,
    QueueFigures,
    TicketInfo,
)
from hub_extensions.core.messages.errors import Problem
from hub_extensions.core.messages.forms import FailedStart, FormState, Notice, OfferClosing, OfferState, Wait
from hub_extensions.core.messages.hub import (
    RETURNS_HEADER,
    Ask,
    DrainState,
    Ended,
    LeaseGrant,
    SignedOut,
    Started,
    Stopped,
    TicketStatus,
    WithoutSession,
    WithoutSessions,
)
from hub_extensions.core.messages.notices import WebhookNotice
from hub_extensions.core.messages.overview import FailedStarts, UserOverview
from hub_extensions.core.messages.panel import (
    EndEvent,
    GpuReading,
    History,
    Holder,
    Numbers,
    Push,
    Series,
    Snapshot,
    Training,
)
from hub_extensions.core.messages.server import (
    Countdown,
    Figures,
    GiveBack,
    Keep,
    OtherEnd,
    Progress,
    Report,
    ServerState,
    TrainingEnded,
)
from hub_extensions.core.messages.usage import UsagePage, UsageRecord

__all__ = [
    "RETURNS_HEADER",
    "Ask",
    "ClusterInfo",
    "Countdown",
    "CulledServer",
    "CullingView",
    "DrainState",
    "EndEvent",
    "Ended",
    "FailedStart",
    "FailedStarts",
    "FailedStop",
    "Figures",
    "ForecastRecord",
    "ForecastReport",
    "ForgottenPod",
    "FormState",
    "GiveBack",
    "GpuReading",
    "Health",
    "History",
    "Holder",
    "Keep",
    "LeaseGrant",
    "LeaseInfo",
    "LeftOutInfo",
    "NodePart",
    "Notice",
    "Numbers",
    "OfferClosing",
    "OfferEvidence",
    "OfferState",
    "OtherEnd",
    "PoolInfo",
    "Problem",
    "Progress",
    "Push",
    "QueueFigures",
    "Report",
    "Series",
    "ServerState",
    "SignedOut",
    "Snapshot",
    "Started",
    "Stopped",
    "TicketInfo",
    "TicketStatus",
    "Training",
    "TrainingEnded",
    "UsagePage",
    "UsageRecord",
    "UserOverview",
    "Wait",
    "WebhookNotice",
    "WithoutSession",
    "WithoutSessions",
]
