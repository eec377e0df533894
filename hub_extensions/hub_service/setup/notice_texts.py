"""The words of a notice: an admin's templates, in Jinja2's sandbox, tried out before anybody counts on them.

Not here: who is told what and when (``core/notices``), and how it gets there (``adapters/notices``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from hub_extensions.core.notices import MAIL, NoticeConfig, address_problem, channels_of
from hub_extensions.core.settings import spelled
from hub_extensions.core.wording import duration

Values = Mapping[str, object]
TRIALS: tuple[Values, ...] = (
    {"user": "ada", "server": "", "title": "MIG 1g.5gb", "url": "https://hub.example.org/user/ada/", "minutes": 15},
    {
        "user": "ada@example.org",
        "server": "thesis",
        "title": "A whole GPU",
        "url": "https://hub.example.org/user/ada@example.org/thesis/",
        "minutes": None,
    },
)
"""What every template is tried with: with a limit and without one, the default server and another."""
WRONG = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
LONGEST_SUBJECT = 200


WARNED_FOR: Mapping[str, str] = {
    "idle": "Your GPU is idle.",
    "lifetime": "The time limit of your server ends.",
    "unopened": "Nobody has opened your server since it started.",
    "admin": "An administrator stops your server.",
    "cpu-idle": "Nobody has used your server for a long time.",
}


def warning_subject(title: str, left: timedelta) -> str:
    """Of the warning of a stop, on one line."""
    return " ".join(f"Your server stops in {_in_steps(left)}: {title}".split())[:LONGEST_SUBJECT]


def warning_text(cause: str, left: timedelta, stops_at: datetime, url: str) -> str:
    """What somebody without an open page is warned with; in English, as what an admin writes is."""
    at = stops_at.astimezone(timezone.utc).strftime("%H:%M UTC")
    why = WARNED_FOR.get(cause, "")
    stops = f"The server stops in {_in_steps(left)}, at {at}. Files stay as they were saved last, variables are lost."
    return f"{why} {stops}".strip() + f"\nIt is here:\n{url}\n"


def _in_steps(left: timedelta) -> str:
    """Whole minutes, where there is one: a letter takes its time."""
    minute = timedelta(minutes=1)
    return duration(left - left % (minute if left >= minute else timedelta(seconds=1)))


class TemplateProblem(ValueError):
    """A template that cannot be used; the text names the setting."""


@dataclass(frozen=True)
class NoticeTexts:
    """The templates of one configuration, ready to use."""

    _subject: Template
    _text: Template
    _address: Template

    @classmethod
    def of(cls, config: NoticeConfig) -> NoticeTexts:
        """Read and try them. Raises TemplateProblem."""
        made = cls(*(_tried(name, getattr(config, name)) for name in ("notice_subject", "notice_text", "mail_to")))
        if MAIL in channels_of(config) and all(address_problem(made.address(str(each["user"]))) for each in TRIALS):
            raise TemplateProblem(
                f"{spelled(NoticeConfig, 'mail_to')} makes {made.address('ada')!r} of the name 'ada', which is no "
                'plain e-mail address: "{{ user }}@example.org" makes one.'
            )
        return made

    def subject(self, values: Values) -> str:
        """One line, whatever a title or a name has in it."""
        return " ".join(self._subject.render(values).split())[:LONGEST_SUBJECT]

    def text(self, values: Values) -> str:
        """The whole text."""
        return self._text.render(values).strip() + "\n"

    def address(self, user: str) -> str:
        """Where a user's e-mails go; it may be none (`address_problem`)."""
        return self._address.render(user=user).strip()


@lru_cache(maxsize=16)
def _tried(name: str, text: str) -> Template:
    setting = spelled(NoticeConfig, name)
    try:
        template = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False).from_string(text)  # plain text
        for values in TRIALS:
            template.render({"user": values["user"]} if name == "mail_to" else values)
    except WRONG as problem:
        knows = "user" if name == "mail_to" else ", ".join(TRIALS[0])
        raise TemplateProblem(
            f"{setting} cannot be used as a template: {problem or type(problem).__name__}. It knows {knows}."
        ) from problem
    return template
