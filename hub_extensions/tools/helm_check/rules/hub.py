"""Rules about the hub: idle cullers, limits, timeouts, roles, addresses, and the administrator's Python."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from hub_extensions.configuration import ACCESS_SCOPE
from hub_extensions.spawner.config.spawner_classes import FORM_SETTINGS, near_miss
from hub_extensions.tools.helm_check.model import (
    SPAWNERS,
    Change,
    Finding,
    Path,
    Release,
    Row,
    calls_configure,
    check_rows,
    find,
    found,
    is_only_configure,
    is_own_spawner,
    kind_of,
    spawner_keys,
)

CULLING = "hub.config.GpuCulling.enabled"
SHORTEST_START = 60  # seconds; pulling the image of a GPU server takes longer
_OF_OUR_WIRING = ("services", "load_roles", "spawner_class", "template_paths", "tornado_settings")
_CULLER = re.compile(r"idle[-_]?culler|cull[-_]?idle")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


ANY_HUB = (
    Row(
        "services-dropped",
        ("hub.config.JupyterHub.services",),
        lambda _: True,
        "The chart leaves hub.config.JupyterHub.services out without a word: none of them is there.",
        "Write them as hub.services.NAME.",
    ),
    Row(
        "roles-replaced",
        ("hub.config.JupyterHub.load_roles",),
        lambda _: True,
        "It replaces hub.loadRoles and the chart's own roles whole.",
        "Write them as hub.loadRoles.NAME, which adds to them.",
    ),
    Row(
        "variable-list",
        ("singleuser.extraEnv",),
        lambda value: isinstance(value, list),
        "It is a list: the chart takes it and KubeSpawner does not, so no server starts.",
        "Write a mapping: NAME: value.",
    ),
    Row(
        "gone",
        ("hub.fsGid",),
        lambda _: True,
        "The chart does not take it any more, and cannot be rendered.",
        "Write it as hub.podSecurityContext.fsGroup.",
    ),
)
"""Rules that apply to any hub, also to one without our spawner."""

_OUR_HUB = (
    Row(
        "concurrent-spawns",
        ("hub.config.JupyterHub.concurrent_spawn_limit", "hub.concurrentSpawnLimit"),
        bool,
        "It is {0} and counts servers that wait in line: {0} of them keep everybody else from starting.",
        "Set it to 0; hub.config.GpuQueue.max_starting limits the starts.",
        absent="Without it JupyterHub's own limit of 100 holds, which counts servers that wait in line.",
    ),
    Row(
        "failure-limit",
        (*spawner_keys("consecutive_failure_limit"), "hub.consecutiveFailureLimit"),
        bool,
        "It is {0}: JupyterHub 5.5 counts refused starts, so {0} in a row end the hub.",
        "Set it to 0.",
    ),
    Row(
        "active-servers",
        ("hub.config.JupyterHub.active_server_limit", "hub.activeServerLimit"),
        bool,
        "It is {0}, and servers that wait in line count against it.",
        "Leave it out, or make it large enough for everybody who may wait (hub.config.GpuQueue.max_waiting).",
        "look at",
    ),
    Row(
        "start-timeout",
        (*spawner_keys("start_timeout"), "singleuser.startTimeout"),
        lambda seconds: _is_number(seconds) and seconds < SHORTEST_START,
        "It is {0:g} seconds. The wait in line does not count, but pulling an image does: the first start on a node "
        "would always fail.",
        "Give what a first start takes; 300 is the chart's own.",
    ),
    Row(
        "token-scopes",
        spawner_keys("server_token_scopes"),
        lambda scopes: isinstance(scopes, list) and bool(scopes) and ACCESS_SCOPE not in scopes,
        f"They lack {ACCESS_SCOPE}: JupyterLab's GPU panel cannot ask the service anything.",
        f"Add {ACCESS_SCOPE!r} to the list.",
    ),
    Row(
        "user-namespaces",
        spawner_keys("enable_user_namespaces"),
        lambda value: value is True,
        "Each user's servers are in a namespace of their own: the service reads volumes and claim templates of the "
        "hub's namespace only, and may end no pod elsewhere.",
        "Take it out: servers of all users in the hub's namespace are what this bundle is tested with.",
        "look at",
    ),
)


def check_hub(release: Release) -> Iterator[Finding]:
    """Yield the findings of all rules about the hub. Without our spawner, only general mistakes are reported."""
    yield from _extra_config(release)
    yield from _variables(release)
    if not release.is_ours:
        text = "The GPU spawner is not in these values: no GPU can be chosen."
        fix = "Give helm-values/gpu.yaml as well: -f helm-values/gpu.yaml."
        yield found(release, "not-ours", "hub.config.JupyterHub.spawner_class", text, fix, severity="look at")
        return
    yield from check_rows(release, _OUR_HUB)
    yield from _code(release)
    yield from _wiring(release)
    yield from _own_form(release)
    yield from _cullers(release)
    yield from _max_age(release)
    yield from _unmeasured(release)
    yield from _address(release)


# ------------------------------------------------------------------ Python and variables


def _extra_config(release: Release) -> Iterator[Finding]:
    for name, code in release.tree("hub.extraConfig").items():
        path: Path = ("hub", "extraConfig", name)
        if not isinstance(code, str):
            text = f"It is {kind_of(code)}, where Python belongs: the chart takes it and the hub does not start."
            fix = "Write a block of text: | after the key, the code below it."
            if code is None:
                fix = 'Write an empty text (""): null does not take away what another file set.'
            if isinstance(code, Mapping):
                fix = "Write a block of text (| after the key), or settings of a class as hub.config.CLASS."
            yield found(release, "extra-config-kind", path, text, fix)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(code, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as problem:
            line = f" in its line {problem.lineno}" if isinstance(problem, SyntaxError) and problem.lineno else ""
            text = f"It is no Python{line}: the hub does not start."
            yield found(release, "extra-config-python", path, text, "Correct it; python -m py_compile shows the place.")
    if release.evaluation is None:
        for path, code in release.python:
            if not is_only_configure(code):
                text = "What this Python sets is not judged: it is not run."
                fix = "Give --evaluate: it runs the code in a process of its own and judges what the hub would load."
                yield found(release, "not-judged", path, text, fix, severity="look at")


def _variables(release: Release) -> Iterator[Finding]:
    for section in ("hub.extraEnv", "proxy.chp.extraEnv"):
        for name, value in release.tree(section).items():
            if not isinstance(value, (str, Mapping)):
                text = f"It is {kind_of(value)}, where a text belongs: the chart cannot be rendered."
                fix = "Put it into quotes."
                if value is None:
                    fix = 'Write an empty text (""): null does not take away what another file set.'
                yield found(release, "variable-kind", (*section.split("."), name), text, fix)


def _code(release: Release) -> Iterator[Finding]:
    """Report the chart's own image, which does not have `hub_extensions`, if nothing installs it at the start."""
    key = "hub.image.name"
    stock = find(release.facts.defaults, key.split("."))
    mounts = [str(each.get("mountPath")) for each in release.items("hub.extraVolumeMounts") if isinstance(each, dict)]
    is_brought = (
        "PYTHONPATH" in release.variables("hub.extraEnv")
        or bool(release.at("hub.command") or release.at("hub.args"))
        or any("site-packages" in place for place in mounts)
    )
    if release.at(key) != stock or is_brought:
        return
    text = "The hub's image is the chart's own, which has no hub_extensions: the hub does not start."
    fix = "Give your copy of helm-values/own-images.yaml (images/README.md); for trying install-at-start.yaml."
    if release.is_given(key):
        text = f"It is the chart's own image, which has no hub_extensions: the hub does not start ({stock})."
        fix = "Write the image that images/build made, and take what a later file says of hub.image out."
    yield found(release, "no-code", key, text, fix)


