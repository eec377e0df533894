"""Notices to users who have no page open: who is notified, when a notice is retried, and when it is dropped.

A notice is sent by each configured channel (webhook, e-mail). One notice by one channel is called a delivery.
"""

from hub_extensions.core.notices.address import address_problem
from hub_extensions.core.notices.config import (
    MAIL,
    STOPS,
    WEBHOOK,
    NoticeConfig,
    channels_of,
    notice_hint,
    warning_channels,
)
from hub_extensions.core.notices.delivery import (
    LAST_WARNING,
    LETTER,
    OF_A_STOP,
    READY,
    TRAINING_ENDED,
    TRAINING_TOO_LONG,
    WARNING,
    Delivery,
    DeliveryAction,
    Sending,
    after_failure,
    judge,
    turn_notices,
    warning_notices,
)
from hub_extensions.core.notices.letter import LONGEST, AdminLetter, deliveries_of, for_panel, still_read
from hub_extensions.core.notices.training_notice import (
    REMEMBERED,
    SHORTEST,
    TrainingNotice,
    ended,
    is_repeat,
    remembered,
    run_of,
    training_deliveries,
    wait_before,
)

__all__ = [
    "LAST_WARNING",
    "LETTER",
    "LONGEST",
    "MAIL",
    "OF_A_STOP",
    "READY",
    "REMEMBERED",
    "SHORTEST",
    "STOPS",
    "TRAINING_ENDED",
    "TRAINING_TOO_LONG",
    "WARNING",
    "WEBHOOK",
    "AdminLetter",
    "Delivery",
    "DeliveryAction",
    "NoticeConfig",
    "Sending",
    "TrainingNotice",
    "address_problem",
    "after_failure",
    "channels_of",
    "deliveries_of",
    "ended",
    "for_panel",
    "is_repeat",
    "judge",
    "notice_hint",
    "remembered",
    "run_of",
    "still_read",
    "training_deliveries",
    "turn_notices",
    "wait_before",
    "warning_channels",
    "warning_notices",
]
