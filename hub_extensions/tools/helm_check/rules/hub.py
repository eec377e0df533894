"""Rules about the hub: idle cullers, limits, timeouts, roles, addresses, and the administrator's Python."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping

from hub_extensions.configuration import ACCESS_SCOPE, SERVICE_SCOPES, SETTINGS_SCOPE
from hub_extensions.core.culling.policy import CullPolicy, without_effect
from hub_extensions.spawner.config.spawner_classes import FORM_SETTINGS, near_miss
from hub_extensions.tools.helm_check.model import SPAWNERS, Findings, Release, is_own_spawner, spawner_keys
from hub_extensions.tools.helm_check.trees import Path, find, has, is_number, kind_of, mappings

CULLING = "hub.config.GpuCulling.enabled"
SHORTEST_START = 60  # seconds; pulling the image of a GPU server takes longer
EMPTY_TEXT = 'Write an empty text (""): null does not take away what another file set.'
_OF_OUR_WIRING = ("services", "load_roles", "spawner_class", "template_paths", "tornado_settings")
_CULLER = re.compile(r"idle[-_]?culler|cull[-_]?idle")


def check_any_hub(release: Release) -> Findings:
    """Report single values that are wrong for any hub, also for one without our spawner."""
    if release.at(key := "hub.config.JupyterHub.services") is not None:
        text = "The chart leaves hub.config.JupyterHub.services out without a word: none of them is there."
        yield release.found("services-dropped", key, text, "Write them as hub.services.NAME.")
    if release.at(key := "hub.config.JupyterHub.load_roles") is not None:
        text = "It replaces hub.loadRoles and the chart's own roles whole."
        yield release.found("roles-replaced", key, text, "Write them as hub.loadRoles.NAME, which adds to them.")
    if isinstance(release.at(key := "singleuser.extraEnv"), list):
        text = "It is a list: the chart takes it and KubeSpawner does not, so no server starts."
        yield release.found("variable-list", key, text, "Write a mapping: NAME: value.")
    if release.at(key := "hub.fsGid") is not None:
        text = "The chart does not take it any more, and cannot be rendered."
        yield release.found("gone", key, text, "Write it as hub.podSecurityContext.fsGroup.")


def check_hub(release: Release) -> Findings:
    """Report mistakes about the hub. Without our spawner, only general ones are reported."""
    yield from _extra_config(release)
    for section in ("hub.extraEnv", "proxy.chp.extraEnv"):
        for name, value in release.tree(section).items():
            if not isinstance(value, (str, Mapping)):
                text = f"It is {kind_of(value)}, where a text belongs: the chart cannot be rendered."
                fix = EMPTY_TEXT if value is None else "Put it into quotes."
                yield release.found("variable-kind", (*section.split("."), name), text, fix)
    if not release.is_ours:
        text = "The GPU spawner is not in these values: no GPU can be chosen."
        fix = "Give helm-values/gpu.yaml as well: -f helm-values/gpu.yaml."
        yield release.found("not-ours", "hub.config.JupyterHub.spawner_class", text, fix, "look at")
        return
    yield from _limits(release)
    yield from _image(release)
    yield from _wiring(release)
    yield from _own_form(release)
    yield from _cullers(release)
    yield from _max_age(release)
    yield from _no_effect(release)
    yield from _address(release)


def _limits(release: Release) -> Findings:
    """Report limits, timeouts and scopes that do not fit servers that wait in line."""
    key, value = release.first("hub.config.JupyterHub.concurrent_spawn_limit", "hub.concurrentSpawnLimit")
    if value or value is None:
        text = f"It is {value} and counts servers that wait in line: {value} of them keep everybody else from starting."
        if value is None:
            text = "Without it JupyterHub's own limit of 100 holds, which counts servers that wait in line."
        fix = "Set it to 0; hub.config.GpuQueue.max_starting limits the starts."
        yield release.found("concurrent-spawns", key, text, fix)
    key, value = release.first(*spawner_keys("consecutive_failure_limit"), "hub.consecutiveFailureLimit")
    if value:
        text = f"It is {value}: JupyterHub 5.5 counts refused starts, so {value} in a row end the hub."
        yield release.found("failure-limit", key, text, "Set it to 0.")
    key, value = release.first("hub.config.JupyterHub.active_server_limit", "hub.activeServerLimit")
    if value:
        text = f"It is {value}, and servers that wait in line count against it."
        fix = "Leave it out, or make it large enough for everybody who may wait (hub.config.GpuQueue.max_waiting)."
        yield release.found("active-servers", key, text, fix, "look at")
    key, value = release.first(*spawner_keys("start_timeout"), "singleuser.startTimeout")
    if is_number(value) and value < SHORTEST_START:
        text = f"It is {value:g} seconds. The wait in line does not count, but pulling an image does: the first start "
        text += "on a node would always fail."
        yield release.found("start-timeout", key, text, "Give what a first start takes; 300 is the chart's own.")
    key, value = release.first(*spawner_keys("server_token_scopes"))
    if isinstance(value, list) and value and ACCESS_SCOPE not in value:
        text = f"They lack {ACCESS_SCOPE}: JupyterLab's GPU panel cannot ask the service anything."
        yield release.found("token-scopes", key, text, f"Add {ACCESS_SCOPE!r} to the list.")
    key, value = release.first(*spawner_keys("enable_user_namespaces"))
    if value is True:
        text = "Each user's servers are in a namespace of their own: the service reads volumes and claim templates of "
        text += "the hub's namespace only, and may end no pod elsewhere."
        fix = "Take it out: servers of all users in the hub's namespace are what this bundle is tested with."
        yield release.found("user-namespaces", key, text, fix, "look at")


def _extra_config(release: Release) -> Findings:
    for name, code in release.tree("hub.extraConfig").items():
        path: Path = ("hub", "extraConfig", name)
        if not isinstance(code, str):
            text = f"It is {kind_of(code)}, where Python belongs: the chart takes it and the hub does not start."
            fix = EMPTY_TEXT if code is None else "Write a block of text: | after the key, the code below it."
            if isinstance(code, Mapping):
                fix = "Write a block of text (| after the key), or settings of a class as hub.config.CLASS."
            yield release.found("extra-config-kind", path, text, fix)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(code, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as problem:
            line = f" in its line {problem.lineno}" if isinstance(problem, SyntaxError) and problem.lineno else ""
            text = f"It is no Python{line}: the hub does not start."
            yield release.found("extra-config-python", path, text, "Correct it; python -m py_compile shows the place.")
    for path, code in release.python:
        if release.evaluation is None and not _is_only_configure(code):
            text = "What this Python sets is not judged: it is not run."
            fix = "Give --evaluate: it runs the code in a process of its own and judges what the hub would load."
            yield release.found("not-judged", path, text, fix, "look at")


def _image(release: Release) -> Findings:
    """Report the chart's own hub image, which lacks our package `hub_extensions`, if no setting brings the package."""
    key = "hub.image.name"
    stock = find(release.facts.defaults, key.split("."))
    mounts = [str(each.get("mountPath")) for each in mappings(release.at("hub.extraVolumeMounts"))]
    is_brought = "PYTHONPATH" in release.variables("hub.extraEnv") or any("site-packages" in place for place in mounts)
    if release.at(key) == stock and not (is_brought or release.at("hub.command") or release.at("hub.args")):
        text = "The hub's image is the chart's own, which has no hub_extensions: the hub does not start."
        fix = "Give your copy of helm-values/own-images.yaml (images/README.md); for trying install-at-start.yaml."
        if any(has(file.values, key.split(".")) for file in release.files):
            text = f"It is the chart's own image, which has no hub_extensions: the hub does not start ({stock})."
            fix = "Write the image that images/build made, and take what a later file says of hub.image out."
        yield release.found("no-code", key, text, fix)


