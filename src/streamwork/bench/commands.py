"""``streamwork bench``: one command for each benchmark, and one for the pages made from their results."""

from __future__ import annotations

import traceback
from typing import Any

import click
import msgspec

from streamwork.bench.page import page_command
from streamwork.bench.results import SAVE, save_if_asked
from streamwork.bench.tables import show
from streamwork.bench.ysb import VARIANTS as YSB_VARIANTS
from streamwork.cli.output import JSON, print_json, say
from streamwork.errors import JobFailed
from streamwork.run.mode import Mode


class Benchmarks(click.Group):
    """A wrong result ends a benchmark with an error, and no figure is printed."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except AssertionError as wrong:
            checked = traceback.extract_tb(wrong.__traceback__)[-1].line
            raise JobFailed(
                "SW-BENCH-WRONG",
                f"a check of the results has failed: {str(wrong) or checked}",
                "run it again on a machine that does nothing else; if it fails there, too, report it",
            ) from wrong


@click.group("bench", cls=Benchmarks)
def bench_group() -> None:
    """Measure: each benchmark checks its outputs before it prints a speed."""


@bench_group.command("log")
@JSON
def bench_log_command(as_json: bool) -> None:
    """The embedded log: append, read, and the latency until another process sees an event."""
    from streamwork.bench import log as bench_log

    _print_numbers(bench_log.run(), as_json)


@bench_group.command("engine")
@JSON
def bench_engine_command(as_json: bool) -> None:
    """A chain with a typed keyed operator on one core, compared with a hand-written loop."""
    from streamwork.bench import engine as bench_engine

    _print_numbers(bench_engine.run(), as_json)


@bench_group.command("recovery")
@click.option("--standby", is_flag=True, help="Measure the gap in the output with a standby, and with a cold start.")
@click.option(
    "--mode",
    "modes",
    type=click.Choice([mode.value for mode in Mode if mode is not Mode.BATCH]),
    multiple=True,
    help="With --standby: the mode to measure  [default: microbatch and live]. May be repeated.",
)
@click.option("--quick", is_flag=True, help="With --standby: one repeat, to see that it works.")
@JSON
def bench_recovery_command(standby: bool, modes: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """The time from kill -9 to the first completed new epoch, by parts; with a long history and with a million keys."""
    if standby:
        from streamwork.bench import standby as bench_standby

        sizes = bench_standby.QUICK if quick else bench_standby.FULL
        chosen = [Mode(mode) for mode in modes] or bench_standby.MODES
        _print_numbers(bench_standby.run(sizes=sizes, note=_note, modes=chosen), as_json, "recovery --standby")
        return
    if modes or quick:
        raise click.UsageError("--mode and --quick are for --standby")
    from streamwork.bench import recovery as bench_recovery

    _print_numbers(bench_recovery.run(note=_note), as_json)


@bench_group.command("keyed-state")
@click.option("--quick", is_flag=True, help="Few events, no peers: to see that it works.")
@click.option("--keys", type=click.IntRange(min=1), multiple=True, help="Measure with so many keys. May be repeated.")
@JSON
def bench_keyed_state_command(quick: bool, keys: tuple[int, ...], as_json: bool) -> None:
    """A count per key, exactly-once, compared with Spark and Bytewax, at 2, 10 thousand and a million keys."""
    from streamwork.bench import keyed_state as bench

    _measure(bench, quick, as_json, **({"keys": keys} if keys else {}))


@bench_group.command("windows")
@click.option("--quick", is_flag=True, help="Few events, no peers: to see that it works.")
@click.option(
    "--kind", "kinds", type=click.Choice(["fixed", "sliding", "session"]), multiple=True, help="May be repeated."
)
@JSON
def bench_windows_command(quick: bool, kinds: tuple[str, ...], as_json: bool) -> None:
    """Fixed, sliding and session windows per key, exactly-once, compared with Structured Streaming and Bytewax."""
    from streamwork.bench import windows as bench

    _measure(bench, quick, as_json, **({"kinds": kinds} if kinds else {}))


@bench_group.command("joins")
@click.option("--quick", is_flag=True, help="Few events, no peers: to see that it works.")
@JSON
def bench_joins_command(quick: bool, as_json: bool) -> None:
    """Two streams joined within a bound of time, exactly-once, compared with Structured Streaming and Bytewax."""
    from streamwork.bench import joins as bench

    _measure(bench, quick, as_json)


@bench_group.command("semantics")
@click.option("--quick", is_flag=True, help="Few events: to see that it works.")
@click.option(
    "--postgres", metavar="ADDRESS", help="An empty PostgreSQL database; without it, only SQLite is measured."
)
@JSON
def bench_semantics_command(quick: bool, postgres: str | None, as_json: bool) -> None:
    """A count per card into SQLite and PostgreSQL, under each of the semantics."""
    from streamwork.bench import semantics as bench

    sizes = bench.QUICK if quick else bench.FULL
    _print_numbers(bench.run(sizes=sizes, note=_note, postgres=postgres), as_json)


@bench_group.command("kafka")
@click.option("--quick", is_flag=True, help="Few events: to see that it works.")
@click.option("--kafka", metavar="SERVERS", required=True, help="A broker; topics are added, and removed in the end.")
@JSON
def bench_kafka_command(quick: bool, kafka: str, as_json: bool) -> None:
    """The Kafka source and sink, compared with confluent-kafka by hand: decode and write rates, latency of an empty commit."""
    from streamwork.bench import kafka as bench

    sizes = bench.QUICK if quick else bench.FULL
    _print_numbers(bench.run(kafka, sizes=sizes, note=_note), as_json)


@bench_group.command("manual")
@click.option("--quick", is_flag=True, help="Few events: to see that it works.")
@JSON
def bench_manual_command(quick: bool, as_json: bool) -> None:
    """State by hand beside the engine's checkpoints: throughput, and events computed again after a kill, by interval."""
    from streamwork.bench import manual as bench

    _measure(bench, quick, as_json)


