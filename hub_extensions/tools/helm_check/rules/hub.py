"""Rules about the hub: cullers, limits, time-outs, roles, services, Python of the administrator."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from hub_extensions.configuration import ACCESS_SCOPE
from hub_extensions.spawner.config.spawner_classes import FORM_SETTINGS, near_miss
from hub_extensions.tools.helm_check.model import (
    Change,
    Finding,
    Path,
    Release,
    calls_configure,
    find,
    found,
    is_only_configure,
    is_own_spawner,
    kind_of,
)
from hub_extensions.tools.helm_check.rules.state import check_state
from hub_extensions.tools.helm_check.rules.stops import check_stops
from hub_extensions.tools.helm_check.rules.use import check_use

SPAWNERS = ("GpuKubeSpawner", "KubeSpawner", "Spawner")
"""The sections that our spawner reads, the strongest first."""

SHORTEST_START = 60
"""Seconds below which no image of a GPU server is pulled."""

LONG_SPAWN_TIMEOUT = 10
"""Seconds for which who starts a server looks at a page that does not answer."""

DATA_FILES = (".yaml", ".yml", ".json", ".toml")
"""Endings of files of ``extraFiles`` with ``data``: the chart chooses the format by the ending."""

_OF_OUR_WIRING = ("services", "load_roles", "spawner_class", "template_paths", "tornado_settings")
_CULLER = re.compile(r"idle[-_]?culler|cull[-_]?idle")


def check_hub(release: Release) -> Iterator[Finding]:
    """Every rule about the hub. Without our spawner only those hold that break any hub."""
    yield from _config_sections(release)
    yield from _services(release)
    yield from _extra_config(release)
    yield from _templates(release)
    if not release.is_ours:
        text = "The GPU spawner is not in these values: no GPU can be chosen."
        fix = "Give helm-values/gpu.yaml as well: -f helm-values/gpu.yaml."
        yield found(release, "not-ours", "hub.config.JupyterHub.spawner_class", text, fix, severity="look at")
        return
    yield from _code(release)
    yield from _wiring(release)
    yield from _own_form(release)
    yield from _cullers(release)
    yield from _max_age(release)
    yield from check_use(release)
    yield from check_stops(release)
    yield from _limits(release)
    yield from _time_outs(release)
    yield from _roles(release)
    yield from check_state(release)
    yield from _address(release)


# ------------------------------------------------------------------ what the chart does with hub.config


def _config_sections(release: Release) -> Iterator[Finding]:
    if release.is_given("hub.config.JupyterHub.services"):
        text = "The chart leaves hub.config.JupyterHub.services out without a word: none of them is there."
        yield found(
            release, "services-dropped", "hub.config.JupyterHub.services", text, "Write them as hub.services.NAME."
        )
    if release.is_given("hub.config.JupyterHub.load_roles"):
        text = "It replaces hub.loadRoles and the chart's own roles whole."
        key = "hub.config.JupyterHub.load_roles"
        yield found(release, "roles-replaced", key, text, "Write them as hub.loadRoles.NAME, which adds to them.")


def _services(release: Release) -> Iterator[Finding]:
    for name, service in release.tree("hub.services").items():
        if not isinstance(service, Mapping) and name not in (
            "name",
            "command",
            "url",
            "admin",
            "api_token",
            "apiToken",
        ):
            text = f"The service {name} is no mapping: the chart cannot be rendered."
            fix = f"Write hub.services.{name}: {{}} or its settings below it."
            yield found(release, "service-kind", ("hub", "services", name), text, fix)
    for name, role in release.tree("hub.loadRoles").items():
        if not isinstance(role, Mapping):
            text = f"The role {name} is no mapping: the hub would not start."
            yield found(release, "role-kind", ("hub", "loadRoles", name), text, "Write scopes: […] below it.")


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


def _templates(release: Release) -> Iterator[Finding]:
    """Values that the schema accepts and the chart's templates refuse."""
    for section in ("hub.extraFiles", "singleuser.extraFiles"):
        for name, file in release.tree(section).items():
            place = str(file.get("mountPath", "")) if isinstance(file, Mapping) else ""
            if place and "data" in file and not place.endswith(DATA_FILES):
                text = f"A file made from data has to end in {', '.join(DATA_FILES)}: the chart cannot be rendered."
                fix = "Give mountPath such an ending, or write the file's text as stringData."
                yield found(release, "file-ending", (*section.split("."), name, "mountPath"), text, fix)
    for section in ("hub.extraEnv", "proxy.chp.extraEnv"):
        for name, value in release.tree(section).items():
            if not isinstance(value, (str, Mapping)):
                text = f"It is {kind_of(value)}, where a text belongs: the chart cannot be rendered."
                fix = "Put it into quotes."
                if value is None:
                    fix = 'Write an empty text (""): null does not take away what another file set.'
                yield found(release, "variable-kind", (*section.split("."), name), text, fix)
    if isinstance(release.at("singleuser.extraEnv"), list):
        text = "It is a list: the chart takes it and KubeSpawner does not, so no server starts."
        yield found(release, "variable-list", "singleuser.extraEnv", text, "Write a mapping: NAME: value.")
    if release.at("hub.fsGid") is not None:
        text = "The chart does not take it any more, and cannot be rendered."
        yield found(release, "gone", "hub.fsGid", text, "Write it as hub.podSecurityContext.fsGroup.")


