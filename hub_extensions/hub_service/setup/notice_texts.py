"""The texts of notices to users: built-in ones, and an administrator's templates, which are tested before use.

The templates run in Jinja2's sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from hub_extensions.adapters.files.catalogues import catalogue_for, catalogues
from hub_extensions.core.notices import MAIL, NoticeConfig, TrainingNotice, address_problem, channels_of
from hub_extensions.core.settings import spelled
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import duration

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
"""Values with which every template is tested: with and without a time limit, the default server and a named one."""
WRONG = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that a faulty template may raise."""
LONGEST_SUBJECT = 200  # characters


WARNED_FOR: Mapping[str, str] = {
    "idle": "Your GPU is idle.",
    "lifetime": "The time limit of your server ends.",
    "unopened": "Nobody has opened your server since it started.",
    "admin": "An administrator stops your server.",
    "cpu-idle": "Nobody has used your server for a long time.",
}


def warning_subject(title: str, left: timedelta, t: Catalogue = ENGLISH) -> str:
    """Return the subject of the mail that warns a user of a server's stop, on one line.

    Args:
        title: the offer's title.
        left: time until the stop.
        t: translates into the user's language.
    """
    return " ".join(t("Your server stops in %1: %2", _in_steps(left, t), t(title)).split())[:LONGEST_SUBJECT]


def warning_text(
    cause: str, left: timedelta, stops_at: datetime, url: str, t: Catalogue = ENGLISH, words: str = ""
) -> str:
    """Return the text that warns a user without an open page of a server's stop.

    Args:
        cause: code of the cause of the stop. A cause that is not in `WARNED_FOR` is not explained in the text.
        left: time until the stop.
        stops_at: wall-clock time of the stop.
        url: address of the server.
        t: translates into the user's language.
        words: the explanation of the administrator who ordered the stop; "" without an explanation.
    """
    at = stops_at.astimezone(timezone.utc).strftime("%H:%M UTC")
    why = t(WARNED_FOR[cause]) if cause in WARNED_FOR else ""
    stops = t(
        "The server stops in %1, at %2. Files stay as they were saved last, variables are lost.", _in_steps(left, t), at
    )
    told = "\n" + t("The administrator's words: %1", words) if words else ""
    return f"{why} {stops}".strip() + told + "\n" + t("It is here:") + f"\n{url}\n"


def letter_subject(t: Catalogue = ENGLISH) -> str:
    """Return the subject of a mail with a message that an administrator wrote to a server's user."""
    return t("From an administrator, about your GPU")


def letter_text(text: str, url: str, t: Catalogue = ENGLISH) -> str:
    """Return the text of a mail with a message that an administrator wrote to a server's user.

    Args:
        text: the administrator's message, which is not changed.
        url: address of the server.
        t: translates into the user's language.
    """
    return f"{text}\n\n" + t("Your server is here:") + f"\n{url}\n"


ENDED: Mapping[str, str] = {
    "done": "Your training is done",
    "left": "Your training has ended before its last step",
    "failed": "Your training has failed",
    "vanished": "Your training ended unexpectedly",
}


def training_subject(name: str, state: str, t: Catalogue = ENGLISH) -> str:
    """Return the subject of the mail that a training has ended, on one line.

    Args:
        name: the name of the run; "" without a name.
        state: how it ended, a key of `ENDED`.
        t: translates into the user's language.
    """
    what = t(ENDED[state])
    return f"{what}: {name}" if name else what


def training_text(notice: TrainingNotice, url: str, t: Catalogue = ENGLISH) -> str:
    """Return the text of the mail that a training has ended.

    Args:
        notice: the notice.
        url: address of the server.
        t: translates into the user's language.
    """
    began = notice.started or notice.ends
    took = t("It took %1, until %2.", _in_steps(notice.ends - began, t), _day_and_time(notice.ends))
    first = training_subject(notice.name, notice.state, t)
    return f"{first}\n{took}\n" + t("Your server is here:") + f"\n{url}\n"


def too_long_subject(t: Catalogue = ENGLISH) -> str:
    """Return the subject of the mail that a server stops before its training is done."""
    return t("Your server stops before your training is done")