# ------------------------------------------------------------------ configure(c), and what comes after it


def _wiring(release: Release) -> Iterator[Finding]:
    key = "hub.config.JupyterHub.spawner_class"
    spawner = release.at(key)
    misspelled = near_miss({"JupyterHub": {"spawner_class": spawner}})  # reported by `configure`
    if spawner is not None and not is_own_spawner(spawner) and not misspelled:
        name = spawner.get("$class", "another") if isinstance(spawner, Mapping) else spawner
        text = f"It is {name}: servers start as before, without the choice of a GPU."
        fix = "Set it to gpu. A class of yours that inherits from GpuKubeSpawner is right too."
        yield found(release, "other-spawner", key, text, fix, severity="look at")
    if not any(calls_configure(code) for _, code in release.python):
        text = "Nothing calls configure(c): the hub has no GPU service, and no server with a GPU starts."
        fix = "Keep what helm-values/gpu.yaml sets: hub.extraConfig.zz-jupyterhub-gpu."
        yield found(release, "not-wired", "hub.extraConfig", text, fix)
    else:
        yield from _after(release)


def _after(release: Release) -> Iterator[Finding]:
    """Report code that runs after our ``configure(c)``, because ``configure`` does not see its settings."""
    evaluation = release.evaluation
    if evaluation is None or not evaluation.configured:
        return
    order = [path for path, _ in release.python]
    own = order.index(evaluation.configured[-1])
    late: dict[Path, list[Change]] = {}
    for change in evaluation.changes:
        if order.index(change.path) > own:
            late.setdefault(change.path, []).append(change)
    for path, changes in late.items():
        name = order[own][-1]
        fix = f"Give it a key that sorts before {name}: the chart runs them in the order of their keys."
        lost = next((each for each in changes if each.trait in _OF_OUR_WIRING and each.loses), None)
        if lost is not None:
            what = f"c.JupyterHub.{lost.trait}"
            text = f"It runs after {name} and sets {what} anew: what the GPU service needs there is lost."
            yield found(release, "after-ours", path, text, fix)
        else:
            text = f"It runs after {name}, which does not see what it sets."
            yield found(release, "after-ours", path, text, fix, severity="look at")