def _wiring(release: Release) -> Findings:
    """Report a spawner that is not ours, a missing call of our ``configure(c)``, and settings made after the call.

    ``configure(c)`` does not see settings that later code makes.
    """
    key = "hub.config.JupyterHub.spawner_class"
    spawner = release.at(key)
    misspelled = near_miss({"JupyterHub": {"spawner_class": spawner}})  # reported by `configure`
    if spawner is not None and not is_own_spawner(spawner) and not misspelled:
        name = spawner.get("$class", "another") if isinstance(spawner, Mapping) else spawner
        text = f"It is {name}: servers start as before, without the choice of a GPU."
        fix = "Set it to gpu. A class of yours that inherits from GpuKubeSpawner is right too."
        yield release.found("other-spawner", key, text, fix, "look at")
    if not release.calls_configure:
        text = "Nothing calls configure(c): the hub has no GPU service, and no server with a GPU starts."
        fix = "Keep what helm-values/gpu.yaml sets: hub.extraConfig.zz-jupyterhub-gpu."
        yield release.found("not-wired", "hub.extraConfig", text, fix)
    elif release.evaluation is not None and release.evaluation.configured:
        order = [path for path, _ in release.python]
        ours = release.evaluation.configured[-1]
        for path in order[order.index(ours) + 1 :]:
            changes = [change for change in release.evaluation.changes if change.path == path]
            if not changes:
                continue
            fix = f"Give it a key that sorts before {ours[-1]}: the chart runs them in the order of their keys."
            text = f"It runs after {ours[-1]}, which does not see what it sets."
            if lost := next((each.trait for each in changes if each.trait in _OF_OUR_WIRING and each.loses), ""):
                text = f"It runs after {ours[-1]} and sets c.JupyterHub.{lost} anew: "
                text += "what the GPU service needs there is lost."
            yield release.found("after-ours", path, text, fix, "problem" if lost else "look at")


