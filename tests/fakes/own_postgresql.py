"""A PostgreSQL server of a test's own, which it may stop and start."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.machine_needs import postgresql_programs
from tests.patience import patient

PLAIN_UID = 65534


class PostgreSQL:
    """One server of our own, on a free port of 127.0.0.1, with its socket and data in `folder`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.data = folder / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._as_plain: dict[str, int] = {}
        if os.geteuid() == 0:
            account = pwd.getpwuid(PLAIN_UID)
            os.chown(folder, account.pw_uid, account.pw_gid)
            self._as_plain = {"user": account.pw_uid, "group": account.pw_gid}
        self._run("initdb", "-D", str(self.data), "-U", "gpu", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "start", "-w", "-t", "30", "-D", str(self.data), "-l", log, "-o", options)

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-t", "30", "-m", "immediate", "-D", str(self.data))

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Its connections stay open and nobody answers on them (SIGSTOP)."""
        first = (self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n")[0]
        of_it = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="utf-8").split()
        pids = [int(pid) for pid in (first, *of_it)]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def url(self, database: str) -> str:
        return f"postgresql://gpu@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def _run(self, program: str, *arguments: str) -> None:
        # its own session: a Ctrl-C at the tests does not hit it half-way
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=True,
            timeout=patient(60),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            start_new_session=True,
            **self._as_plain,
        )


@contextlib.contextmanager
def own_server() -> Iterator[PostgreSQL]:
    """One that runs. The test carries ``needs("postgresql")``."""
    programs = postgresql_programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="gpu-postgresql-"))
    try:
        server = PostgreSQL(programs, folder)
        server.start()
        yield server
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
