"""Every reason that is shown to people: a stable code, its parameters, and an English text.

A reason is an explanation: why a server waits or stops, why a request is refused, what is wrong.
``explain("in-use", total=5, title="MIG 1g.5gb", ahead=0)`` creates a reason. The panel translates by code and
parameters; a reader that does not know the code shows the English text. The format of a parameter follows its name, as
in ``{idle:duration}`` for seconds (`WRITTEN`). If a parameter has no format, its text is translated and its number
written as a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache, reduce
from typing import Any

from hub_extensions.core.text.admin_sentences import TO_ADMINS
from hub_extensions.core.text.cluster_sentences import OF_THE_CLUSTER
from hub_extensions.core.text.journal_sentences import OF_THE_JOURNAL
from hub_extensions.core.text.plural import Plural, Text
from hub_extensions.core.text.start_sentences import OF_STARTS
from hub_extensions.core.text.translation import CONTEXT, ENGLISH, PLACE, Catalogue, number
from hub_extensions.core.text.wording import duration


@dataclass(frozen=True, slots=True)
class Reason:
    """An explanation for people, the log and programs: why a server waits or stops, why a request is refused.

    Attributes:
        reason: a stable code for programs, also used by metrics and translations. The field has this name in
            JupyterHub.
        message: the English text for people.
        params: the texts and numbers in the message, by name.
        log_message: more details for the log; "" without such details.
    """

    reason: str
    message: str
    params: Mapping[str, str | float] = field(default_factory=dict)
    log_message: str = ""


TO_THE_PANEL: Mapping[str, Text] = {
    # waits
    "one-free": "One is free.",
    "starts-now": "It starts now.",
    "not-known-which-free": "It is not known which GPUs are free.",
    "others-start": "Other servers are starting; this takes a minute or two.",
    "line-elsewhere": "{queue} hands out the GPUs here and does not say how long it takes.",
    "cut-as-asked": "GPUs are cut as they are asked for here: it depends on what others ask for.",
    "offer-closed": "An administrator lets nothing new start on it.",
    "free-one-taken-outside": "Something outside this hub took the GPU that was free.",
    "free-one-silent": "A machine that has such a GPU does not answer.",
    "over-quota": (
        "The cluster's quota for this hub is used up. It is tried again each minute, and when a server ends."
    ),
    "over-quota-of": (
        "The cluster's quota for this hub is used up: {most} of {what}. It is tried again each minute, and when a "
        "server ends."
    ),
    "parts-differ": "Parts of different sizes are handed out here: it depends on how they fit.",
    "no-limit": "How long others keep their GPU has no limit here.",
    "one-without-limit": "It depends on a server or program that has no time limit.",
    "place-ends-first": "A place in line ends after {hours:number} h, and a turn may come later than that.",
    "limits-ahead": "The servers ahead end by their time limit at the latest.",
    "limits-ahead-unless-outside": (
        "The servers ahead end by their time limit at the latest, unless others in the cluster come first."
    ),
    "usually-end": Plural(
        "ending",
        "{title}: 1 of {total:number} in use usually ends within the hour.",
        "{title}: {ending:number} of {total:number} in use usually end within the hour.",
    ),
    "usually-longer": "{title}: those in use usually go on for more than an hour.",
    "few-data": "Not enough data yet: how long people keep it is not known.",
    # the end of a server
    "idle": "Idle for {idle:duration}.",
    "idle-at-first": "Idle for {idle:duration}. The first {grace:duration} after a start do not count.",
    "idle-memory": "Its GPU holds memory and has computed nothing for {idle:duration}.",
    "idle-never-used": "Its GPU has not been used since it started {idle:duration} ago.",
    "idle-promised": "Idle for {idle:duration}. This server was given more time before, and keeps it.",
    "idle-wanted": "Idle for {idle:duration}, and somebody waits for such a GPU.",
    "unopened": "Nobody has opened it since it started {since:duration} ago.",
    "lifetime": "The time limit of {limit:duration} ends.",
    "no-activity": "No activity for {quiet:duration}.",
    "signed-out": "You signed out.",
    "no-session-idle": "Idle for {idle:duration}, and your sign-in service does not renew your session.",
    "stopped-by-admin": "An administrator stops it.",
    "stopped-by-admin-why": "An administrator stops it: {why}",
    "reclaimed": "Its GPU was borrowed and is taken back.",
    "from-admin": "From an administrator, at {at:time}: {text}",
    "sign-in-ended": "Your sign-in service ended your access to this hub.",
    "access-ended": "An admin ended your access to this hub.",
    "account-disabled": "Your account is disabled.",
    "account-not-allowed": "Your account may not use this hub any more.",
    "given-back": "You gave its GPU back.",
    "given-back-for-cpu": "You gave its GPU back. It starts again without one.",
    "gpu-in-use": "Its GPU is in use.",
    "gpu-used-just-now": "Its GPU was used just now.",
    "use-not-known": "The use of its GPU is not known, so it is not stopped for idleness.",
    # when it stops by itself
    "rule": "Stops when its GPU is idle for {idle:duration} (you are warned {warn:duration} before).",
    "rule-at-most": (
        "Stops when its GPU is idle for {idle:duration} (you are warned {warn:duration} before); "
        "it runs at most {limit:duration}."
    ),
    "rule-by-offer": (
        "Stops when its GPU is idle for {idle:duration} to {longest:duration}, depending on the offer "
        "(you are warned {warn:duration} before)."
    ),
    "rule-by-offer-at-most": (
        "Stops when its GPU is idle for {idle:duration} to {longest:duration}, depending on the offer "
        "(you are warned {warn:duration} before); it runs at most {limit:duration}."
    ),
    "rule-wanted": (
        "Stops when its GPU is idle for {idle:duration}, or for {wanted:duration} while somebody waits for one "
        "(you are warned {warn:duration} before)."
    ),
    "rule-wanted-at-most": (
        "Stops when its GPU is idle for {idle:duration}, or for {wanted:duration} while somebody waits for one "
        "(you are warned {warn:duration} before); it runs at most {limit:duration}."
    ),
    "rule-cpu": "Stops after {quiet:duration} without activity.",
    "rule-use-not-known": "The use of its GPU is not known now, so it is not stopped for being idle.",
    # keep was refused
    "keep-stopping": "This server is already stopping.",
    "keep-dry-run": "There is nothing to keep: no server is stopped for idleness here.",
    "keep-cpu": "A CPU-only server stays as long as it is used: there is nothing to keep.",
    "keep-lifetime": "The time limit of {limit:duration} ends. That end cannot be moved.",
    "extend-idle": "The time limit can be put off only while the GPU is in use.",
    "extend-none-left": "The time limit was put off as often as it can be.",
    "extend-no-limit": "This server has no time limit that could be put off.",
    "keep-in-vain": "Keep would not help: another end comes soon after this one.",
    "keep-signed-out": "This server stops because its user was signed out. That end cannot be moved.",
    "keep-no-session": "Your sign-in service does not renew your session. Sign in again to keep this server.",
    "keep-no-countdown": "There is no countdown: this server is not about to stop.",
    "keep-not-offered": "Keeping a server is not offered here.",
    "keep-none-left": Plural(
        "times",
        "You have pressed Keep once in {day:duration}, which is all; again in {wait:duration}.",
        "You have pressed Keep {times:number} times in {day:duration}, which is all; again in {wait:duration}.",
    ),
    # giving the GPU back was refused
    "give-back-no-gpu": "This server has no GPU to give back.",
    # a server's warnings
    "gpu-lost": "The GPU of this server is gone from the machine. Save your work and stop the server.",
    "runs-without-gpu": (
        "This server runs again, without the GPU that it had. Files are as before, variables are lost."
    ),
    "other-program": "A program of another server uses this GPU. The administrators see it too.",
    "training-too-long": "Your training ends about {ends:time}; this server ends at {stops:time}.",
    # a notice at the end of a training was refused
    "unknown-training": "This training is not running in this server any more.",
    "training-too-short": "There is a notice only for a training of at least {least:duration}.",
    "no-notices": "Nothing can be sent to you from here: no mail server or webhook reaches you.",
    # the service, as a server sees it
    "away": "The GPU service is not answering. Nothing was changed.",
    "away-since": "The GPU service is not answering since {since:time}.",
    "no-scope": (
        "The hub does not let this server ask the GPU service. "
        "An admin has to give the roles user and server the scope access:services!service=gpu."
    ),
    "server-not-known": "The GPU service does not know this server yet.",
    "odd-answer": "The GPU service answered with {status}.",
    "unreadable": "The GPU service's answer cannot be read. Its version may differ from this server's.",
    "our-fault": "The GPU service made a mistake; its log says which. What you asked for was not done.",
    # a server's GPU
    "no-hub": "This server was not started by a hub with GPU offers.",
    "no-gpu": "This server has no GPU.",
    "first-look": "The GPU is being read.",
    "one-gpu-gone": "One of this server's GPUs is gone from the machine. Save your work and stop the server.",
    "no-gpu-seen": "No GPU can be seen in this container, though this server was given one. Tell an admin.",
    "driver-silent": "The GPU driver is not answering since {since:time}.",
    "read-failed": "The GPU cannot be read: {why}",
    # one device
    "device-not-read": "This GPU could not be read.",
    "use-not-measurable": "Use cannot be measured on this card. Memory is.",
    "use-not-yet-known": "Use is not known yet.",
    "figures-old": "Use comes from the site's monitoring, which has said nothing new since {since:time}.",
    "holders-not-known": "It is not known which notebook holds the memory.",
    "holders-amounts-not-known": "How much each of them holds is not known.",
    "holders-own-not-known": ("How much of the memory is this server's is not known: others may be on the same GPU."),
    "holders-probably": "Probably: it was the only one running when the memory was taken.",
    # the NVIDIA driver's answers, by the names of nvml.h
    "nvml-uninitialized": "The NVIDIA driver was closed or loaded anew. It is opened again by itself.",
    "nvml-invalid-argument": (
        "The NVIDIA driver does not understand what it was asked. "
        "Restart the server; if that does not help, tell the administrator."
    ),
    "nvml-not-supported": "The NVIDIA driver cannot tell this about this GPU. Nothing is to be done.",
    "nvml-no-permission": (
        "The NVIDIA driver does not let this account read the GPU. "
        "The administrator can give the account access to /dev/nvidia*."
    ),
    "nvml-already-initialized": (
        "The NVIDIA driver says that it is open already. "
        "Restart the server; if that does not help, tell the administrator."
    ),
    "nvml-not-found": "This GPU is not on this machine any more. Save the work and restart the server.",
    "nvml-insufficient-size": (
        "The NVIDIA driver had more to say than there was room for. It is tried again by itself."
    ),
    "nvml-insufficient-power": "A GPU's power cable is not attached as it should be. Tell the administrator.",
    "nvml-driver-not-loaded": (
        "The NVIDIA driver is installed but not loaded. "
        "The administrator can load it (modprobe nvidia) or restart the machine."
    ),
    "nvml-timeout": "The NVIDIA driver does not answer in time. An Xid in the kernel's log says why.",
    "nvml-irq-issue": "The kernel gets no interrupts from a GPU. Tell the administrator.",
    "nvml-library-not-found": (
        "No NVIDIA driver was found on this machine (libnvidia-ml.so.1). Install it, or simulate the GPUs."
    ),
    "nvml-driver-too-old": (
        "The NVIDIA driver on this machine is older than this program expects. Tell the administrator to update it."
    ),
    "nvml-corrupted-inforom": "The GPU's own notes (infoROM) are damaged. Tell the administrator.",
    "nvml-gpu-is-lost": (
        "The GPU has fallen off the bus. The administrator finds an Xid in the kernel's log and restarts the machine."
    ),
    "nvml-reset-required": "The GPU waits for a reset. The administrator resets it or restarts the machine.",
    "nvml-operating-system": (
        "The operating system (cgroups) keeps the GPU from this server. Save the work and restart the server."
    ),
    "nvml-version-mismatch": (
        "The NVIDIA driver was updated while it was in use: its library and its kernel module differ. "
        "The machine has to be restarted."
    ),
    "nvml-in-use": "Something else holds the GPU for itself at the moment. It is tried again by itself.",
    "nvml-memory": "The NVIDIA driver has no memory left to answer with. It is tried again by itself.",
    "nvml-no-data": "The NVIDIA driver has no figures yet. It is tried again by itself.",
    "nvml-vgpu-ecc": "This GPU cannot be read while vGPU guests with ECC use it. Nothing is to be done.",
    "nvml-insufficient-resources": (
        "The NVIDIA driver has run out of something it needs. It is tried again by itself."
    ),
    "nvml-frequency": "This GPU does not run at the clock it was asked for. Nothing is to be done.",
    "nvml-deprecated": (
        "The NVIDIA driver is newer than this program and no longer answers this. Update jupyterhub-gpu."
    ),
    "nvml-not-ready": "The GPU is not ready yet. It is tried again by itself.",
    "nvml-gpu-not-found": "The GPU is not on this machine any more. Save the work and restart the server.",
    "nvml-invalid-state": (
        "The GPU is in a state in which it cannot be read. "
        "Restart the server; if that does not help, tell the administrator."
    ),
    "nvml-reset-type": "This GPU cannot be reset in the way that was asked. Nothing is to be done.",
    "nvml-unknown": (
        'The NVIDIA driver answers "Unknown Error". In a container the GPU has been taken away from it, as '
        "systemctl daemon-reload on the host does: save the work and restart the server. "
        "Outside a container restart the machine."
    ),
    "nvml-other": (
        "The NVIDIA driver answers with error {code}. "
        "Restart the server; if that does not help, tell the administrator."
    ),
    "nvml-no-package": "The Python package nvidia-ml-py is missing. Install jupyterhub-gpu[server].",
    # the user of a container cannot load or install a driver or restart the machine
    "nvml-driver-not-loaded-in-container": (
        "The GPU's driver does not answer in this container. "
        "Tell an admin: no device of a GPU was put into it, or the driver of its node is not loaded."
    ),
    "nvml-library-not-found-in-container": (
        "The GPU's driver is not in this container. Tell an admin: the container runtime of its node, or this "
        "server's runtime class, did not put it in."
    ),
}
"""The reasons that the panel can show. The panel finds the translation of a reason without parameters by its code,
and of one with parameters by its sentence; it has both in ``labextension/src/reasons.ts``, which is generated
from this table.
"""

TO_THE_HUB: Mapping[str, Text] = {
    # in line
    "taken-outside": (
        "Something outside this hub took the GPU of the first in line, who is served before anybody else. "
        "{ahead:people}"
    ),
    "over-quota-ahead": (
        "The cluster's quota for this hub is used up. It is tried again each minute, and when a server ends. "
        "{ahead:people}"
    ),
    "over-quota-of-ahead": (
        "The cluster's quota for this hub is used up: {most} of {what}. It is tried again each minute, and when a "
        "server ends. {ahead:people}"
    ),
    "machine-silent": (
        "A machine that has such a GPU does not answer, so the first in line waits, who is served before anybody else. "
        "{ahead:people}"
    ),
    "unknown-inventory": "It is not known which GPUs are free now; once it is known, the line goes on. {ahead:people}",
    "none-there": "{title}: none is there now. {ahead:people}",
    "none-on-its-machines": "{title}: none is on the machines that your server may use. {ahead:people}",
    "in-use-on-its-machines": Plural(
        "total",
        "{title}: the only one on the machines that your server may use is in use. {ahead:people}",
        "{title}: all {total} on the machines that your server may use are in use. {ahead:people}",
    ),
    "start-brake": "{starting} servers are starting right now; yours starts after them. {ahead:people}",
    "behind": "One is free for somebody ahead of you. {ahead:people}",
    "behind-on-same-cards": (
        "Somebody who came before you waits for a GPU that yours would be cut from. {ahead:people}"
    ),
    "held-by-others": Plural(
        "total",
        "The only one is used by programs that this hub did not start. {ahead:people}",
        "All {total} are used by programs that this hub did not start. {ahead:people}",
    ),
    "in-use": Plural(
        "total", "{title}: the only one is in use. {ahead:people}", "{title}: all {total} are in use. {ahead:people}"
    ),
    "in-use-usually-end": Plural(
        "ending",
        "{title}: 1 of {total:number} in use usually ends within the hour. {ahead:people}",
        "{title}: {ending:number} of {total:number} in use usually end within the hour. {ahead:people}",
    ),
    "in-use-usually-longer": "{title}: those in use usually go on for more than an hour. {ahead:people}",
    "in-use-also-by-others": (
        "{title}: all {total} are in use, {foreign} of them by programs that this hub did not start. {ahead:people}"
    ),
    "closed-by-admin": (
        "{title}: an administrator lets nothing new start on {closed} of {total}, and no other is free. {ahead:people}"
    ),
    "in-use-or-cut": "{title}: none can be had now, as the GPUs are in use or cut in another way. {ahead:people}",
    "own-lease-first": "You already hold a GPU in {server:server}. Your place is kept until that server has stopped.",
    "after-own-server": "It depends on your other server.",
    "offers-gone": "None of your offers is there now.",
    "cluster-not-read": "The cluster cannot be read now. Your GPU is kept, and the start goes on as soon as it can.",
    "hub-away": "The GPU service does not reach the hub, so nobody's server is started now. Your place is kept.",
    "admitted": "Your server is starting: {title}.",
    "ready": "Your server is ready.",
    # not available
    "own-ticket-limit": (
        "You are already in line for a GPU with {server:server}. Leave that line first, or start CPU only."
    ),
    "line-full": "The line for {title} is full ({most}). Try again later, or start CPU only.",
    "own-lease-limit": "You already hold a GPU in {server:server}. Stop it, or start CPU only.",
    "unknown-offer": "There is no offer \u201c{offer}\u201d here. Offers: {offers}.",
    "not-your-group-any-more": "{offer} is no longer for your groups. Choose another offer.",
    "right-lost": "{offer} is no longer for your groups. Your place for your other offers is kept.",
    "no-such-user": "Your account is gone from the hub.",
    # over
    "ended": "Your place in line has ended. Choose again.",
    "starting": "Its server is starting. Stop the server instead.",
    "not-your-ticket": "There is no such ticket of yours.",
    "unknown-ticket": "There is no such ticket any more.",
    "left": "You left the line.",
    "ended-by-admin": "An administrator ended your place in line.",
    "ended-by-admin-because": "An administrator ended your place in line: {why:own}",
    "max-wait": "Your place in line ended after {hours:number} h. Join again, or choose another offer.",
    "abandoned": "Nobody was waiting for this server any more, so its place in line ended.",
    "line-was-off": (
        "This hub ran without its line for GPUs for a while, so your place in it has ended. Join again, or choose "
        "another offer."
    ),
    "too-late": "This has changed meanwhile. Look again.",
    "store-unavailable": "The GPU service cannot write its records now. Your place is kept as soon as it can.",
    # the caller lacks a right
    "admins-only": "This is for admins.",
    "scope-needed": "This needs a token with the scope {scope}; for a token the scopes of its account do not count.",
    "server-token": "A server's token is good for its own server (api/server); this needs a user's token.",
    "no-access": "This needs a login at the hub, or a token with the scope access:services!service=gpu.",
    **TO_ADMINS,
    **OF_THE_JOURNAL,
    **OF_THE_CLUSTER,
    **OF_STARTS,
    # of the spawn form
    "service-away-join": "The GPU service is not answering: you can still join the line, or start CPU only.",
    "service-not-asked": "Only the running service knows what is free.",
}
"""The reasons that the hub's own pages and the API show."""

