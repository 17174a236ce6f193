"""The targets of the benchmarks, and whether they are met."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from streamwork.bench.tables import Figure, figure, number

Place = tuple[str, ...]


class Verdict(Enum):
    MET = "met"
    MOSTLY = "met by the median, not in every repeat"
    MISSED = "missed"
    UNMEASURED = "not measured"

    @property
    def met(self) -> bool:
        return self in (Verdict.MET, Verdict.MOSTLY)


class Target(NamedTuple):
    """A figure of a benchmark with its minimum or maximum."""

    bench: str
    what: str
    figure: Place  # where it is in the numbers
    least: float | None = None
    most: float | None = None
    strictly: bool = False  # the bound itself is not enough

    @property
    def wanted(self) -> str:
        bound = self.least if self.least is not None else self.most
        assert bound is not None
        words = ("more than", "under") if self.strictly else ("at least", "at most")
        return f"{words[self.least is None]} {number(bound)}"

    def measured(self, numbers: Mapping[str, Any]) -> Figure:
        """The measured figure; without a value if it is missing."""
        return _find(numbers, self.figure)

    def verdict(self, numbers: Mapping[str, Any]) -> Verdict:
        found = self.measured(numbers)
        if not isinstance(found.value, int | float):
            return Verdict.UNMEASURED
        if not self._holds(found.value):
            return Verdict.MISSED
        worst = found.low if self.least is not None else found.high
        return Verdict.MET if worst is None or self._holds(worst) else Verdict.MOSTLY

    def _holds(self, value: float) -> bool:
        if self.least is not None:
            return value > self.least if self.strictly else value >= self.least
        assert self.most is not None
        return value < self.most if self.strictly else value <= self.most


class Planned(NamedTuple):
    """A target of a benchmark that does not exist yet."""

    bench: str
    what: str


TARGETS = (
    Target("keyed-state", "`fused` against transformWithStateInPandas", ("fused", "ratio_vs_tws"), least=10),
    Target("keyed-state", "`fused` against Bytewax without recovery", ("fused", "ratio_vs_bytewax"), least=3),
    Target("keyed-state", "`shuffled` against transformWithStateInPandas", ("shuffled", "ratio_vs_tws"), least=6),
    Target("keyed-state", "`shuffled` against Bytewax without recovery", ("shuffled", "ratio_vs_bytewax"), least=1.5),
    *(
        Target(
            "keyed-state",
            f"`{way}` at 1,000,000 keys against itself at 10,000",
            ("growth", way, "ratio_many_vs_few"),
            least=least,
        )
        for way, least in (("shuffled", 0.5), ("vectorised", 0.7))
    ),
    Target("keyed-state", "`vectorised` against `fused`", ("vectorised", "ratio_vs_fused"), least=4),
    Target("keyed-state", "`vectorised` against Spark's own aggregation", ("vectorised", "ratio_vs_native"), least=3),
    *(
        Target("windows", f"{kind} windows against plain Structured Streaming", (kind, "ratio_vs_spark"), least=least)
        for kind, least in (("fixed", 1.5), ("sliding", 1.5), ("session", 2))
    ),
    Target(
        "joins",
        "two streams within a bound of time against plain Structured Streaming",
        ("time_bounded", "ratio_vs_spark"),
        least=1.5,
    ),
    Target(
        "semantics",
        "exactly-once against at-most-once, into SQLite",
        ("sqlite", "exactly_once", "ratio_vs_at_most_once"),
        least=0.94,
    ),
    Target(
        "semantics",
        "exactly-once against at-most-once, without upserts, into SQLite",
        ("appends", "exactly_once", "ratio_vs_at_most_once"),
        least=0.94,
    ),
    Target(
        "semantics",
        "exactly-once against at-most-once, into PostgreSQL",
        ("postgres", "exactly_once", "ratio_vs_at_most_once"),
        least=0.94,
    ),
    Target(
        "recovery",
        "seconds from kill -9 to the first completed new epoch, without Spark's own start",
        ("seconds", "microbatch", "short", "total_without_spark"),
        most=10,
        strictly=True,
    ),
    Target("recovery", "after a long history against after a short one", ("ratio_long_vs_short",), most=1.3),
    Target("recovery", "seconds to restore a state of 1,000,000 keys", ("restore_1m_keys_s",), most=5, strictly=True),
    Target(
        "live",
        "p99 in ms, 1,000 transactions/s by direct call, with checkpoints every second",
        ("p99_ms",),
        most=20,
        strictly=True,
    ),
    Target("live", "the same: p99, the aim", ("p99_ms",), most=10),
    Target("live", "the same: p99.9, the aim", ("p999_ms",), most=20),
    Target(
        "live",
        "longest time without a decision in ms, a task killed with -9",
        ("killed", "task", "longest_gap_ms"),
        most=5000,
        strictly=True,
    ),
    *(
        Target("recovery-standby", f"`{mode}`: {what}", ("seconds", mode, *figure), most=3, strictly=True)
        for mode in ("microbatch", "live")
        for what, figure in (
            (
                "seconds without output after kill -9, with a standby that knows that the process is gone",
                ("known", "gap"),
            ),
            ("the same beyond the lease, where nothing is known about the process", ("unknown", "beyond_lease")),
        )
    ),
    Target("backpressure", "memory of the tasks while a sink is 10x slower for 60 s", ("memory_ratio",), most=1.2),
    Target("backpressure", "the same: events lost", ("lost",), most=0),
    Target("backpressure", "the same: seconds to full speed", ("seconds_to_full_speed",), most=10),
    Target(
        "savepoint",
        "an epoch during which a savepoint of 1,000,000 keys is taken, against one without: median of 20",
        ("pause_ratio",),
        most=1.2,
    ),
    *(
        Target("query", what, place, least=least, most=most)
        for what, place, least, most in (
            ("one key per request, job idle: requests per second", ("get_per_s",), 5_000, None),
            ("one key per request, job idle: p99, ms", ("get_p99_ms",), None, 3),
            ("many keys per request, job idle: keys per second", ("get_many_keys_per_s",), 500_000, None),
            ("200 gets per second, job at full speed: p99, ms", ("busy", "get_p99_ms"), None, 20),
            ("the speed of the job without the server over that with it", ("busy", "job_slowdown"), None, 1.15),
        )
    ),
    Target(
        "console",
        "seconds to load the overview of 100 jobs of 10,000 epochs each, for the first time",
        ("first_s",),
        most=1,
        strictly=True,
    ),
    Target("state-size", "an epoch in a state of 5,000,000 keys against one of 10,000: median", ("ratio",), most=1.3),
    *(
        Target(
            f"ysb-{variant}",
            f"events per second, exactly-once, {where}; typed columns, checkpoints every second, 2 cores{aim}",
            ("events_per_s",),
            least=least,
        )
        for variant, where in (("inside", "with the generator inside the job"), ("log", "from the embedded log"))
        for least, aim in ((8_000_000, ""), (15_000_000, ": the aim"))
    ),
    Target("ysb-state", "from Kafka against hand-written plain PySpark", ("ratio_vs_spark",), least=1.2),
    Target("ysb-state", "from Kafka against Flink SQL", ("ratio_vs_flink",), least=1.5),
    *(
        Target(
            "ysb-million",
            f"a direct query of the state against results written to Redis: events per second{aim}",
            ("direct_vs_redis",),
            least=least,
        )
        for least, aim in ((3, ""), (5, ": the aim"))
    ),
    Target("state-size", "the same: p99, snapshots included", ("p99_ratio",), most=1.3),
)

PLANNED: tuple[Planned, ...] = ()


def _find(numbers: Mapping[str, Any], place: Place) -> Figure:
    """The figure at that place, with its spread if there is one."""
    node: Any = numbers
    for name in place[:-1]:
        node = node.get(name) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or place[-1] not in node:
        return Figure(None)
    spreads = node.get("spread")
    value = spreads[place[-1]] if isinstance(spreads, Mapping) and place[-1] in spreads else node[place[-1]]
    return figure(value) or Figure(None)
