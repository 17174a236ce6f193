"""The text about each benchmark on the page, and the commands of those that are an option of another one."""

from __future__ import annotations

from typing import NamedTuple


class Section(NamedTuple):
    """The text about a benchmark."""

    title: str
    about: str
    names: dict[str, str] = {}


SPARK_PEER = "plain Structured Streaming in PySpark, RocksDB with changelog, from Parquet files of the same rows"
BYTEWAX_PEER = "Bytewax, one worker, without recovery: nothing is durable, and each epoch begins without state"

MODES = {
    "live": "tasks that run all the time",
    "microbatch": "one Spark job for each checkpoint, of as many events as take about a second",
}

LATENCY_SYSTEMS = {
    **MODES,
    "spark": "plain Structured Streaming, at-least-once; it triggers at the checkpoint interval",
    "flink": "Flink SQL, exactly-once",
}

PUBLISHED = (
    ("inside", "generator inside the job", "15,000,000", "a cluster"),
    ("state", "from Kafka, state in the engine", "3,000,000", "a cluster; the network was the limit"),
    ("million", "a million campaigns, written to Redis", "280,000", "a cluster"),
)
"""Figures of others, for the variants of this benchmark: events per second."""

SECTIONS = {
    "keyed-state": Section(
        "State per key",
        "A count and a total per key, exactly-once, with a checkpoint after every million events, compared with other systems "
        "on the same events. The systems compute one epoch each in turn; all counts are checked before a result is accepted. "
        "`growth` compares few keys with many: the same jobs in turn, without the other systems.",
        {
            "fused": "a `KeyedOperator`, event by event, in one chain with its source: the log is partitioned by the key",
            "shuffled": "the same after an exchange: the log is not partitioned by the key",
            "vectorised": "the same as `fused`, by `apply_batch`",
            "tws": "`transformWithStateInPandas` in plain PySpark, RocksDB with changelog",
            "native": "Spark's own streaming aggregation in plain PySpark; its output is one row per key, not one per event",
            "bytewax": BYTEWAX_PEER,
        },
    ),
    "windows": Section(
        "Windows",
        "A count and a sum per key and window, exactly-once, with a checkpoint after every million events, compared with the same "
        "query in other systems on the same events: windows of 10 s; the same every 5 s; sessions with a gap of 30 s. The systems "
        "compute one epoch each in turn; all results are checked before a speed is accepted. The ratio of a kind of window is the "
        "smaller one of `fused` and `shuffled`.",
        {
            "fused": "Streamwork in one chain with its source: the log is partitioned by the key",
            "shuffled": "the same after an exchange: the log is not partitioned by the key",
            "spark": SPARK_PEER,
            "bytewax": BYTEWAX_PEER,
        },
    ),
    "joins": Section(
        "Joins",
        "Clicks and purchases of the same user within 30 s, exactly-once, compared with the same query in other systems on the "
        "same events. The systems compute one epoch each in turn; all pairs are checked before a speed is accepted. The ratio is "
        "the smaller one of `fused` and `shuffled`.",
        {
            "fused": "Streamwork in one chain with both sources: their logs are partitioned by the key",
            "shuffled": "the same after an exchange: the logs are not partitioned by the key",
            "spark": SPARK_PEER,
            "bytewax": f"{BYTEWAX_PEER}; it has no such join, so the join is written in Python",
        },
    ),
    "semantics": Section(
        "Semantics",
        "A count per card under each of the [semantics](../semantics.md): upserted into SQLite (`sqlite`) and PostgreSQL "
        "(`postgres`), and without upserts, each count a row of its own in SQLite (`appends`). Each computes several checkpoints "
        "in turn; every table is checked, card by card, before a result is accepted. Then what an error costs (`errors`): "
        "events come at a fixed rate, one of them fails once, and all processes are killed with -9 and started again. No event "
        "may be missing or repeated beyond what the semantics allow.",
        {
            "normal_ms": "highest latency before the error, from when an event is due until its row is visible",
            "others_ms": "the same of the other events, where one event fails",
            "event_ms": "the same of the failing event; - if it is dropped",
            "gap_s": "seconds from the kill until the first new row, with the start of Spark",
            "missing": "events without a row after the kill",
            "repeated": "rows beyond the first one of an event",
        },
    ),
    "ysb-baseline": Section(
        "Yahoo streaming benchmark: the baseline",
        "How it was before: the same events from the same topic, without state in the engine and without fault tolerance. "
        "Campaigns are looked up in Redis, and cached; counts are added in Redis every second. In turn with the variant `state`.",
        {"baseline": "state in Redis, at-most-once", "state": "state in the engine, exactly-once"},
    ),
    "ysb-state": Section(
        "Yahoo streaming benchmark: from Kafka, with the state in the engine",
        "Ad events as seven-field JSON in a topic of two partitions: views are kept, joined with their campaigns, and counted per "
        "campaign and window of 10 s. Exactly-once, with a checkpoint every second, into Kafka: the counts of open windows each "
        "second, and those of closed windows. The systems read the same topic in turn, with two cores, which the broker shares. "
        "The speed of a system is that between the moments at which a consumer of committed records can read the right counts of a "
        "quarter of the windows, and of all. The mode with the higher speed counts.",
        {
            **MODES,
            "spark": "plain Structured Streaming in PySpark, written by hand; into Kafka it is at-least-once",
            "flink": "Flink SQL, exactly-once, closed windows only; without the join, which needs state for the stream there",
            "pathway": "Pathway, at-least-once, nothing is durable; without the join",
            "bytewax": "Bytewax, two workers, without recovery: nothing is durable; without the join; one run",
            "quix": "Quix Streams, exactly-once, one process; without the join; one run",
        },
    ),
    "ysb-inside": Section(
        "Yahoo streaming benchmark: the generator inside the job",
        "Ad events: views are kept, joined with their campaigns by a static table of 1,000 ads, and counted per campaign and "
        "window of 10 s; exactly-once, with a checkpoint every second, into SQLite. The generator is a source of the job. Events "
        "are typed columns with all seven fields, not text; `json` is the same with seven-field JSON. All "
        "counts are compared with a recomputation before a speed is accepted.",
        MODES,
    ),
    "ysb-log": Section(
        "Yahoo streaming benchmark: from the embedded log",
        "The same query on the same events, which are in an embedded log on the same machine, as typed columns with seven "
        "fields. The job reads three of them.",
        MODES,
    ),
    "ysb-rates": Section(
        "Yahoo streaming benchmark: latency against throughput",
        "From Kafka into Kafka, with windows of 1 s and a checkpoint every second: from when the last event of a window is due to "
        "when a consumer of committed records can read its right count. Events are sent at a fixed rate (open loop), from 10,000 a "
        "second up, until a system falls behind.",
        LATENCY_SYSTEMS,
    ),
    "ysb-batches": Section(
        "Yahoo streaming benchmark: size of a batch against latency",
        "The same at 50,000 events a second, with rising checkpoint intervals: what comes in one of them is a batch.",
        LATENCY_SYSTEMS,
    ),
    "ysb-generator": Section(
        "Yahoo streaming benchmark: the generator",
        "How many events a second two processes make, as seven-field JSON, and the broker acknowledges. Nothing reads them. "
        "Topics are filled before other variants read them, so this is no limit of theirs.",
    ),
    "ysb-million": Section(
        "Yahoo streaming benchmark: a million campaigns",
        "Each event names its campaign; the views of a million campaigns are counted in windows of 60 minutes. The results are "
        "written to Redis at each checkpoint, or read from the job's state directly. Both sides serve 500 reads a second, of "
        "random campaigns, that are to be at most 2 s old. All counts are compared with a recomputation.",
        {
            "direct": "the state answers: a query of the job's files, without an output database",
            "redis": "`RedisSink`: one hash per campaign, exactly-once",
        },
    ),
    "query": Section(
        "Queryable state",
        "The state of a job with a million keys, asked over HTTP: one key per request, many keys per request with the Python "
        "client, and 200 gets per second while the job counts at full speed in local mode. Latency counts from the time at which a "
        "get was due. The slowdown compares stretches with the server and stretches in which it is stopped. Redis: the same keys "
        "by MGET with hiredis, decoded to equal records. Every answer is compared with a recomputation before a speed is accepted.",
    ),
    "state-size": Section(
        "Size of the state",
        "The duration of an epoch with the same number of changed keys, in a small state and in a large one, in turn, "
        "including snapshots.",
        {
            "small": "as many keys as an epoch changes",
            "large": "many times more keys; an epoch changes as many as in the small state",
        },
    ),
    "recovery": Section(
        "Recovery",
        "The time from kill -9, at the most expensive point, to the first new epoch that is committed to every sink and whose "
        "results were checked.",
        {
            "short": "after few checkpoints and starts",
            "long": "after many",
            "many": "with a state of a million keys",
            "plain": "Spark without Streamwork: its start and its first job",
        },
    ),
    "savepoint": Section(
        "Savepoints",
        "A count per key with a state of a million keys, on Spark, exactly-once, and savepoints of it: what one costs the job that "
        "goes on, how long it takes to create one, to start from it in another root, and to divide the state among more "
        "instances. The state of every savepoint, start and rescaling is checked, key by key, before a time is accepted.",
        {
            "without": "an epoch without a savepoint",
            "with": "the epoch that begins with the request, and during which the savepoint is written",
            "while_writing": "epochs after that one, until the savepoint is complete",
            "restore": "every file is compared with its hash and copied, the ledgers are checked, the fence is taken",
            "driver": "the start of a driver in the new root",
            "first_epoch": "10,000 events; the state is read",
        },
    ),
    "manual": Section(
        "State by hand",
        "A count per card on the local host, with [state by hand](../manual-state.md) in SQLite and with the engine's checkpoints, "
        "at several intervals. The engine's checkpoints are as many events apart as come in an interval at the speed of "
        "`by_hand`. In a second run the process is killed with -9 after 60% of the input and started again. All counts are "
        "checked before a result is accepted.",
        {
            "by_hand": "each instance stores its own state at its interval",
            "at_least_once": "the engine's checkpoints, outputs written at once",
            "exactly_once": "the engine's checkpoints, outputs committed with them",
            "computed_again": "how many times an event was applied beyond once",
        },
    ),
    "lambda": Section(
        "Lambda",
        "The same aggregates of each card as a [lambda](../lambda.md) and as one exactly-once job, on the local host. The log "
        "grows in rounds; in each of them the streaming job and the exactly-once job read what is new, and a batch run reads "
        "everything. Then both jobs are killed with -9 within a round, and started again. All answers are compared with a "
        "recomputation.",
        {
            "stream": "the streaming job of the lambda, at-most-once",
            "batch": "batch runs of the lambda, from scratch",
            "exactly_once": "one job with the same aggregates",
            "cpu_ratio_vs_exactly_once": "CPU seconds of streaming job and batch runs over those of the one job",
            "batch_growth": "seconds of the last batch run over those of the first one",
            "lambda_after_kill": "events that are missing in the merged view after the kill, until the next batch run",
        },
    ),
    **{
        name: Section(
            f"Checkpoint interval{where}",
            "A count per card from the embedded log into SQLite, exactly-once, with several values of `checkpoint_every`. "
            "Events are appended at a fixed rate (open loop): latency is the time from when an event is due until a reader of "
            "the table sees its row. Then every process is killed with -9, when half the events of an interval have been "
            f"applied since the last visible checkpoint{kill}. The speed is that of a backlog. The table must hold every event "
            "once, with the right count, before a figure is accepted.",
            {
                "p50_ms": "latency of the median event, and so on",
                "computed_again": "how many times an event was applied beyond once, after the kill",
            },
        )
        for name, where, kill in (
            ("interval", ", microbatch", ": here a slice is computed at once, so the kill comes while one is"),
            ("interval-live", ", live", ""),
        )
    },
    "backpressure": Section(
        "Backpressure",
        "A log of two partitions is read by two tasks in live mode; all events go to one instance with the sink, which can take "
        "them. For a minute the sink takes ten times as long for each event. Under [`sources`](../backpressure.md) the sources "
        "stop (at-least-once); under `drop` new events are dropped meanwhile (at-most-once). Every event is in the output once, "
        "or counted as dropped, before a result is accepted. Memory is that of the tasks, without the JVM.",
        {
            "sources": "pausing and resuming: nothing is lost, and events are late until the backlog is done",
            "drop": "nothing stops: events are lost, and those that are not are late by a full channel at most; `buffer=1000`",
        },
    ),
    "live": Section(
        "Live",
        "The [fraud detection example](../../examples/fraud_detection/README.md), at-most-once, parallelism 1, with a checkpoint "
        "every second: the time from when a transaction is due to when its decision can be read. A sender in a process of its own "
        "sends at a fixed rate (open loop). All transactions must be decided, and the planted fraud found, before a latency is "
        "accepted. In the rows with a kill, decisions may be missing, and each transaction must be answered.",
        {
            "direct": "by direct calls",
            "http": "by HTTP: until the answer",
            "killed": "by direct calls; the named process is killed with -9 in the middle",
            "rates": "rising rates; those of `live` end when p99 is above 20 ms or a decision is missing",
        },
    ),
    "recovery-standby": Section(
        "Takeover by a standby",
        "The gap in the output of a job whose driver is killed with -9: from the last output before the kill to the first new "
        "output after it, while events are appended steadily. At the end all counts are checked.",
        {
            "known": "a standby on the machine of the driver, which finds that its process is gone",
            "unknown": "a standby that knows nothing about the driver's process: the lease must pass",
            "cold": "no standby: an ordinary start, begun at the moment of the kill",
        },
    ),
    "kafka": Section(
        "The Kafka connectors",
        "`KafkaSource` and `KafkaSink` in one process, compared with the same work by hand with confluent-kafka, from and to the "
        "same broker on the same machine: five-field JSON is read as events; rows are written in one transaction; and a "
        "transaction without rows is committed. Everything that was read and written is counted and summed before a speed is "
        "accepted. CPU seconds are those of the client.",
        {
            "json": "the source: JSON to events",
            "raw_columns": "the source: the values as they are, in an Arrow column, for operators that take columns",
            "kafka_sink": "the sink: rows, keys, and the ledger record",
            "by_hand": "confluent-kafka: `consume` and a msgspec decoder per event; a msgspec encoder and `produce` per row",
        },
    ),
    "console": Section(
        "The console",
        "A root with 100 jobs, each running, with a history of 10,000 epochs: from a request for JSON to the whole answer, "
        "over HTTP. Every answer is compared with what was written before a time is accepted.",
        {
            "first_s": "the overview, from a console that has just been started and has read nothing",
            "repeated_s": "the overview again",
            "job_s": "one job with its graph",
            "epochs_s": "a page of a hundred epochs",
            "epoch_s": "one epoch with its files",
        },
    ),
    "engine": Section(
        "The engine alone",
        "A chain with a typed keyed operator on one core, compared with a hand-written loop that produces the same rows and "
        "the same records.",
    ),
    "log": Section(
        "The log",
        "The embedded log: throughput of append and read, and the latency until another process has read an event. Latency is "
        "measured from the time at which an event was due.",
    ),
}

COMMANDS = {
    "recovery-standby": "recovery --standby",
    "interval-live": "interval --mode live",
    "kafka": "kafka --kafka {kafka}",
    "query": "query --redis {redis}",
    "ysb-baseline": "ysb --variant baseline --kafka {kafka} --redis {redis}",
    "ysb-state": "ysb --variant state --kafka {kafka}",
    "ysb-rates": "ysb --variant rates --kafka {kafka}",
    "ysb-batches": "ysb --variant batches --kafka {kafka}",
    "ysb-generator": "ysb --variant generator --kafka {kafka}",
    "ysb-inside": "ysb --variant inside",
    "ysb-log": "ysb --variant log",
    "ysb-million": "ysb --variant million --redis {redis}",
}
"""Benchmarks that are an option of another one."""
