"""Programs of Python that begin with their imports behind them: forked from a process that has made them all.

    process = warm.Popen([sys.executable, "-m", "jupyterhub", "-f", "spawner/config/traits.py"], env=..., stdout=log)

A hub needs about three seconds of a core for its imports, a user's server two, the service one; a fork of a process
that holds them is there in some milliseconds. ``Popen`` is ``subprocess.Popen`` in everything else: a child of the
caller, with its pid and exit status, and ``/proc/PID/environ`` and ``cmdline`` as they would be. What cannot be forked
(another program, another Python, other import paths, a ``preexec_fn``) is started as usual; so is everything where
``TEST_COLD=1``. The second program with other library paths has a nursery with those. A warm hub starts its service and
its users' servers warm too.

How: each process that starts warm programs has a nursery, a child of its own that does nothing but ``clone`` with
CLONE_PARENT, so that the new process is the starter's child and not the nursery's. Linux only.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULES = (
    "jupyterhub", "hub_extensions.hub_service", "jupyter_server", "jupyterhub.singleuser", "tests.fakes.turned_service",
    "tests.fakes.dying_service", "hub_extensions.gate",
)  # fmt: skip
SCRIPTS = tuple(str(ROOT / "tests" / "fakes" / name) for name in ("singleuser.py", "patient_service.py"))
HELD = (
    "jupyterhub.app", "jupyterhub.auth", "jupyterhub.proxy", "jupyterhub.apihandlers", "jupyterhub.services.auth",
    "oauthlib.oauth2", "alembic.command", "sqlalchemy.dialects.sqlite", "jinja2", "http.server", "pydantic",
    "hub_extensions.configuration", "hub_extensions.spawner.local", "hub_extensions.spawner.pages.spawn_form",
    "hub_extensions.hub_service.serve", "hub_extensions.hub_service.http.app",
    "hub_extensions.hub_service.setup.settings", "hub_extensions.adapters.simulated.gpus",
    "jupyter_server.serverapp", "jupyter_server.services.kernels.kernelmanager", "jupyter_client.multikernelmanager",
    "jupyter_lsp", "jupyterlab.commands", "jupyterlab.coreconfig", "jupyterlab_server.app", "notebook_shim",
    "jupyter_server_terminals", "kubespawner", "httpx", "IPython",
    "hub_extensions.server_extension.extension", "jupyterhub.services.service", "hub_extensions.gate.serve",
)  # fmt: skip
"""What a nursery imports, as far as its Python has it; nothing that asks the environment meanwhile (as LabApp)."""
OFFERED_TO_A_HUB = ("jupyterhub.authenticators", "jupyterhub.spawners")
"""Each hub imports all of these at its start, whichever it is told to use. Ours are met in the child, where a test may
have changed them, and their metrics are not those of a user's server."""
MESSAGES = (
    "TicketStatus", "Started", "Ask", "Problem", "UserOverview", "FormState", "LeaseInfo", "ServerState", "Report",
    "Stopped", "TicketInfo", "Health",
)  # fmt: skip
"""Those of ``core/messages`` that more than a few services of the tests read or write."""
ASKED_BY_OAUTHENTICATOR = (
    "OAUTH2_USERNAME_KEY", "OAUTH2_GROUPS_KEY", "OAUTH2_USERDATA_REQUEST_TYPE", "OAUTH2_BASIC_AUTH",
    "OAUTH_CALLBACK_URL", "CILOGON_HOST", "MW_INDEX_URL", "OPENSHIFT_URL",
)  # fmt: skip
MUST_BE_OURS = (
    "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHASHSEED", "PYTHONSAFEPATH", *ASKED_BY_OAUTHENTICATOR
)  # fmt: skip
"""What takes effect only while a Python starts or imports: a child may not have it otherwise than its nursery."""
CLONE_PARENT, SYS_CLONE = 0x8000, {"x86_64": 56, "aarch64": 220}
ARGUMENTS, ENVIRON = 8_000, 64_000
"""Bytes at the start of a nursery's stack for the words and the environment of its children."""

_lock = threading.Lock()
_nursery: Nursery | None = None
_others: dict[str, Nursery | None] = {}
"""Library paths -> the nursery that has them; None: they were asked for once, and two are the fewest that pay."""


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen``, but forked from the nursery where that is possible. `warm` says whether it was."""

    warm = False

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
                       cwd: Any, env: Any, startupinfo: Any, creationflags: Any, shell: Any,
                       *rest: Any) -> None:  # fmt: skip
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, _restore, gid, gids, uid, umask, session = rest[:12]
        plain = not (executable or preexec_fn or pass_fds or shell or gid or gids or uid or umask not in (None, -1))
        nursery = _nursery_for(args, os.environ if env is None else env) if plain else None
        if nursery is None:
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *rest
            )
            return
        sys.audit("tests.warm", args)
        self.pid = nursery.born(
            [os.fspath(word) for word in args],
            dict(os.environ if env is None else env),
            os.fspath(cwd) if cwd is not None else os.getcwd(),
            bool(session),
            [own if own != -1 else inherited for own, inherited in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))],
        )
        self.warm = self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


class _PopenOfHub(Popen):
    """What the spawners of a warm hub use; SimpleLocalProcessSpawner's ``preexec_fn`` makes a home and goes there."""

    def __init__(self, args: Any, **options: Any) -> None:
        function = options.get("preexec_fn")
        if getattr(function, "__qualname__", "").startswith("SimpleLocalProcessSpawner.make_preexec_fn."):
            home = options["env"]["HOME"]
            os.makedirs(home, 0o755, exist_ok=True)
            options |= {"preexec_fn": None, "cwd": home}
        super().__init__(args, **options)


