"""The server answers like the files, and refuses with code, cause and action what it must not answer."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query.query_jobs import CHECKPOINT_EVENTS, by_shop, fold, sales, sales_job, values
from query.serving_world import SECRET, Served, serving, wait_for
from query.test_reader import check
from sample import run_job
from streamwork import JobFailed, WrongUse
from streamwork.query.server.openapi import document
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.guard import Guard
from streamwork.serving.limits import Limits, Rate

EVENTS = sales(range(0, 40_000, 97))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("served")
    outcome = run_job(sales_job(EVENTS[:200], path), path / "root")
    with serving(path / "root") as found:
        found.follow(outcome.checkpoint or 0)
        yield found


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_the_fold(tmp_path: Path, seed: int) -> None:
    """The questions of `test_reader.py`, over HTTP, while the job goes on; also of an older checkpoint."""
    rng = random.Random(seed)
    root = tmp_path / "root"
    first = run_job(sales_job(EVENTS[:100], tmp_path, 1 + seed), root)
    with serving(root) as served, served.connect() as state:
        served.follow(first.checkpoint or 0)
        check(state, EVENTS[:100], rng)
        second = run_job(sales_job(EVENTS[:160], tmp_path, 1 + seed), root)
        served.follow(second.checkpoint or 0)
        check(state, EVENTS[:160], rng)
        older = (second.checkpoint or 0) - 1
        check(state, EVENTS[: 160 - CHECKPOINT_EVENTS], rng, at=f"checkpoint:{older}")


def test_json_has_readable_keys_and_names_its_checkpoint(served: Served) -> None:
    status, answer = served.ask("/state/by-order/shop-07/2")
    assert status == 200 and set(answer) == {"record", "epoch", "committed", "age", "regressed", "possibly_undone"}
    assert answer["committed"] and not answer["regressed"] and answer["record"]["count"] == 6
    status, answer = served.ask("/range/by-order?prefix=shop-0&limit=3")
    assert status == 200 and answer["more"] and len(answer["rows"]) == 3
    assert set(answer["rows"][0]["key"]) == {"shop", "order"}
    status, answer = served.ask("/state/by-order", "POST", b'{"keys": [["shop-07", 2], ["none", null], ["none", 1]]}')
    assert [row["record"] is None for row in answer["rows"]] == [False, True, True]
    assert answer["rows"][1]["key"] == {"shop": "none", "order": None}
    assert served.ask('/state/by-order?key_json=["shop-07",2]')[1]["record"]["count"] == 6
    assert served.ask("/state")[1]["components"]["by-order"]["key"] == {"shop": "string", "order": "int64"}
    assert served.ask("/count/by-shop")[1]["count"] == len(fold(EVENTS[:200], by_shop))
    assert served.ask("/jobs")[1] == {"jobs": ["sales"]}
    assert served.ask("/jobs/sales/count/by-shop")[1]["count"] == served.ask("/count/by-shop")[1]["count"]


def test_a_checkpoint_is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = run_job(sales_job(EVENTS[:100], tmp_path), root).checkpoint or 0
    with serving(root) as served, served.connect() as state:
        served.follow(first)
        component = state["by-shop"]
        with pytest.raises(JobFailed, match="SW-QUERY-BEHIND"):
            component.get("shop-01", at_least=first + 1, timeout=0.05)
        assert served.refused(f"/count/by-shop?at_least={first + 1}&timeout=0.05") == (412, "SW-QUERY-BEHIND")
        found: list[Any] = []
        asking = threading.Thread(target=lambda: found.append(component.get("shop-02", at_least=first + 1, timeout=60)))
        asking.start()
        run_job(sales_job(EVENTS[:120], tmp_path), root)
        asking.join()
        assert found[0].epoch > first
        record = found[0].record
        assert values(record) in [fold(EVENTS[:n], by_shop).get("shop-02") for n in (110, 120)]


def test_a_server_waits_for_a_job_that_has_not_started(tmp_path: Path) -> None:
    with serving(tmp_path / "root", "sales") as served:
        assert served.ask("/health", token=None) == (200, {"ok": True})
        assert served.refused("/state") == (503, "SW-QUERY-NO-STATE")
        served.follow(run_job(sales_job(EVENTS[:50], tmp_path), tmp_path / "root").checkpoint or 0)
        assert served.ask("/count/by-shop")[1]["count"] == len(fold(EVENTS[:50], by_shop))


def test_several_jobs_have_paths_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    run_job(sales_job(EVENTS[:50], tmp_path), root)
    other = sales_job(EVENTS[:80], tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.name = "other"
    run_job(other, root)
    with serving(root) as served:
        wait_for(lambda: all(served.ask(f"/jobs/{job}/state")[0] == 200 for job in ("sales", "other")))
        assert served.ask("/jobs")[1] == {"jobs": ["other", "sales"]}
        assert served.refused("/count/by-shop") == (404, "SW-QUERY-JOB")
        for name, count in (("sales", 50), ("other", 80)):
            with served.connect(job=name) as state:
                assert state["by-shop"].count().count == len(fold(EVENTS[:count], by_shop))
        for name in ("none", "..", "%2e%2e", "..%2froot%2fsales", "a%00b", "x" * 5000):
            assert served.refused(f"/jobs/{name}/state") == (404, "SW-QUERY-JOB")


# ---- what is refused ---------------------------------------------------------------------------------------------------


REFUSED = [
    ("/nothing", 404, "SW-SERVE-ROUTE"),
    ("/", 404, "SW-SERVE-ROUTE"),
    ("/state/by-shop/", 200, ""),
    ("/state/by-shop/a/b", 400, "SW-QUERY-KEY"),
    ("/state/by-order/a", 400, "SW-QUERY-KEY"),
    ("/state/by-order/a/x", 400, "SW-QUERY-KEY"),
    ("/state/by-order/a/1?key_json=[]", 400, "SW-SERVE-REQUEST"),
    ('/state/by-order?key_json={"shop":1}', 400, "SW-QUERY-KEY"),
    ("/state/by-order?key_json=[[[", 400, "SW-SERVE-REQUEST"),
    ("/state/by-shop/%ff", 400, "SW-SERVE-REQUEST"),
    ("/state/none/a", 404, "SW-QUERY-COMPONENT"),
    ("/state/..%2f..%2fetc/passwd", 404, "SW-QUERY-COMPONENT"),
    ("/count/by-shop?at=checkpoint:99999", 404, "SW-QUERY-AT"),
    ("/count/by-shop?at=savepoint:..%2f..", 400, "SW-"),
    ("/count/by-shop?at=savepoint:none", 400, "SW-SAVEPOINT"),
    ("/count/by-shop?at=/etc/passwd", 404, "SW-QUERY-AT"),
    ("/count/by-shop?at=checkpoint:1&at_least=2", 400, "SW-QUERY-OPTION"),
    ("/count/by-shop?consistency=hopeful", 400, "SW-QUERY-OPTION"),
    ("/count/by-shop?consistency=latest", 200, ""),
    ("/count/by-shop?timeout=1e9", 400, "SW-SERVE-REQUEST"),
    ("/count/by-shop?timeout=nan", 400, "SW-SERVE-REQUEST"),
    ("/count/by-shop?at_least=-1", 400, "SW-SERVE-REQUEST"),
    ("/count/by-shop?x=1", 400, "SW-SERVE-REQUEST"),
    ("/count/by-shop?at=checkpoint:1&at=checkpoint:1", 400, "SW-SERVE-REQUEST"),
    ("/count/by-shop?" + "&".join(f"a{n}=1" for n in range(100)), 400, "SW-SERVE-REQUEST"),
    ("/range/by-shop?limit=99999999", 413, "SW-SERVE-SIZE"),
    ("/range/by-shop?limit=0", 400, "SW-QUERY-OPTION"),
    ("/range/by-shop?from=a&from_json=[]", 400, "SW-SERVE-REQUEST"),
    ("/windows/by-shop/a", 400, "SW-QUERY-WINDOWS"),
    ("/windows", 404, "SW-SERVE-ROUTE"),
]


@pytest.mark.parametrize(("path", "status", "code"), REFUSED, ids=[path[:40] for path, _, _ in REFUSED])
def test_a_bad_question_gets_an_error(served: Served, path: str, status: int, code: str) -> None:
    if status == 200:
        assert served.ask(path)[0] == 200
    else:
        found = served.refused(path.replace('"', "%22"))
        assert found[0] == status or (code == "SW-SAVEPOINT" and 400 <= found[0] < 500)
        assert found[1].startswith(code)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b'{"keys": 1}', 400),
        (b'{"keys": [1]}', 400),
        (b'{"keys": [["a", "b"]]}', 400),
        (b'{"keys": ["a"], "more": 1}', 400),
        (b"[" * 100_000, 400),
        (b'{"keys": [' + b"[" * 5_000 + b"]" * 5_000 + b"]}", 400),
        (b'{"keys": ["\xff"]}', 400),
        (b'{"keys": [' + b'"k",' * 300_000 + b'"k"]}', 413),
    ],
)
def test_a_bad_body_gets_an_error(served: Served, body: bytes, status: int) -> None:
    assert served.refused("/state/by-shop", "POST", body)[0] == status


def test_a_body_is_bounded(served: Served) -> None:
    head = f"POST /state/by-shop HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\nauthorization: Bearer {SECRET}\r\n"
    declared = raw(served, f"{head}content-length: {17 << 20}\r\n\r\nxyz".encode())
    assert declared.startswith(b"HTTP/1.1 413") and b"SW-SERVE-SIZE" in declared
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    sent = raw(served, f"{head}transfer-encoding: chunked\r\n\r\n".encode() + chunk * 18)
    assert sent[:12] in (b"HTTP/1.1 413", b"")


def test_methods(served: Served) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        assert served.refused("/state/by-shop/a", method) == (405, "SW-SERVE-METHOD")
    assert served.refused("/jobs/sales/count/by-shop", "POST", b"")[0] == 404


def test_every_route_but_health_needs_the_token(served: Served) -> None:
    paths = [path.replace("{component}", "by-shop").replace("{key}", "a") for path in document()["paths"]]
    for path in [*paths, "/openapi.json", "/nothing", "/jobs/sales/state"]:
        for token in (None, "", "wrong", SECRET + "x", SECRET[:-1], "\xe4"):
            found = served.ask(path, token=token)
            assert found[0] == (200 if path == "/health" else 401), path
    assert served.ask("/health", token=None)[0] == 200


def test_another_host_or_page_is_refused(served: Served) -> None:
    mine = f"127.0.0.1:{served.port}"
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1:1", "", "127.0.0.1"):
        assert served.refused("/state", Host=host) == (403, "SW-SERVE-HOST"), host
    for origin in ("http://evil.example", "null", f"http://localhost:{served.port}", "file://"):
        assert served.refused("/state", Origin=origin) == (403, "SW-SERVE-HOST")
        assert served.refused("/health", token=None, Origin=origin) == (403, "SW-SERVE-HOST")
    assert served.ask("/state", Origin=f"http://{mine}")[0] == 200
    assert served.ask("/state", Host=f"localhost:{served.port}")[0] == 200


def test_hosts_of_a_server_that_is_not_on_loopback() -> None:
    guard = Guard(Token(SECRET, "a test"), Endpoint.parse("0.0.0.0:0"), 8700, frozenset({"proxy.example"}))
    for host in ("10.0.0.7:8700", "[fe80::1]:8700", "localhost:8700", "proxy.example", "proxy.example:443"):
        guard.check(host, None, f"Bearer {SECRET}")
    for host in ("evil.example:8700", "evil.example", "10.0.0.7:80", None, ""):
        with pytest.raises(WrongUse, match="SW-SERVE-HOST"):
            guard.check(host, None, f"Bearer {SECRET}")


def test_a_rate_is_bounded(tmp_path: Path) -> None:
    now = [0.0]
    rate = Rate(2, lambda: now[0])
    assert [rate.allows() for _ in range(3)] == [True, True, False]
    now[0] = 0.6
    assert [rate.allows() for _ in range(2)] == [True, False]
    with serving(tmp_path, limits=Limits(requests_per_s=0.5)) as served:
        assert served.refused("/state") == (429, "SW-SERVE-BUSY")


def test_work_and_watchers_are_bounded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    epoch = run_job(sales_job(EVENTS[:50], tmp_path), root).checkpoint or 0
    with serving(root, limits=Limits(streams=0)) as served:
        served.follow(epoch)
        assert served.refused(f"/count/by-shop?at_least={epoch}") == (429, "SW-SERVE-BUSY")
    with serving(root, limits=Limits(at_work=1, waiting=-1)) as served:
        served.follow(epoch)
        assert served.refused("/count/by-shop") == (429, "SW-SERVE-BUSY")


# ---- connections ------------------------------------------------------------------------------------------------------


def raw(served: Served, data: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=120) as connection:
        found = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65_536):
                found += piece
        except OSError:  # it was closed while data were on their way
            pass
        return found


def test_headers_are_bounded(served: Served) -> None:
    for head in (b"GET / HTTP/1.1\r\nx: " + b"a" * 1_000_000, b"GET /" + b"a" * 1_000_000):
        assert raw(served, head)[:12] in (b"HTTP/1.1 400", b"")
    assert served.ask("/health")[0] == 200


def test_a_client_that_sends_slowly_is_cut_off(tmp_path: Path) -> None:
    limits = Limits(request_seconds=0.2, idle_seconds=0.2)
    with serving(tmp_path, limits=limits) as served:
        for begun in (b"", b"GET / HT", b"POST /state/a HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc"):
            with socket.create_connection(("127.0.0.1", served.port), timeout=120) as connection:
                connection.sendall(begun)
                try:
                    while connection.recv(65_536):
                        pass
                except ConnectionError:
                    pass


LINES = st.sampled_from([b"GET", b"POST", b"CONNECT", b"OPTIONS", b"HEAD", b"G\xc3T", b""])
PATHS = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [b"state", b"range", b"jobs", b"sales", b"..", b"%2e%2e", b"by-shop", b"%00", b"%zz", b"*", b"?", b"//"]
        ),
        max_size=8,
    ).map(b"/".join),
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect", b"accept"]
        ),
        st.one_of(
            st.sampled_from([b"chunked", b"-1", b"99999999999999", b"close", b"websocket", b"upgrade"]),
            st.binary(max_size=20),
        ),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, PATHS, HEADERS, st.binary(max_size=100), st.booleans())
def test_hostile_requests_get_errors_and_nothing_else(
    served: Served, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes, allowed: bool
) -> None:
    lines = [method + b" /" + path + b" HTTP/1.1", *(name + b": " + value for name, value in headers)]
    if allowed:
        lines += [f"authorization: Bearer {SECRET}".encode(), f"host: 127.0.0.1:{served.port}".encode()]
    answer = raw(served, b"\r\n".join(lines) + b"\r\n\r\n" + body)
    if answer:
        status = int(answer[9:12])
        assert answer.startswith(b"HTTP/1.") and (status < 500 or status == 503)
        if not allowed:
            assert status >= 400
    assert served.ask("/health", token=None)[0] == 200


def test_the_document_lists_every_route(served: Served) -> None:
    status, found = served.ask("/openapi.json")
    assert status == 200 and found == document()
    for path, operations in found["paths"].items():
        for method in operations:
            real = path.replace("{component}", "by-shop").replace("{key}", "shop-01")
            if real.startswith("/watch"):  # it would not end
                real = real.replace("by-shop", "none")
            assert served.ask(real, method.upper(), b"")[1].get("error", {}).get("code") not in (
                "SW-SERVE-ROUTE",
                "SW-SERVE-METHOD",
            )
