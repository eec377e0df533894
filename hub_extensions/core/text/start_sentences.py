"""Reasons for a refused or failed start, as code -> English text. ``cluster_sentences.py`` has those of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from hub_extensions.core.text.plural import Text

OF_STARTS: Mapping[str, Text] = {
    # refused
    "no-account": (
        "This hub starts each server as its user's own account on the machine, and you have none there. Tell an "
        "administrator of this hub."
    ),
    "choice-gone": "This choice is not there any more as it was. Choose again.",
    "place-ended": "Your place in line has ended.",
    "lease-gone": (
        "Your place in line ended while the server was being started, so it was stopped and its GPU given back. "
        "Choose again."
    ),
    "service-away": "The GPU service has not answered since {since:own}, so no GPU can be given.",
    "service-away-place-kept": ("Your place in line is kept, and the server starts by itself once it answers again."),
    "service-away-later": "Try again later, or start CPU only.",
    # a choice that cannot be followed
    "choice-of": "{field:own}:",
    "choice-is-an-object": "user_options is an object such as {example:own}.",
    "choice-unknown-key": "'{key:own}' is not known here: use offer (one id) or offers (a list of ids).",
    "choice-by-both": "offer and offers were both given: use offer for one id, or offers for a list.",
    "choice-yes-or-no": "{field:own} is true or false (1 or 0 in a link).",
    "choice-of-so-many": "offers lists 1 to {most:number} ids, not {count:number}.",
    "choice-twice": "offers names {offer:own} twice: once is enough.",
    "choice-of-one": "offer is one id, not {count:number}: for a list use offers.",
    "choice-is-a-list": "offers is a list of ids in order, e.g. {example:own}.",
    "choice-no-text": "{field:own} has something that is not a text: an offer's id is one, e.g. mig-1g.5gb.",
    "choice-empty": "{field:own} is empty: write for example cpu, gpu or mig-1g.5gb.",
    "id-after-at": "{text:own}: after @ stand small letters, digits, dots and hyphens.",
    "id-by-memory": "{text:own}: parts by memory are of whole GPUs: write {right:own}.",
    "id-share": "{text:own}: a share is above 0 and at most 1.",
    "id-written-so": "{text:own}: write {right:own}.",
    "id-of-nothing": "{text:own} is no offer: write for example cpu, gpu, gpu-0.5 or mig-1g.5gb.",
    # a choice of KubeSpawner's profiles
    "profile-none": "there are no profiles here. Leave it out.",
    "profile-not-there": "there is no profile {slug:own} here. There are: {there:own}.",
    "profile-has-our-key": "A profile has an option named {name:own}, which is about the GPU here. Tell an admin.",
    "profile-no-text": "{name:own} is not a text.",
    "profile-none-of-your-own": "this profile takes no value of your own. There are: {there:own}.",
    "profile-no-value-of-your-own": "this profile takes no value of your own, and has none.",
    "profile-value-refused": "{value:own} cannot be used: {why:own}",
    "profile-value-of-no-form": "{value:own} cannot be used: it does not have the form that this profile asks for.",
    "profile-no-such-choice": "there is no choice {choice:own}. There are: {there:own}.",
    "profile-has-no-choice": "there is no choice {choice:own}: this profile has none.",
    "profile-needs-a-value": "this profile needs a value here.",
    "profile-unknown-key": "{key:own} is not known here: use {names:own} or {last:own}.",
    # failed
    "start-failed": "The server did not start.",
    "start-failed-why": "{why:foreign}",
    "start-crashed": (
        "Your server was started and ended by itself before it answered. Settings or packages of your own may be why."
    ),
    "start-too-slow": "Your server did not start within {seconds:duration}, so its start was ended.",
    "start-no-answer": "Your server was started and did not answer within {seconds:duration}, so it was ended.",
}