SENTENCES: Mapping[str, Text] = {**TO_THE_PANEL, **TO_THE_HUB}

PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")  # a parameter in a text: its name and its format


def explain(reason: str, *, log_message: str = "", **params: str | float | timedelta | datetime) -> Reason:
    """Return the reason with this code and its English text.

    Args:
        reason: a key of `SENTENCES`.
        log_message: more details for the log; "" without such details.
        params: values of the parameters in the text.
    """
    return _explain(reason, log_message, tuple(params.items()))


@lru_cache(maxsize=4096)
def _explain(
    reason: str, log_message: str, params: tuple[tuple[str, str | float | timedelta | datetime], ...]
) -> Reason:
    """Build the `Reason` for `explain`.

    It is cached, because an admission gives many offers and tickets the same reason.

    Args:
        reason: code of the reason, a key of `SENTENCES`.
        log_message: the text for the log.
        params: (name, value) of each parameter of the sentence.
    """
    plain = {name: _plain(value) for name, value in params}
    # numbers are sent as floats, because a parameter is a string or a float
    sent = {name: value if isinstance(value, str) else float(value) for name, value in plain.items()}
    return Reason(reason, _written(SENTENCES[reason], plain, ENGLISH), sent, log_message)


def translated(reason: Reason, t: Catalogue) -> str:
    """Return the reason's text in the language of a catalogue, or the English text if it is not translated.

    Like the panel, this looks up a reason without parameters by its code, and a reason with parameters by its sentence.
    """
    text = None if t is ENGLISH else sentence_in(reason, t)
    if text is None:
        return reason.message
    return _written(text, reason.params, t) if parameters(text) else t(_key_in(reason.reason, text))


