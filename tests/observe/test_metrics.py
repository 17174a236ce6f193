"""What a job counted, as `status` shows it and as Prometheus asks for it: over loopback, with a token, and nothing else."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from commands import ask, call, error
from letter_jobs import squeamish_job
from sample import run_job
from streamwork import JobFailed, Refused, WrongUse
from streamwork.cli.status_text import status_lines
from streamwork.components.position import plain
from streamwork.delivery.counts import is_closed
from streamwork.observe.metrics import exposition
from streamwork.observe.metrics_server import TOKEN, serving
from streamwork.observe.status import read_status
from streamwork.serving.access import Endpoint, Token, token
from streamwork.world import RealClock

ACKNOWLEDGING = {"semantics": "at-least-once", "tracking": "acknowledge", "max_attempts": 5, "retry_after": "1h"}
PROGRAM = str(Path(sys.executable).parent / "streamwork")


def status(folder: Path) -> dict[str, Any]:
    return ask("status", "--root", folder / ".streamwork", "squeamish")


def told(folder: Path) -> str:
    code, text, _ = call("status", "--root", folder / ".streamwork", "squeamish")
    assert code == 0
    return text


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and labels but the job's -> value."""
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "job")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# ---- status ---------------------------------------------------------------------------------------------------------


def test_status_tells_totals_and_the_last_epoch_by_instance(tmp_path: Path) -> None:
    run_job(squeamish_job(tmp_path, parallelism=2), tmp_path / ".streamwork")
    seen = status(tmp_path)
    assert list(seen["counts"]) == ["out", "payments", "squeamish"]
    mine = seen["counts"]["squeamish"]
    assert mine["attempted"] == mine["committed"]
    assert (mine["committed"]["processed"], mine["committed"]["dead_letters"]) == (30, 3)
    assert is_closed(mine["committed"])
    assert set(mine["last"]) == {"0", "1"}
    assert sum(one["processed"] for one in mine["last"].values()) == 10
    assert seen["dead_letters"] == {"count": 3, "by_component": {"squeamish": 3}, "problem": "", "replayed": 0}
    text = told(tmp_path)
    assert "\n  component  processed  delivered  dead letters\n" in text
    assert "\n  squeamish         30         27             3\n" in text
    assert "\ndead letters: 3 (squeamish 3); see `streamwork dead-letters list --root " in text


def test_status_shows_what_was_processed_but_not_committed(tmp_path: Path) -> None:
    job = squeamish_job(tmp_path, on_error="fail")
    with pytest.raises(JobFailed):
        run_job(job, tmp_path / ".streamwork")
    seen = status(tmp_path)["counts"]["payments"]
    assert (seen["attempted"]["processed"], seen["committed"]["processed"]) == (10, 0)
    assert re.search(r"\n  component .*uncommitted\n", told(tmp_path))


def test_status_names_the_events_that_wait(tmp_path: Path) -> None:
    class OneRun(BaseException):
        """The events wait for an hour."""

    class Until:
        left = 3

        def on_phase(self, step: Any, epoch: int, manifest: Any) -> None:
            self.left -= step.value == "prune" and epoch > 0
            if self.left == 0:
                raise OneRun

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    with pytest.raises(OneRun):
        run_job(squeamish_job(tmp_path, on_error=None, **ACKNOWLEDGING), tmp_path / ".streamwork", watcher=Until())
    waiting = status(tmp_path)["waiting"]
    assert (waiting["count"], waiting["pending"], len(waiting["first"])) == (3, 0, 3)
    first = waiting["first"][0]
    assert (first["id"], first["component"], first["attempts"]) == ("payments/0/1-4", "squeamish", 1)
    assert first["error"] == "ValueError: cannot do 4" and 3500 < first["due_seconds"] <= 3600
    text = told(tmp_path)
    assert "\nwaiting: 3 events, 0 of them not acknowledged yet\n" in text
    assert "  payments/0/1-4 at squeamish, 1 failed attempt, is replayed in 3" in text
    found = samples(exposition(read_status(tmp_path / ".streamwork", "squeamish", RealClock())).decode())
    assert found["streamwork_waiting_events", "failed"] == 3 and found["streamwork_waiting_events", "pending"] == 0
    (file,) = (tmp_path / ".streamwork" / "squeamish" / "inbox" / "@waiting").glob("*3-*.parquet")
    file.write_bytes(b"")
    assert "is not what its checkpoint recorded" in status(tmp_path)["waiting"]["problem"], (
        "status shows what can be shown"
    )


# ---- Prometheus -----------------------------------------------------------------------------------------------------


