"""Reasons in the journal and in notices, as code -> English text.

A code that begins with ``seen-`` is part of a list of facts on which a decision was based.
"""

from __future__ import annotations

from collections.abc import Mapping

OF_THE_JOURNAL: Mapping[str, str] = {
    # what happened to a server
    "it-stops-at": "It stops at {at:time}.",
    "else-stops-at": "Else it would stop at {at:time}:",
    "kept-until": "Kept until {at:time}.",
    "extended-until": "Put off until {at:time}.",
    "progress-not-trusted": "Two ends that its training reported were wrong. Until {at:time} its reports move no wait.",
    "was-to-end": "Its time had come.",
    "stop-hangs": "The hub is still stopping it.",
    "stop-refused-with": "{answer:foreign}",
    "stop-left": "The hub calls it stopped, and {left} is still there.",
    "stop-left-something": "The hub calls it stopped, and what holds its GPU is still there.",
    "stop-undone": "Its stop did not go through.",
    "adopted-on": "It was started before, on {device:own}.",
    "adopted-without": "It was started before, without a GPU of this hub.",
    "activity-ahead": "Its last activity is said to be at {at:time}.",
    "not-back-in-time": "Its GPU was not free in time.",
    "not-back-no-room": "There is no room for it now, or its start failed.",
    "not-back-signed-out": "You were signed out.",
    "not-back-hub-said": "{answer:foreign}",
    "pod-deleted": "The pod {pod:own} was deleted by force.",
    "pod-deleted-because": "The pod {pod:own} was deleted by force: {why:own}",
    "released-by-admin": "The lease of {device:own} was released by hand: {why:own}",
    "no-session-since": "The sign-in service has not renewed the last session since {at:time}.",
    "session-again": "The account is there.",
    # what an admin ordered
    "closed-place": "Nothing new starts on {place:own}: {why:own}",
    "closed-machine": "Nothing new starts on the machine: {why:own}",
    "opened-place": "Servers start on {place:own} again: {why:own}",
    "opened-machine": "Servers start on the machine again: {why:own}",
    "opened-refused": "Servers start on {place:own} again: the cluster refused it.",
    "opened-elsewhere": "Servers start on {place:own} again: the cluster says that it is not cordoned.",
    "stop-ordered": "It stops at {at:time}: {why:own}",
    "stop-withdrawn": "The order to stop it is taken back.",
    "kept-by-admin": "Kept until {at:time}: {why:own}",
    "letter-to-place": "To who is on {place:own}: {text:own}",
    "letter-to-machine": "To who is on the machine: {text:own}",
    # on what
    "seen-use": "use {percent:number} % by {source}",
    "seen-no-use": "use not known",
    "seen-rule": "by the rule '{rule:own}'",
    "seen-idle": "idle since {at:time}",
    "seen-warned": "warned {at:time}",
    "seen-opened": "first opened {at:time}",
    "seen-activity": "last activity {at:time}",
    "seen-training": "its training is said to end at {at:time}",
    "seen-reached": "reached by {ways}",
    "seen-unreached": "reached by nobody",
    "seen-warned-again": "warned again",
    "seen-shown": "told to its server, which asked {age:duration} ago",
    "seen-not-shown": "told to nobody: its server has not asked",
    "seen-stop-begun": "its stop had begun at {at:time}, and its end was seen later",
    "seen-fault": "{fault} since {at:time}",
    "seen-listed": "the hub lists it as ready",
    "seen-listed-pid": "the hub lists it as ready, pid {pid}",
    "seen-listed-pod": "the hub lists it as ready, pod {pod:own}",
    "seen-try": "try {tries:number}",
    "seen-signed-out": "signed out: {cause}",
    "seen-node-silent": "the node {node:own} does not answer",
    # what a user reads at the next page
    "your-server-stopped": "Your server was stopped.",
    "server-stopped": "Server {server:own} was stopped.",
    "files-kept": "Your files are kept.",
    "size-held": "At most {peak} of {memory}.",
    "size-enough": "{title} ({memory}) would have been enough.",
    "size-was-free": "One was free when you asked.",
    "size-less-wait": "You would have waited {less:duration} less.",
    "size-busy": "It was busy {percent:number} % of the time; on a smaller one it takes longer.",
    "size-unused": "Its GPU was not used; CPU only would have been enough.",
    "size-larger": "{title} ({memory}) is the next to ask for: the memory was full when the server broke down.",
    "your-server-returned": "Your server runs again, without a GPU.",
    "server-returned": "Server {server:own} runs again, without a GPU.",
    "your-server-not-returned": "Your server could not come back without a GPU.",
    "server-not-returned": "Server {server:own} could not come back without a GPU.",
    "start-it-here": "Start it on this page.",
    "admin-stops-yours": "An administrator stops your server. {why:own}",
    "admin-stop-undone": "An administrator took back the order to stop your server.",
    "reclaim-undone": "Your server is not stopped: its GPU is not taken back.",
    "letter": "From an administrator: {text:own}",
    "gpu-gone-from-machine": "The GPU of {server:server} is gone from the machine. Save your work and stop it.",
    "machine-not-answering": (
        "The machine that {server:server} runs on does not answer. "
        "Your GPU there stays yours until it does, or until an administrator gives it up."
    ),
}
