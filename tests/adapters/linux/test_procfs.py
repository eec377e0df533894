"""The mark of a lease is found wherever a process went, and a signal never hits somebody else. Real processes only."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.linux.procfs import Process
from tests.patience import patient, until

pytestmark = pytest.mark.programs

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def lease() -> Iterator[str]:
    """A lease id of this test's own; whatever still carries it afterwards is ended."""
    name = f"lease-{uuid.uuid4().hex}"
    yield name
    for process in carrying(name):
        procfs.send_signal(process.pid, process.started, signal.SIGKILL)


def carrying(lease: str) -> list[Process]:
    return [process for process in procfs.marked() if process.lease == lease]


def environment(lease: str, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "JUPYTERHUB_GPU_LEASE": lease, **more}


def started(pid: int) -> int:
    ticks = procfs.start_time(pid)
    assert ticks is not None
    return ticks


def test_a_process_with_the_mark_is_found_with_what_it_is(lease: str) -> None:
    child = subprocess.Popen(SLEEP, env=environment(lease, CUDA_VISIBLE_DEVICES="MIG-one"))
    try:
        until(lambda: bool(carrying(lease)))
        (found,) = carrying(lease)
        assert (found.pid, found.ppid, found.uid) == (child.pid, os.getpid(), os.getuid())
        assert found.started == started(child.pid)
        assert found.command.startswith("python")
        assert found.device == "MIG-one"
        assert not found.kernel
        until(lambda: carrying(lease)[0].rss_bytes > 1_000_000)
    finally:
        child.kill()
        child.wait()


def test_a_nohup_child_keeps_the_mark_after_its_parent_ended(lease: str) -> None:
    shell = subprocess.run(
        ["sh", "-c", 'nohup sh -c "sleep 60; :" >/dev/null 2>&1 & echo $!'],
        env=environment(lease),
        stdout=subprocess.PIPE,
        check=True,
    )
    left = int(shell.stdout)
    until(lambda: left in {process.pid for process in carrying(lease)})


def test_a_daemon_that_forked_twice_keeps_the_mark(lease: str) -> None:
    """Double fork and setsid: its parent is not the server any more, its environment still is."""
    code = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.execvp('sleep', ['sleep', '60'])\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(lease), check=True)
    until(lambda: [process.command for process in carrying(lease)] == ["sleep"])
    (daemon,) = carrying(lease)
    assert os.getsid(daemon.pid) != os.getsid(0)


def test_a_child_started_with_an_empty_environment_has_no_mark(lease: str) -> None:
    child = subprocess.Popen(["env", "-i", "sleep", "60"], env=environment(lease))
    try:
        # Before its exec() it is env itself and does carry the mark: the scan must not remember that.
        until(lambda: not carrying(lease))
        found = procfs.describe(child.pid)
        assert found is not None and found.lease is None
    finally:
        child.kill()
        child.wait()