@bench_group.command("lambda")
@click.option("--quick", is_flag=True, help="Few events: to see that it works.")
@JSON
def bench_lambda_command(quick: bool, as_json: bool) -> None:
    """A lambda beside one exactly-once job with the same aggregates: CPU, accuracy after a kill, latency of an answer."""
    from streamwork.bench import lambdas as bench

    _measure(bench, quick, as_json)


@bench_group.command("interval")
@click.option("--quick", is_flag=True, help="Two short intervals in local mode: to see that it works.")
@click.option(
    "--mode",
    type=click.Choice([Mode.MICROBATCH.value, Mode.LIVE.value, Mode.LOCAL.value]),
    default=Mode.MICROBATCH.value,
    show_default=True,
    help="The mode of the job; each has a result of its own.",
)
@JSON
def bench_interval_command(quick: bool, mode: str, as_json: bool) -> None:
    """Checkpoint intervals from 100 ms to 60 s: throughput, latency, and events computed again after a kill."""
    from streamwork.bench import interval as bench

    sizes = bench.QUICK if quick else msgspec.structs.replace(bench.FULL, mode=mode)
    named = "interval" if mode == Mode.MICROBATCH.value else f"interval --mode {mode}"
    _print_numbers(bench.run(sizes=sizes, note=_note), as_json, named)


@bench_group.command("backpressure")
@click.option("--quick", is_flag=True, help="A few seconds at a low rate: to see that it works.")
@JSON
def bench_backpressure_command(quick: bool, as_json: bool) -> None:
    """A sink that is ten times slower for a minute, in live mode: memory, losses, and the way back to full speed."""
    from streamwork.bench import backpressure as bench

    _measure(bench, quick, as_json)


@bench_group.command("live")
@click.option("--quick", is_flag=True, help="A few seconds at a low rate: to see that it works.")
@click.option(
    "--mode",
    type=click.Choice(["live", "microbatch", "local"]),
    default="live",
    show_default=True,
    help="The mode of the job.",
)
@JSON
def bench_live_command(quick: bool, mode: str, as_json: bool) -> None:
    """Fraud detection: from a transaction to its decision, at a fixed rate, with a kill, and at rising rates."""
    from streamwork.bench import live as bench

    _measure(bench, quick, as_json, mode=mode, **({} if mode == "live" else {"victims": ("driver",)}))


