"""Frames between a process and its workers: a JSON value with raw byte strings beside it, never pickles.

A frame is `MAGIC`, the lengths of header and body, the header (JSON, UTF-8) and the body (the byte strings
one after another). In the JSON value the byte string number k stands as ``{"$bytes": k}``. What a worker
sends is therefore data only: a worker whose memory was overwritten by a faulty program can send nonsense,
which is refused here, but nothing that acts in the parent.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

MAGIC: Final = b"AnsF"
_PREFIX: Final = struct.Struct("<4sIQ")
MAX_BYTES: Final = 1 << 32
_BYTES_KEY: Final = "$bytes"


class FrameError(ValueError):
    """The other side sent something that is not a frame."""


def encode(value: Any) -> bytes:
    """Return the frame of a value made of plain scalars, strings, bytes, lists and string-keyed dicts.

    Raises
    ------
    TypeError
        If it holds anything else.
    """
    blobs: list[bytes] = []
    plain = _without_bytes(value, blobs)
    header = json.dumps({"value": plain, "sizes": [len(blob) for blob in blobs]}).encode()
    body = b"".join(blobs)
    return _PREFIX.pack(MAGIC, len(header), len(body)) + header + body


def _without_bytes(value: Any, blobs: list[bytes]) -> Any:
    match value:
        case bytes():
            blobs.append(value)
            return {_BYTES_KEY: len(blobs) - 1}
        case list() | tuple():
            return [_without_bytes(item, blobs) for item in value]
        case dict():
            return {key: _without_bytes(item, blobs) for key, item in value.items()}
        case _:
            return value


class FrameReader:
    """Puts frames together from pieces as they arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: bytes) -> None:
        self._data += piece

    def next_frame(self) -> tuple[Any] | None:
        """Return the next complete frame's value in a tuple of one, or None if more must arrive first.

        Raises
        ------
        FrameError
            If the bytes are not a frame.
        """
        if len(self._data) < _PREFIX.size:
            return None
        magic, n_header, n_body = _PREFIX.unpack_from(self._data)
        if magic != MAGIC or n_body > MAX_BYTES:
            raise FrameError(f"expected a frame, found {bytes(self._data[:16])!r}")
        end = _PREFIX.size + n_header + n_body
        if len(self._data) < end:
            return None
        header = bytes(self._data[_PREFIX.size : _PREFIX.size + n_header])
        body = bytes(self._data[_PREFIX.size + n_header : end])
        del self._data[:end]
        return (_decode(header, body),)


def _decode(header: bytes, body: bytes) -> Any:
    try:
        parsed = json.loads(header)
        blobs, position = [], 0
        for size in parsed["sizes"]:
            blobs.append(body[position : position + size])
            position += size
        return _with_bytes(parsed["value"], blobs)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FrameError(f"a frame's header makes no sense: {error}") from None


def _with_bytes(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, list):
        return [_with_bytes(item, blobs) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_BYTES_KEY}:
            return blobs[value[_BYTES_KEY]]
        return {key: _with_bytes(item, blobs) for key, item in value.items()}
    return value