def _own_form(release: Release) -> Iterator[Finding]:
    """Report settings that replace our spawn form, so that users cannot choose a GPU."""
    fix = "Take it out; choices of your own go into singleuser.profileList, which stands above the offers."
    for section in dict.fromkeys((*SPAWNERS, *(n for n in release.tree("hub.config") if n.endswith("Spawner")))):
        for name, does in FORM_SETTINGS.items():
            key = f"hub.config.{section}.{name}"
            if release.at(key) is not None:
                yield found(release, "own-form", key, f"It {does}: nobody can choose a GPU.", fix)


# ------------------------------------------------------------------ cullers and roles


def _cullers(release: Release) -> Iterator[Finding]:
    """Report another idle culler, which stops servers that ours keeps."""
    others: list[tuple[Path, str, str]] = []
    if release.at("cull.enabled") is True:
        others.append((("cull", "enabled"), "the chart's culler", "Set it to false"))
    for name, service in release.tree("hub.services").items():
        if isinstance(service, Mapping) and _CULLER.search(f"{name} {service}"):
            others.append((("hub", "services", name), f"the service {name}", "Take it out"))
    for change in release.evaluation.changes if release.evaluation else ():
        if change.trait == "services" and isinstance(change.value, list):
            new = [each for each in change.value if isinstance(each, Mapping) and each not in (change.before or ())]
            named = [str(each.get("name")) for each in new if _CULLER.search(str(each))]
            others += [(change.path, f"the service {name}", "Take it out") for name in named]
    for path, who, off in others:
        if release.at(CULLING) is True:
            text = f"Both cullers are on: {who} stops servers that ours keeps, by what browsers do alone."
            fix = f"{off}: ours stops idle servers without a GPU too."
            yield found(release, "two-cullers", path, text, fix)
        else:
            text = f"T{who[1:]} is on: it stops servers whose GPU is busy, when no browser asks for them."
            fix = f"{off}, and set {CULLING} to true when the service's log looks right."
            yield found(release, "stock-culler", path, text, fix, severity="look at")


