"""What a consumer makes of logs with gaps, transactions, damage, a broker's files; and of keys and values."""

import importlib
import json
import logging

import pytest
from broker_tools import ALL, T0, add, batch, high_watermark
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log import Consumer, Producer, Store, TopicPartition
from pyspark_log.clients.records import FetchedRows
from pyspark_log.errors import (
    CorruptRecordError,
    DeserializationError,
    InvalidConfigError,
    NoOffsetError,
    OffsetOutOfRangeError,
)
from pyspark_log.schemas import SchemaDeserializer
from pyspark_log.storage.record.rows import row_schema
from pyspark_log.storage.segment.file_names import LOG, segment_path
from tests.store_tools import new_store, rows, store_with

store = store_with({"retention.ms": "-1"})
T1 = TopicPartition("t", 1)
BEGIN = {"auto_offset_reset": "earliest"}


def pairs(records):
    return [(record.offset, record.value) for record in records]


def polled(consumer, **how):
    return pairs(consumer.poll(**how).get(T0, []))


# ---- logs


@pytest.mark.usefixtures("prompt_checkpoints")
def test_transactions(log):
    log.plain(b"before")
    log.write(1, b"a", b"b")
    log.write(2, b"c")
    log.plain(b"after")
    with (
        Consumer(log.store, "t", **BEGIN, isolation_level="read_committed") as consumer,
        Consumer(log.store, "t", **BEGIN) as other,
    ):
        assert polled(consumer) == [(0, b"before")]
        assert (consumer.lag(T0), len(polled(other))) == (0, 5)
        consumer.seek(T0, 4)  # It waits there until it is decided.
        assert (polled(consumer), consumer.position(T0)) == ([], 4)
        consumer.seek(T0, 1)
        log.finish(1, commit=False)
        assert polled(consumer) == []
        # The records of the aborted one are passed over.
        assert consumer.position(T0) == 3
        log.finish(2, commit=True)
        assert polled(consumer) == [(3, b"c"), (4, b"after")]
        assert (polled(consumer), consumer.position(T0), consumer.lag(T0)) == ([], 7, 0)
        consumer.seek(T0, 8)
        assert polled(consumer) == [(0, b"before"), (3, b"c"), (4, b"after")]


@pytest.mark.usefixtures("prompt_checkpoints")
def test_a_brokers_folder_with_gaps(root):
    broker = Store.open(root)
    with Consumer(broker, "t", **BEGIN) as consumer:
        assert list(next(consumer).value) == list(b"a")
        assert consumer.position(T0) == 1
        assert polled(consumer) == ALL[1:]
        consumer.seek(T0, 4)
        consumer.stop_at({T0: 12})
        assert (list(consumer), consumer.position(T0), consumer.is_finished) == ([], 12, True)
        consumer.stop_at()
        assert pairs(consumer) == ALL[3:]


def test_a_brokers_end_is_known_later(root, caplog):
    high_watermark(root, 12)
    with Consumer(Store.open(root), **BEGIN) as consumer:
        consumer.assign({T0: 15})
        assert polled(consumer) == []
        high_watermark(root, 21)
        assert polled(consumer) == ALL[4:]
    assert caplog.text == ""


def test_damage(store):
    for value in (b"a", b"b" * 100, b"c"):
        store.append("t", rows(value))
    with open(segment_path(store.logs.place("t", 0).folder, 0, LOG), "r+b") as file:
        data = file.read()
        file.seek(data.index(b"b" * 100))
        file.write(b"x")
    with Consumer(store, "t", **BEGIN) as consumer:
        assert polled(consumer) == [(0, b"a")]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="base offset 1"):
                consumer.poll()
            assert consumer.position(T0) == 1
        consumer.seek(T0, 2)
        assert polled(consumer) == [(2, b"c")]
    with Consumer(store, "t", **BEGIN, check_crcs=False) as consumer:
        assert [offset for offset, _ in polled(consumer)] == [0, 1, 2]


def test_a_log_that_is_cut_under_a_reader(store):
    """As after a restore: the range that is being read ends beyond the log."""
    for number in range(4):
        store.append("t", rows(b"%d" % number * 100))
    with Consumer(store, "t", **BEGIN, max_partition_fetch_bytes=1) as consumer:
        assert next(consumer).offset == 0
        store.delete_records("t", 0, 3)
        # What was fetched already, then what is left.
        assert [record.offset for _ in range(4) for record in consumer.poll().get(T0, [])][-1] == 3