def test_a_program_that_wrote_over_the_beginning_of_its_environment_keeps_its_mark(lease: str) -> None:
    """As those do that show a title of their own in the list of processes."""
    code = (
        "import ctypes, time; environ = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), 'environ');"
        "ctypes.memset(environ[0], 0, 4); print(flush=True); time.sleep(60)"
    )
    own = {"FIRST": "a title", "JUPYTERHUB_GPU_LEASE": lease}
    with subprocess.Popen([sys.executable, "-c", code], env=own, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            with open(f"/proc/{child.pid}/environ", "rb") as file:
                assert file.read(5) == b"\0\0\0\0T"
            assert [process.pid for process in carrying(lease)] == [child.pid]
        finally:
            child.kill()


def test_the_mark_is_seen_although_the_process_was_scanned_before_its_exec(lease: str) -> None:
    """A server is forked from the hub, without the mark, and gets it with exec(): same pid, same start time."""
    code = (
        "import os, sys; sys.stdin.readline();"
        "os.execve('/bin/sleep', ['sleep', '60'], {'JUPYTERHUB_GPU_LEASE': sys.argv[1]})"
    )
    child = subprocess.Popen([sys.executable, "-c", code, lease], env={}, stdin=subprocess.PIPE)
    try:
        assert carrying(lease) == []
        before = started(child.pid)
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
        until(lambda: bool(carrying(lease)))
        assert [(process.pid, process.started) for process in carrying(lease)] == [(child.pid, before)]
    finally:
        child.kill()
        child.wait()


def test_a_kernel_and_its_children_are_known_with_their_notebook(lease: str) -> None:
    kernel = environment(lease, JPY_PARENT_PID="1", JPY_SESSION_NAME="/home/ada/work/train model.ipynb")
    child = subprocess.Popen(["sh", "-c", "sleep 60; :"], env=kernel)
    try:
        until(lambda: len(carrying(lease)) == 2)
        assert {process.notebook for process in carrying(lease)} == {"train model.ipynb"}
        assert all(process.kernel for process in carrying(lease))
    finally:
        child.kill()
        child.wait()


def test_processor_time_grows_with_work(lease: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"], env=environment(lease))
    try:
        until(lambda: bool(carrying(lease)) and carrying(lease)[0].cpu_seconds >= 0.2)
    finally:
        child.kill()
        child.wait()


def test_a_zombie_does_not_count(lease: str) -> None:
    child = subprocess.Popen(SLEEP, env=environment(lease))
    until(lambda: bool(carrying(lease)))
    began = started(child.pid)
    child.kill()
    try:
        until(lambda: not procfs.alive(child.pid, began))
        assert os.path.exists(f"/proc/{child.pid}"), "it is still a zombie: nobody waited for it"
        assert carrying(lease) == []
        assert procfs.describe(child.pid) is None
        assert not procfs.send_signal(child.pid, began, signal.SIGTERM)
    finally:
        child.wait()


def test_a_program_whose_main_thread_ended_still_counts(lease: str) -> None:
    """It looks like a zombie, but its other threads run on and may hold the GPU."""
    exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        f"ctypes.CDLL(None).syscall({exit_thread}, 0)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], env=environment(lease))
    try:

        def main_thread_ended() -> bool:
            with open(f"/proc/{child.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"

        until(main_thread_ended)
        assert [process.pid for process in carrying(lease)] == [child.pid]
        assert procfs.send_signal(child.pid, started(child.pid), signal.SIGKILL)
        assert child.wait(timeout=patient(10)) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_a_signal_reaches_the_process_it_is_meant_for(lease: str) -> None:
    child = subprocess.Popen(SLEEP, env=environment(lease))
    assert procfs.send_signal(child.pid, started(child.pid), signal.SIGTERM)
    assert child.wait(timeout=patient(10)) == -signal.SIGTERM


def test_a_pid_that_was_used_again_is_neither_alive_nor_hit(lease: str) -> None:
    """The pid is somebody else's now: what we know began at another time."""
    child = subprocess.Popen(SLEEP, env=environment(lease))
    try:
        earlier = started(child.pid) - 1
        assert not procfs.alive(child.pid, earlier)
        assert not procfs.send_signal(child.pid, earlier, signal.SIGKILL)
        assert procfs.alive(child.pid, started(child.pid))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_gone_is_told_as_gone() -> None:
    child = subprocess.Popen(["true"])
    began = procfs.start_time(child.pid)
    child.wait()
    assert procfs.start_time(child.pid) is None
    assert procfs.describe(child.pid) is None
    assert not procfs.alive(child.pid, began or 0)
    assert not procfs.send_signal(child.pid, began or 0, signal.SIGTERM)


def test_a_name_with_brackets_and_spaces_is_read() -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) R (b 1', 0, 0, 0); print(flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = procfs.describe(child.pid)
        assert found is not None and found.ppid == os.getpid()
    finally:
        assert child.stdout is not None
        child.stdout.close()
        child.kill()
        child.wait()


@pytest.mark.needs("root")
def test_a_stranger_s_processes_are_counted_as_unreadable(lease: str) -> None:
    """Asked by an unprivileged account, the environment of another person's server stays unread, and is counted."""
    child = subprocess.Popen(["sleep", "60"], env=environment(lease), user=54321)
    asker = (
        "import os; from hub_extensions.adapters.linux import procfs as p; os.setuid(54322);"
        "print(p.unreadable(), sum(x.lease == %r for x in p.marked()))"
    )
    try:
        seen = subprocess.run([sys.executable, "-c", asker % lease], capture_output=True, text=True, check=True)
        count, found = seen.stdout.split()
        assert int(count) >= 1
        assert found == "0"
        assert [process.owner for process in carrying(lease)] == ["54321"]
    finally:
        child.kill()
        child.wait()


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("mount", "asker", "unread", "hidden", "alive"),
    [
        ("", 54322, True, False, True),
        ("", 0, False, False, True),
        ("hidepid=1", 54322, True, False, None),
        ("hidepid=2", 54322, False, True, None),
        ("hidepid=2", 0, False, False, True),
        ("hidepid=2,gid=54322", 54322, True, False, True),
    ],
)
def test_a_scan_says_whose_marks_it_could_not_read(
    lease: str, mount: str, asker: int, unread: bool, hidden: bool, alive: bool | None
) -> None:
    child = subprocess.Popen(["sleep", "60"], env=environment(lease), user=54321)
    try:
        until(lambda: len(carrying(lease)) == 1)
        code = (
            f"import os; from hub_extensions.adapters.linux import procfs as p; os.setgid({asker}); os.setuid({asker});"
            "found = p.scan(); print(54321 in found.unread, found.hidden,"
            f"p.liveness({child.pid}, {procfs.start_time(child.pid)}), p.liveness(2**22 - 3, 1))"
        )
        remounted = f"mount -t proc -o {mount} proc /proc && " if mount else ""
        command = ["unshare", "--mount", "sh", "-c", f'{remounted}exec "$0" -c "$1"', sys.executable, code]
        seen = subprocess.run(command, capture_output=True, text=True, check=True)
        assert seen.stdout.split() == [str(unread), str(hidden), str(alive), "False"]
    finally:
        child.kill()
        child.wait()


def test_a_scan_reads_of_a_process_that_it_knows_one_small_file(lease: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is quick enough to run every second."""
    opened: list[str] = []

    def noted(path: str, mode: str) -> Any:
        opened.append(path)
        return open(path, mode)

    children = [subprocess.Popen(["sleep", "60"], env=environment(lease)) for _ in range(100)]
    try:
        until(lambda: len(carrying(lease)) == 100)
        monkeypatch.setattr(procfs, "open", noted, raising=False)
        procfs.marked()
        assert [opened.count(f"/proc/{child.pid}/stat") for child in children] == [1] * 100
        theirs = tuple(f"/proc/{child.pid}/" for child in children)
        assert sum(path.startswith(theirs) for path in opened) == 100
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_a_program_is_seen_from_the_moment_its_start_is_known() -> None:
    """In the middle of an exec() a process shows no environment: whoever looks then has to look twice."""
    started = []
    try:
        for number in range(60):
            child = subprocess.Popen(["sleep", "30"], env={**os.environ, "JUPYTERHUB_GPU_LEASE": f"at-once-{number}"})
            started.append(child)
            assert child.pid in {process.pid for process in procfs.marked()}
    finally:
        for child in started:
            child.kill()
            child.wait()
