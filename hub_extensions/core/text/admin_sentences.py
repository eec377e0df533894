"""Reasons on the administrators' pages, as code -> English text."""

from __future__ import annotations

from collections.abc import Mapping

from hub_extensions.core.text.plural import Plural, Text

TO_ADMINS: Mapping[str, Text] = {
    "cpu-not-stopped": "CPU-only servers are not stopped.",
    "cpu-time-limit-only": "CPU-only servers are stopped by their time limit alone.",
    "cell-runs": "A cell is running.",
    "terminal-busy": "A program runs in a terminal.",
    "kept-by-rule": "A rule of the admins keeps it running.",
    "idle-not-wanted": "Its GPU is idle, and nobody waits for one.",
    "activity-not-known": "Its activity is not known.",
    "used-lately": "It was used lately.",
    "cordon-on-cluster": (
        "Here the scheduler of the cluster places the servers, and this service has no right to hold it back. "
        "Run: kubectl cordon {node}. This page then says who is still on it, and when it is empty."
    ),
    # why a node of a cluster does not count
    "node-silent": "its kubelet has not been heard of: it does not answer",
    "node-not-ready": "it is not ready",
    "node-cordoned": "it is cordoned: nothing new is placed there",
    "node-cut-anew": "its GPUs are being cut anew ({label} is {state}): not known what it has",
    "node-cut-failed": (
        "its GPUs could not be cut as {wanted} ({label} is failed), so none is offered. The log of nvidia-mig-manager "
        "on this node says why: repair that, then set {name} again, to a layout that its configuration has"
    ),
    "node-cut-state": (
        "{label} is {state}, and not pending, rebooting, failed or success: not known what it has. Look at the log of "
        "nvidia-mig-manager on this node"
    ),
    "node-cut-unheard": (
        "{name} is {wanted}, and no {label} says whether its GPUs were cut so: they are counted as the device plugin "
        "lists them. Where no nvidia-mig-manager runs, take the label away"
    ),
    "node-unlabelled": "its label {label} is gone (GPU Feature Discovery writes it): not known what it has",
    "node-selector": "the servers' node selector wants {label}",
    "node-taint": "the servers do not tolerate its taint {taint}",
    "node-hami": "HAMi's list of its cards cannot be read",
    "node-counts": "its counts cannot be ({counts} on {cards} cards): not known which of them are there",
    "cordon-refused": "The cluster refuses it, so nothing was changed: {why}",
    "cordon-not-known": "The cluster did not answer, so it is not known whether it was done. Look again soon. {why}",
    "no-such-node": "There is no such machine with GPUs in this cluster.",
    "cordoned-already": "Nothing new starts there already.",
    "no-such-card": "There is no such card in this machine.",
    "not-cordoned": "It is not being emptied.",
    "no-stop-ordered": "No administrator's order to stop it stands any more.",
    "stop-ordered-already": "Its stop is ordered already, and comes sooner or then.",
    "not-running": "Its server has not started yet, or is over. Stop it on the hub's admin page.",
    "unknown-lease": "There is no such lease any more.",
    "not-lost": "Its machine answers. Stop the server instead.",
    "local": "There is no cluster here: a lease ends when nothing runs on its GPU.",
    # why it is not proved that a lease is over
    "unproved-unread": "Its server seems to be over. Its GPU cannot be read, so it is not known to be free.",
    "unproved-hub": (
        "Its server seems to be over. The service may not look into the processes of its account, and the hub has not "
        "said that it stopped, so its GPU stays held. Look with nvidia-smi and ps, then release it."
    ),
    "unproved-device": (
        "Its server has stopped. The service may not look into the processes of its account, and the driver does not "
        "list who uses its GPU, so the GPU stays held. Look with nvidia-smi and ps on the machine, then release it."
    ),
    "unproved-running": (
        "The hub does not have its server any more. The service may not look into the processes of its account, so "
        "the GPU stays held. Look with nvidia-smi and ps on the machine, then release it."
    ),
    "hub-refused": "The hub says no: {answer:foreign}",
    "hub-busy": "The hub starts too many servers at once. Try again in a minute.",
    "hub-failed": "The hub failed while it did this; its log says why.",
    "nobody-there": "Nobody's server runs there now.",
    "reason-needed": "Say why: the audit keeps it.",
    "health-store": "The store cannot be written: nobody is given a GPU until it can. {why}",
    "health-not-ready": "A part of the service has failed and is begun anew; its log says why.",
    "health-hub": "The hub does not answer since {since}: nobody's server is started or stopped meanwhile.",
    "health-cluster": "The cluster cannot be read: {why}",
    "health-gpus": "A GPU of this machine cannot be given: {why}",
    "health-gpus-never-read": "The GPUs have not been read yet: nobody is given one.",
    "health-gpus-old": "The GPUs were read {age:duration} ago: nobody is given one until they can be read again.",
    "health-port": "The service's port: {why}",
    "health-held-up": (
        "The line for {title} stands still: something outside this hub took the GPU of the first, or its machine does "
        "not answer. Nobody else is let past."
    ),
    "health-quota": (
        "{title}: the cluster refuses its pods since {since:time}, so nobody is let in to it. {why} Raise the quota "
        "(kubectl get resourcequota), or wait until a server ends."
    ),
    "health-line": Plural(
        "waiting",
        "1 person waits for {title}, and one is free: it starts in a moment, or the line stands still.",
        "{waiting} people wait for {title}, and one is free: the first starts in a moment, or the line stands still.",
    ),
    "health-lost": Plural(
        "lost",
        "1 {title} is gone from its machine under a server.",
        "{lost} {title} are gone from their machines under servers.",
    ),
    "health-stops": Plural(
        "stops",
        "1 stop has failed and is tried again.",
        "{stops} stops have failed and are tried again.",
    ),
    "health-unproved": Plural(
        "leases",
        "1 lease seems to be over, and nothing proves it: its GPU stays held until that is known, or until you release "
        "it below.",
        "{leases} leases seem to be over, and nothing proves it: their GPUs stay held until that is known, or until "
        "you release them below.",
    ),
    "health-policy-file": "The policy file of culling is {why}",
    "health-prometheus": "Prometheus does not answer, so what it measures is not known. {why}",
    "health-evidence": Plural(
        "servers",
        "{offer}: of 1 server the use is not known, so it is not stopped as idle. {why}",
        "{offer}: of {servers} servers the use is not known, so they are not stopped as idle. {why}",
    ),
    "health-notices": "The last notice to a user could not be sent.",
}