def sentence_in(reason: Reason, t: Catalogue) -> Text | None:
    """Return the English sentence of a reason, which is the key of its translation.

    Returns:
        `None` if the catalogue lacks the translation, or if the reason lacks a parameter of the sentence.
    """
    text = SENTENCES.get(reason.reason)
    if text is None or t.known(_key_in(reason.reason, text)) is None:
        return None
    return None if any(name not in reason.params for name, _ in parameters(text)) else text


def recalled(reason: str, params: Mapping[str, str | float]) -> Reason | None:
    """Rebuild a reason from a stored code and parameters.

    Returns:
        `None` if this version does not know the code, or if the parameters do not fit its text.
    """
    text = SENTENCES.get(reason)
    if text is None or any(name not in params for name, _ in parameters(text)):
        return None
    try:
        return Reason(reason, _written(text, params, ENGLISH), params)
    except (TypeError, ValueError):
        return None


def as_text(reasons: Iterable[Reason], between: str = " ", t: Catalogue = ENGLISH) -> str:
    """Return several reasons as one text in the language of the catalogue.

    Args:
        between: text between two reasons.
    """
    return between.join(translated(each, t) for each in reasons)


def codes_with_words(words: str, t: Catalogue) -> tuple[str, ...]:
    """Return the codes of the reasons that a search for these words in the reader's language has to find.

    A row of the journal (the stored events) holds the English sentence of a reason, so a search in the rows finds
    English words. This function returns the codes whose translation contains the words although the English sentence
    does not. For a failed start, a row holds the message for the log instead of the sentence. So the code of a failed
    start is returned whenever its translation contains the words. Values of parameters are not searched.

    Args:
        words: the words that the reader searches for.
        t: the catalogue of the reader's language.
    """
    wanted = words.casefold()

    def has(code: str, text: Text, catalogue: Catalogue) -> bool:
        english = (text.one, text.many) if isinstance(text, Plural) else (text,)
        forms = catalogue.texts.get(_key_in(code, text), english)
        return wanted in PARAMETER.sub("\n", PLACE.sub("\n", "\n".join(forms))).casefold()

    return tuple(
        code
        for code, text in SENTENCES.items()
        if wanted and has(code, text, t) and (code in OF_FAILED_STARTS or not has(code, text, ENGLISH))
    )


