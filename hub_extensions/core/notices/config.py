"""Settings of notices to users: the channels (webhook, e-mail) and the texts. Without a channel, no notice is sent.

A template makes a user's mail address from the user name. The address is not read from ``auth_state``, because the
service would need access to every user's secrets there. Users cannot enter it, because they could have mail sent to
strangers. A site that keeps addresses elsewhere uses the webhook, which receives the user name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.settings import setting

WEBHOOK, MAIL = "webhook", "mail"
STOPS = "stop-webhook"  # the channel of ``c.GpuCulling.warning_webhook_url``, for warnings of stops only

TEXT = """\
Your server{% if server %} {{ server }}{% endif %} runs on {{ title }}:
{{ url }}
{% if minutes %}Open it within {{ minutes }} min, else its GPU goes to the next in line.
{% endif %}"""


@dataclass(frozen=True)
class NoticeConfig:
    """How users who have closed the page are notified that their GPU is ready. Nothing is sent without a channel."""

    section: ClassVar[str] = "GpuNotices"

    webhook_url: str = setting(
        "",
        "Address that a notice is sent to, as JSON, with POST. Empty: what the environment variable "
        "JUPYTERHUB_GPU_WEBHOOK_URL says, else no webhook is called.",
        variable="JUPYTERHUB_GPU_WEBHOOK_URL",
        secret=True,
    )
    webhook_token: str = setting(
        "",
        "A bearer token that the receiver of the webhook wants. Empty: none is sent.",
        variable="JUPYTERHUB_GPU_WEBHOOK_TOKEN",
        token=0,
        secret=True,
    )
    smtp_host: str = setting("", "The mail server. Empty: no e-mail is sent.")
    smtp_port: int = setting(
        587, "Port of the mail server; 465 is usual with smtp_security = 'tls'.", least=1, most=65535
    )
    smtp_security: Literal["starttls", "tls", "none"] = setting(
        "starttls",
        "How the connection is secured: starttls or tls, both with the server's certificate verified, or none.",
    )
    smtp_user: str = setting("", "Name at the mail server. Empty: no login.")
    smtp_password: str = setting(
        "",
        "Password at the mail server; better in the environment variable.",
        variable="JUPYTERHUB_GPU_SMTP_PASSWORD",
        secret=True,
    )
    ca_file: str = setting(
        "",
        "File with the certificates of the authorities that webhook and mail server are verified by, as the service "
        "finds it. Empty: the system's.",
    )
    mail_from: str = setting("", "Sender of the e-mails: GPUs <gpu@example.org>.")
    mail_to: str = setting(
        "",
        'Template of a user\'s address: "{{ user }}@example.org"; where names are addresses, "{{ user }}". Who has a '
        "name that makes no plain address is sent none.",
    )
    mail_language: str = setting(
        "en",
        "Language of the mails to people who have not opened a page yet, as their browser would say it: en, fi, ja. "
        "Afterwards a mail speaks the language of its reader's last page.",
    )
    notice_after: timedelta = setting(
        timedelta(seconds=30),
        "A notice is sent this long after the server was ready, unless its user has opened it by then.",
        name="delay_seconds",
        least=0,
        most=3600,
    )
    notice_hint: str = setting(
        "",
        'How users are told, in the form\'s words: "in Mattermost". Empty: by e-mail, where a mail server is set.',
        name="channel_text",
    )
    notice_subject: str = setting(
        "Your GPU is ready: {{ title }}",
        "Template of the subject (Jinja2). It knows user, server (the name; empty for the default one), title (the "
        "offer's), url, and minutes (until the GPU goes to the next; none where nothing stops an unopened server).",
        name="subject",
    )
    notice_text: str = setting(TEXT, "Template of the text, which knows the same.", name="text")


def channels_of(config: NoticeConfig) -> tuple[str, ...]:
    """Return the names of the configured channels for notices: `WEBHOOK`, `MAIL`, both, or none of them."""
    return tuple(name for name, place in ((WEBHOOK, config.webhook_url), (MAIL, config.smtp_host)) if place)


def warning_channels(config: NoticeConfig, policy: CullPolicy) -> tuple[str, ...]:
    """Return the configured channels for warnings of a stop: `STOPS` (a webhook), `MAIL`, both, or none of them."""
    return tuple(name for name, place in ((STOPS, policy.warning_webhook_url), (MAIL, config.smtp_host)) if place)


def notice_hint(config: NoticeConfig) -> str:
    """Return the words with which the spawn form describes how users are notified, such as "by e-mail".

    "" if no channel is configured. "yes" if only a webhook is configured, and the settings give no words for it.
    """
    channels = channels_of(config)
    if not channels:
        return ""
    return config.notice_hint or ("by e-mail" if MAIL in channels else "yes")