def too_long_text(ends: datetime, stops: datetime, url: str, t: Catalogue = ENGLISH, *, more_time: bool = False) -> str:
    """Return the text of the mail that a server stops before its training is done.

    Args:
        ends: likely end of the training.
        stops: when the server stops.
        url: address of the server.
        t: translates into the user's language.
        more_time: whether the user can still put off the end of the server.
    """
    lines = [t("Your training ends about %1; the server stops at %2.", _day_and_time(ends), _day_and_time(stops))]
    lines.append(t("Have it save its state before. Files stay as they were saved last, variables are lost."))
    lines += [t("You can ask for more time in the server, while the GPU is in use.")] if more_time else []
    return "\n".join([*lines, t("Your server is here:"), url]) + "\n"


def _day_and_time(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _in_steps(left: timedelta, t: Catalogue) -> str:
    """Format a time left in whole minutes, or in seconds below one minute: a mail takes too long for more precision."""
    minute = timedelta(minutes=1)
    return duration(left - left % (minute if left >= minute else timedelta(seconds=1)), t)


def _ready_text(values: Values, t: Catalogue) -> str:
    """Return the built-in text of the notice "your GPU is ready" in another language than English.

    Args:
        values: the values of the template by name, such as ``server``, ``title`` and ``url``.
        t: translates into the user's language.
    """
    server, title, minutes = values["server"], t(str(values["title"])), values["minutes"]
    first = t("Your server %1 runs on %2:", server, title) if server else t("Your server runs on %1:", title)
    lines = [first, str(values["url"])]
    if minutes:
        lines.append(t("Open it within %1 min, else its GPU goes to the next in line.", minutes))
    return "\n".join(lines) + "\n"


class TemplateProblem(ValueError):
    """A template that cannot be used; the text names the setting."""


@dataclass(frozen=True)
class NoticeTexts:
    """The templates of the notice "your GPU is ready": subject, text and the user's mail address.

    `of` makes it from the settings.

    Attributes:
        own_subject, own_text: whether the administrator replaced the built-in subject or text, which is then sent
            untranslated.
    """

    _subject: Template
    _text: Template
    _address: Template
    own_subject: bool = False
    own_text: bool = False

    @classmethod
    def of(cls, config: NoticeConfig) -> NoticeTexts:
        """Parse the templates in the settings, and test them with example values.

        Raises:
            TemplateProblem: a template cannot be used; the text names the setting.
        """
        made = cls(
            _tried("notice_subject", config.notice_subject),
            _tried("notice_text", config.notice_text),
            _tried("mail_to", config.mail_to),
            own_subject=config.notice_subject != NoticeConfig.notice_subject,
            own_text=config.notice_text != NoticeConfig.notice_text,
        )
        if MAIL in channels_of(config) and all(address_problem(made.address(str(each["user"]))) for each in TRIALS):
            raise TemplateProblem(
                f"{spelled(NoticeConfig, 'mail_to')} makes {made.address('ada')!r} of the name 'ada', which is no "
                'plain e-mail address: "{{ user }}@example.org" makes one.'
            )
        if config.mail_language != "en" and catalogue_for(config.mail_language) is ENGLISH:
            known = ", ".join(["en", *sorted(catalogues())])
            raise TemplateProblem(f"{spelled(NoticeConfig, 'mail_language')} has to be one of {known}.")
        return made

    def subject(self, values: Values, t: Catalogue = ENGLISH) -> str:
        """Return the subject of the notice as one line, even if a title or name contains line breaks.

        A subject that the administrator wrote is the same in every language.

        Args:
            values: the values of the template by name, such as ``server`` and ``url``.
            t: translates into the user's language.
        """
        own = self.own_subject or t is ENGLISH
        text = self._subject.render(values) if own else t("Your GPU is ready: %1", t(str(values["title"])))
        return " ".join(text.split())[:LONGEST_SUBJECT]

    def text(self, values: Values, t: Catalogue = ENGLISH) -> str:
        """Return the text of the notice. A text that the administrator wrote is the same in every language.

        Args:
            values: the values of the template by name, such as ``server`` and ``url``.
            t: translates into the user's language.
        """
        if self.own_text or t is ENGLISH:
            return self._text.render(values).strip() + "\n"
        return _ready_text(values, t)

    def address(self, user: str) -> str:
        """Return a user's e-mail address, which may be invalid (`address_problem`)."""
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