OF_FAILED_STARTS = frozenset({"start-too-slow", "start-no-answer", "start-failed-why", "start-crashed", "start-failed"})
"""Codes of failed starts. A journal row with such a code holds the log message instead of the English sentence."""


REASON = "reason"  # The context of a code in a catalogue


def parameters(text: Text) -> list[tuple[str, str]]:
    """Return (name, format) of each parameter of a text, in order. The number that decides the plural comes first."""
    if not isinstance(text, Plural):
        return [(name, kind or "text") for name, kind in PARAMETER.findall(text)]
    found = {text.count: "number", **{name: kind or "text" for name, kind in PARAMETER.findall(text.many)}}
    return list(found.items())


def key_of(text: Text) -> str:
    """Return a sentence's key in a catalogue: the sentence itself with its parameters numbered ``%1``, ``%2``."""
    return numbered(text.one if isinstance(text, Plural) else text, parameters(text))


def _key_in(code: str, text: Text) -> str:
    return key_of(text) if parameters(text) else f"{REASON}{CONTEXT}{code}"


def numbered(text: str, params: Sequence[tuple[str, str]]) -> str:
    """Replace the named parameters of a sentence by ``%1``, ``%2``.

    Args:
        params: (name, format) of each parameter; its position gives the number.
    """
    places = {name: place for place, (name, _) in enumerate(params, 1)}
    return PARAMETER.sub(lambda found: f"%{places[found[1]]}", text)


