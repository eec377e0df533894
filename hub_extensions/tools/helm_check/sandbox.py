"""Runs a hub's configuration and the administrator's Python, and records which settings they change.

``evaluate.py`` starts this file as a separate program, without the environment variables of the caller. It reads a job
as JSON from the standard input, and writes its results to a file after each piece of code. So if a piece never ends,
the results of the pieces before it are kept.
"""

from __future__ import annotations

import asyncio
import ctypes
import dis
import importlib.machinery
import inspect
import json
import logging
import os
import re
import resource
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER and CLONE_NEWNET of linux/sched.h
HOOKS = ("pre_spawn_hook", "auth_state_hook", "modify_pod_hook")
HOOK_SECONDS = 2
MOST_VARIANTS = 20  # texts of a hook's code that are tried as choice, group and name of a user
LARGEST_FILE = 16_000_000  # bytes
GPU_SETTINGS = ("extra_resource_limits", "extra_resource_guarantees", "extra_container_config", "extra_pod_config")
"""Settings of a spawner that can request a GPU."""
GIVING = {"STORE_SUBSCR", "BUILD_MAP", "BUILD_CONST_KEY_MAP"}
"""Python instructions that store an item in a mapping, or make a mapping."""


def leave_network() -> bool:
    """Move this process into a new, empty network namespace; return whether the kernel allowed it."""
    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(NEW_USER | NEW_NETWORK) != 0:
        return bool(unshare(NEW_NETWORK) == 0)
    with suppress(OSError):  # without the maps the code runs as nobody
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def limit(memory_bytes: int, seconds: int) -> None:
    limits = {"AS": memory_bytes, "CPU": seconds, "FSIZE": LARGEST_FILE, "CORE": 0}
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


