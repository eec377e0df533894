"""Do the settings of ``c.GpuNotices`` fit together, and the hub's? Asked once they are all there, the secret ones too.

Not here: the templates (``hub_service/setup/notice_texts.py``).
"""

from __future__ import annotations

from email.utils import parseaddr
from urllib.parse import urlsplit

from hub_extensions.core.notices import MAIL, NoticeConfig, address_problem, channels_of


def check_notices(notices: NoticeConfig, public_url: str, *, whole: bool, notify_url: str = "") -> None:
    """Refuse what could not be sent, or would say a password to everybody on the way.

    Args:
        whole: what only the environment brings is there, too. notify_url: of ``c.GpuCulling``.

    Raises:
        ValueError: the text names the setting and says what would be right.
    """
    channels = channels_of(notices)
    if (channels or notify_url) and not public_url:
        section = "c.GpuNotices" if channels else "c.GpuCulling.notify_url"
        raise ValueError(
            f"{section} is to tell users where their server is, and c.JupyterHub.public_url is empty: set it to the "
            "address at which they open the hub, such as https://hub.example.org/."
        )
    for name, url in (("GpuNotices.webhook_url", notices.webhook_url), ("GpuCulling.notify_url", notify_url)):
        if url and not _can_be_called(url):
            raise ValueError(
                f"c.{name} cannot be used: it has to be an address such as https://chat.example.org/hook, without a "
                "user, a password or a #."
            )
    if MAIL in channels:
        _check_mail(notices, whole)


def _check_mail(notices: NoticeConfig, whole: bool) -> None:
    if any(letter in notices.mail_from for letter in "\r\n") or address_problem(parseaddr(notices.mail_from)[1]):
        raise ValueError(
            f"c.GpuNotices.mail_from is {notices.mail_from!r}: with a mail server it has to be the sender's address, "
            "such as GPUs <gpu@example.org>."
        )
    if notices.smtp_user and notices.smtp_security == "none":
        raise ValueError(
            "c.GpuNotices.smtp_security is 'none', and c.GpuNotices.smtp_user is set: its password would be readable "
            "on the way. Use 'starttls' or 'tls'."
        )
    if whole and bool(notices.smtp_user) != bool(notices.smtp_password):
        raise ValueError(
            "c.GpuNotices.smtp_user and its password belong together: set both (the password by the environment "
            "variable JUPYTERHUB_GPU_SMTP_PASSWORD), or neither."
        )


def _can_be_called(url: str) -> bool:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return fits and "@" not in parts.netloc and "#" not in url and all("!" <= letter <= "~" for letter in url)
