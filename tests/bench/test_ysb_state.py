"""The variant `state` of the Yahoo streaming benchmark: from Kafka into Kafka, and no speed of wrong counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafka_broker.server import KafkaServer
from real_servers import RedisServer
from streamwork import WrongUse
from streamwork.__main__ import cli
from streamwork.bench.contest import Wrong
from streamwork.bench.plot import Plot, plot
from streamwork.bench.ysb import baseline, generator, state
from streamwork.bench.ysb.ad_json import AdJson
from streamwork.bench.ysb.arrivals import Row
from streamwork.bench.ysb.events import BEGIN, AdView, Stream
from streamwork.bench.ysb.program import Program
from streamwork.bench.ysb.systems import Task, topics_of
from streamwork.bench.ysb.variants import run
from streamwork.components.columns import to_structs
from streamwork.errors import JobFailed

TASK = Task(servers="s:1", topic="ads", output="out", stream=Stream(step=80), window_ms=10_000)


def test_the_format_gives_the_same_events_as_columns_and_one_by_one() -> None:
    rows = Stream().rows(1, 7, 300)
    text, decoder = rows.as_json(7), AdJson().decoder(AdView)
    columns = decoder.columns(text).batch
    assert to_structs(AdView, columns) == decoder.many(text)
    assert columns["ad"].to_pylist() == rows.ads.tolist()
    assert [int(at.timestamp() * 1000) for at in columns["at"].to_pylist()] == (rows.times // 1000).tolist()
    for wrong in ([text[0] + text[1], b""], [text[0], b""], [b"", text[0]], [b" " + text[0]], [text[0] + b"\n"]):
        with pytest.raises(ValueError, match="not one object"):
            decoder.columns(wrong)
    with pytest.raises(ValueError, match="invalid literal"):
        decoder.one(text[0].replace(b'"ad_id":"', b'"ad_id":"x'))


def test_a_window_s_start_may_be_text_or_milliseconds() -> None:
    assert Row(3, "2026-01-01T00:00:10Z", 1).window == Row(3, BEGIN // 1000 + 10_000, 1).window == (3, BEGIN + 10**7)


class Read:
    """What was read of a system's topics."""

    def __init__(self, last: dict[str, Any], right: dict[tuple[int, int], float] | None = None) -> None:
        self.last, self.right = last, right or {}


class Sampled:
    def cpu_at(self, moment: float) -> float:
        return moment / 10


def test_wrong_counts_are_found() -> None:
    wanted = {(1, BEGIN): 5, (2, BEGIN): 6}
    state.check("live", Read({"out": {**wanted, (1, BEGIN + 10**7): 1}, "out-final": wanted}), wanted)
    for last in (
        {"out": {(1, BEGIN): 5, (2, BEGIN): 7}},
        {"out": {(1, BEGIN): 5}},
        {"out": wanted, "out-final": {**wanted, (1, BEGIN + 10**7): 1}},
    ):
        with pytest.raises(Wrong):
            state.check("live", Read(last), wanted)


def test_slow_peers_are_measured_on_the_first_fifth_of_the_windows() -> None:
    wanted = {(campaign, BEGIN + window * 10**7): 1 for window in range(15) for campaign in (1, 2)}
    assert sorted({at for _, at in state.first_fifth(wanted)}) == [BEGIN, BEGIN + 10**7, BEGIN + 2 * 10**7]
    few = {one: 1 for one in wanted if one[1] <= BEGIN + 10**7}
    assert state.first_fifth(few) == few and len(state.first_fifth(wanted)) == 6


def test_speed_counts_from_a_quarter_of_the_windows() -> None:
    """Five windows of 250,000 events; the second one is complete when its last campaign is right."""
    right = {(campaign, BEGIN + window * 10**7): 100.0 + window for window in range(5) for campaign in (1, 2)}
    right[2, BEGIN + 10**7] = 101.5
    found = state.figures_of(Read({}, right), Sampled(), {}, TASK)
    assert found == {"events_per_s": 750_000 / 2.5, "cpu_s_per_million": pytest.approx(0.25 / 0.75)}
    together = {one: 101.5 if 101.0 <= at <= 103.0 else at for one, at in right.items()}  # three windows in one commit
    found = state.figures_of(Read({}, together), Sampled(), {}, TASK)
    assert found["events_per_s"] == 250_000 / 2.5
    with pytest.raises(Wrong, match="same moment"):
        state.figures_of(Read({}, dict.fromkeys(right, 100.0)), Sampled(), {}, TASK)


def test_figures_have_the_ratios_to_peers() -> None:
    def speed(*found: float) -> list[dict[str, float]]:
        return [{"events_per_s": one, "cpu_s_per_million": 1.0} for one in found]

    runs = {"live": speed(9, 9), "microbatch": speed(12, 16), "spark": speed(8, 10), "pathway": speed(2)}
    numbers = state._numbers(runs, {"flink": "no network"}, state.FULL, 5.0)
    assert numbers["mode"] == "microbatch" and numbers["ratio_vs_spark"] == 1.55
    assert numbers["ratio_vs_flink"] is None and numbers["skipped"] == {"flink": "no network"}
    assert numbers["systems"]["pathway"]["ratio_vs_spark"] == 0.25
    drawn = plot("ysb-state", numbers)
    assert isinstance(drawn, Plot) and list(drawn.groups[0].bars) == ["live", "microbatch", "spark", "pathway"]


def test_a_variant_without_its_server_says_how_to_start_one() -> None:
    with pytest.raises(WrongUse, match="--kafka") as refused:
        run("state", None, None, True, lambda line: None)
    assert "real_servers.py" in refused.value.action
    found = CliRunner().invoke(cli, ["bench", "ysb", "--variant", "state", "--quick"])
    assert found.exit_code and isinstance(found.exception, WrongUse | SystemExit)


def test_only_streamwork_has_a_topic_of_closed_windows() -> None:
    assert topics_of("live", "out") == ["out", "out-final"] and topics_of("flink", "out") == ["out"]


@pytest.mark.slow
def test_a_program_that_ends_is_noticed(tmp_path: Path) -> None:
    with Program(tmp_path, ["sh", "-c", "echo broken; exit 3"]) as program, pytest.raises(JobFailed, match="broken"):
        while True:
            program.look()


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, kafka: KafkaServer) -> None:
    found = state.run(kafka.address, tmp_path, state.QUICK)
    assert found["mode"] == "local" and found["events_per_s"] > 0 and found["generator_events_per_s"] > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_small_run_of_the_baseline(tmp_path: Path, kafka: KafkaServer, redis_server: RedisServer) -> None:
    found = baseline.run(kafka.address, redis_server.url, tmp_path, baseline.QUICK)
    assert found["state_vs_baseline"] > 0 and set(found["systems"]) == {"baseline", "state"}
    assert isinstance(plot("ysb-baseline", found), Plot) and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_small_run_of_the_generator(kafka: KafkaServer) -> None:
    found = generator.run(kafka.address, generator.QUICK)
    assert found["events_per_s"] > 0 and 180 < found["settings"]["bytes_per_event"] < 250