def _own_form(release: Release) -> Findings:
    """Report settings that replace our spawn form, so that users cannot choose a GPU."""
    fix = "Take it out; choices of your own go into singleuser.profileList, which stands above the offers."
    for section in dict.fromkeys((*SPAWNERS, *(n for n in release.tree("hub.config") if n.endswith("Spawner")))):
        for name, does in FORM_SETTINGS.items():
            if release.at(key := f"hub.config.{section}.{name}") is not None:
                yield release.found("own-form", key, f"It {does}: nobody can choose a GPU.", fix)


def _cullers(release: Release) -> Findings:
    """Report an idle culler that is not ours, and our culling if it has no Prometheus with measurements of GPU use.

    A culler stops idle servers. One that is not ours also stops servers that our culler keeps, such as those with a
    busy GPU. Without Prometheus, only the extension in each server measures the use of the server's GPU. Users can
    switch the extension off, and it cannot measure MIG devices of an A100 or A30. A server without such measurements
    never counts as idle, so it is not stopped as idle.
    """
    others: list[tuple[Path, str, str]] = []
    if release.at("cull.enabled") is True:
        others.append((("cull", "enabled"), "the chart's culler", "Set it to false"))
    for name, service in release.tree("hub.services").items():
        if isinstance(service, Mapping) and _CULLER.search(f"{name} {service}"):
            others.append((("hub", "services", name), f"the service {name}", "Take it out"))
    for change in release.evaluation.changes if release.evaluation else ():
        if change.trait == "services":
            new = [str(each.get("name")) for each in mappings(change.value)
                   if each not in (change.before or ()) and _CULLER.search(str(each))]  # fmt: skip
            others += [(change.path, f"the service {name}", "Take it out") for name in new]
    is_on = release.at(CULLING) is True
    for path, who, off in others:
        if is_on:
            text = f"Both cullers are on: {who} stops servers that ours keeps, by what browsers do alone."
            fix = f"{off}: ours stops idle servers without a GPU too."
            yield release.found("two-cullers", path, text, fix)
        else:
            text = f"T{who[1:]} is on: it stops servers whose GPU is busy, when no browser asks for them."
            fix = f"{off}, and set {CULLING} to true when the service's log looks right."
            yield release.found("stock-culler", path, text, fix, "look at")
    if is_on and not release.at("hub.config.GpuService.prometheus_url"):
        text = "Nobody measures the use of GPUs but the servers themselves, whose users can switch that off, and which "
        text += "on a piece of an A100 or A30 cannot: a server whose own extension does not say so is never idle."
        fix = "Give helm-values/monitoring.yaml as well: DCGM measures it, and Prometheus has it."
        yield release.found("unmeasured", CULLING, text, fix, "look at")