# ------------------------------------------------------------------ our package, where the hub finds it


def _code(release: Release) -> Iterator[Finding]:
    """The chart's own image does not have `hub_extensions`: another image has it, or it is installed at the start."""
    key = "hub.image.name"
    stock = find(release.facts.defaults, key.split("."))
    if release.at(key) != stock or _brings_code(release):
        return
    text = "The hub's image is the chart's own, which has no hub_extensions: the hub does not start."
    fix = "Give your copy of helm-values/own-images.yaml (images/README.md); for trying install-at-start.yaml."
    if release.is_given(key):
        text = f"It is the chart's own image, which has no hub_extensions: the hub does not start ({stock})."
        fix = "Write the image that images/build made, and take what a later file says of hub.image out."
    yield found(release, "no-code", key, text, fix)


def _brings_code(release: Release) -> bool:
    """Is there another place where the hub may find Python packages, or another command?"""
    mounts = [str(each.get("mountPath")) for each in release.items("hub.extraVolumeMounts") if isinstance(each, dict)]
    return (
        "PYTHONPATH" in release.variables("hub.extraEnv")
        or bool(release.at("hub.command") or release.at("hub.args"))
        or any("site-packages" in place for place in mounts)
    )


# ------------------------------------------------------------------ configure(c), and what comes after it


def _wiring(release: Release) -> Iterator[Finding]:
    own = release.own_extra_config
    spawner = release.tree("hub.config.JupyterHub").get("spawner_class")
    misspelled = near_miss({"JupyterHub": {"spawner_class": spawner}})  # reported by `configure`
    if spawner is not None and not is_own_spawner(spawner) and not misspelled:
        name = spawner.get("$class", "another") if isinstance(spawner, Mapping) else spawner
        text = f"It is {name}: servers start as before, without the choice of a GPU."
        fix = "Set it to gpu. A class of yours that inherits from GpuKubeSpawner is right too."
        key = "hub.config.JupyterHub.spawner_class"
        yield found(release, "other-spawner", key, text, fix, severity="look at")
    if not own and not _configured_by_file(release):
        text = "Nothing calls configure(c): the hub has no GPU service, and no server with a GPU starts."
        fix = "Keep what helm-values/gpu.yaml sets: hub.extraConfig.zz-jupyterhub-gpu."
        yield found(release, "not-wired", "hub.extraConfig", text, fix)
        return
    if len(own) > 1:
        text = f"configure(c) is called more than once ({', '.join(own)}): the later call sees the earlier one's work."
        yield found(release, "wired-twice", ("hub", "extraConfig", own[0]), text, "Keep one.", severity="look at")
    yield from _after(release)


def _configured_by_file(release: Release) -> bool:
    return any(path[1] == "extraFiles" and calls_configure(code) for path, code in release.python)


def _after(release: Release) -> Iterator[Finding]:
    """Code that runs after our ``configure(c)``, which does not see what that code sets."""
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
        lost = next((each for each in changes if each.trait in _OF_OUR_WIRING and loses(each)), None)
        if lost is not None:
            what = f"c.JupyterHub.{lost.trait}"
            text = f"It runs after {name} and sets {what} anew: what the GPU service needs there is lost."
            yield found(release, "after-ours", path, text, fix)
        else:
            text = f"It runs after {name}, which does not see what it sets."
            yield found(release, "after-ours", path, text, fix, severity="look at")