def people_ahead(ahead: float, t: Catalogue = ENGLISH) -> str:
    """Return how many people are ahead in line, as a sentence."""
    if ahead == 0:
        return t("You are next.")
    return t.plural("1 person is ahead of you.", "%1 people are ahead of you.", ahead)


def _plain(value: str | float | timedelta | datetime) -> str | float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


def _written(text: Text, params: Mapping[str, str | float], t: Catalogue) -> str:
    listed = parameters(text)
    parts = [WRITTEN[kind](params[name], t) for name, kind in listed]
    if isinstance(text, Plural):
        count = float(params[text.count])
        return t.plural(numbered(text.one, listed), numbered(text.many, listed), count, *parts[1:])
    return t(numbered(text, listed), *parts)


def _text(value: str | float, t: Catalogue) -> str:
    return t(value) if isinstance(value, str) else number(value)


WRITTEN: Mapping[str, Callable[[Any, Catalogue], str]] = {
    "text": _text,
    **dict.fromkeys(("own", "foreign"), lambda words, t: str(words)),
    "time": lambda time, t: str(time),
    "number": lambda count, t: number(count),
    "duration": lambda seconds, t: duration(timedelta(seconds=seconds), t),
    "people": people_ahead,
    "server": lambda server, t: t("server %1", server) if server else t("your default server"),
    "image": lambda image, t: image or t("of the server"),
    "list": lambda words, t: reduce(lambda one, other: t("%1 and %2", one, other), map(t, words.split(" and "))),
    "first": lambda words, t: t(words)[:1].upper() + t(words)[1:],
    "bare": lambda words, t: t(words).removeprefix("a "),
}
"""Format of a parameter -> function that writes its value in the language of a catalogue. `own`: a name, or text that a
user or administrator wrote. `foreign`: text that another program wrote (``sentence_pieces.py``). `first`: the value
begins the sentence. `bare`: the value without its article. `image`: name of an image, "" if it is not known.
"""