def test_the_metrics_are_what_was_counted(tmp_path: Path) -> None:
    run_job(squeamish_job(tmp_path), tmp_path / ".streamwork")
    code, text, _ = call("status", "--root", tmp_path / ".streamwork", "squeamish", "--prometheus")
    assert code == 0
    found = samples(text)
    assert found["streamwork_events_total", "squeamish", "0", "processed"] == 30
    assert found["streamwork_events_total", "squeamish", "0", "dead_letters"] == 3
    assert found["streamwork_committed_events_total", "out", "0", "delivered"] == 27
    assert found["streamwork_epochs_total", "completed"] == 3
    assert found["streamwork_epoch_seconds_count", "compute"] == 3
    assert found["streamwork_epoch_seconds_sum", "compute"] > 0
    assert found["streamwork_checkpoint",] == 3
    assert found["streamwork_checkpoint_timestamp_seconds",] > 1.7e9
    assert found["streamwork_dead_letters_total", "squeamish"] == 3
    assert all(line.startswith(("#", "streamwork_")) for line in text.splitlines())
    assert error("status", "--root", tmp_path / ".streamwork", "squeamish", "--prometheus")["code"] == "SW-USAGE"


def test_text_json_and_metrics_show_the_same_status(tmp_path: Path) -> None:
    run_job(squeamish_job(tmp_path, parallelism=2), tmp_path / ".streamwork")
    model = read_status(tmp_path / ".streamwork", "squeamish", RealClock())
    shown = msgspec.json.decode(msgspec.json.encode(model, enc_hook=plain))
    assert {**status(tmp_path), "age_seconds": None} == {**shown, "age_seconds": None}
    found, lines = samples(exposition(model).decode()), status_lines(model)
    assert found["streamwork_checkpoint",] == model.checkpoint == 3
    assert found["streamwork_checkpoint_timestamp_seconds",] == model.completed_at
    assert any(line.startswith(f"checkpoint {model.checkpoint}, ") for line in lines)
    for name, counts in model.counts.items():
        row = next(line.split() for line in lines if line.split()[0] == name)
        assert [number.replace(",", "") for number in row[1:3]] == [
            str(counts.committed[kind]) for kind in ("processed", "delivered")
        ]
        for family, which in (
            ("streamwork_events_total", "attempted"),
            ("streamwork_committed_events_total", "committed"),
        ):
            for kind, number in getattr(counts, which).items():
                parts = {one: getattr(mine, which)[kind] for one, mine in counts.instances.items()}
                assert sum(parts.values()) == number
                assert {one: found[family, name, one, kind] for one in parts} == parts
    assert set(model.counts["squeamish"].instances) == {"0", "1"}


def test_without_a_history_the_rest_is_there(tmp_path: Path) -> None:
    run_job(squeamish_job(tmp_path), tmp_path / ".streamwork")
    (tmp_path / ".streamwork" / "squeamish" / "history.sqlite").unlink()
    found = samples(exposition(read_status(tmp_path / ".streamwork", "squeamish", RealClock())).decode())
    names = {name for name, *_ in found}
    assert names > {
        "streamwork_checkpoint",
        "streamwork_checkpoint_timestamp_seconds",
        "streamwork_dead_letters_total",
        "streamwork_state_bytes",
        "streamwork_verdict",
    }
    assert names.isdisjoint({"streamwork_events_total", "streamwork_epochs_total", "streamwork_epoch_seconds_count"})


SECRET = "x7-quite-secret"
GIVEN = Token(SECRET, "a test")
FREE = Endpoint("127.0.0.1", 0)


@pytest.fixture
def port() -> Iterator[int]:
    with serving(lambda: b"streamwork_checkpoint 7\n", FREE, GIVEN, lambda line: None) as server:
        yield server.server_port


def get(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_who_knows_the_token_may_ask(port: int) -> None:
    authorized = {"Authorization": f"Bearer {SECRET}"}
    assert get(port, **authorized) == (200, "streamwork_checkpoint 7\n")
    assert get(port, "/metrics?name[]=x", **authorized)[0] == 200
    assert get(port, Host=f"localhost:{port}", **authorized)[0] == 200
    for wrong in ({}, {"Authorization": "Bearer other"}, {"Authorization": SECRET}, {"Authorization": "Bearer \xe9"}):
        assert get(port, **wrong) == (401, "Unauthorized")


@pytest.mark.proves("a metrics request without the token")
def test_nothing_else_is_answered(port: int) -> None:
    authorized = {"Authorization": f"Bearer {SECRET}"}
    for path in ("/", "/metrics/", "/metrics/..", "/../metrics", "/favicon.ico"):
        assert get(port, path, **authorized)[0] == 404, path
        assert get(port, path)[0] == 401, "what there is, nobody learns without the token"
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert get(port, method=method, **authorized)[0] == 501
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""):
        assert get(port, Host=host, **authorized)[0] == 403, host
    assert get(port, Origin="http://evil.example", **authorized)[0] == 403