def _max_age(release: Release) -> Iterator[Finding]:
    """Report ``cull.maxAge`` without effect: the chart's culler, which enforces it, is off, and ours has no limit."""
    age, ours = release.at("cull.maxAge"), release.tree("hub.config.GpuCulling")
    if release.at("cull.enabled") is True or not (_is_number(age) and age > 0) or ours.get("cpu_lifetime_hours"):
        return
    text = f"With the chart's culler off, {age:g} s does nothing: a server without a GPU has no longest time."
    if ours.get("enabled") is not True:
        text = f"With the chart's culler off, {age:g} s does nothing: no server has a longest time."
    fix = "Set cpu_lifetime_hours and lifetime_hours of hub.config.GpuCulling, and enabled (helm-values/culling.yaml)."
    yield found(release, "max-age-lost", "cull.maxAge", text, fix, severity="look at")


def _unmeasured(release: Release) -> Iterator[Finding]:
    """Report that culling is on without Prometheus, so that only the servers themselves report their GPU use."""
    if release.at(CULLING) is True and not release.at("hub.config.GpuService.prometheus_url"):
        text = (
            "Nobody measures the use of GPUs but the servers themselves, whose users can switch that off, and which on "
            "a piece of an A100 or A30 cannot: a server whose own extension does not say so is never idle."
        )
        fix = "Give helm-values/monitoring.yaml as well: DCGM measures it, and Prometheus has it."
        yield found(release, "unmeasured", CULLING, text, fix, severity="look at")


def check_service_role(release: Release, needed: tuple[str, ...]) -> Iterator[Finding]:
    """Report a role ``gpu-service`` that the administrator defines without some of the `needed` scopes."""
    for name, role in release.tree("hub.loadRoles").items():
        if isinstance(role, Mapping) and role.get("name", name) == "gpu-service":
            scopes: Any = role.get("scopes")
            lacking = sorted(set(needed) - set(scopes if isinstance(scopes, list) else []))
            if lacking:
                text = f"This role lacks {', '.join(lacking)}: the GPU service cannot do its whole work."
                fix = "Add them, or leave the role out: configure(c) makes it."
                yield found(release, "service-role", ("hub", "loadRoles", name), text, fix)


# ------------------------------------------------------------------ addresses


def _address(release: Release) -> Iterator[Finding]:
    service = release.tree("hub.config.GpuService")
    host = str(service.get("host") or "127.0.0.1")
    inside = service.get("started_by_hub") is not False
    if inside and not service.get("url") and host in ("127.0.0.1", "localhost", "::1"):
        text = (
            f"The service listens on {host}, where only the hub's own pod reaches it: the proxy has a pod of its own."
        )
        key = "hub.config.GpuService.host"
        yield found(release, "service-host", key, text, "Set it to 0.0.0.0, as helm-values/gpu.yaml does.")
    key = "hub.config.GpuCluster.service_connect_url"
    given, kind = str(release.at(key) or ""), release.at("proxy.https.type")
    by_name = not given or (given.startswith("http:") and "proxy-public" in given)
    name = release.values.get("fullnameOverride")
    if by_name and release.at("proxy.https.enabled") is True and kind in ("manual", "secret"):
        # such a proxy redirects to https also at its name inside the cluster, which no certificate has
        text = (
            f"With {kind} the proxy sends http on to https, so users' servers do not reach the GPU service at its name."
        )
        fix = f"Set {key}: https://YOUR-HOST{release.base_url}services/gpu."
        yield found(release, "https-redirect", key if given else "proxy.https.type", text, fix)
    elif name != "" and not given:
        names = f"{name}-proxy-public" if name else "RELEASE-jupyterhub-proxy-public"
        text = (
            f"The chart's names begin with {name or 'the release name'}, so servers do not find the proxy by its name."
        )
        fix = f"Set {key}: http://{names}/services/gpu, your hub.baseUrl before /services."
        yield found(release, "names", "fullnameOverride", text, fix)