def loses(change: Change) -> bool:
    """Is something of the value before not in the value after?"""
    before, after = change.before, change.value
    if isinstance(before, list):
        return any(each not in after for each in before) if isinstance(after, list) else True
    if isinstance(before, Mapping):
        return any(name not in after for name in before) if isinstance(after, Mapping) else True
    return before is not None


def _own_form(release: Release) -> Iterator[Finding]:
    """Another form in the place of ours."""
    fix = "Take it out; choices of your own go into singleuser.profileList, which stands above the offers."
    for section in dict.fromkeys((*SPAWNERS, *(n for n in release.tree("hub.config") if n.endswith("Spawner")))):
        for name, does in FORM_SETTINGS.items():
            key = f"hub.config.{section}.{name}"
            if release.at(key) is not None:
                yield found(release, "own-form", key, f"It {does}: nobody can choose a GPU.", fix)


# ------------------------------------------------------------------ cullers, limits, time-outs


def _cullers(release: Release) -> Iterator[Finding]:
    """Another culler beside ours, or where ours would be."""
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
        if release.at("hub.config.GpuCulling.enabled") is True:
            text = f"Both cullers are on: {who} stops servers that ours keeps, by what browsers do alone."
            fix = f"{off}: ours stops idle servers without a GPU too."
            yield found(release, "two-cullers", path, text, fix)
        else:
            text = f"T{who[1:]} is on: it stops servers whose GPU is busy, when no browser asks for them."
            fix = f"{off}, and set hub.config.GpuCulling.enabled to true when the service's log looks right."
            yield found(release, "stock-culler", path, text, fix, severity="look at")


def _max_age(release: Release) -> Iterator[Finding]:
    """The chart's longest time of a server, which went with its culler."""
    age, ours = release.at("cull.maxAge"), release.tree("hub.config.GpuCulling")
    if release.at("cull.enabled") is True or not (_is_number(age) and age > 0) or ours.get("cpu_lifetime_hours"):
        return
    text = f"With the chart's culler off, {age:g} s does nothing: a server without a GPU has no longest time."
    if ours.get("enabled") is not True:
        text = f"With the chart's culler off, {age:g} s does nothing: no server has a longest time."
    fix = "Set cpu_lifetime_hours and lifetime_hours of hub.config.GpuCulling, and enabled (helm-values/culling.yaml)."
    yield found(release, "max-age-lost", "cull.maxAge", text, fix, severity="look at")


def _limits(release: Release) -> Iterator[Finding]:
    chosen = _set_by(release, "hub.concurrentSpawnLimit", "concurrent_spawn_limit", ("JupyterHub",))
    limit = 100 if chosen[1] is None else chosen[1]
    if limit != 0:
        text = f"It is {limit} and counts servers that wait in line: {limit} of them keep everybody else from starting."
        if chosen[1] is None:
            text = "Without it JupyterHub's own limit of 100 holds, which counts servers that wait in line."
        fix = "Set it to 0; hub.config.GpuQueue.max_starting limits the starts."
        yield found(release, "concurrent-spawns", chosen[0], text, fix)
    key, failures = _set_by(release, "hub.consecutiveFailureLimit", "consecutive_failure_limit", SPAWNERS)
    if failures:
        text = f"It is {failures}: JupyterHub 5.5 counts refused starts, so {failures} in a row end the hub."
        yield found(release, "failure-limit", key, text, "Set it to 0.")
    key, active = _set_by(release, "hub.activeServerLimit", "active_server_limit", ("JupyterHub",))
    if active:
        text = f"It is {active}, and servers that wait in line count against it."
        fix = "Leave it out, or make it large enough for everybody who may wait (hub.config.GpuQueue.max_waiting)."
        yield found(release, "active-servers", key, text, fix, severity="look at")


def _set_by(release: Release, key: str, trait: str, sections: tuple[str, ...]) -> tuple[str, Any]:
    """The key that decides, and its value: a section of ``hub.config`` beats the chart's own key."""
    for section in sections:
        if trait in release.tree(f"hub.config.{section}"):
            return f"hub.config.{section}.{trait}", release.at(f"hub.config.{section}.{trait}")
    return key, release.at(key)


