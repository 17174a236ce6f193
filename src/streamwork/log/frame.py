"""A frame is one Arrow batch in a segment file: this module encodes, finds and verifies it.

A segment is an Arrow IPC stream, which any Arrow library can read: the schema message, then one message per batch.
Each batch message carries, in its custom metadata under the key ``streamwork``, one JSON object (`FrameInfo`):

    {"head_crc32": "5c1f0a2b", "body_crc32": "90e3a1c4", "size": 3136, "base": 1000, "rows": 50, "time": ..., ...}

`head_crc32` covers the message's header (length prefix and metadata, with these eight digits as zeros). `body_crc32`
covers its body, which is `size` bytes long. A reader can therefore trust a header before the body is read or completely
written, and can distinguish an unfinished append at the end of a file from damage.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

METADATA_KEY = "streamwork"
PREFIX = 8  # continuation marker and header length, four bytes each
MAX_HEADER = 1 << 24  # every header is shorter; a larger length is damage
_CONTINUATION = b"\xff\xff\xff\xff"
_ZEROS = b"00000000"
_MARKER = b'{"head_crc32":"'
_TEMPLATE = b'{"head_crc32":"00000000","body_crc32":"00000000","size":000000000000,'
_HEAD_AT = len(_MARKER)
_BODY_AT = _HEAD_AT + len(b'00000000","body_crc32":"')
_SIZE_AT = _BODY_AT + len(b'00000000","size":')
_SIZE_DIGITS = 12


class BadFrame(Exception):
    """These bytes are not a complete, unchanged frame. Callers turn it into an error that names file and offset."""


class FrameInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of a batch."""

    head_crc32: str
    body_crc32: str
    size: int
    base: int  # offset of the first event
    rows: int
    time: int  # append time in microseconds since 1970; never decreases within a partition
    synced: int = 0  # every event below this offset was durable when the batch was written
    transaction: str = ""  # empty: committed without a transaction
    extra: dict[str, Any] = {}  # further data of the writer, such as a ledger row


