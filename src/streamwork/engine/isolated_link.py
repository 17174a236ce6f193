"""The link between a task and an isolated component in a process of its own: messages over a pair of sockets.

To the child:    SETUP the layout, then START its assignment; OPEN an epoch; ITEM a parcel for it; TICK processing time
From the child:  READY; OUT a parcel of it; DONE with so many events; REPORT an epoch; FAILED
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

import msgspec

from streamwork.flow.parcel import Parcel, TimedHead

_FRAME = struct.Struct("<BII")
_RECEIVE_BYTES = 1 << 18
_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(TimedHead).decode


class Kind(IntEnum):
    SETUP = 0
    START = 1
    OPEN = 2
    ITEM = 3
    TICK = 4
    READY = 5
    OUT = 6
    DONE = 7
    REPORT = 8
    FAILED = 9


class Message(NamedTuple):
    kind: Kind
    head: bytes
    content: bytes

    def parcel(self) -> Parcel:
        """Of ITEM and OUT."""
        return Parcel(_decode_head(self.head), self.content)


class LinkClosed(Exception):
    """The other end is gone."""


class Link:
    """One end. Messages wait here until `flush`, as a system call costs more than a message. Sending never blocks: what the socket
    does not take waits, too.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)
        self._out = bytearray()
        self._in = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def waits(self) -> bool:
        """True if something is not sent yet."""
        return bool(self._out)

    def send(self, kind: Kind, head: bytes = b"", content: object = b"") -> None:
        body = memoryview(content)  # type: ignore[arg-type]
        self._out += _FRAME.pack(kind, len(head), body.nbytes)
        self._out += head
        self._out += body.cast("B") if body.nbytes else b""

    def send_parcel(self, kind: Kind, parcel: Parcel) -> None:
        self.send(kind, _encode_head(parcel.head), parcel.content)

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it. Raises LinkClosed."""
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                return
            except OSError as error:
                raise LinkClosed from error
            del self._out[:sent]

    def receive(self) -> Iterator[Message]:
        """The messages that have come."""
        closed = False
        while True:
            try:
                found = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                found = b""
            if not found:
                closed = True
                break
            self._in += found
            if len(found) < _RECEIVE_BYTES:  # there is no more now: asking again would cost a system call
                break
        at = 0
        while len(self._in) - at >= _FRAME.size:
            kind, head, content = _FRAME.unpack_from(self._in, at)
            start = at + _FRAME.size
            if len(self._in) < start + head + content:
                break
            yield Message(
                Kind(kind),
                bytes(self._in[start : start + head]),
                bytes(self._in[start + head : start + head + content]),
            )
            at = start + head + content
        del self._in[:at]
        if closed:
            raise LinkClosed

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()