def _time_outs(release: Release) -> Iterator[Finding]:
    key, seconds = _set_by(release, "singleuser.startTimeout", "start_timeout", SPAWNERS)
    if _is_number(seconds) and seconds < SHORTEST_START:
        text = (
            f"It is {seconds:g} seconds. The wait in line does not count, but pulling an image does: the first start "
            "on a node would always fail."
        )
        yield found(release, "start-timeout", key, text, "Give what a first start takes; 300 is the chart's own.")
    yield from _wait_of_another_queue(release)
    tornado = release.tree("hub.config.JupyterHub").get("tornado_settings")
    slow = tornado.get("slow_spawn_timeout") if isinstance(tornado, Mapping) else None
    if _is_number(slow) and slow > LONG_SPAWN_TIMEOUT:
        text = f"slow_spawn_timeout is {slow:g}: who waits in line sees no waiting page for {slow:g} seconds."
        key = "hub.config.JupyterHub.tornado_settings.slow_spawn_timeout"
        yield found(release, "slow-spawn", key, text, "Leave it out: configure(c) sets 1.")


def _wait_of_another_queue(release: Release) -> Iterator[Finding]:
    """With Kueue or KAI the spawner's own limit ends a wait."""
    most = release.at("hub.config.GpuKubeSpawner.gpu_max_wait_hours")
    line = release.at("hub.config.GpuQueue.max_wait_hours", 24)
    cluster = release.tree("hub.config.GpuCluster")
    who = "Kueue" if cluster.get("kueue_queue") else "KAI" if cluster.get("kai_queue") else ""
    if who and _is_number(most) and _is_number(line) and most < line:
        text = f"A wait for {who} ends after {most:g} h, and GpuQueue.max_wait_hours promises {line:g} h."
        key = "hub.config.GpuKubeSpawner.gpu_max_wait_hours"
        yield found(release, "shorter-than-the-wait", key, text, "Leave it out: it is as long as max_wait_hours then.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ------------------------------------------------------------------ scopes


def _roles(release: Release) -> Iterator[Finding]:
    for section in SPAWNERS:
        scopes = release.tree(f"hub.config.{section}").get("server_token_scopes")
        if isinstance(scopes, list) and scopes and ACCESS_SCOPE not in scopes:
            text = f"They lack {ACCESS_SCOPE}: JupyterLab's GPU panel cannot ask the service anything."
            key = f"hub.config.{section}.server_token_scopes"
            yield found(release, "token-scopes", key, text, f"Add {ACCESS_SCOPE!r} to the list.")


def check_service_role(release: Release, needed: tuple[str, ...]) -> Iterator[Finding]:
    """A role ``gpu-service`` of the admin's own that lacks scopes of `needed`."""
    for name, role in release.tree("hub.loadRoles").items():
        if not isinstance(role, Mapping) or role.get("name", name) != "gpu-service":
            continue
        scopes = role.get("scopes")
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
    redirect = list(_redirect(release))
    yield from redirect
    name = release.values.get("fullnameOverride")
    if name != "" and not redirect and not release.at("hub.config.GpuCluster.service_connect_url"):
        names = f"{name}-proxy-public" if name else "RELEASE-jupyterhub-proxy-public"
        text = (
            f"The chart's names begin with {name or 'the release name'}, so servers do not find the proxy by its name."
        )
        key_to_set = "hub.config.GpuCluster.service_connect_url"
        fix = f"Set {key_to_set}: http://{names}/services/gpu, your hub.baseUrl before /services."
        yield found(release, "names", "fullnameOverride", text, fix)


def _redirect(release: Release) -> Iterator[Finding]:
    """A proxy with HTTPS redirects HTTP requests, also to its name inside the cluster, which no certificate has."""
    kind = release.at("proxy.https.type")
    if release.at("proxy.https.enabled") is not True or kind not in ("manual", "secret"):
        return
    given = str(release.at("hub.config.GpuCluster.service_connect_url") or "")
    if given and not (given.startswith("http:") and "proxy-public" in given):
        return
    key = "hub.config.GpuCluster.service_connect_url" if given else "proxy.https.type"
    text = f"With {kind} the proxy sends http on to https, so users' servers do not reach the GPU service at its name."
    fix = f"Set hub.config.GpuCluster.service_connect_url: https://YOUR-HOST{release.base_url}services/gpu."
    yield found(release, "https-redirect", key, text, fix)