def _nursery_for(args: Any, env: Mapping[str, str]) -> Nursery | None:
    """The nursery that can fork this; None where it has to be started as usual."""
    global _nursery
    if os.environ.get("TEST_COLD") == "1" or os.uname().machine not in SYS_CLONE or not isinstance(args, list | tuple):
        return None
    words = [os.fspath(word) for word in args]
    if len(words) < 2 or words[0] != sys.executable:
        return None
    if not ((words[1] == "-m" and words[2:3] and words[2] in MODULES) or words[1] in SCRIPTS):
        return None
    if sum(len(key) + len(value) + 2 for key, value in env.items()) > ENVIRON - 1_000:
        return None
    with _lock:
        if _nursery is None or _nursery.owner != os.getpid():
            _nursery = Nursery.opened(os.environ)
            _others.clear()
        if words[1] in SCRIPTS:  # they need nothing of ours
            return _nursery
        differ = {name for name in MUST_BE_OURS if env.get(name) != _nursery.held.get(name)}
        if differ == {"LD_LIBRARY_PATH"} and (paths := env.get("LD_LIBRARY_PATH")):
            return _nursery_with(paths)
        return None if differ else _nursery


def _nursery_with(paths: str) -> Nursery | None:
    """Begun with the second program that wants these library paths; None for the first, which starts as usual."""
    if paths in _others and _others[paths] is None:
        _others[paths] = Nursery.opened({**os.environ, "LD_LIBRARY_PATH": paths})
    return _others.setdefault(paths, None)


class Nursery:
    """The owner's end: a socket to the process that forks. `held`: the environment that it was started with."""

    def __init__(self, end: socket.socket, held: Mapping[str, str], pid: int) -> None:
        self.end, self.held, self.owner, self.pid = end, held, os.getpid(), pid

    @classmethod
    def opened(cls, env: Mapping[str, str]) -> Nursery:
        """Start one, which takes a few seconds of imports; the first children wait for it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        held = {key: env[key] for key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TEST_SECRETS") if key in env}
        # a nursery has one thread: numpy, which the service imports, would start one for each core
        held |= {
            "PYTHONPATH": str(ROOT),
            "WARM_SPACE": "-" * ENVIRON,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        with theirs:
            words = [sys.executable, __file__, str(theirs.fileno()), "-" * ARGUMENTS]
            process = subprocess.Popen(
                words, env=held, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        atexit.register(ours.close)
        return cls(ours, held, process.pid)

    def born(self, words: Sequence[str], env: Mapping[str, str], cwd: str, session: bool, stdio: list[int]) -> int:
        """Have a child made of the owner. Returns its pid."""
        order = {"words": list(words), "env": dict(env), "cwd": cwd, "session": session}
        with _lock:
            self.end.sendmsg(
                [json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", stdio))]
            )
            answer = self.end.recv(64)
        if not answer:
            raise RuntimeError("the nursery has ended")
        return int(answer)


# ------------------------------------------------------------------ in the nursery


def _serve(end: socket.socket) -> None:
    """Fork for the owner until it is gone, which closes the socket."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        message, stdio = _received(end)
        if not message:
            os._exit(0)
        order = json.loads(message)
        pid = _clone()
        if pid == 0:
            end.close()
            os._exit(_live(order, stdio))
        for descriptor in stdio:
            os.close(descriptor)
        end.send(str(pid).encode())


def _received(end: socket.socket) -> tuple[bytes, list[int]]:
    numbers = array.array("i")
    message, extra, _, _ = end.recvmsg(256_000, socket.CMSG_SPACE(3 * numbers.itemsize))
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data)
    return message, list(numbers)


def _clone() -> int:
    """``fork``, but the new process is a child of our parent. Python's own locks are mended as ``os.fork`` does it."""
    python = ctypes.pythonapi
    call = ctypes.PyDLL(None).syscall
    call.restype = ctypes.c_long
    sys.stdout.flush()
    sys.stderr.flush()
    python.PyOS_BeforeFork()
    flags = ctypes.c_long(CLONE_PARENT | signal.SIGCHLD)
    pid = int(call(ctypes.c_long(SYS_CLONE[os.uname().machine]), flags, *[ctypes.c_long(0)] * 4))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("clone failed")
    return pid