def test_an_end_that_is_not_there_any_more(store, caplog):
    """As after a log was cut: the position is in the log, the range that is to be read is not."""
    store.append("t", rows(b"0", b"1", b"2"))
    with Consumer(store, "t", **BEGIN) as consumer:
        assert next(consumer).offset == 0
        consumer.seek(T0, 1)
        consumer._fetcher._look()
        consumer._fetcher._readings[T0].log_end = 9
        assert pairs(consumer._fetcher.next_rows(look=False).take(5)) == [(1, b"1"), (2, b"2")]
    assert caplog.text == ""


def test_retention_while_it_is_read(tmp_path, caplog):
    store = new_store(tmp_path, {"segment.bytes": "1000", "file.delete.delay.ms": "0"})
    for number in range(50):
        store.append("t", rows(b"%d" % number * 50))
    for reset in ("earliest", "none"):
        with Consumer(store, "t", **BEGIN, max_partition_fetch_bytes=1) as consumer:
            assert next(consumer).offset == store.earliest_offset("t", 0)
        with Consumer(store, auto_offset_reset=reset, max_partition_fetch_bytes=1) as consumer:
            consumer.assign({T0: 0})
            if reset == "earliest":
                store.delete_records("t", 0, 40)
                assert [record.offset for record in consumer.poll()[T0]] == list(range(40, 50))
                assert "40 offsets are skipped" in caplog.text
            else:
                with pytest.raises(OffsetOutOfRangeError, match="call seek"):
                    consumer.poll()


def test_what_other_partitions_have_is_not_lost_by_an_error(tmp_path):
    store = new_store(tmp_path, partitions=2)
    with Consumer(store, "t", **BEGIN) as consumer:
        consumer.poll()
        for partition in (0, 1):
            store.append("t", rows(b"v"), partition=partition)
        consumer._fetcher._store = Failing(store)
        with pytest.raises(OSError, match="not now"):
            consumer.poll()
        consumer._fetcher._store = store
        assert {at.partition for at in consumer.poll()} == {0, 1}


def test_records_of_other_partitions_do_not_hide_an_error(tmp_path):
    store = new_store(tmp_path, partitions=2)
    with Consumer(store, auto_offset_reset="none") as consumer:
        consumer.assign([T0, T1])
        consumer.seek(T1, 0)

        def polled_again():
            store.append("t", rows(b"v"), partition=1)
            try:
                return set(consumer.poll())
            except NoOffsetError:
                return None

        # What comes before the error may be handed out first.
        assert [polled_again() for _ in range(4)][1:] == [None] * 3
        consumer.pause(T0)
        assert polled_again() == {T1}


class Failing:
    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        raise OSError("not now")


# ---- keys and values


def test_deserializers_by_name_and_function(store):
    with Producer(store) as producer:
        producer.send("t", json.dumps({"a": [1, None]}), key="schlüssel")
        producer.send("t", None)
    for key, value in (("text", "json"), (bytes.decode, json.loads)):
        with Consumer(store, "t", **BEGIN, key_deserializer=key, value_deserializer=value) as consumer:
            found = [(record.key, record.value) for record in consumer.poll()[T0]]
            assert found == [("schlüssel", {"a": [1, None]}), (None, None)]
    with pytest.raises(InvalidConfigError, match=r"value_deserializer 'xml'.*'text', 'json'"):
        Consumer(store, value_deserializer="xml")


def test_deserializers_of_other_clients(store):
    serialization = pytest.importorskip("confluent_kafka.serialization")
    calls = []

    class Confluents(serialization.Deserializer):
        def __call__(self, value, ctx=None):
            calls.append((value, ctx.topic, ctx.field, ctx.headers))
            return value.decode()

    class Pythons:
        def deserialize(self, topic, headers, data):
            calls.append((data, topic, headers))
            return data.decode()

    with Producer(store) as producer:
        producer.send("t", "v", key="k", headers=[("h", b"1")])
    with Consumer(store, "t", **BEGIN, key_deserializer=Pythons(), value_deserializer=Confluents()) as consumer:
        [record] = consumer.poll()[T0]
    assert (record.key, record.value) == ("k", "v")
    assert calls == [(b"k", "t", [("h", b"1")]), (b"v", "t", serialization.MessageField.VALUE, [("h", b"1")])]
    with Consumer(store, "t", **BEGIN, key_deserializer=serialization.StringDeserializer()) as consumer:
        assert next(consumer).key == "k"


def test_avro_of_a_schema_registry(store):
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    serialization = pytest.importorskip("confluent_kafka.serialization")
    registry = importlib.import_module("confluent_kafka.schema_registry").SchemaRegistryClient.new_client(
        {"url": "mock://registry"}
    )
    schema = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}'
    context = serialization.SerializationContext("t", serialization.MessageField.VALUE)
    with Producer(store) as producer:
        producer.send("t", avro.AvroSerializer(registry, schema)({"n": 5}, context))
    with Consumer(store, "t", **BEGIN, value_deserializer=avro.AvroDeserializer(registry)) as consumer:
        assert next(consumer).value == {"n": 5}


