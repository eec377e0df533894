"""Runs the demo: ``jupyterhub-gpu demo``.

It writes a configuration to a folder of its own, runs the hub as a child process, and ends all programs afterwards. All
demo users share one Unix account, so it is for trying only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from hub_extensions.hub_service.setup.settings import write_private
from hub_extensions.tools.demo import apps, proxy, sign_in
from hub_extensions.tools.demo.configuration import clean_environment, configuration_of
from hub_extensions.tools.demo.folder import locked, own_folder
from hub_extensions.tools.demo.plan import (
    ADMIN,
    WARNING,
    Demo,
    DemoOptions,
    check_account,
    check_programs,
    choose_gpus,
    planned,
)
from hub_extensions.tools.demo.processes import end_marked, keeping

READY_SECONDS = 120.0
HUB_STOP_SECONDS = 9.0

Echo = Callable[[str], None]


def run(options: DemoOptions, echo: Echo) -> int:
    """Run a demo until Ctrl-C, SIGTERM or the end of the hub.

    Args:
        options: the options of the command.
        echo: prints a line for the user.

    Returns:
        0 after a requested stop; 1 if the hub did not start or ended by itself.

    Raises:
        DemoRefused: the demo cannot start.
    """
    check_account()
    check_programs(options)
    folder = own_folder(options.folder, clean=options.clean)
    with locked(folder), _stop_requests() as stop:
        end_marked(folder, echo, "An earlier demo of this folder left processes behind")
        simulate, sentence = choose_gpus(options.layout)
        echo(sentence)
        demo = planned(folder, options, simulate)
        # No earlier proxy is left; its pid may be somebody else's by now, and the hub would wait for that one to end.
        for stale in ("demo.json", "proxy.pid"):
            (folder / stale).unlink(missing_ok=True)
        write_private(folder / "jupyterhub_config.py", configuration_of(demo))
        return _run(demo, stop, echo)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Provide an event that is set by Ctrl-C, SIGTERM or the closing of the terminal.

    The handler of SIGINT is set explicitly, because a shell starts background programs with SIGINT ignored.
    """
    stop = threading.Event()

    def asked(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(demo: Demo, stop: threading.Event, echo: Echo) -> int:
    """Run the sign-in service and the apps, if requested, then the hub until it ends. Return the exit status.

    Afterwards, processes of the demo that are left over are ended.

    Args:
        demo: users, ports and programs of the demo.
        stop: set by Ctrl-C or SIGTERM, which ends the demo.
        echo: prints a line for the user.
    """
    environment = clean_environment(demo.folder, os.environ)
    try:
        with ExitStack() as stack:
            stack.enter_context(keeping(demo.folder, environment))
            if demo.sign_in is not None:
                stack.enter_context(sign_in.serving(demo.sign_in, demo.folder, demo.url, environment, _answers))
            if demo.apps is not None:
                echo("Starting the apps.")
                stack.enter_context(apps.running(demo.apps, environment, stop, _answers))
            code = _run_hub(demo, stop, echo, environment)
    finally:
        end_marked(demo.folder, echo, "Some processes did not stop by themselves")
    echo("Stopped. Nothing is left running.")
    return code


def _run_hub(demo: Demo, stop: threading.Event, echo: Echo, environment: Mapping[str, str]) -> int:
    log = demo.folder / "hub.log"
    with log.open("wb") as output:
        hub = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(demo.folder / "jupyterhub_config.py")],
            cwd=demo.folder,
            env={**environment, **(demo.sign_in.variables if demo.sign_in else {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with ExitStack() as stack:
            if _becomes_ready(demo, hub, stop, echo):
                if demo.apps is not None:
                    stack.enter_context(proxy.serving(demo.apps.proxy, environment, stop))
                _publish(demo, echo)
                while hub.poll() is None and not stop.wait(0.2):
                    pass
        if stop.is_set():
            return 0
        echo(_end_of(log))
        return 1
    finally:
        _end(demo, hub, echo)


def _becomes_ready(demo: Demo, hub: subprocess.Popen[bytes], stop: threading.Event, echo: Echo) -> bool:
    began, reported_at, waiting = time.monotonic(), 0.0, list(demo.signs_of_life)
    while hub.poll() is None and not stop.is_set():
        if _answers(waiting[0]):
            waiting.pop(0)
        if not waiting:
            return True
        passed = time.monotonic() - began
        if passed > READY_SECONDS:
            echo(f"The hub was not ready within {READY_SECONDS:.0f} s.")
            return False
        if passed - reported_at >= 5:
            reported_at = passed
            echo(f"Starting the hub ({passed:.0f} s).")
        stop.wait(0.3)
    return False


def _answers(url: str) -> bool:
    # No proxy of the caller's stands between us and the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:  # not there yet: HTTPError and URLError are OSErrors
        return False


def _publish(demo: Demo, echo: Echo) -> None:
    facts: dict[str, object] = {"url": demo.url, "users": list(demo.users), "admin": ADMIN}
    if demo.sign_in is None:
        facts |= {"password": demo.password, "admin_password": demo.admin_password}
        access = (
            f"  people    {', '.join(demo.users)}\n"
            f"  password  {demo.password}\n"
            f"  admin     {ADMIN}, password {demo.admin_password}\n"
        )
    else:
        facts["sign_in_url"] = demo.sign_in.url
        access = (
            f"  people          {', '.join(demo.users)}, {ADMIN}; no passwords\n"
            f"  sign-in service {demo.sign_in.url}/ disables people, takes them out of groups, signs them out\n"
        )
    if demo.apps is not None:
        facts["apps_url"] = demo.apps.url
        access += f"  apps            {demo.apps.url}/ shows each person the apps that they may open\n"
    write_private(demo.folder / "demo.json", json.dumps(facts, indent=2) + "\n")
    echo(
        f"\nJupyterHub runs at {demo.url}\n\n"
        f"{access}\n"
        f"Also in {demo.folder / 'demo.json'}. The hub's log is {demo.folder / 'hub.log'}.\n"
        f"Note: {WARNING}.\n"
        "A server stops when its GPU was idle for 3 min (a warning comes 1 min before), or after 30 min.\n"
        "Ctrl-C stops everything."
    )


def _end_of(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    own = [each for each in text.splitlines() if each and "ConfigProxy" not in each]
    return "\n".join(["The hub ended. The last lines of its log:", *own[-20:], f"The whole log is {log}."])


def _end(demo: Demo, hub: subprocess.Popen[bytes], echo: Echo) -> None:
    """Stop the hub, which stops its servers, service and proxy. If it does not end in time, kill it.

    Args:
        demo: is not used.
        hub: the hub's process.
        echo: prints a line for the user.
    """
    if hub.poll() is None:
        echo("Stopping the hub and all servers.")
        hub.terminate()
    try:
        hub.wait(HUB_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        hub.kill()
        hub.wait()
