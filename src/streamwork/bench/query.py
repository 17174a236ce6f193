"""``streamwork bench query``: how fast the state of a job answers over HTTP, when the job is idle and at full speed.

    get       one key per request over kept connections: `get_per_s` with eight of them, `get_p99_ms` with the Python client
    get_many  many keys per request with the Python client, decoded to records
    busy      the job counts at full speed while gets come at a fixed rate. Latency counts from the time at which a get was due.
              In turn with stretches in which the server is stopped: `job_slowdown` is the job's speed there over that with it
    redis     the same keys by MGET with hiredis, decoded to equal records

Every answer is compared with the counts that numpy has, before a speed is reported: of the idle job at its last checkpoint, of the
busy one with the counts at the checkpoint that the answer names.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.epochs import Array
from streamwork.bench.keyed_state_job import COUNTS, Use
from streamwork.bench.peers import Unavailable, environment, peer_folder
from streamwork.bench.query_job import EPOCH_EVENTS, NAME, start
from streamwork.bench.spread import spread
from streamwork.epoch.job_folder import open_store
from streamwork.errors import JobFailed
from streamwork.log import EventLog
from streamwork.query import State, connect

Note = Callable[[str], None]
APPENDED = 50_000


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    keys: int = 1_000_000
    gets: int = 20_000
    many: int = 200_000  # keys in a repeat
    at_a_time: int = 10_000
    connections: int = 8
    repeats: int = 5
    busy_events: int = 20_000_000
    stretch: float = 5.0  # seconds
    stretches: int = 6  # every other one without the server
    rate: int = 200  # gets per second


FULL = Sizes()
QUICK = Sizes(
    keys=2_000,
    gets=200,
    many=2_000,
    at_a_time=500,
    connections=2,
    repeats=1,
    busy_events=4_000_000,
    stretch=0.4,
    stretches=2,
)


class Wrong(AssertionError):
    """An answer is wrong: no speed is reported."""


def run(
    folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None, redis: str | None = None
) -> dict[str, Any]:
    """Measure and return all figures. `redis` is the URL of an empty database; without it there is no peer."""
    with tempfile.TemporaryDirectory(prefix="bench-query-", dir=folder) as name:
        asked = Asked(Path(name), sizes, note)
        note(f"making a state of {sizes.keys:,} keys")
        asked.fill()
        with asked.served() as (process, url, token):
            note("idle: one key")
            found = asked.measure_gets(url, token)
            note("idle: many keys")
            many = asked.measure_many(url, token)
            peer = asked.measure_redis(redis)
            note("busy")
            found["busy"] = asked.measure_busy(process, url, token)
            found["server_rss_mb"] = asked.rss
    ratio = None if peer is None else round(many["median"] / peer["median"], 3)
    return {
        "sizes": msgspec.to_builtins(sizes),
        **found,
        "get_many_keys_per_s": many["median"],
        "redis_keys_per_s": None if peer is None else peer["median"],
        "ratio_vs_redis": ratio,
        "spread": found.pop("spread")
        | {"get_many_keys_per_s": many}
        | ({} if peer is None else {"redis_keys_per_s": peer}),
    }


class Asked:
    def __init__(self, folder: Path, sizes: Sizes, note: Note) -> None:
        self._folder = folder
        self._sizes = sizes
        self._note = note
        self._rng = np.random.default_rng(11)
        self._events = [np.arange(sizes.keys)]
        self.rss = 0

    def fill(self) -> None:
        log = EventLog.create(self._folder / "log", Use, key="card", partitions=1)
        with contextlib.closing(log):
            self._append(log, self._events[0])
        start(self._folder, columns=True)
        self._counts = np.ones(self._sizes.keys, np.int64)

    def _append(self, log: EventLog[Any], keys: Array) -> None:
        for first in range(0, len(keys), APPENDED):
            some = keys[first : first + APPENDED]
            cards = pa.array(some).cast(pa.string())
            log.append(pa.record_batch({"id": np.arange(len(some)), "card": cards, "amount": np.ones(len(some))}))

    @contextlib.contextmanager
    def served(self) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
        root = self._folder / "root"
        command = [sys.executable, "-m", "streamwork", "serve", "--root", str(root), NAME, "--listen", "0"]
        command += ["--cache", str(self._folder / "cache")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                found = re.search(r" at (http://\S+), ", process.stdout.readline())
                assert found is not None
                token = (root / "access.token").read_text().strip()
                with connect(found[1], token) as state:
                    wait_until_read(state)
                yield process, found[1], token
            finally:
                process.send_signal(signal.SIGCONT)
                process.terminate()

    # ---- idle -----------------------------------------------------------------------------------------------------

    def measure_gets(self, url: str, token: str) -> dict[str, Any]:
        sizes = self._sizes
        speeds, latencies = [], []
        for _ in range(sizes.repeats):
            keys = self._rng.integers(0, sizes.keys, sizes.gets)
            seconds, bodies = hammer(url, token, keys, sizes.connections)
            for key, body in zip(keys.tolist(), bodies, strict=True):
                self._check(key, json.loads(body)["record"]["count"], self._counts[key])
            speeds.append(sizes.gets / seconds)
        with connect(url, token) as state:
            component = state[COUNTS]
            for _ in range(sizes.repeats):
                taken = []
                for key in self._rng.integers(0, sizes.keys, sizes.gets // 4).tolist():
                    began = time.perf_counter()
                    answer = component.get(str(key))
                    taken.append((time.perf_counter() - began) * 1000)
                    self._check(key, answer.record.count if answer.record else 0, self._counts[key])
                latencies.append(taken)
        p50, p99 = (spread([float(np.percentile(one, p)) for one in latencies]) for p in (50, 99))
        per_s, client = spread(speeds, 0), spread([1000 / float(np.mean(one)) for one in latencies], 0)
        return {
            "get_per_s": per_s["median"],
            "get_p50_ms": p50["median"],
            "get_p99_ms": p99["median"],
            "client_get_per_s": client["median"],
            "spread": {"get_per_s": per_s, "get_p50_ms": p50, "get_p99_ms": p99, "client_get_per_s": client},
        }

    def measure_many(self, url: str, token: str) -> dict[str, Any]:
        sizes, speeds = self._sizes, []
        self._many = self._rng.integers(0, sizes.keys, sizes.many)
        names = [str(key) for key in self._many.tolist()]
        with connect(url, token) as state:
            component = state[COUNTS]
            for _ in range(sizes.repeats):
                began, found = time.perf_counter(), []
                for first in range(0, len(names), sizes.at_a_time):
                    found += component.get_many(names[first : first + sizes.at_a_time]).records
                speeds.append(len(names) / (time.perf_counter() - began))
                counts = [one.count if one else 0 for one in found]
                if counts != self._counts[self._many].tolist():
                    raise Wrong("get_many")
        return spread(speeds, 0)

    def measure_redis(self, url: str | None) -> dict[str, Any] | None:
        if url is None:
            return None
        self._note("Redis")
        try:
            home = peer_folder("redis")
            python = environment("redis", home / "requirements.txt")
        except Unavailable as missing:
            self._note(f"Redis cannot be measured: {missing}")
            return None
        files = self._folder / "counts.bin", self._folder / "keys.bin"
        for path, values in zip(files, (self._counts, self._many), strict=True):
            path.write_bytes(values.astype("<i8").tobytes())
        command = [python, home / "gets.py", url, *files, self._sizes.at_a_time, self._sizes.repeats]
        done = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False)
        if done.returncode and "a count is wrong" not in done.stderr:
            self._note(f"Redis cannot be measured: {done.stderr.strip()[-300:]}")
            return None
        if done.returncode:
            raise Wrong(f"Redis: {done.stderr.strip()[-300:]}")
        return spread(json.loads(done.stdout)["keys_per_s"], 0)

    # ---- busy -----------------------------------------------------------------------------------------------------

    def measure_busy(self, server: subprocess.Popen[str], url: str, token: str) -> dict[str, Any]:
        sizes = self._sizes
        self._events.append(self._rng.integers(0, sizes.keys, sizes.busy_events))
        with contextlib.closing(EventLog(self._folder / "log", Use)) as log:
            self._append(log, self._events[1])
        store = open_store(self._folder / "root", NAME)
        job = subprocess.Popen([sys.executable, "-m", "streamwork.bench.query_job", str(self._folder)])
        marks: list[tuple[bool, float, float]] = []
        latencies: list[float] = []
        answers: list[tuple[int, int, int]] = []

        def wait_for(checkpoints: int) -> None:
            begun = store.completed()[-1]
            while store.completed()[-1] < begun + checkpoints and job.poll() is None:
                time.sleep(0.05)

        try:
            wait_for(3)
            for number in range(sizes.stretches):
                on = number % 2 == 0
                server.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
                if on:
                    time.sleep(0.5)  # it reads what it has missed
                first = time.time()
                if on:
                    some_latencies, some_answers = self._open_loop(url, token)
                    latencies += some_latencies
                    answers += some_answers
                else:
                    time.sleep(sizes.stretch)
                marks.append((on, first, time.time()))
                if job.poll() is not None:
                    raise Wrong("the job had too few events")
            wait_for(1)  # the speed in the last stretch is known when it is there
        finally:
            server.send_signal(signal.SIGCONT)
            self.rss = _rss(server.pid)
            job.terminate()
            job.wait()
        times = sorted(
            (store.written_at(n), sum(store.manifest(n).positions.of("uses").values())) for n in store.completed()
        )
        self._check_busy(answers)
        on_rates, off_rates = ([_rate(times, a, b) for was, a, b in marks if was is which] for which in (True, False))
        return {
            "gets": len(latencies),
            "get_p50_ms": round(float(np.percentile(latencies, 50)), 3),
            "get_p99_ms": round(float(np.percentile(latencies, 99)), 3),
            "get_max_ms": round(max(latencies), 3),
            "events_per_s": round(float(np.median(on_rates))),
            "events_per_s_without": round(float(np.median(off_rates))),
            "job_slowdown": round(float(np.median(off_rates) / np.median(on_rates)), 3),
        }

    def _open_loop(self, url: str, token: str) -> tuple[list[float], list[tuple[int, int, int]]]:
        """Latencies in ms from the time at which each get was due, and (key, checkpoint, count)."""
        sizes = self._sizes
        keys = self._rng.integers(0, sizes.keys, int(sizes.rate * sizes.stretch)).tolist()
        latencies: list[float] = [0.0] * len(keys)
        answers: list[tuple[int, int, int]] = [(0, 0, 0)] * len(keys)
        began = time.perf_counter() + 0.05

        def ask(number: int) -> None:
            with connect(url, token) as state:
                component = state[COUNTS]
                for place in range(number, len(keys), 4):
                    due = began + place / sizes.rate
                    if (left := due - time.perf_counter()) > 0:
                        time.sleep(left)
                    answer = component.get(str(keys[place]))
                    latencies[place] = (time.perf_counter() - due) * 1000
                    answers[place] = keys[place], answer.epoch, answer.record.count if answer.record else 0

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return latencies, answers

    def _check_busy(self, answers: list[tuple[int, int, int]]) -> None:
        """Each epoch has `EPOCH_EVENTS` events, so the fold up to its end is known without its manifest."""
        events = np.concatenate(self._events)
        first = -(-self._sizes.keys // EPOCH_EVENTS)
        order = np.argsort(events, kind="stable")
        ordered = events[order]
        for key, epoch, count in answers:
            later = self._sizes.keys + (epoch - first) * EPOCH_EVENTS
            end = later if epoch > first else min(epoch * EPOCH_EVENTS, self._sizes.keys)
            low, high = np.searchsorted(ordered, [key, key + 1])
            self._check(key, count, int(np.count_nonzero(order[low:high] < end)))

    def _check(self, key: int, found: int, wanted: int) -> None:
        if found != wanted:
            raise Wrong(f"{key} was used {wanted} times, and the answer is {found}")


def wait_until_read(state: State) -> None:
    """Until the server has read the job."""
    while True:
        try:
            state.components()
        except JobFailed:
            time.sleep(0.05)
        else:
            return


def hammer(url: str, token: str, keys: Array, connections: int) -> tuple[float, list[bytes]]:
    """Get keys over several kept connections, one request at a time on each: (seconds, the bodies)."""
    host, _, port = url.removeprefix("http://").partition(":")
    head = f"HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    requests = [f"GET /state/{COUNTS}/{key} {head}".encode() for key in keys.tolist()]
    sockets = [socket.create_connection((host, int(port))) for _ in range(connections)]
    for one in sockets:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bodies: list[bytes] = []
    began = time.perf_counter()
    try:
        for first in range(0, len(requests), connections):
            some = requests[first : first + connections]
            for one, request in zip(sockets, some, strict=False):
                one.sendall(request)
            bodies += [_body(one) for one, _ in zip(sockets, some, strict=False)]
        return time.perf_counter() - began, bodies
    finally:
        for one in sockets:
            one.close()


def _body(connection: socket.socket) -> bytes:
    found = connection.recv(65_536)
    head, _, body = found.partition(b"\r\n\r\n")
    size = int(cast(re.Match[bytes], re.search(rb"content-length: (\d+)", head))[1])
    while len(body) < size:
        body += connection.recv(65_536)
    if not head.startswith(b"HTTP/1.1 200"):
        raise Wrong(body[:200].decode(errors="replace"))
    return body


def _rate(times: list[tuple[float, int]], begin: float, end: float) -> float:
    """Events per second in a stretch; between two checkpoints they count evenly."""
    moments, events = zip(*times, strict=True)
    first, last = np.interp([begin, end], moments, events)
    if last <= first:
        raise Wrong("the job completed no checkpoint in a stretch")
    return float(last - first) / (end - begin)


def _rss(process: int) -> int:
    import psutil

    return round(psutil.Process(process).memory_info().rss / (1 << 20))
