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
    READY,
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

__all__ = [
    "LAST_WARNING",
    "LETTER",
    "LONGEST",
    "MAIL",
    "READY",
    "STOPS",
    "WARNING",
    "WEBHOOK",
    "AdminLetter",
    "Delivery",
    "DeliveryAction",
    "NoticeConfig",
    "Sending",
    "address_problem",
    "after_failure",
    "channels_of",
    "deliveries_of",
    "for_panel",
    "judge",
    "notice_hint",
    "still_read",
    "turn_notices",
    "warning_channels",
    "warning_notices",
]
