"""Reasons for actions of a cluster on a server, and for a pod that does not start, as code -> English text.

The cluster's own words are a parameter and are not translated.
"""

from __future__ import annotations

from collections.abc import Mapping

from hub_extensions.core.text.plural import Plural, Text

OF_THE_CLUSTER: Mapping[str, Text] = {
    # taken away
    "kueue-took-back": "Kueue took its GPU back.",
    "kueue-took-for-group": "Kueue took its GPU back for a group that has a right to it.",
    "kai-took-for-group": "KAI took its GPU back for a group that has a right to it.",
    "kueue-line-closed": "An admin closed the line it came from.",
    "kueue-not-ready-in-time": "It was not ready in the time that Kueue gives a start.",
    "kueue-time-over": "The time that it was given is over.",
    "higher-priority": "Something with a higher priority took its place in the cluster.",
    "cluster-ended-it": "The cluster ended it.",
    "its-machine-failed": "The machine it ran on failed.",
    "its-machine-not-available": "The machine it ran on is not available any more.",
    "its-machine-gone": "The machine it ran on is not there any more.",
    "its-machine-emptied": "The machine it ran on is being emptied by an admin.",
    "its-machine-ends": "The machine it ran on ran short of memory or disk, or is being shut down.",
    "its-machine-shut-down": "The machine it ran on was shut down or lost.",
    "its-machine-needed-room": "The machine it ran on needed the room.",
    "its-machine-short-of-memory": "The machine it ran on ran short of memory.",
    "its-machine-short-of-disk": "The machine it ran on ran short of disk space.",
    "its-machine-silent": "The machine it runs on does not answer.",
    "removed-by-kai": "KAI took its GPU back, or somebody removed it from the cluster.",
    "removed-outside": "It was removed from the cluster by something outside this hub.",
    # over
    "machine-refused-it": "The machine that was chosen did not take it.",
    "machine-gave-no-gpu": "The machine that was chosen could not hand out the GPU.",
    "server-wrote-too-much": "The server wrote more temporary data than it may.",
    "server-out-of-memory": "The server needed more memory than it has and was ended.",
    "server-ended": "The server ended by itself.",
    "server-crashed": "The server crashed.",
    "server-crashed-with": "The server crashed with exit code {code:number}.",
    # it does not come up
    "image-not-pulled": "The image {image:image} cannot be pulled.",
    "image-not-given-out": "The image {image:image} cannot be pulled: its registry does not give it out to this hub.",
    "image-not-there": "The image {image:image} cannot be pulled: there is no such image.",
    "image-registry-silent": "The image {image:image} cannot be pulled: its registry does not answer.",
    "image-name-wrong": "The image {image:image} cannot be pulled: that is no image's name.",
    "not-startable": "The machine cannot start it as it is set up.",
    "files-not-reachable": "Its files are not reachable from the machine yet.",
    "machine-makes-room": "The machine has trouble making room for it and tries again.",
    "runs-silent": "It runs and does not answer yet.",
    "software-comes": "Its software is being brought to the machine, which takes minutes the first time.",
    "machine-found": "A machine was found for it.",
    "another-looked-for": "Another one is looked for.",
    "last-one-ending": "Your last server is still being ended.",
    "last-server-lost": (
        "Your last server is on a machine that does not answer, so nobody knows whether it still writes to your "
        "files. A new one can start when the machine is back, or when an admin has removed the old one."
    ),
    # no machine yet
    "device-not-free": "{device:first} is not free now.",
    "device-taken-outside": (
        "Something outside this hub took the {device:bare} that was free. You stay first in line for it."
    ),
    "device-on-silent-machine": (
        "A machine that has {device:bare} does not answer, and no other has one free. You stay first in line for it."
    ),
    "free-without-files": "The machines with a free {device:bare} cannot reach its files.",
    "free-without-room": "The machines with a free {device:bare} do not have enough free {room:list} for it now.",
    "free-and-full": "The machines with a free {device:bare} are full now.",
    "free-and-closed": "The machines with a free {device:bare} cannot take it now.",
    "storage-not-ready": "The storage for its files is not ready.",
    "machines-without-room": "No machine has enough free {room:list} for it now.",
    "machines-full": "The machines are full now.",
    "machines-cannot-take": "No machine can take it now.",
    "machines-of-other-kind": "No machine is of the kind that was asked for.",
    "no-machine-yet": "No machine was found for it yet.",
    "machines-silent": Plural("machines", "1 machine does not answer.", "{machines:number} machines do not answer."),
    "machines-closed": Plural(
        "machines", "1 machine is closed by an admin.", "{machines:number} machines are closed by an admin."
    ),
    # another line than ours
    "cluster-holds-back": "The cluster holds it back.",
    "kueue-has-not-given": "Kueue hands out the GPUs here, and has not given {device} to it yet.",
    "kueue-has-not-given-a-place": "Kueue hands out the GPUs here, and has not given a place to it yet.",
    "kueue-let-it-in": "{queue:own} has let it in; the GPU is still being given back.",
    "kueue-no-share": "Kueue has no share of that kind for your group, so it would wait for ever. Tell an admin.",
    "kueue-no-machine": (
        "Kueue's machines are not of the kind that was asked for, so it would wait for ever. Tell an admin."
    ),
    "kueue-takes-one-back": "Kueue takes one back for it from a group that borrowed it.",
    "kueue-all-in-use": "All that Kueue has for your group is in use.",
    "kueue-line-unknown": "Kueue, which hands out the GPUs here, does not know the line it was sent to. Tell an admin.",
    "kueue-line-is-closed": "The line that it waits in is closed for now. An admin can open it.",
    "kai-hands-out": "KAI hands out the GPUs here.",
    "kai-line-unknown": "KAI, which hands out the GPUs here, does not know the line it was sent to. Tell an admin.",
    "kai-reserves": "KAI found a GPU and cannot reserve it yet.",
    "group-uses-its-own": "Your group uses all the GPUs that are its own.",
    "group-uses-its-most": "Your group uses as many GPUs as it may.",
    "all-of-that-kind-in-use": "All GPUs of that kind are in use.",
    "no-place-in-line": "{queue:own} had no place for it in {hours:number} h, so the wait has ended.",
    "no-place-in-cluster": "The cluster had no place for it in {hours:number} h, so the wait has ended.",
    # the cluster did not take it
    "cluster-silent": "The cluster does not answer now.",
    "cluster-part-silent": "A part of the cluster that every start has to pass does not answer.",
    "kueue-silent": "Kueue, which hands out the GPUs here, does not answer.",
    "tried-until-it-answers": "The start is tried again until it does.",
    "quota-used-up": "The cluster's quota for this hub is used up.",
    "quota-used-up-of": "The cluster's quota for this hub is used up: {most:own} of {what}.",
    "cluster-refuses": "The cluster does not take this server: {answer:foreign}.",
    "kai-refuses": "KAI, which hands out the GPUs here, does not take this server: {answer:foreign}.",
    "cluster-refuses-unsafe": "The cluster's rules for safe servers do not allow it as it is set up.",
    "cluster-refuses-set-up": "The cluster does not take this server as it is set up.",
    "cluster-allows-nothing": "This hub may not start servers in the cluster.",
    "offer-not-set-up": "This offer cannot be started as it is set up here. Choose another one, and tell an admin.",
    "pod-of-other-gpus": (
        "Your server was not started: a setting of this hub gives it other GPUs than you chose. Tell an admin."
    ),
    # what to do
    "tell-an-admin": "Tell an admin.",
    "choose-another": "Choose another one, or tell an admin.",
    "choose-more-memory": "Choose one with more memory.",
    "start-again": "Start it again.",
    "start-again-later": "Start it again later.",
    "start-again-for-a-place": "Start it again to get in line.",
    "start-again-or-tell": "Start it again; if it happens again, tell an admin.",
    "tried-twice": "It was tried twice. Start it again; if it happens again, tell an admin.",
}
