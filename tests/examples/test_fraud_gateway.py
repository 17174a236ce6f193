"""The gateway of the fraud detection example: what it refuses is not logged, by a direct call and over HTTP."""

from __future__ import annotations

import http.client
import json
import math
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fraud.decision import Decision
from fraud.gateway import LARGEST, BadTransaction, Gateway
from fraud.presenter import Outcome, Presenter, Reader
from fraud.server import Server
from fraud.transaction import Transaction, open_log

from streamwork import EventLog, JobFailed

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "id": "t1",
    "card": "c1",
    "merchant": "books in berlin",
    "latitude": 52.5,
    "longitude": 13.4,
    "amount": 12.5,
    "at": "2026-03-01T08:00:00Z",
}


class Bank:
    """A gateway whose transactions are all decided at once; those above 100 are fraud."""

    def __init__(self, log: EventLog[Transaction]) -> None:
        self.log = log
        self.presenter = Presenter(self, within=5.0)
        self.gateway = Gateway(log, self.presenter, now=lambda: NOW)

    def new(self) -> list[Decision]:
        return [Decision(one.id, one.card, one.amount > 100, one.amount / 100, {}, NOW) for one in self.log.pull()]

    def logged(self) -> list[Transaction]:
        self.log.seek("start")
        return self.log.pull()


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with open_log(tmp_path / "log") as log:
        yield Bank(log)


@pytest.fixture
def address(bank: Bank) -> Iterator[tuple[str, int]]:
    with Reader(bank.presenter), Server(bank.gateway, bank.presenter) as server:
        yield server.address


def post(address: tuple[str, int], body: bytes, path: str = "/transactions") -> tuple[int, dict[str, Any]]:
    with closing(http.client.HTTPConnection(*address, timeout=5)) as connection:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def without(name: str) -> bytes:
    return json.dumps({field: value for field, value in GOOD.items() if field != name}).encode()


def having(**other: Any) -> bytes:
    return json.dumps({**GOOD, **other}).encode()


BAD = {
    "no JSON": (b"{", 400, "malformed", "not JSON"),
    "empty": (b"", 400, "malformed", "not JSON"),
    "no text": (b'{"id": "\xff"}', 400, "malformed", "not JSON"),
    "a list": (b"[]", 400, "wrong-type", "array"),
    "deep": (b"[" * 30_000, 400, "", ""),
    "too large": (having(merchant="x" * LARGEST), 413, "too-large", str(LARGEST)),
    **{f"no {name}": (without(name), 400, "missing-field", name) for name in GOOD},
    "a text as amount": (having(amount="12"), 400, "wrong-type", "$.amount"),
    "a bool as amount": (having(amount=True), 400, "wrong-type", "$.amount"),
    "null as card": (having(card=None), 400, "wrong-type", "$.card"),
    "a number as id": (having(id=7), 400, "wrong-type", "$.id"),
    "no time": (having(at="yesterday"), 400, "wrong-type", "$.at"),
    "negative": (having(amount=-0.01), 422, "out-of-range", "amount"),
    "infinite": (having(amount=0).replace(b'"amount": 0', b'"amount": 1e999'), None, "", ""),
    "not on earth": (having(latitude=90.5), 422, "out-of-range", "latitude"),
    "east of everything": (having(longitude=181), 422, "out-of-range", "longitude"),
    "an empty card": (having(card=""), 422, "out-of-range", "card"),
    "a long id": (having(id="x" * 65), 422, "out-of-range", "id"),
    "no time zone": (having(at="2026-03-01T08:00:00"), 422, "out-of-range", "time zone"),
    "tomorrow": (having(at="2026-03-02T08:00:00Z"), 422, "out-of-range", "at is"),
}


