"""``streamwork log`` as a person meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from log.world import Payment, payments
from streamwork.cli.log_commands import log_group
from streamwork.errors import StreamworkError
from streamwork.log import EventLog

EVENTS = """
from datetime import datetime
from decimal import Decimal
from typing import Annotated
from streamwork.components import Digits, Event

class Place(Event):
    x: float
    y: float

class Sale(Event):
    id: int
    card: str
    price: Annotated[Decimal, Digits(10, 2)]
    at: datetime
    place: Place | None = None
    tags: list[str] = []
"""
SALE = {
    "id": 1,
    "card": "c",
    "price": "12.50",
    "at": "2026-01-02T03:04:05Z",
    "place": {"x": 1.0, "y": 2.0},
    "tags": ["a"],
}


def invoke(*arguments: object, stdin: str = "") -> str:
    result = CliRunner().invoke(log_group, [str(a) for a in arguments], input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object, stdin: str = "") -> StreamworkError:
    with pytest.raises(StreamworkError) as error:
        invoke(*arguments, stdin=stdin)
    assert error.value.action
    return error.value


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command imports is gone after the test, as it is after the command."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("sale_events", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "sale_events.py").write_text(EVENTS)
    path = tmp_path / "log"
    invoke("create", path, "--event", f"{tmp_path / 'sale_events.py'}:Sale", "--key", "card", "--partitions", 3)
    return path


def lines(*changes: dict[str, Any]) -> str:
    return "".join(json.dumps({**SALE, **change}) + "\n" for change in changes)


def test_create_append_tail_info(path: Path) -> None:
    for i in range(5):
        assert "appended 1 event" in invoke("append", path, stdin=lines({"id": i, "card": f"c{i}"}))
    answer = json.loads(
        invoke("append", path, "--json", stdin="\n" + lines({"id": 5}) + "\n\n" + lines({"id": 6}).strip())
    )
    assert answer["appended"] == 2
    assert sum(answer["ends"].values()) == 7
    printed = [json.loads(line) for line in invoke("tail", path, "-n", 3).splitlines()]
    assert [event["id"] for event in printed] == [4, 5, 6]
    assert printed[1] == {**SALE, "id": 5}
    placed = [json.loads(line) for line in invoke("tail", path, "--json").splitlines()]
    assert [one["event"]["id"] for one in placed] == list(range(7))
    assert set(placed[0]) == {"partition", "offset", "time", "event"}
    assert invoke("tail", path, "-n", 0) == ""
    EventLog(path).consumers.keep("job-1", {0: 0})
    info = json.loads(invoke("info", path, "--json"))
    assert info["events"] == 7
    assert [p["partition"] for p in info["partitions"]] == [0, 1, 2]
    assert info["consumers"] == [
        {"uid": "job-1", "job": "", "source": "main", "offsets": {"0": 0}, "read": {"0": 0}, "lag": 7}
    ]
    shown = invoke("info", path)
    assert "7 events" in shown
    assert "job-1" in shown


def test_what_is_printed_can_be_appended(path: Path, tmp_path: Path) -> None:
    invoke("append", path, stdin=lines(*({"id": i, "card": f"c{i}", "place": None} for i in range(20))))
    invoke("create", tmp_path / "copy", "--event", "sale_events:Sale")
    invoke("append", tmp_path / "copy", stdin=invoke("tail", path, "-n", 100))
    assert invoke("tail", tmp_path / "copy", "-n", 100) == invoke("tail", path, "-n", 100)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "truncated"),
        ("not json", "malformed"),
        (lines({"id": "x"}), "Expected `int`"),
        (lines({"id": 1.5}), "Expected `int`"),
        (lines({"id": 2**70}), "int"),
        (lines({"at": "2026-01-02T03:04:05"}), "time zone"),
        ('{"id": 1}', "missing required field"),
        ('{"id": \xff}', "malformed"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_the_good_ones_before_it_are_kept(
    path: Path, bad: str, reason: str
) -> None:
    error = refused("append", path, stdin=lines({"id": 1}, {"id": 2}) + "\n" + bad.strip() + "\n" + lines({"id": 3}))
    assert error.code == "SW-LOG-BAD-LINE"
    assert error.cause.startswith("line 4: ")
    assert reason in error.cause
    assert "The 2 events before it were appended" in error.cause
    assert error.exit_code == 1
    assert [e.id for e in EventLog(path).pull()] == [1, 2]


def test_wrong_use(path: Path, tmp_path: Path) -> None:
    target = f"{tmp_path / 'sale_events.py'}:Sale"
    assert refused("tail", tmp_path / "nothing").code == "SW-LOG-MISSING"
    assert refused("create", path, "--event", target).code == "SW-LOG-EXISTS"
    for event in ("Sale", "no_such_module:Sale", "no_such.py:Sale", f"{tmp_path / 'sale_events.py'}:Digits"):
        assert refused("create", tmp_path / "new", "--event", event).code == "SW-LOG-EVENT"
    for option in (("--partitions", 0), ("--segment-size", "big"), ("--segment-size", 0), ("--retain-size", "0KB")):
        assert refused("create", tmp_path / "new", "--event", target, *option).code == "SW-LOG-SETTING"
    assert refused("create", tmp_path / "new", "--event", target, "--key", "price,nothing").code == "SW-KEY-FIELD"
    assert not (tmp_path / "new").exists()


def test_policies(tmp_path: Path) -> None:
    (tmp_path / "sale_events.py").write_text(EVENTS)
    target = f"{tmp_path / 'sale_events.py'}:Sale"
    options = ["--segment-size", "2K", "--segment-age", "1h", "--retain-size", "1GB", "--retain-age", "10min"]
    info = json.loads(invoke("create", tmp_path / "log", "--event", target, *options, "--json"))
    assert info["partitions"][0]["end"] == 0
    policy = EventLog(tmp_path / "log").settings.policy
    assert (policy.segment_bytes, policy.segment_age, policy.retain_bytes, policy.retain_age) == (
        2048,
        3600,
        1 << 30,
        600,
    )


def test_damage_is_shown_by_info(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = EventLog.create(path, Payment)
    log.append(payments(1, 2))
    (segment,) = (path / "0").glob("*.arrow")
    segment.write_bytes(segment.read_bytes() + b"\0" * 64)
    info = json.loads(invoke("info", path, "--json"))
    assert info["partitions"][0]["error"]["code"] == "SW-LOG-DAMAGED"
    assert info["partitions"][0]["writer"]["pid"] == os.getpid()
    assert "SW-LOG-DAMAGED" in invoke("info", path)
    log.close()


# A shell in the background starts its children with SIGINT ignored.
FOLLOW = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from streamwork.cli.log_commands import log_group; log_group(sys.argv[1:], standalone_mode=False)"
)


def test_tail_follows(path: Path) -> None:
    invoke("append", path, stdin=lines({"id": 0}))
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOW, "tail", str(path), "-f", "-n", "1"], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert json.loads(other.stdout.readline())["id"] == 0
        for i in range(1, 4):
            invoke("append", path, stdin=lines({"id": i}))
            assert json.loads(other.stdout.readline())["id"] == i
        other.send_signal(signal.SIGINT)