class _LooseClass(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Loose()


class Loose(metaclass=_LooseClass):
    """Stands in for an object that does not exist here. Every attribute, call and item of it is another `Loose`.

    A `Loose` is false, and empty if iterated, so that most code runs through.
    """

    def __init__(self, *_: Any, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(Loose, name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Loose()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: Any) -> None:
        pass

    __getitem__ = __setitem__ = __call__
    __await__ = __iter__


class _MissingModule(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _LooseClass(name, (Loose,), {"__module__": self.__name__})


class MissingModules:
    """An import finder that replaces modules which the administrator's code imports and which are not installed here.

    Imports by other modules fail as usual, because many modules try an import to see whether a package is installed.

    Args:
        codes: labels of the pieces of the administrator's code.
    """

    def __init__(self, codes: set[str]) -> None:
        self.codes = codes
        self.missing: list[list[str]] = []

    def find_spec(self, name: str, *_: Any) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        label = frame.f_code.co_filename if frame is not None else ""
        if label not in self.codes:
            return None
        top = [label, name.partition(".")[0]]
        if top not in self.missing:
            self.missing.append(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        return _MissingModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def plain(value: Any, depth: int = 0) -> Any:
    """Convert a setting to JSON types. A class or another object becomes ``{"$class": …}`` or ``{"$object": …}``.

    Args:
        value: the setting, or a value in it.
        depth: how many lists and mappings contain the value. Callers leave it at 0. Values that are nested more than 20
            deep are cut off, because an object may contain itself.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > 20:
        return {"$object": "too deep"}
    if is_lazy(value):
        parts = value.to_dict()
        return plain(parts.get("update") or [*parts.get("prepend", ()), *parts.get("extend", ())], depth)
    if isinstance(value, Mapping):
        return {str(key): plain(inner, depth + 1) for key, inner in value.items()}
    if type(value) is Loose:  # an invented server or pod
        return plain(vars(value), depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, type):
        bases = [f"{base.__module__}.{base.__qualname__}" for base in value.__mro__]
        ours = any(base.endswith(".GpuKubeSpawner") for base in bases)
        return {"$class": bases[0], "ours": ours, "known": not issubclass(value, Loose)}
    if hasattr(value, "attribute_map"):  # an object of the Kubernetes client
        names = value.attribute_map.items()
        return {name: plain(getattr(value, own), depth + 1) for own, name in names if getattr(value, own) is not None}
    return {"$object": type(value).__name__}


def is_lazy(value: Any) -> bool:
    """Whether this is a LazyConfigValue: what code adds to a list, dictionary or set that has no value yet."""
    return type(value).__name__ == "LazyConfigValue"


def snapshot(config: Any) -> dict[str, dict[str, Any]]:
    """Return section -> trait -> value of all settings, as JSON types.

    Empty LazyConfigValues are left out: traitlets creates them when code reads a setting that is not set.
    """
    return {
        section: {name: plain(value) for name, value in traits.items() if not is_lazy(value) or plain(value)}
        for section, traits in config.items()
    }


class _Always(dict[str, Any]):
    """User options that contain every key, with the same value for each.

    A hook that looks up any option thus finds the choice of the invented user.

    Args:
        answer: the value of every key.
    """

    def __init__(self, answer: str) -> None:
        super().__init__({answer: answer})
        self.answer = answer

    def get(self, _: str, __: Any = None) -> Any:
        return self.answer

    def __contains__(self, _: object) -> bool:
        return True

    __missing__ = get


class _Group(str):
    """A group of the test user. Hooks can use it as its name or as the hub's object with the attribute ``name``."""

    __slots__ = ()
    name = property(str)


def fake_spawner(settings: Mapping[str, Any], answer: str | None) -> Any:
    """Invent a spawner with these settings, on which a hook of the administrator can be called.

    Args:
        settings: trait -> value.
        answer: what the spawner's user has chosen in every option, also used as the user's name and group. None for a
            user who has chosen nothing and has no group.
    """
    groups = [] if answer is None else [_Group(answer)]
    user = Loose(name=answer or "ada", escaped_name="ada", groups=groups, admin=answer is not None)
    mappings = (*GPU_SETTINGS, "environment", "node_selector", "extra_labels", "extra_annotations")
    lists = ("tolerations", "volumes", "volume_mounts", "profile_list", "init_containers")
    empty: dict[str, Any] = {**{name: {} for name in mappings}, **{name: [] for name in lists}}
    kept = {name: value for name, value in settings.items() if name not in HOOKS and not name.startswith("extra_")}
    chosen: dict[str, Any] = {} if answer is None else _Always(answer)
    return Loose(**{**empty, **kept}, user_options=chosen, user=user, name="", log=logging.getLogger("sandbox"))


def fake_pod() -> Any:
    resources = Loose(limits={}, requests={})
    notebook = Loose(name="notebook", image="image", env=[], volume_mounts=[], resources=resources, args=[], command=[])
    lists = ("init_containers", "volumes", "tolerations", "resource_claims", "image_pull_secrets")
    spec = Loose(containers=[notebook], node_selector={}, **{name: [] for name in lists})
    return Loose(spec=spec, metadata=Loose(name="jupyter-ada", labels={}, annotations={}))


def _codes(function: Any, depth: int = 0) -> Iterator[types.CodeType]:
    """Yield the code objects of a function, and of the functions that it calls in the same piece of code.

    Args:
        function: the function, also a method or a ``partial``.
        depth: how many calls lead from the first function to this one; deeper calls than five are not followed. Callers
            leave it at 0.
    """
    function = getattr(function, "func", None) or getattr(function, "__func__", None) or function
    code = getattr(function, "__code__", None)
    if code is None or depth > 5:
        return
    todo = [code]
    for each in todo:  # the loop appends to the list
        yield each
        todo += [const for const in each.co_consts if isinstance(const, types.CodeType)]
        for name in each.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, types.FunctionType) and called.__code__.co_filename == code.co_filename:
                yield from _codes(called, depth + 1)


def texts_of(function: Any) -> list[str]:
    """Return all string constants in the code of a hook, and in the global variables that it uses.

    The hook is then tried with each of them as the choice of a user.
    """
    variables = getattr(getattr(function, "func", None) or function, "__globals__", {})

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from (text for pair in value.items() for each in pair for text in texts(each))
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from (text for each in value for text in texts(each))

    found: list[str] = []
    for code in _codes(function):
        named = [variables.get(name) for name in code.co_names]
        found += texts([code.co_consts, *(value for value in named if isinstance(value, (str, dict, list, tuple)))])
    return list(dict.fromkeys(found))


def call(function: Any, *arguments: Any) -> Any:
    """Call a hook and return its result; a coroutine is awaited. After `HOOK_SECONDS`, raises KeyboardInterrupt.

    Args:
        function: the hook, a function of the administrator's code.
        arguments: its arguments, such as an invented spawner.
    """

    async def result() -> Any:
        answer = function(*arguments)
        return await answer if inspect.isawaitable(answer) else answer

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(HOOK_SECONDS)
    try:
        return asyncio.run(result())
    finally:
        signal.alarm(0)


class SandboxRun:
    """One run of the chart's configuration and of all pieces of the administrator's code.

    Args:
        job: the input from ``evaluate.py``. Its ``codes`` are the pieces of code by their labels.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        from traitlets.config import Config

        from hub_extensions.tools.helm_check import own_settings
        from hub_extensions.tools.helm_check.rules import pods

        self.ours: Any = own_settings
        self.pods: Any = pods
        self.job = job
        self.config = Config()
        self.label = "jupyterhub_config.py"  # of the code that runs now
        self.modules = MissingModules({self.label, *job["codes"]})
        self.known: dict[str, dict[str, Any]] = {}  # the last snapshot of the settings
        self.result: dict[str, Any] = {"missing": self.modules.missing}
        self.result |= {name: [] for name in ("changes", "failed", "configured", "sentences", "hooks")}

    def write(self, **more: Any) -> None:
        self.result |= more
        Path(self.job["result"]).write_text(json.dumps(self.result), encoding="utf-8")

    def note_changes(self) -> None:
        """Record which settings differ from the last snapshot, as changes by the current piece of code."""
        now = snapshot(self.config)
        for section, traits in now.items():
            known = self.known.get(section, {})
            for name, value in traits.items():
                if name not in known or known[name] != value:
                    self.result["changes"].append([self.label, section, name, value, known.get(name)])
        self.known = now

    def configure(self, config: Any) -> None:
        """Replacement of our ``configure(c)`` in the sandbox: records what it would report, and writes no file."""
        self.note_changes()
        self.ours.load_own_class(config)
        self.result["configured"].append(self.label)
        self.result["sentences"] += self.ours.report_own_settings(config)
        with suppress(Exception), self.ours.dry_run():  # what goes wrong is among the sentences
            self.ours.apply(config)
        self.known = snapshot(self.config)

    def run(self) -> None:
        import hub_extensions

        sys.meta_path.append(self.modules)
        hub_extensions.configure = self.configure  # type: ignore[assignment]
        names: dict[str, Any] = {"__name__": "jupyterhub_config", "__file__": self.job["config_file"]}
        names |= {"c": self.config, "get_config": lambda: self.config, "os": os, "re": re, "sys": sys}
        self.attempt(self.base, names)
        self.known = snapshot(self.config)
        for label, code in self.job["codes"].items():
            self.label = label
            self.attempt(self.execute, names, code)
            self.note_changes()
        self.try_hooks()
        self.write(running="", ended=True)

    def attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run one step. If it fails, record the type and line of the exception; its text may contain a password.

        Args:
            step: the step, such as running a piece of code.
            arguments: its arguments.
        """
        self.write(running=self.label)
        try:
            step(*arguments)
        except BaseException as problem:  # noqa: BLE001  an administrator's code may raise anything
            frames = traceback.walk_tb(problem.__traceback__)
            lines = [line for frame, line in frames if frame.f_code.co_filename == self.label]
            module = str(problem.name) if isinstance(problem, ModuleNotFoundError) else ""
            self.result["failed"].append([self.label, type(problem).__name__, lines[-1] if lines else 0, module])

    def execute(self, names: dict[str, Any], code: str) -> None:
        exec(compile(code, self.label, "exec", dont_inherit=True), names)

    def base(self, names: dict[str, Any]) -> None:
        """Run the chart's own configuration; without a chart, apply the settings that follow from the values.

        Args:
            names: global variables of the configuration. Without a chart, the functions that the chart's configuration
                would define for the administrator's code are added to them.
        """
        if self.job["config_file"]:
            file = Path(self.job["config_file"])
            sys.path.insert(0, str(file.parent))
            self.execute(names, file.read_text(encoding="utf-8"))
            return
        for section, traits in self.job["base"].items():
            self.config[section].update(traits)

        def get_config(key: str, default: Any = None) -> Any:
            return self.pods.find(self.job["values"], key.split("."), default)

        def set_config_if_not_none(section: Any, name: str, key: str) -> None:
            if (value := get_config(key)) is not None:
                setattr(section, name, value)

        names |= {"get_config": get_config, "get_name": str, "set_config_if_not_none": set_config_if_not_none}
        z2jh = types.ModuleType("z2jh")
        z2jh.__dict__.update(
            {name: names[name] for name in ("get_config", "get_name", "set_config_if_not_none")},
            get_name_env=lambda name, suffix="": f"{name}{suffix}",
            get_secret_value=lambda key, default="": default or "unknown",
        )
        sys.modules["z2jh"] = z2jh

    def try_hooks(self) -> None:
        """Call the hooks of spawners that the code has set, and a ``profile_list`` that is a function."""
        set_by = {(section, name): label for label, section, name, *_ in self.result["changes"]}
        for section, traits in list(self.config.items()):
            if not section.endswith(("Spawner", "Mixin")):
                continue
            settings = {name: value for name, value in traits.items() if not is_lazy(value)}
            profiles = settings.get("profile_list")
            if callable(profiles):
                self.label = set_by.get((section, "profile_list"), self.label)
                self.list_profiles(section, profiles, settings)
            for name in HOOKS:
                if callable(settings.get(name)):
                    label = set_by.get((section, name), self.label)
                    self.write(running=label)
                    given, was_seen = self.try_hook(name, settings)
                    self.result["hooks"] += [[label, section, name, each, was_seen] for each in sorted(given)]

    def list_profiles(self, section: str, profiles: Any, settings: Mapping[str, Any]) -> None:
        """Call a ``profile_list`` that is a function, and record the returned profiles as the value of this setting.

        Args:
            section: name of the class whose setting it is, such as ``KubeSpawner``.
            profiles: the function.
            settings: trait -> value of this class, for the invented spawner that the function gets.
        """
        try:
            found = plain(call(profiles, fake_spawner(settings, None)))
        except BaseException:  # noqa: BLE001  an administrator's code may raise anything for an invented server
            self.result["failed"].append([self.label, "profile_list", 0, ""])
            return
        for change in self.result["changes"]:
            if change[1:3] == [section, "profile_list"]:
                change[3] = found

    def try_hook(self, name: str, settings: Mapping[str, Any]) -> tuple[set[str], bool]:
        """Find the GPU resources that the hook of this name gives to a server.

        The hook is called for an invented user who has chosen nothing. Then the hook is called with each string
        constant of its code as the user's choice, group and name, because hooks usually compare these with such
        constants.

        Returns:
            The resources, and whether a call has set them. If not, the hook's code only contains their names.
        """
        hook = settings[name]
        texts = texts_of(hook)
        for answer in [None, *texts[:MOST_VARIANTS]]:
            spawner, pod = fake_spawner(settings, answer), fake_pod()
            before = self.gpus_asked(spawner, pod)
            arguments = {"modify_pod_hook": (spawner, pod), "auth_state_hook": (spawner, Loose())}.get(name, (spawner,))
            try:
                returned = call(hook, *arguments)
            except BaseException:  # noqa: BLE001  an administrator's code may raise anything for an invented server
                returned = None
            changed = returned if getattr(returned, "spec", None) is not None else pod
            if given := self.gpus_asked(spawner, changed) - before:
                return given, True
        steps = [step for code in _codes(hook) for step in dis.get_instructions(code)]
        stores = any(step.opname in GIVING or step.argval in ("setdefault", "update", "dict") for step in steps)
        return {text for text in texts if stores and self.ours.is_gpu_resource(text)}, False

    def gpus_asked(self, spawner: Any, pod: Any) -> set[str]:
        """Return the names of the GPU resources that a spawner's settings and a pod request."""
        settings = {name: plain(getattr(spawner, name)) for name in GPU_SETTINGS}
        spec = plain(pod.spec)
        lists = [self.pods.mappings(spec.get(name)) for name in ("containers", "init_containers", "initContainers")]
        asked = [settings, *({"extra_container_config": container} for each in lists for container in each)]
        claims = {"a resource claim" for each in (spec, settings) if self.pods.claims_of(each)}
        return claims.union(*map(self.pods.gpus_asked, asked))


def main() -> None:
    job = json.load(sys.stdin)
    isolated = leave_network()
    limit(job["memory_bytes"], job["seconds"])
    sys.path[:] = job["path"]
    run = SandboxRun(job)
    run.write(isolated=isolated)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())  # closes the pipe: `evaluate` waits for the end of the imports
    run.run()


if __name__ == "__main__":
    main()
