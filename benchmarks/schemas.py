"""Values of a schema to Arrow columns, in values per second of one core, beside the libraries of the formats.

    python benchmarks/schemas.py [--records 100000] [--rounds 7] [--document]

Values are flat, with eight fields (two numbers, a float, a boolean, a time, three texts, one of which may be null), and
have about 100 bytes in Avro and Protobuf, 190 in JSON. They are decoded as a read does, in batches of 40,000, in one
thread, whose processor time is counted; medians. `with five bytes`: framed as Confluent's clients do it, and each
decoded by its writer's schema, of which there are two. Arrow's reader alone: of lines that are ready, in one block,
with the columns given, in one thread. The libraries make Python objects of a value, and Arrow columns of these.
"""

from __future__ import annotations

import io
import json
import statistics
import time
from collections.abc import Callable

import fastavro
import pyarrow as pa
import tables
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyarrow import json as arrow_json

from pyspark_log.schemas import GivenSchema, Schema, TypedValues, ValueFormat
from pyspark_log.schemas.framing import Framing, confluent_prefix

BATCH = 40_000
FIELDS = {
    "id": "long", "customer": "string", "amount": "double", "count": "int", "paid": "boolean",
    "note": ["null", "string"], "at": {"type": "long", "logicalType": "timestamp-micros"}, "city": "string",
}  # fmt: skip
AVRO = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
OLDER = {**AVRO, "fields": [*AVRO["fields"], {"name": "old", "type": "int"}]}
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"}, "customer": {"type": "string"}, "amount": {"type": "number"},
        "count": {"type": "integer"}, "paid": {"type": "boolean"}, "note": {"type": ["null", "string"]},
        "at": {"type": "integer"}, "city": {"type": "string"},
    },
}  # fmt: skip
PROTO = """syntax = "proto3";
message Order { int64 id = 1; string customer = 2; double amount = 3; int32 count = 4; bool paid = 5;
  optional string note = 6; int64 at = 7; string city = 8; }"""


def rows(count: int) -> list[dict[str, object]]:
    note = "a note of about forty characters, or so."
    return [
        {
            "id": at * 1_000_003, "customer": f"customer-{at:08}", "amount": at / 7, "count": at % 100,
            "paid": at % 2 == 0, "note": None if at % 4 == 0 else note, "at": 1_700_000_000_000_000 + at,
            "city": "Amsterdam",
        }
        for at in range(count)
    ]  # fmt: skip


def encoded(schema: object, row: dict[str, object]) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, row)
    return data.getvalue()


def message_class() -> type:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    kinds = {"string": 9, "double": 1, "int32": 5, "bool": 8, "int64": 3}
    for number, (name, kind) in enumerate(
        {
            "id": "int64", "customer": "string", "amount": "double", "count": "int32", "paid": "bool",
            "note": "string", "at": "int64", "city": "string",
        }.items(),
        1,
    ):  # fmt: skip
        order.field.add(name=name, number=number, label=1, type=kinds[kind])
    order.field[5].proto3_optional, order.field[5].oneof_index = True, 0
    order.oneof_decl.add(name="_note")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


class Writers:
    """The schemas of two writers, by number."""

    def by_id(self, number: int, _: str) -> Schema:
        return Schema("avro", json.dumps(AVRO if number == 1 else OLDER), number)

    latest = versions = None


def typed(kind: str, text: str, framing: Framing = "none", source: object = None) -> TypedValues:
    schema = Schema(kind, text)
    return TypedValues(ValueFormat("value", "t-value", framing, schema, source or GivenSchema(schema)))


def seconds(decode: Callable[[pa.Array], object], values: pa.Array, rounds: int) -> float:
    batches = [values[at : at + BATCH] for at in range(0, len(values), BATCH)]
    times = []
    for _ in range(rounds + 1):
        began = time.thread_time()
        for batch in batches:
            decode(batch)
        times.append(time.thread_time() - began)
    return statistics.median(times[1:])


def ways(given: list[dict[str, object]]) -> list[tuple[str, str, Callable[[pa.Array], object], list[bytes]]]:
    """Names of a format and a way, how it decodes a batch, and the values."""
    schema, older = fastavro.parse_schema(AVRO), fastavro.parse_schema(OLDER)
    avro = [encoded(schema, row) for row in given]
    framed = [
        confluent_prefix(1) + one if at % 2 else confluent_prefix(2) + encoded(older, {**row, "old": at})
        for at, (one, row) in enumerate(zip(avro, given, strict=True))
    ]
    text = [json.dumps(row).encode() for row in given]
    message, columns = message_class(), typed("avro", json.dumps(AVRO)).type
    names = list(FIELDS)
    messages = [message(**{name: of for name, of in row.items() if of is not None}) for row in given]
    proto = [one.SerializeToString() for one in messages]
    confluent = typed("avro", json.dumps(AVRO), "confluent", Writers())

    def by_fastavro(batch: pa.Array) -> pa.Array:
        read = fastavro.schemaless_reader
        return pa.array([read(io.BytesIO(one), schema, None) for one in batch.to_pylist()], columns)

    def by_protobuf(batch: pa.Array) -> pa.Array:
        parsed = [message.FromString(one) for one in batch.to_pylist()]
        return pa.array([{name: getattr(one, name) for name in names} for one in parsed])

    lines, fields = dict[int, pa.Buffer](), pa.schema(list(typed("json", json.dumps(JSON)).type))
    options = arrow_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")

    def by_arrow(batch: pa.Array) -> pa.Table:
        # Joined in the first round, which does not count.
        if batch.offset not in lines:
            lines[batch.offset] = pa.py_buffer(b"\n".join(batch.to_pylist()))
        text = lines[batch.offset]
        how = arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1)
        return arrow_json.read_json(pa.BufferReader(text), how, options)

    return [
        ("Avro", "here", typed("avro", json.dumps(AVRO)).decode, avro),
        ("Avro", "here, with five bytes", confluent.decode, framed),
        ("Avro", "fastavro", by_fastavro, avro),
        ("JSON", "here", typed("json", json.dumps(JSON)).decode, text),
        ("JSON", "Arrow's reader alone", by_arrow, text),
        ("JSON", "json of Python", lambda batch: pa.array([json.loads(one) for one in batch.to_pylist()]), text),
        ("Protobuf", "here", typed("protobuf", PROTO).decode, proto),
        ("Protobuf", "protobuf", by_protobuf, proto),
    ]


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    given = parser.parse_args()
    lines, first = [], dict[str, float]()
    for kind, way, decode, values in ways(rows(given.records)):
        took = seconds(decode, pa.array(values, pa.binary()), given.rounds)
        size = sum(map(len, values))
        first.setdefault(kind, took)
        rate = f"{given.records / took / 1e6:.2f}"
        lines.append(
            [f"{kind}: {way}", size // len(values), rate, f"{size / took / 1e6:,.0f}", f"{took / first[kind]:.1f}"]
        )
    header = ["", "bytes a value", "M values/s", "MB/s", "times as long as the first of its format"]
    tables.show("schemas", header, lines, document=given.document)


if __name__ == "__main__":
    main()
