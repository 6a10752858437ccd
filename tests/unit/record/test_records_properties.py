"""The record codec against kafka-python's, against itself, and against damage, with generated records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_peer import DefaultRecordBatch, DefaultRecordBatchBuilder
from record_tools import EVERYTHING, NOW, Record, build, columns_of, read, rows_of
from searching import examples, searched

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.builder import BatchBuilder
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.headers import assign_offsets, scan

# kafka-python needs another package for snappy, whose golden batches are bytes of Kafka itself.
PEER_CODECS = [codec for codec in layout.CODECS if codec != "snappy"]
pytestmark = pytest.mark.sampled

payloads = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=9), st.integers(0, 3000)),
)
records = st.builds(
    Record,
    key=payloads,
    value=payloads,
    timestamp=st.one_of(st.just(-1), st.integers(0, (2**63 - 1) // 1000), st.integers(NOW - 100, NOW + 100)),
    headers=st.lists(st.tuples(st.text(max_size=5), payloads), max_size=4).map(tuple),
)
batches = st.lists(records, min_size=1, max_size=30)


def numbered(rows: list[Record], first: int = 0) -> list[Record]:
    return [Record(r.key, r.value, r.timestamp, r.headers, first + i) for i, r in enumerate(rows)]


def by_peer(data: bytes) -> list[Record]:
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return [Record(r.key, r.value, r.timestamp, tuple(r.headers), r.offset, r.timestamp_type) for r in batch]


@searched
@given(batches, st.sampled_from(PEER_CODECS), st.integers(0, 2**62))
def test_kafka_python_reads_what_we_write(rows, codec, base_offset):
    data = build(rows, codec, base_offset=base_offset)
    assert by_peer(data) == numbered(rows, base_offset)
    assert DefaultRecordBatch(data).compression_type == layout.CODECS.index(codec)


@searched
@given(batches, st.sampled_from(PEER_CODECS))
def test_we_read_what_kafka_python_writes(rows, codec):
    peer = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=layout.CODECS.index(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, r in enumerate(rows):
        assert peer.append(offset, r.timestamp, r.key, r.value, list(r.headers)) is not None
    data = bytes(peer.build())
    assert read(data) == numbered(rows)
    if codec == "none":
        assert build(rows, leader_epoch=0) == data


def make_log(groups: list[list[Record]], codecs: list[str]) -> tuple[bytes, list[Record]]:
    """Batches one after the other, and the rows that they hold."""
    log = bytearray(b"".join(build(rows, codec) for rows, codec in zip(groups, codecs, strict=False)))
    assign_offsets(log, 0, len(log), 0, 0)
    return bytes(log), numbered([row for rows, _ in zip(groups, codecs, strict=False) for row in rows])


logs = st.builds(
    make_log,
    st.lists(batches, min_size=1, max_size=6),
    st.lists(st.sampled_from(layout.CODECS), min_size=1, max_size=6),
)


@searched
@given(logs, st.integers(-1, 100), st.integers(-1, 100), st.integers(0, 5000), st.integers(0, 90))
def test_any_range_is_read_in_any_steps(log, start, until, max_bytes, torn):
    """However it is cut into chunks, a range gives its rows, and stops before a torn batch."""
    data, rows = log
    data = data[: len(data) - torn]
    whole = [header.next_offset for header in scan(data, 0, len(data), check_crcs=True)]
    readable = min(until, whole[-1] if whole else 0)
    found, position, offset = [], 0, start
    while True:
        chunk = decode(
            data, position, len(data), from_offset=offset, until_offset=until, max_bytes=max_bytes, headers=True
        )
        found += rows_of(chunk)
        if chunk.position == position:
            break
        position, offset = chunk.position, chunk.next_offset
    assert found == [row for row in rows if start <= row.offset < readable]


@searched
@given(batches, st.integers(1, 400), st.sampled_from(layout.CODECS), st.data())
def test_builder_splits_where_the_size_says(rows, batch_size, codec, data):
    """Any order of any rows: all come out, and no batch of more than one record passes its size."""
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=60))
    columns, picked = columns_of(rows), pa.array(order, pa.int32())
    numbers = memoryview(picked.buffers()[1] or b"").cast("B").cast("i")
    builder, plain, taken, log = BatchBuilder(batch_size, 1 << 30, codec), [], 0, b""
    while taken < len(order):
        more = builder.append(columns, numbers, taken, len(order))
        assert more >= 1
        assert builder.count == 1 or builder.size <= batch_size
        plain.append(builder.size)
        log += builder.seal(base_offset=taken)
        taken += more
    assert read(log) == numbered([rows[i] for i in order])
    if codec == "none":
        assert [header.size - layout.HEADER_SIZE for header in scan(log, 0, len(log))] == plain


new_bytes = st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
mutations = st.lists(st.tuples(st.integers(0, 1 << 20), new_bytes), min_size=1, max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(logs, mutations, st.integers(0, 1 << 20))
def test_damaged_bytes_give_rows_or_the_one_error(log, changes, cut):
    damaged = bytearray(log[0])
    for at, value in changes:
        damaged[at % len(damaged)] = value
    if cut % 3 == 0:
        del damaged[cut % len(damaged) :]
    position, chunk = 0, None
    while chunk is None or chunk.position > position:
        position = chunk.position if chunk else 0
        chunk = unless_corrupt(decode, damaged, position, len(damaged), check_crcs=False, headers=True, **EVERYTHING)
        if chunk is None:
            break
        rows_of(chunk)
    unless_corrupt(scan, damaged, 0, len(damaged))
    unless_corrupt(assign_offsets, damaged, 0, len(damaged), 0, 0)


def unless_corrupt(work, *args, **options):
    """What `work` returns, or None if it raises the one error that damage may raise."""
    try:
        return work(*args, **options)
    except CorruptRecordError:
        return None
