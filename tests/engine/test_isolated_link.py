"""The link between a task and an isolated component: a pair of sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from streamwork.engine.isolated_link import Kind, Link, LinkClosed


class Counting(socket.socket):
    """Counts the calls that send and receive."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(fileno=end.detach())
        self.sends = self.receives = 0

    def send(self, *arguments: object) -> int:  # type: ignore[override]
        self.sends += 1
        return super().send(*arguments)  # type: ignore[arg-type]

    def recv(self, *arguments: object) -> bytes:  # type: ignore[override]
        self.receives += 1
        return super().recv(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def ends() -> Iterator[tuple[Counting, Counting]]:
    mine, theirs = map(Counting, socket.socketpair())
    with mine, theirs:
        yield mine, theirs


def test_messages_leave_and_come_with_one_system_call(ends: tuple[Counting, Counting]) -> None:
    mine, theirs = ends
    sender, receiver = Link(mine), Link(theirs)
    for number in range(20):
        sender.send(Kind.DONE, str(number).encode())
    assert sender.waits and mine.sends == 0
    sender.flush()
    assert not sender.waits and mine.sends == 1
    assert [one.head for one in receiver.receive()] == [str(number).encode() for number in range(20)]
    assert theirs.receives == 1
    assert list(receiver.receive()) == []


def test_a_message_of_any_size_comes_whole(ends: tuple[Counting, Counting]) -> None:
    sender, receiver = map(Link, ends)
    content = bytes(range(256)) * 8_192
    sender.send(Kind.OUT, b"head", content)
    found = []
    while not found:
        sender.flush()
        found = list(receiver.receive())
    assert found == [(Kind.OUT, b"head", content)]


def test_what_was_sent_before_the_end_comes_before_it(ends: tuple[Counting, Counting]) -> None:
    sender, receiver = map(Link, ends)
    sender.send(Kind.DONE, b"1")
    sender.flush()
    sender.close()
    assert [one.head for one in receiver.receive()] == [b"1"]
    with pytest.raises(LinkClosed):
        list(receiver.receive())