def test_values_by_schemas_in_a_folder(store, tmp_path):
    (tmp_path / "t-value.avsc").write_text(
        '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"},'
        ' {"name": "m", "type": {"type": "map", "values": ["null", "int", "string"]}}]}'
    )
    store.append("t", rows(b"\0\0\0\0\7\x0a\2\2k\4\2x\0", b"x"))
    deserializer = SchemaDeserializer("value", valueFormat="confluent", schemaRegistry=str(tmp_path))
    with Consumer(store, "t", **BEGIN, value_deserializer=deserializer) as consumer:
        assert next(consumer).value == {"n": 5, "m": {"k": "x"}}
        with pytest.raises(
            DeserializationError, match=r"offset 1 .*the value does not fit its schema: it begins with 78"
        ):
            next(consumer)
    with pytest.raises(InvalidConfigError, match="expected the option keyFormat"):
        SchemaDeserializer("key", valueFormat="avro")


def test_a_value_that_is_refused(store):
    store.append("t", rows(b"1", b"2", b"x", b"4"))
    with Consumer(store, "t", **BEGIN, value_deserializer="json") as consumer:
        assert polled(consumer) == [(0, 1), (1, 2)]
        for call in (consumer.poll, lambda: next(consumer)):
            with pytest.raises(
                DeserializationError, match=r"t-0: the value of the record at offset 2 .*JSONDecodeError.*, seek to 3"
            ) as caught:
                call()
            assert (caught.value.offset, caught.value.part, consumer.position(T0)) == (2, "value", 2)
        assert consumer.poll_arrow()["value"].to_pylist() == [b"x", b"4"]
        consumer.seek(T0, 3)
        assert polled(consumer) == [(3, 4)]


def test_an_interrupt_of_a_deserializer_loses_nothing(store):
    store.append("t", rows(b"1", b"2", b"3"))
    interrupts = [KeyboardInterrupt()]

    def read(data):
        if data == b"2" and interrupts:
            raise interrupts.pop()
        return data

    with Consumer(store, "t", **BEGIN, value_deserializer=read) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        assert polled(consumer) == [(0, b"1"), (1, b"2"), (2, b"3")]


# ---- the kernel, beside pyarrow

OPTIONAL = st.none() | st.binary(max_size=5)
RECORD = st.tuples(OPTIONAL, OPTIONAL, st.none() | st.lists(st.tuples(st.text(max_size=3), OPTIONAL), max_size=3))


@settings(deadline=None)
@given(st.lists(RECORD, max_size=20), st.integers(0, 5), st.integers(1, 7))
def test_records_are_what_their_columns_say(records, begin, most):
    """Also of a slice, whose buffers begin elsewhere."""
    import pyarrow as pa  # noqa: PLC0415

    keys, values, headers = zip(*records, strict=True) if records else ((), (), ())
    count = len(records)
    columns = {
        "key": keys, "value": values, "topic": ["t"] * count, "partition": [3] * count, "offset": range(7, 7 + count),
        "timestamp": [1000 * number - 1000 for number in range(count)], "timestampType": [1] * count,
        "headers": [None if one is None else [{"key": k, "value": v} for k, v in one] for one in headers],
    }  # fmt: skip
    schema = row_schema(True)
    made = pa.record_batch([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)
    begin = min(begin, count)
    fetched = FetchedRows(made.slice(begin), "t", 3, 5)
    found = []
    while fetched.left:
        assert fetched.position == (7 + begin + len(found) if found else 5)
        found += fetched.take(most)
    assert (fetched.take(1), fetched.rest().num_rows) == ([], 0)
    assert [(one.key, one.value, one.headers) for one in found] == [
        (k, v, list(h or [])) for k, v, h in records[begin:]
    ]
    assert [(one.offset, one.timestamp) for one in found] == [(7 + n, n - 1) for n in range(begin, count)]
    assert {(one.topic, one.partition, one.timestamp_type) for one in found} <= {("t", 3, 1)}


def test_no_batch_is_read_twice(root, caplog):
    """Gaps at the begin of what is added later."""
    caplog.set_level(logging.WARNING)
    with Consumer(Store.open(root), "t", **BEGIN) as consumer:
        assert len(polled(consumer)) == len(ALL)
        add(root / "t-0", 20, batch(30, b"z"))
        high_watermark(root, 31)
        assert polled(consumer) == [(30, b"z")]
    assert caplog.text == ""