def test_it_listens_on_loopback_only(port: int) -> None:
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with pytest.raises(OSError):
            socket.create_connection((str(address), port), timeout=1).close()


def test_a_port_that_is_taken(port: int) -> None:
    taken = Endpoint("127.0.0.1", port)
    with pytest.raises(WrongUse, match="SW-SERVE-PORT"), serving(lambda: b"", taken, GIVEN, lambda line: None):
        """Never."""


def test_it_ends_with_the_run_and_whoever_is_slow_does_not_hold_it_up() -> None:
    with serving(lambda: b"", FREE, GIVEN, lambda line: None) as server:
        port = server.server_port
        lingering = socket.create_connection(("127.0.0.1", port), timeout=60)
        assert get(port, Authorization=f"Bearer {SECRET}") == (200, "")
    lingering.close()
    with pytest.raises(OSError):
        get(port)


JOB = """
from pathlib import Path
from sample import Payment
from streamwork import Job, JsonLines, SqliteSink

here = Path(__file__).parent
job = Job("served", checkpoint_every="10ms")
job.source(JsonLines(here / "in.jsonl", Payment), id="payments").sink(SqliteSink(here / "out.db", "out"), id="out")
"""


@pytest.mark.parametrize("token", ["", SECRET])
def test_a_run_answers_as_long_as_it_lasts(tmp_path: Path, token: str) -> None:
    (tmp_path / "served.py").write_text(JOB)
    (tmp_path / "in.jsonl").write_text('{"card": "a", "amount": 1}\n' * 5)
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), TOKEN: token, "PATH": "/usr/bin:/bin"}
    command = [PROGRAM, "run", "served.py", "--mode", "local", "--metrics", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            wanted = re.compile(r"metrics at http://127.0.0.1:(\d+)/metrics, bearer token in (.*)")
            while (found := wanted.match(line := process.stdout.readline())) is None:
                assert line
            made = tmp_path / ".streamwork" / "access.token"
            assert found[2] == (f"the environment variable {TOKEN}" if token else str(made))
            assert made.exists() is not bool(token) and (token or made.stat().st_mode & 0o777 == 0o600)
            port, given = int(found[1]), {"Authorization": f"Bearer {token or made.read_text().strip()}"}
            while (answer := get(port, **given))[0] != 200 or "streamwork_events_total{" not in answer[1]:
                assert process.poll() is None and answer[0] in (200, 503), "503: there is no job yet"
            assert samples(answer[1])["streamwork_events_total", "payments", "0", "processed"] == 5
            assert get(port)[0] == 401
        finally:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 0
    with pytest.raises(OSError):
        get(port)


# ---- addresses and tokens ---------------------------------------------------------------------------------------------


def test_bound_elsewhere_the_token_decides_under_any_name() -> None:
    with serving(lambda: b"yes", Endpoint.parse("127.0.0.2:0"), GIVEN, lambda line: None) as server:
        connection = http.client.HTTPConnection("127.0.0.2", server.server_port, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {SECRET}"})
        assert connection.getresponse().status == 200
        connection.close()
    notes: list[str] = []
    with serving(lambda: b"yes", Endpoint.parse("0.0.0.0:0"), GIVEN, notes.append) as server:
        authorized = {"Authorization": f"Bearer {SECRET}"}
        assert get(server.server_port, Host="metrics.example", **authorized) == (200, "yes")
        assert get(server.server_port, Host="metrics.example")[0] == 401
        assert get(server.server_port, Origin="http://evil.example", **authorized)[0] == 403
    assert notes == [f"metrics at http://0.0.0.0:{server.server_port}/metrics, bearer token in a test"]


@pytest.mark.parametrize(
    "text", ["", "x", "70000", "-1", "1.2.3:90", "::1:9100:", "host.example:9100", "9100:", "\u0661"]
)
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(WrongUse, match="SW-SERVE-PORT"):
        Endpoint.parse(text)


def test_addresses() -> None:
    assert Endpoint.parse("9100") == Endpoint.parse("localhost:9100") == Endpoint("127.0.0.1", 9100)
    assert Endpoint.parse("[::1]:0").is_loopback and Endpoint.parse("[::]:0").name(9) == "[::]:9"


def test_the_token_is_made_once_and_is_the_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    made = token(tmp_path / "root", TOKEN)
    assert len(made.secret) >= 32 and made == token(tmp_path / "root", TOKEN)
    assert made.secret not in repr(made)
    file = tmp_path / "root" / "access.token"
    file.chmod(0o644)
    with pytest.raises(Refused, match="SW-ACCESS-TOKEN.*other users"):
        token(tmp_path / "root", TOKEN)
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(Refused, match="SW-ACCESS-TOKEN.*no token"):
        token(tmp_path / "root", TOKEN)
    monkeypatch.setenv(TOKEN, "mine")
    assert token(tmp_path / "root", TOKEN).secret == "mine"
