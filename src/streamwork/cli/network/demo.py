"""`Demo`: the whole run.

1. Start both jobs, each with a Spark of its own.
2. Send transactions. Meanwhile kill processes by schedule, and watch the recoveries.
3. Let system usage count what was sent.
4. Stop everything.
5. Count independently, and judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import msgspec
import psutil

from streamwork.cli.network.counts import read_counts, repeated_rows
from streamwork.cli.network.incident import Incident, seen
from streamwork.cli.network.reading import Reader, Snapshot
from streamwork.cli.network.schedule import Fault, Job, schedule
from streamwork.cli.network.state import Note, Rates, Show, State, recovered_text
from streamwork.cli.network.summary import Report, Summary, summarise
from streamwork.cli.network.system import NoVictim, Places, System
from streamwork.cli.network.verdict import judge
from streamwork.wording import plural
from streamwork.world import RealClock

POLL_SECONDS = 0.5
START_SECONDS = 240.0
"""In which both jobs must run, and the first transaction must be sent."""
CATCH_UP_SECONDS = 120.0
ROUND_SECONDS = 600.0
"""Seconds of traffic of one sender, if the demo runs until Ctrl-C."""
LAST_FAULT = 5.0
"""A fault that had to wait for a recovery is left out if fewer seconds of traffic are left."""


class Interrupted(Exception):
    """The demo was ended at once."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float | None = 90.0  # of traffic; None: until it is stopped
    rate: float = 100.0
    seed: int = 0
    checkpoint_every: str = "3s"  # of system usage


class Ending:
    """Requests of the user to end: the first one ends the traffic, the second one everything."""

    def __init__(self) -> None:
        self.requests = 0

    def ask(self, *_: object) -> None:
        self.requests += 1


class Demo:
    def __init__(self, options: Options, places: Places, show: Show, ending: Ending) -> None:
        self._options = options
        self._places = places
        self._show = show
        self._ending = ending
        self._began = time.monotonic()
        self._reader = Reader(places, RealClock())
        self._rates = Rates()
        self._now = Snapshot(at=0.0)
        self._incidents: list[Incident] = []
        self._traffic_at: float | None = None
        self._reports: list[Report] = []
        self._faults: Iterator[Fault] = iter(schedule(options.seconds, options.seed))
        self._next = next(self._faults, None)

    def run(self) -> Summary:
        """Raises JobFailed if a job or the sender fails by itself, and `Interrupted`."""
        options = self._options
        with System(self._places, options.rate, options.checkpoint_every) as system:
            self._start(system)  # 1
            self._send(system)  # 2
            self._catch_up(system)  # 3
            load = psutil.getloadavg()[0]
            self._say("stopping both jobs")  # 4
        self._say("counting the log, the result store and the rows of system usage")
        verdict = judge(read_counts(self._places))  # 5
        machine = psutil.cpu_count() or 1, load
        return summarise(options.seed, verdict, self._reports, self._incidents, self._now, machine)

    # ---- the steps ---------------------------------------------------------------------------------------------------

    def _start(self, system: System) -> None:
        self._say("starting Spark for fraud detection (live, at-most-once)")
        system.jobs[Job.FRAUD].start()
        self._wait(system, "starting Spark", self._places.log.joinpath("log.json").exists)  # the job creates its log
        self._say("starting Spark for system usage (microbatch, exactly-once)")
        system.jobs[Job.USAGE].start()
        self._wait(system, "starting Spark", lambda: all(self._now.job(job).running for job in Job))
        self._say("both jobs run; the sender gives each card a history")
        self._next_sender(system, 0)
        self._wait(system, "sending histories", lambda: self._now.sent is not None)
        assert self._now.sent is not None
        self._traffic_at = self._now.at - self._now.sent.seconds
        self._rates = Rates()  # the rate of histories would dwarf the others
        self._say(f"sending {plural(round(self._options.rate), 'transaction')} per second")

    def _send(self, system: System) -> None:
        for number in count(1):
            assert system.sender is not None
            asked = False
            while system.sender.code is None:
                self._tick(system, "stopping the sender" if asked else "running")
                if self._ending.requests and not asked:
                    asked = True
                    self._say("stopping: what was sent is counted first; Ctrl-C again ends at once")
                    system.sender.ask_to_stop()
                if not asked:
                    self._inject(system)
            self._tick(system, "running")
            self._reports.append(msgspec.json.decode(self._places.report.read_bytes(), type=Report))
            if asked or self._options.seconds is not None:
                return
            self._next_sender(system, number)

    def _catch_up(self, system: System) -> None:
        self._say("no more transactions; system usage catches up")

        def is_done() -> bool:
            return not self._now.behind and all(one.recovered is not None for one in self._incidents)

        try:
            self._wait(system, "catching up", is_done, CATCH_UP_SECONDS)
        except TimeoutError:
            self._say(f"not caught up after {CATCH_UP_SECONDS:g} s", good=False)

    def _next_sender(self, system: System, number: int) -> None:
        seconds = ROUND_SECONDS if self._options.seconds is None else self._options.seconds
        system.send(seconds, self._options.seed + number, START_SECONDS)

    # ---- the parts of a step ------------------------------------------------------------------------------------------

    def _wait(self, system: System, phase: str, done: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Raises TimeoutError; during the start, a request to end is `Interrupted`."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"{phase}: not done after {seconds:g} s")
            self._tick(system, phase)
            if self._ending.requests and self._traffic_at is None:
                raise Interrupted

    def _tick(self, system: System, phase: str) -> None:
        """Sleep, read, show."""
        due = self._now.at + POLL_SECONDS
        time.sleep(max(0.05, due - self._seconds()))
        if self._ending.requests > 1:
            raise Interrupted
        system.check()
        self._now = self._reader.read(system, self._seconds())
        self._rates.add(self._now)
        self._incidents = [self._watch(one) for one in self._incidents]
        traffic = 0.0 if self._traffic_at is None else self._now.at - self._traffic_at
        self._show.update(
            State(
                phase=phase,
                traffic=traffic,
                seconds=self._options.seconds,
                now=self._now,
                incidents=tuple(self._incidents),
                decided=tuple(self._rates.decided),
                counted=tuple(self._rates.counted),
            )
        )

    def _watch(self, incident: Incident) -> Incident:
        after = seen(incident, self._now)
        if after.recovered is None or incident.recovered is not None:
            return after
        if after.victim.job is Job.USAGE:
            after = msgspec.structs.replace(after, repeated=repeated_rows(self._places))
        self._say(recovered_text(after), good=not after.repeated)
        return after

    def _inject(self, system: System) -> None:
        """Kill what is due, unless its job has not recovered from the last fault."""
        fault, traffic = self._next, self._now.at - (self._traffic_at or 0.0)
        if fault is None or traffic < fault.at:
            return
        if self._options.seconds is not None and traffic > self._options.seconds - LAST_FAULT:
            self._next = None
            return
        if any(one.recovered is None and one.victim.job is fault.victim.job for one in self._incidents):
            return
        try:
            what = system.kill(fault)
        except NoVictim:
            return
        at = self._seconds()
        self._say(f"kill -9 {what}", good=False)
        before = self._reader.read(system, self._seconds())
        self._incidents.append(
            Incident(victim=fault.victim, what=what, at=at, traffic=round(traffic, 1), before=before)
        )
        self._next = next(self._faults, None)

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _say(self, text: str, good: bool | None = None) -> None:
        self._show.note(Note(self._seconds(), text, good))
