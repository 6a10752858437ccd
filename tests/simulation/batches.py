"""Record batches (format 2, no codec) of a client: values to bytes, and back."""

import struct

from pyspark_log.storage.record import crc32c

_HEAD, _BODY = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_TRANSACTIONAL = 0x10


def _varint(number):
    number, data = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def encode(values, producer, sequence, time, *, in_transaction=False):
    """A batch; `producer`: id and epoch, `time`: in ms."""
    records = b""
    for number, value in enumerate(values):
        record = b"\0\0" + _varint(number) + b"\1" + _varint(len(value)) + value + b"\0"
        records += _varint(len(record)) + record
    attributes = _TRANSACTIONAL if in_transaction else 0
    body = _BODY.pack(attributes, len(values) - 1, time, time, *producer, sequence, len(values)) + records
    return _HEAD.pack(0, _HEAD.size - 12 + len(body), 0, 2, crc32c(body)) + body


def decode(data):
    """The offsets and values of batches."""
    position, end = 0, len(data)
    while position < end:
        base_offset, size, _, _, crc = _HEAD.unpack_from(data, position)
        body = bytes(data[position + _HEAD.size : position + 12 + size])
        assert crc32c(body) == crc, "a batch is damaged"
        _, last, _, _, _, _, _, count = _BODY.unpack_from(body)
        assert count == last + 1
        at = _BODY.size
        for _ in range(count):
            _, at = _read(body, at)
            number, at = _read(body, at + 2)
            length, at = _read(body, at + 1)
            yield base_offset + number, body[at : at + length]
            at += length + 1
        position += 12 + size


def _read(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
