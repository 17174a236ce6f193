"""The pages about speed say what the results say: also what was missed, and what is missing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamwork import WrongUse
from streamwork.__main__ import cli
from streamwork.bench import interval as bench_interval
from streamwork.bench import keyed_state as bench_keyed_state
from streamwork.bench import log as bench_log
from streamwork.bench import standby as bench_standby
from streamwork.bench.chart import Chart
from streamwork.bench.page import PARTS, RESULTS, make, markers, page, with_parts, write
from streamwork.bench.plot import WIDTH, Plot, plot, svg
from streamwork.bench.results import Machine, Result, load, save
from streamwork.bench.sections import COMMANDS, SECTIONS
from streamwork.bench.spread import spread
from streamwork.bench.tables import tables
from streamwork.bench.targets import TARGETS, Target, Verdict
from streamwork.bench.tradeoffs import (
    LAMBDA_WORDS,
    SEMANTICS_WORDS,
    STATE_WORDS,
    of_lambda,
    of_semantics,
    of_state,
)

DOCS = Path(__file__).parents[2] / "docs"
MACHINE = Machine(2, "Linux x86_64", "3.11.7", "4.2.0", "0.1.0")


def contestant(speed: float, **ratios: list[float]) -> dict[str, Any]:
    spreads = {"events_per_s": spread([speed, speed * 1.1, speed * 0.9], 0)}
    spreads |= {name: spread(values) for name, values in ratios.items()}
    return {**{name: one["median"] for name, one in spreads.items()}, "spread": spreads}


def keyed(fused: list[float], skipped: dict[str, str] | None = None) -> dict[str, Any]:
    few = {
        "fused": contestant(1e6, ratio_vs_tws=fused),
        "shuffled": contestant(6e5),
        "tws": contestant(1e5),
        "skipped": skipped or {},
    }
    many = {"shuffled": contestant(4e5), "fused": contestant(5e5)}
    growth = {"few": 10_000, "many": 1_000_000, "shuffled": {"ratio_many_vs_few": 0.667}}
    return {
        **few,
        "keys": {"10000": few, "1000000": many},
        "growth": growth,
        "settings": {"keys": [10000, 1000000], "repeats": 3},
    }


def semantics(ratio: float = 0.97) -> dict[str, Any]:
    names = ("at_most_once", "at_least_once", "acknowledging", "exactly_once")
    rows = {
        name: {
            "events_per_s": 1000,
            "cpu_s_per_million": 7.5,
            "ratio_vs_at_most_once": ratio if "exactly" in name else 1.0,
        }
        for name in names
    }
    errors = {
        name: {
            "normal_ms": 20.0,
            "others_ms": 2_400.0 if name == "exactly_once" else 30.0,
            "event_ms": None if name == "at_most_once" else 2_500.0,
            "gap_s": 4.0,
            "missing": 17 if name == "at_most_once" else 0,
            "repeated": 0,
        }
        for name in names
    }
    targets = {"sqlite": rows, "postgres": rows, "appends": rows}
    settings = {"cards": 10, "errors": {"rate": 1_000, "mode": "microbatch"}}
    return {"exactly_once_vs_at_most_once": ratio, **targets, "errors": errors, "settings": settings}


RECOVERY = {
    "ratio_long_vs_short": 1.01,
    "seconds": {
        mode: {
            name: {f"part_{n}": spread([0.1 * n, 0.2 * n]) for n in range(1, 10)} | {"total": spread([1.0, 2.0])}
            for name in ("short", "long")
        }
        for mode in ("local", "microbatch")
    },
    "settings": {"keys": 5, "checkpoints": {"short": 10, "long": 30}},
}
STANDBY = {
    "gap_known_s": 1.0,
    "gap_unknown_beyond_lease_s": 1.5,
    "gap_cold_s": 9.0,
    "seconds": {
        "microbatch": {
            "known": {"gap": spread([0.9, 1.1])},
            "unknown": {"gap": spread([4.4, 4.6]), "beyond_lease": spread([1.4, 1.6])},
            "cold": {"gap": spread([8.0, 10.0])},
        }
    },
    "settings": {"keys": 5, "lease": 3.0},
}
STATE_SIZE = {
    "ratio": 1.1,
    "p99_ratio": 1.5,
    "epoch_ms": {name: {"p50_ms": 10.0, "p99_ms": 20.5} for name in ("small", "large")},
    "peak_bytes": {"java": 493170688},
    "seconds": {name: spread([0.1, 0.2]) for name in ("small", "large")},
    "settings": {"changed": 100},
}
LOG = {
    "append_events_per_s": 5,
    "append": {"repeats": [4, 6], "spread": {"min": 4, "median": 5, "max": 6}},
    "read": {"repeats": [40, 60], "spread": {"min": 40, "median": 50, "max": 60}},
    "tail": {"repeats": [{"p50": 1.0, "p99": 2.5}], "events": 10},
    "settings": {"fsync": "interval"},
}
ENGINE = {
    "ratio_vs_loop": 0.6,
    "cases": {"keyed, on_error=drop": {name: spread([1.0, 2.0]) for name in ("events_per_s", "loop_events_per_s")}},
    "settings": {},
}


def query(spark: list[float]) -> dict[str, Any]:
    """A query of `bench windows` or `bench joins`."""
    ours = {name: contestant(1e6, ratio_vs_spark=spark) for name in ("fused", "shuffled")}
    worst = {"ratio_vs_spark": spread(spark)["median"], "spread": {"ratio_vs_spark": spread(spark)}}
    return {**worst, **ours, "spark": contestant(5e5), "skipped": {}}


LIVE: dict[str, Any] = {
    "p99_ms": 8.0,
    "p999_ms": 25.0,
    "max_rate_within_20ms": 2000.0,
    "direct": {"rate": 1000.0, "p99_ms": 8.0},
    "http": {"rate": 300.0, "p99_ms": 9.0},
    "killed": {"task": {"rate": 1000.0, "p99_ms": None, "longest_gap_ms": 3100.0}},
    "rates": {
        "live": {"1000": {"p99_ms": 8.0}, "2000": {"p99_ms": 12.5}, "3000": {"p99_ms": None}},
        "microbatch": {"1000": {"p99_ms": 1900.0}, "16000": {"p99_ms": 2400.0}},
    },
    "settings": {"rate": 1000.0},
}
INTERVAL: dict[str, Any] = {
    "intervals": {
        every: {"events_per_s": 1e5, "p50_ms": ms, "p99_ms": 2 * ms, "max_ms": 3 * ms, "computed_again": 9}
        for every, ms in (("100ms", 90.0), ("1s", 600.0), ("60s", 31_000.0))
    },
    "settings": {"rate": 2_000},
}
SHAPES = {
    "live": LIVE,
    "interval": INTERVAL,
    "windows": {"fixed": query([1.6, 1.7]), "session": query([2.1, 2.2]), "settings": {"rows": 5}},
    "joins": {"time_bounded": query([9.0, 9.1]), "settings": {"rows": 5}},
    "keyed-state": keyed([11, 12]),
    "semantics": semantics(),
    "recovery": RECOVERY,
    "recovery-standby": STANDBY,
    "state-size": STATE_SIZE,
    "log": LOG,
    "engine": ENGINE,
}


def results(**numbers: dict[str, Any]) -> dict[str, Result]:
    named = {name.replace("_", "-"): found for name, found in numbers.items()}
    return {
        name: Result(name, f"streamwork bench {name}", date(2026, 1, 2), MACHINE, found)
        for name, found in named.items()
    }


# ---- the committed pages ------------------------------------------------------------------------------------------------


def test_the_committed_pages_are_what_the_generator_makes_of_the_committed_results() -> None:
    made = make(DOCS)
    for path, text in made.items():
        assert (DOCS / path).read_text() == text, f"{path} is old: run `streamwork bench page`"
    plots = {path.name for path in (DOCS / "benchmarks").glob("*.svg")}
    assert plots == {path.name for path in made if path.suffix == ".svg"}


def test_other_results_make_another_page(tmp_path: Path) -> None:
    """The negative control."""
    (tmp_path / RESULTS).mkdir(parents=True)
    found = load(DOCS / RESULTS)["keyed-state"]
    found.numbers["fused"]["events_per_s"] = found.numbers["fused"]["spread"]["events_per_s"]["median"] = 17
    save(tmp_path / RESULTS, found)
    assert make(tmp_path)[Path("benchmarks", "README.md")] != (DOCS / "benchmarks" / "README.md").read_text()


def test_the_committed_results_do_not_tell_whose_machine_it_was() -> None:
    for path in (DOCS / RESULTS).glob("*.json"):
        text = path.read_text()
        assert not any(folder in text for folder in ("/home/", "/root", "/tmp", "/work", "/Users/")), path.name


# ---- what the page says -------------------------------------------------------------------------------------------------


def test_a_missed_target_is_said_plainly() -> None:
    text = page(results(keyed_state=keyed([9.0, 9.5, 9.2])))
    assert "| `fused` against transformWithStateInPandas | at least 10 | 9.2 (9..9.5) | missed |" in text
    assert "**Missed:** `fused` against transformWithStateInPandas is 9.2; the target is at least 10." in text
    assert f"Of {len(TARGETS)} targets 1 is met, 1 is missed, {len(TARGETS) - 2} are not measured." in text


def test_a_target_that_is_met_is_not_said_to_be_missed() -> None:
    text = page(results(keyed_state=keyed([11, 12, 13])))
    assert "| 12 (11..13) | met |" in text
    assert "missed |" not in text and "**Missed" not in text


def test_the_worst_repeat_counts_too() -> None:
    assert "| 12 (9..13) | met by the median, not in every repeat |" in page(results(keyed_state=keyed([9, 12, 13])))


def test_the_ratio_of_a_query_has_its_spread() -> None:
    text = page(results(windows={"fixed": query([1.4, 1.6, 1.7]), "settings": {}}))
    wanted = "| fixed windows against plain Structured Streaming | at least 1.5 | 1.6 (1.4..1.7) |"
    assert f"{wanted} met by the median, not in every repeat |" in text
    assert "| ratio_vs_spark | 1.6 (1.4..1.7) |" in text


def test_what_is_missing_is_said_to_be_missing() -> None:
    text = page({})
    assert text.count("No result yet.") == len(SECTIONS)
    assert f"Of {len(TARGETS)} targets 0 are met, 0 are missed, {len(TARGETS)} are not measured." in text
    assert text.count("not measured: no result") == len(TARGETS)
    assert ".svg" not in text


def test_a_peer_that_was_left_out_is_no_success() -> None:
    numbers = keyed([1.0], {"tws": "no epoch in 180 s"})
    numbers["fused"] = contestant(1e6)
    text = page(results(keyed_state=numbers))
    assert "| `fused` against transformWithStateInPandas | at least 10 | - | not measured |" in text
    assert "| tws | no epoch in 180 s |" in text


@pytest.mark.parametrize(
    ("value", "bounds", "verdict"),
    [
        (1.0, {"least": 1.0}, Verdict.MET),
        (1.0, {"least": 1.0, "strictly": True}, Verdict.MISSED),
        (5.0, {"most": 5.0}, Verdict.MET),
        (5.0, {"most": 5.0, "strictly": True}, Verdict.MISSED),
        (5.1, {"most": 5.0}, Verdict.MISSED),
        (None, {"most": 5.0}, Verdict.UNMEASURED),
        ({"median": 1, "min": 1, "max": 9}, {"most": 5.0}, Verdict.MOSTLY),
    ],
)
def test_verdicts(value: Any, bounds: dict[str, Any], verdict: Verdict) -> None:
    assert Target("b", "w", ("figure",), **bounds).verdict({"figure": value}) is verdict


def test_a_benchmark_that_the_page_does_not_know_has_its_table() -> None:
    text = page(results(shiny={"speed": 17, "settings": {"cores": 2}}))
    assert "## shiny" in text and "| speed | 17 |" in text


# ---- the numbers in the page about semantics ----------------------------------------------------------------------------


def test_the_numbers_go_between_the_markers_and_nowhere_else() -> None:
    path = Path("semantics.md")
    blocks = {name: "\n".join([markers(name)[0], "what was there", markers(name)[1]]) for name in PARTS[path]}
    text = f"before\n{blocks['measured']}\nbetween\n{blocks['state']}\nafter\n"
    found = results(semantics=semantics())
    filled = with_parts(text, path, found)
    assert filled.startswith(f"before\n{markers('measured')[0]}\n") and filled.endswith(
        f"{markers('state')[1]}\nafter\n"
    )
    assert "\nbetween\n" in filled and "what was there" not in filled
    assert "| exactly-once | 1,000 | 7.5 | 0.97 | 1,000 | 7.5 | 0.97 | 1,000 | 7.5 | 0.97 |" in filled
    assert with_parts(filled, path, found) == filled
    assert "No result yet." in with_parts(filled, path, {})
    with pytest.raises(WrongUse, match="lost its markers"):
        with_parts("before", path, found)


def cells(lines: list[str], what: str) -> list[str]:
    (line,) = [one for one in lines if one.startswith(f"| {what} |")]
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def test_trade_offs_of_semantics_are_made_of_the_results() -> None:
    lines = list(of_semantics(results(semantics=semantics())))
    missing, failing, killed = (
        cells(lines, what)
        for what in (
            "the same, measured: after a kill -9",
            "latency on error: one event fails",
            "latency on error: kill -9",
        )
    )
    assert missing[0] == "17 events missing, 0 rows repeated" and missing[3] == "0 events missing, 0 rows repeated"
    assert failing[0].startswith("it is dropped; other rows: up to 30 ms")
    assert failing[3] == "its row comes after 2,500 ms; other rows: up to 2,400 ms, 20 ms before"
    assert killed == ["4 s until the next row"] * 4
    assert "SQLite 0.97" in cells(lines, "throughput, against at-most-once")[3]


def test_what_was_not_measured_is_not_in_the_trade_offs() -> None:
    """The negative control: without results no figure stands there, only words."""
    for made, rows, at in (
        (of_semantics, ("latency on error: kill -9", "throughput, against at-most-once"), 3),
        (of_state, ("throughput", "the same: events computed again after a kill -9"), 0),
    ):
        lines = list(made({}))
        for what in rows:
            assert cells(lines, what)[at] == "not measured"
        assert cells(lines, "accuracy")[0]


def test_stateful_against_stateless_is_made_of_the_results() -> None:
    row = {"events_per_s": 5_000.0, "computed_again": 70}
    lines = list(
        of_state(
            results(
                manual={"by_hand": row, "exactly_once": {**row, "events_per_s": 9_000.0}, "settings": {}},
                recovery={"restore_1m_keys_s": 1.5, "settings": {}},
                state_size=STATE_SIZE,
            )
        )
    )
    assert cells(lines, "throughput") == ["9,000 events/s", "as fast as the operator", "5,000 events/s"]
    assert "1,000,000 keys: 1.5 s" in cells(lines, "latency on error: a restart")[0]
    assert cells(lines, "the same, in a state of 5,000,000 keys")[0].endswith("10,000 keys: 1.1")


def test_lambda_against_one_job_is_made_of_the_results() -> None:
    ways = {
        way: {"cpu_s": cpu, "seconds_last": 1.5}
        for way, cpu in (("stream", 4.0), ("batch", 9.0), ("exactly_once", 5.0))
    }
    wrong = {"lambda_after_kill": 1_234, "exactly_once_after_kill": 0}
    numbers = {"ways": ways, "wrong": wrong, "get_ms": {"merged": 2.5, "exactly_once": 0.5}}
    lines = list(of_lambda({"lambda": results(x={**numbers, "settings": {"rounds": 4, "events": 10}})["x"]}))
    assert cells(lines, "events missing after a kill -9") == ["1,234, until the next batch run", "0"]
    assert cells(lines, "CPU seconds for the same input") == ["4 (streaming job) + 9 (batch runs)", "5"]
    assert cells(list(of_lambda({})), "an answer for one key, in ms") == ["not measured", "not measured"]


def test_every_word_of_the_trade_offs_has_its_reason() -> None:
    for words, columns in ((SEMANTICS_WORDS, 4), (STATE_WORDS, 3), (LAMBDA_WORDS, 2)):
        assert set(words) == {"accuracy", "complexity", "maintenance", "dependencies"}
        for one in words.values():
            assert len(one.cells) == columns and all(one.cells) and len(one.why.split()) >= 4


# ---- plots and tables ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [name for name in SHAPES if name not in ("live", "interval")])
def test_every_benchmark_has_a_plot_that_stays_within_its_frame(bench: str) -> None:
    drawn = plot(bench, SHAPES[bench])
    assert isinstance(drawn, Plot) and all(group.bars for group in drawn.groups)
    picture = ET.fromstring(svg(drawn, "a & b"))
    height = float(picture.attrib["viewBox"].split()[3])
    bars = [one for one in picture.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") != "page"]
    assert len(bars) == sum(len(group.bars) for group in drawn.groups)
    for bar in bars:
        assert 0 < float(bar.attrib["x"]) + float(bar.attrib["width"]) <= WIDTH - 50
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) < height


def test_latency_is_drawn_against_throughput_on_logarithmic_axes() -> None:
    drawn = plot("live", LIVE)
    assert isinstance(drawn, Chart)
    assert drawn.series == {"live": [(1000, 8.0), (2000, 12.5)], "microbatch": [(1000, 1900.0), (16000, 2400.0)]}
    picture = ET.fromstring(svg(drawn, "a & b"))
    circles = [one.attrib for one in picture.iter("{http://www.w3.org/2000/svg}circle")]
    x, y = ([float(one[name]) for one in circles] for name in ("cx", "cy"))
    assert len(circles) == 4 and x[0] == x[2] < x[1] < x[3] < WIDTH and y[0] > y[1] > y[2] > y[3] > 0
    assert x[3] - x[0] == pytest.approx(4 * (x[1] - x[0]), abs=0.5), "16 times as much is four times as far as twice"
    limit = next(one for one in picture.iter("{http://www.w3.org/2000/svg}path") if one.get("class") == "limit")
    assert y[1] > float(limit.attrib["d"].split()[1].split("H")[0]) > y[2], "live is below 20 ms, microbatch above"


def test_latency_is_drawn_against_the_checkpoint_interval() -> None:
    drawn = plot("interval", INTERVAL)
    assert isinstance(drawn, Chart)
    assert drawn.series["p99"] == [(100.0, 180.0), (1_000.0, 1_200.0), (60_000.0, 62_000.0)]
    assert plot("interval-live", INTERVAL) == drawn


def test_without_a_known_latency_there_is_no_chart() -> None:
    assert plot("live", {"rates": {"live": {"1000": {"p99_ms": None}}, "microbatch": {}}}) is None


@pytest.mark.parametrize("bench", SHAPES)
def test_tables_have_all_figures_and_end_with_the_settings(bench: str) -> None:
    found = tables(SHAPES[bench])
    shown = {one.text for table in found for cells in table.rows.values() for one in cells.values()}
    assert not any("{" in text or "[" in text for text in shown)
    if SHAPES[bench]["settings"]:
        assert found[-1].title.startswith("settings")
    assert len([table for table in found if table.rows]) >= 2


def test_the_same_figures_are_not_shown_twice() -> None:
    titles = [table.title for table in tables(keyed([11]))]
    assert "keys, 10000: the figures above" in titles and "keys, 1000000" in titles


def test_a_table_with_many_columns_is_turned() -> None:
    (table,) = [table for table in tables(RECOVERY) if table.title == "seconds, local"]
    assert table.columns == ("short", "long") and "total" in table.rows


def test_people_get_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_keyed_state, "run", lambda sizes, note: keyed([11, 12, 13]))
    said = CliRunner().invoke(cli, ["bench", "keyed-state"], catch_exceptions=False).output.splitlines()
    assert said[0].split("  ")[-2:] == ["events per s", "ratio vs tws"]
    assert said[1].split() == ["fused", "1,000,000", "12"]
    assert said[2].split() == ["900k..1.1M", "11..13"]
    assert said[-3] == "settings" and said[-1].split() == ["repeats", "3"]


# ---- the commands -------------------------------------------------------------------------------------------------------


def test_save_leaves_a_result_that_the_page_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = keyed([9.0], {"tws": "its environment could not be made: /home/ann/cache/tws is full"})
    monkeypatch.setattr(bench_keyed_state, "run", lambda sizes, note: numbers)
    command = ["bench", "keyed-state", "--json", "--save", str(tmp_path / RESULTS)]
    said = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert json.loads(said.stdout)["skipped"] == numbers["skipped"], "one object, and nothing else"
    saved = load(tmp_path / RESULTS)["keyed-state"]
    assert saved.numbers["fused"] == numbers["fused"]
    assert saved.numbers["skipped"]["tws"] == "its environment could not be made: ... is full"
    assert saved.machine.cores > 0 and saved.date == date.today()

    told = CliRunner().invoke(cli, ["bench", "page", "--docs", str(tmp_path), "--json"], catch_exceptions=False)
    verdicts = [one["verdict"] for one in json.loads(told.stdout)["targets"] if one["bench"] == "keyed-state"]
    assert verdicts[0] == "missed"
    assert "**Missed:**" in (tmp_path / "benchmarks" / "README.md").read_text()
    assert (tmp_path / "benchmarks" / "keyed-state.svg").exists()

    (tmp_path / RESULTS / "keyed-state.json").unlink()
    write(tmp_path)
    assert not (tmp_path / "benchmarks" / "keyed-state.svg").exists(), "a plot without a result is removed"


def test_a_quick_run_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_keyed_state, "run", lambda sizes, note: keyed([11]))
    said = CliRunner().invoke(cli, ["bench", "keyed-state", "--save", str(tmp_path), "--quick"])
    assert said.exit_code == 2 and "not saved" in said.output
    assert not list(tmp_path.iterdir())


def test_without_results_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="does not exist"):
        CliRunner().invoke(cli, ["bench", "page", "--docs", str(tmp_path)], catch_exceptions=False)
    (tmp_path / RESULTS).mkdir(parents=True)
    (tmp_path / RESULTS / "log.json").write_text(json.dumps(LOG))
    with pytest.raises(WrongUse, match="log.json is no result.*\n.*streamwork bench log --save"):
        CliRunner().invoke(cli, ["bench", "page", "--docs", str(tmp_path)], catch_exceptions=False)


def test_every_benchmark_can_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_log, "run", lambda: LOG)
    CliRunner().invoke(cli, ["bench", "log", "--save", str(tmp_path)], catch_exceptions=False)
    assert load(tmp_path)["log"].command == "streamwork bench log"
    for name in SHAPES:
        command = COMMANDS.get(name, name).split()[0]
        assert "--save" in CliRunner().invoke(cli, ["bench", command, "--help"], catch_exceptions=False).output


def test_an_option_that_is_a_benchmark_of_its_own_has_a_result_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_standby, "run", lambda **given: STANDBY)
    words = ["bench", "recovery", "--standby", "--save", str(tmp_path)]
    CliRunner().invoke(cli, words, catch_exceptions=False)
    assert load(tmp_path)["recovery-standby"].command == "streamwork bench recovery --standby"


def test_each_mode_of_the_interval_benchmark_has_a_result_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(bench_interval, "run", lambda sizes, note: (asked.append(sizes.mode), INTERVAL)[1])
    for more in ([], ["--mode", "live"]):
        CliRunner().invoke(cli, ["bench", "interval", *more, "--save", str(tmp_path)], catch_exceptions=False)
    assert asked == ["microbatch", "live"]
    assert load(tmp_path)["interval"].command == "streamwork bench interval"
    assert load(tmp_path)["interval-live"].command == "streamwork bench interval --mode live"