def _live(order: dict[str, Any], stdio: list[int]) -> int:
    """Become the program that was ordered; returns its exit status."""
    try:
        _become(order, stdio)
        words = order["words"]
        _have_a_nursery_of_its_own()
        if words[1] == "-m":
            sys.argv = ["-m", *words[3:]]
            sys.path[0] = os.getcwd()
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words[1:]
            sys.path[0] = str(Path(words[1]).parent)
            runpy.run_path(words[1], run_name="__main__")
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if left.code is not None and not isinstance(left.code, int):
            print(left.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001  (as Python itself ends a program)
        traceback.print_exc()
        code = 1
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _become(order: dict[str, Any], stdio: list[int]) -> None:
    if order["session"]:
        os.setsid()
    for target, descriptor in enumerate(stdio):
        os.dup2(descriptor, target)
        os.close(descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    cluster = os.environ.get("KUBECONFIG", os.path.expanduser("~/.kube/config"))
    for name in ("kubernetes_asyncio.config.kube_config", "kubernetes_asyncio.config"):
        if module := sys.modules.get(name):  # it asked the environment while it was imported
            vars(module)["KUBE_CONFIG_DEFAULT_LOCATION"] = cluster
    _show(order["words"], order["env"])
    unbuffered = bool(order["env"].get("PYTHONUNBUFFERED"))
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        stream.reconfigure(write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _have_a_nursery_of_its_own() -> None:
    """Before anything else lives in it: for the programs that it starts itself, where it does so by ``Popen``."""
    global _nursery
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        with contextlib.suppress(OSError):
            for number in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
        os.setsid()
        _show(["nursery"], {})
        _serve(theirs)
    theirs.close()
    held = {name: os.environ[name] for name in MUST_BE_OURS if name in os.environ}
    _nursery = Nursery(ours, held, pid)
    if "jupyterhub.spawner" in sys.modules:
        sys.modules["jupyterhub.spawner"].Popen = _PopenOfHub  # type: ignore[attr-defined]
        sys.modules["jupyterhub.services.service"].Popen = _PopenOfHub  # type: ignore[attr-defined]


def _show(words: Sequence[str], env: Mapping[str, str]) -> None:
    """Let /proc/self/cmdline and environ say what they would, had this program been started as usual.

    The kernel reads both where the first stack frame of the nursery left them (proc(5), stat, fields 48 to 51).
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, after, environ, end = (int(fields[number - 3]) for number in (48, 49, 50, 51))
    for start, stop, parts in (
        (arguments, after, words),
        (environ, end, [f"{key}={value}" for key, value in env.items()]),
    ):
        text = b"".join(os.fsencode(part) + b"\0" for part in parts)[: stop - start - 1]
        ctypes.memset(start, 0, stop - start)
        ctypes.memmove(start, text, len(text))


def _hold() -> None:
    """Make the imports. What this Python lacks is left out; what warns or fails does so again in the child."""
    import gc
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # as in conftest.py
        offered = [entry.module for group in OFFERED_TO_A_HUB for entry in entry_points(group=group)]
        theirs = [name for name in offered if not name.startswith("hub_extensions.")]
        for name in (*HELD, *theirs):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        for rehearse in (_rehearse_hub, _rehearse_service, _ask_no_yarn):
            with contextlib.suppress(Exception):
                rehearse()
    importlib.import_module("tests.secret_notes").watch()
    gc.collect()
    gc.freeze()


def _rehearse_hub() -> None:
    """What each hub would work out anew: SQLAlchemy of JupyterHub's tables, and five times what packages offer it."""
    import sqlalchemy as sa
    from jupyterhub import orm, traitlets
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import StaticPool

    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    orm.Base.metadata.create_all(engine)
    with Session(engine) as session:
        for mapper in orm.Base.registry.mappers:
            session.query(mapper.class_).first()
    engine.dispose()
    traitlets.entry_points = functools.cache(traitlets.entry_points)
    for group in (*OFFERED_TO_A_HUB, "jupyterhub.proxies"):
        traitlets.entry_points(group=group)


def _rehearse_service() -> None:
    """What each service would work out anew: pydantic of the messages that most of them meet, and the packed tables."""
    from hub_extensions.adapters.files import mig_tables, settings_file
    from hub_extensions.core import messages
    from hub_extensions.hub_service.http.api import codec
    from hub_extensions.hub_service.setup.settings import Settings

    mig_tables.packed_tables()
    settings_file._adapter(Settings)
    for name in MESSAGES:
        codec._adapter(getattr(messages, name))


def _ask_no_yarn() -> None:
    """A JupyterLab asks Yarn at each start for settings that only matter where a JupyterLab is built."""
    vars(sys.modules["jupyterlab.commands"])["_yarn_config"] = lambda logger: {"yarn config": {}, "npm config": {}}


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    # not this copy of the module but the one that its children import too
    itself = importlib.import_module("tests.warm")
    itself._hold()
    itself._serve(socket.socket(fileno=int(sys.argv[1])))