class FrameTags(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of `FrameInfo` that are known before the batch is serialized."""

    base: int
    rows: int
    time: int
    synced: int = 0
    transaction: str = ""
    extra: dict[str, Any] = {}


class Frame(msgspec.Struct, frozen=True):
    """A frame found in a file: header from `position`, body from `body`, next frame at `end`."""

    position: int
    body: int
    end: int
    info: FrameInfo


_decode_info = msgspec.json.Decoder(FrameInfo).decode
_encode_tags = msgspec.json.Encoder().encode


class FrameEncoder:
    """Serializes batches of one schema. The result of `encode` is valid until the next call."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.prologue: bytes = schema.serialize().to_pybytes()  # the first bytes of a segment
        self._scratch = bytearray(1 << 16)

    def encode(self, batch: pa.RecordBatch, tags: FrameTags) -> memoryview:
        info = _TEMPLATE + _encode_tags(tags)[1:]
        room = len(self.prologue) + pa.ipc.get_record_batch_size(batch) + len(info) + 1024
        if room > len(self._scratch):
            self._scratch = bytearray(room * 5 // 4)
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(self._scratch))
        pa.ipc.new_stream(sink, self.schema).write_batch(batch, custom_metadata={METADATA_KEY: info})
        frame = memoryview(self._scratch)[len(self.prologue) : sink.tell()]
        self._fill_in(frame)
        return frame

    @staticmethod
    def _fill_in(frame: memoryview) -> None:
        body = PREFIX + int.from_bytes(frame[4:8], "little")
        header = bytes(frame[:body])
        at = header.index(_MARKER)
        frame[at + _BODY_AT : at + _BODY_AT + 8] = b"%08x" % zlib.crc32(frame[body:])
        # Right-aligned with spaces: a fixed width, and still JSON.
        frame[at + _SIZE_AT : at + _SIZE_AT + _SIZE_DIGITS] = b"%*d" % (_SIZE_DIGITS, len(frame) - body)
        frame[at + _HEAD_AT : at + _HEAD_AT + 8] = b"%08x" % zlib.crc32(frame[:body])


def find_frame(data: memoryview, at: int, position: int, verify: bool = True) -> Frame | None:
    """The frame whose header begins at `at` in `data`, which is `position` in its file.

    None if the header is incomplete. The body may be incomplete: see `Frame.end`. Raises BadFrame on damage.
    """
    if len(data) - at < PREFIX:
        return None
    if bytes(data[at : at + 4]) != _CONTINUATION:
        raise BadFrame("no batch begins here")
    length = int.from_bytes(data[at + 4 : at + PREFIX], "little")
    if length > MAX_HEADER:
        raise BadFrame("the length of the batch's header is damaged")
    if len(data) - at < PREFIX + length:
        return None
    header = bytes(data[at : at + PREFIX + length])
    info = _info(header, verify)
    body = position + PREFIX + length
    return Frame(position, body, body + info.size, info)


def _info(header: bytes, verify: bool) -> FrameInfo:
    at = header.find(_MARKER)
    if at < 4:
        raise BadFrame("the batch's metadata is damaged")
    text = header[at : at + int.from_bytes(header[at - 4 : at], "little")]  # Arrow puts the length before the text
    try:
        info = _decode_info(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadFrame("the batch's metadata is damaged") from None
    if verify:
        digits = at + _HEAD_AT
        found = zlib.crc32(header[digits + 8 :], zlib.crc32(_ZEROS, zlib.crc32(header[:digits])))
        if info.head_crc32 != f"{found:08x}":
            raise BadFrame("the batch's header does not match its CRC")
    if info.size < 0 or info.rows < 0 or info.base < 0:
        raise BadFrame("the batch's metadata is damaged")
    return info


def check_body(frame: Frame, body: Any) -> None:
    """Raise BadFrame if the body has changed since it was written."""
    if frame.info.body_crc32 != f"{zlib.crc32(body):08x}":
        raise BadFrame("the batch does not match its CRC")


def decode(frame: Frame, data: pa.Buffer, schema: pa.Schema, verify: bool = True) -> pa.RecordBatch:
    """The batch of a complete frame, without copying. `data` holds the frame's bytes, header first."""
    if verify:
        check_body(frame, data.slice(frame.body - frame.position))
    try:
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(data), schema)
        batch.validate()
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise BadFrame(f"the batch cannot be decoded: {error}") from None
    if batch.num_rows != frame.info.rows:
        raise BadFrame("the number of events in the batch differs from its metadata")
    return batch


def whole_frames(data: bytes, position: int) -> Iterator[Frame]:
    """The complete, unchanged frames anywhere in these bytes, which are at `position` in their file."""
    at, view = 0, memoryview(data)
    while (at := data.find(_CONTINUATION, at)) >= 0:
        try:
            frame = find_frame(view, at, position + at)
            if frame is not None and frame.end <= position + len(data):
                check_body(frame, view[frame.body - position : frame.end - position])
                yield frame
                at = frame.end - position
                continue
        except BadFrame:
            pass
        at += 4


def check_unfinished(data: bytes) -> None:
    """Raise BadFrame if these bytes at the end of a file are not the beginning of a header, but a header with a damaged length.

    A damaged length can claim a header that is longer than the file. Then later frames, or the body, follow it.
    """
    at = data.find(_MARKER)
    if at < 4:
        return
    if next(whole_frames(data[4:], 0), None) is not None:
        raise BadFrame("the length of the batch's header is damaged")
    text = data[at : at + int.from_bytes(data[at - 4 : at], "little")]
    try:
        info = _decode_info(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if 0 < info.size <= len(data) and info.body_crc32 == f"{zlib.crc32(data[-info.size :]):08x}":
        raise BadFrame("the length of the batch's header is damaged")