def _max_age(release: Release) -> Findings:
    """Report ``cull.maxAge`` without effect: the chart's culler, which enforces it, is off, and ours has no limit."""
    age, ours = release.at("cull.maxAge"), release.tree("hub.config.GpuCulling")
    if release.at("cull.enabled") is not True and is_number(age) and age > 0 and not ours.get("cpu_lifetime_hours"):
        who = "a server without a GPU has no" if ours.get("enabled") is True else "no server has a"
        text = f"With the chart's culler off, {age:g} s does nothing: {who} longest time."
        fix = "Set cpu_lifetime_hours and lifetime_hours of hub.config.GpuCulling, and enabled "
        fix += "(helm-values/culling.yaml)."
        yield release.found("max-age-lost", "cull.maxAge", text, fix, "look at")


def _no_effect(release: Release) -> Findings:
    """Report settings of culling that change nothing because of another one."""
    ours = release.tree("hub.config.GpuCulling")
    more = ours.get("max_lifetime_extensions")
    policy = CullPolicy(
        enabled=ours.get("enabled") is True,
        count_progress=ours.get("count_progress") is True,
        lifetime=None if ours.get("lifetime_hours", 0) is None else CullPolicy().lifetime,
        max_lifetime_extensions=more if isinstance(more, int) else 0,
        policy_file=str(ours.get("policy_file") or ""),
    )
    for name, text, fix in without_effect(policy, ours):
        yield release.found("no-effect", f"hub.config.GpuCulling.{name}", text, fix, "look at")


def check_service_role(release: Release) -> Findings:
    """Report a role ``gpu-service`` of the administrator that lacks scopes which the service needs."""
    needed = {*SERVICE_SCOPES, *([SETTINGS_SCOPE] if release.is_apart else [])}
    for name, role in release.tree("hub.loadRoles").items():
        if isinstance(role, Mapping) and role.get("name", name) == "gpu-service":
            scopes = role.get("scopes")
            if lacking := sorted(needed - set(scopes if isinstance(scopes, list) else [])):
                text = f"This role lacks {', '.join(lacking)}: the GPU service cannot do its whole work."
                fix = "Add them, or leave the role out: configure(c) makes it."
                yield release.found("service-role", ("hub", "loadRoles", name), text, fix)


def _address(release: Release) -> Findings:
    """Report addresses of the GPU service at which the proxy or users' servers do not reach it."""
    service = release.tree("hub.config.GpuService")
    host = str(service.get("host") or "127.0.0.1")
    inside = service.get("started_by_hub") is not False
    if inside and not service.get("url") and host in ("127.0.0.1", "localhost", "::1"):
        text = f"The service listens on {host}, where only the hub's own pod reaches it: "
        text += "the proxy has a pod of its own."
        fix = "Set it to 0.0.0.0, as helm-values/gpu.yaml does."
        yield release.found("service-host", "hub.config.GpuService.host", text, fix)
    key = "hub.config.GpuCluster.service_connect_url"
    given, kind, name = str(release.at(key) or ""), release.at("proxy.https.type"), release.at("fullnameOverride")
    by_name = not given or (given.startswith("http:") and "proxy-public" in given)
    if by_name and release.at("proxy.https.enabled") is True and kind in ("manual", "secret"):
        # such a proxy redirects to https also at its name inside the cluster, which no certificate has
        text = f"With {kind} the proxy sends http on to https, so users' servers do not reach "
        text += "the GPU service at its name."
        fix = f"Set {key}: https://YOUR-HOST{release.base_url}services/gpu."
        yield release.found("https-redirect", key if given else "proxy.https.type", text, fix)
    elif name != "" and not given:
        names = f"{name}-proxy-public" if name else "RELEASE-jupyterhub-proxy-public"
        text = f"The chart's names begin with {name or 'the release name'}, "
        text += "so servers do not find the proxy by its name."
        fix = f"Set {key}: http://{names}/services/gpu, your hub.baseUrl before /services."
        yield release.found("names", "fullnameOverride", text, fix)


def _is_only_configure(code: str) -> bool:
    """Whether this Python does nothing but call our ``configure(c)``. True also if it is empty or not valid Python."""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError):
        return True  # reported as no Python
    imports = ("from hub_extensions import configure", "import hub_extensions")
    known = (*imports, "configure(c)", "hub_extensions.configure(c)", "pass")
    return all(ast.unparse(each) in known for each in statements)