@pytest.mark.parametrize(("body", "status", "code", "cause"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_with_a_reason_and_not_logged(
    bank: Bank, body: bytes, status: int | None, code: str, cause: str
) -> None:
    with pytest.raises(BadTransaction) as refused:
        bank.gateway.submit_json(body)
    bad = refused.value
    assert 400 <= bad.status < 500 and bad.status == (status or bad.status) and bad.action
    assert bad.code == (code or bad.code) and cause in bad.cause
    assert bank.logged() == [] and bank.presenter.is_settled


def test_bad_input_over_http(bank: Bank, address: tuple[str, int]) -> None:
    for name, (body, status, code, cause) in BAD.items():
        answered, content = post(address, body)
        assert answered == (status or answered) and 400 <= answered < 500, name
        error = content["error"]
        assert error.keys() == {"code", "cause", "action"} and error["action"], name
        assert error["code"] == (code or error["code"]) and cause in error["cause"], name
    assert bank.logged() == [] and not bank.presenter.outcomes
    assert post(address, having())[0] == 200, "the control: the server accepts what is good"
    assert len(bank.logged()) == 1


def test_a_direct_call_with_values_of_the_wrong_type(bank: Bank) -> None:
    """The constructor of an event checks nothing."""
    good = msgspec.convert(GOOD, Transaction)
    for name, value in {
        "id": 1,
        "card": None,
        "amount": "1",
        "latitude": True,
        "longitude": 13,
        "at": "today",
        "merchant": b"x",
    }.items():
        with pytest.raises(BadTransaction, match=f"wrong-type: {name} is"):
            bank.gateway.submit(msgspec.structs.replace(good, **{name: value}))
    for value in (math.nan, math.inf, -1.0):
        with pytest.raises(BadTransaction, match="out-of-range: amount"):
            bank.gateway.submit(msgspec.structs.replace(good, amount=value))
    assert bank.logged() == []
    bank.gateway.submit(msgspec.structs.replace(good, amount=0.0, at=NOW + timedelta(seconds=59)))
    assert len(bank.logged()) == 1


def test_an_unknown_field_is_ignored(bank: Bank) -> None:
    bank.gateway.submit_json(having(loyalty={"points": 3}))
    assert bank.logged() == [msgspec.convert(GOOD, Transaction)]


def test_of_several_transactions_all_or_none_are_appended(bank: Bank) -> None:
    good = msgspec.convert(GOOD, Transaction)
    with pytest.raises(BadTransaction, match="amount"):
        bank.gateway.submit_all([good, msgspec.structs.replace(good, id="t2", amount=-1.0)])
    assert bank.logged() == [] and bank.presenter.is_settled
    bank.gateway.submit_all([good, msgspec.structs.replace(good, id="t2")])
    assert len(bank.logged()) == 2


def test_a_transaction_that_cannot_be_appended_is_not_waited_for(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, address: tuple[str, int]
) -> None:
    def full(events: Any) -> None:
        raise JobFailed("SW-LOG-FULL", "no space", "make some")

    monkeypatch.setattr(bank.log, "append", full)
    with pytest.raises(JobFailed):
        bank.gateway.submit_json(having())
    assert bank.presenter.is_settled
    status, content = post(address, having())
    assert status == 503 and "no space" in content["error"]["cause"]


def test_http_answers_with_the_decision_on_a_connection_that_is_kept(bank: Bank, address: tuple[str, int]) -> None:
    with closing(http.client.HTTPConnection(*address, timeout=5)) as connection:
        connection.connect()
        kept = connection.sock
        for number, (amount, verdict) in enumerate(((12, "approve"), (150, "decline"), (99.5, "approve"))):
            connection.request("POST", "/transactions", having(id=f"t{number}", amount=amount))
            answer = connection.getresponse()
            found = json.loads(answer.read())
            assert (answer.status, found["verdict"], found["by"]) == (200, verdict, "decision")
            assert connection.sock is kept
        connection.request("GET", "/outcomes")
        assert json.loads(connection.getresponse().read()) == {"in time": 3}
    assert bank.presenter.outcomes == {Outcome.IN_TIME: 3}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /transactions HTTP/1.1\r\nHost: x\r\n", 411),
        ("POST /transactions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n", 400),
        ("POST /transactions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n", 413),
        ("POST /transactions HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n", 413),
        ("POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", 404),
        ("GET /transactions HTTP/1.1\r\nHost: x\r\n", 404),
        ("DELETE /transactions HTTP/1.1\r\nHost: x\r\n", 501),
    ],
)
def test_other_requests_are_refused_without_their_body(
    bank: Bank, address: tuple[str, int], head: str, status: int
) -> None:
    with socket.create_connection(address, timeout=5) as client:
        client.sendall(f"{head}\r\n".encode())
        answer = client.makefile("rb").read()  # until the server closes the connection
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert bank.logged() == []


def test_the_server_is_on_this_machine_only(address: tuple[str, int]) -> None:
    assert address[0] == "127.0.0.1"