@bench_group.command("state-size")
@click.option("--quick", is_flag=True, help="A few thousand keys: to see that it works.")
@JSON
def bench_state_size_command(quick: bool, as_json: bool) -> None:
    """Ten thousand changed keys per epoch, in a state of ten thousand and of five million keys."""
    from streamwork.bench import state_size as bench

    _measure(bench, quick, as_json)


@bench_group.command("savepoint")
@click.option("--quick", is_flag=True, help="A few thousand keys: to see that it works.")
@JSON
def bench_savepoint_command(quick: bool, as_json: bool) -> None:
    """What a savepoint of a million keys costs a running job; seconds to create it, to start from it, and to rescale."""
    from streamwork.bench import savepoint as bench

    _measure(bench, quick, as_json)


@bench_group.command("ysb")
@click.option("--variant", type=click.Choice(YSB_VARIANTS), required=True, help="Which of the variants.")
@click.option("--kafka", metavar="SERVERS", help="A Kafka broker, for the variants that need one.")
@click.option("--redis", metavar="URL", help="An empty Redis database, for the variants that need one.")
@click.option("--quick", is_flag=True, help="Few events, no peers, in local mode: to see that it works.")
@JSON
def bench_ysb_command(variant: str, kafka: str | None, redis: str | None, quick: bool, as_json: bool) -> None:
    """The Yahoo streaming benchmark: views of ads, counted per campaign and window of 10 s.

    \b
    baseline   from Kafka, no state in the engine: campaigns and counts are in Redis
    state      from Kafka, with the state in the engine, exactly-once, compared with peers
    generator  how many events a second are made and taken by the broker
    inside     the generator is a source of the job
    log        from the embedded log
    million    a million campaigns: results written to Redis, against a direct query of the state
    rates      from Kafka: latency against throughput, by rising rates
    batches    from Kafka: latency against the size of a batch, by rising checkpoint intervals
    """
    from streamwork.bench.ysb.variants import run

    _print_numbers(run(variant, kafka, redis, quick, _note), as_json, f"ysb --variant {variant}")


@bench_group.command("query")
@click.option("--redis", metavar="URL", help="An empty Redis database, to be compared with.")
@click.option("--quick", is_flag=True, help="Few keys: to see that it works.")
@JSON
def bench_query_command(redis: str | None, quick: bool, as_json: bool) -> None:
    """Answers about the state of a job over HTTP, while it is idle and at full speed; the same keys from Redis."""
    from streamwork.bench import query as bench

    _print_numbers(bench.run(sizes=bench.QUICK if quick else bench.FULL, note=_note, redis=redis), as_json)


@bench_group.command("console")
@click.option("--quick", is_flag=True, help="Few jobs with short histories: to see that it works.")
@JSON
def bench_console_command(quick: bool, as_json: bool) -> None:
    """The console: seconds to load a root with 100 jobs of 10,000 epochs each, for the first time and again."""
    from streamwork.bench import console as bench

    _measure(bench, quick, as_json)


def _measure(bench: Any, quick: bool, as_json: bool, **other_sizes: Any) -> None:
    """Run a benchmark that has two sizes and reports its progress."""
    sizes = msgspec.structs.replace(bench.QUICK if quick else bench.FULL, **other_sizes)
    _print_numbers(bench.run(sizes=sizes, note=_note), as_json)


def _note(line: str) -> None:
    say(line, err=True)


def _print_numbers(found: dict[str, Any], as_json: bool, command: str = "") -> None:
    """Print the figures of a benchmark as JSON or as tables; with --save, also write them to a file."""
    saved = save_if_asked(found, command)
    if as_json:
        print_json(found)
    else:
        show(found)
    if saved is not None:
        say(f"wrote {saved}", err=True)


for benchmark in bench_group.commands.values():
    SAVE(benchmark)
bench_group.add_command(page_command)
