"""Values of schemas are those of Java's classes of Avro and Protobuf, both ways, and so is what another schema reads.

SCHEMA_CASES: how many times as many schemas as usual are drawn; SCHEMA_SEED: other ones.
"""

import json
import os
import random
import subprocess
from collections import Counter
from decimal import Context
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from avro_draws import AvroDraws
from proto_draws import ProtoDraws, as_text, imported

from pyspark_log.schemas import GivenSchema, Schema, TypedValues, ValueFormat
from pyspark_log.schemas.framing import confluent_prefix, single_object_prefix
from pyspark_log.schemas.writing import WriteFormat
from tests.kafka.kafka_tools import SCHEMAS, command

PROGRAM = Path(__file__).with_name("SchemaValues.java")
TIMES, SEED = int(os.environ.get("SCHEMA_CASES", "1")), int(os.environ.get("SCHEMA_SEED", "51"))
#: Values of a schema.
VALUES = 6
EXACT = Context(prec=60)


class Java:
    """Answers requests, one after the other."""

    def __init__(self):
        # Of logical types that do not fit Avro says that it ignores them.
        quiet = ("-Dorg.slf4j.simpleLogger.log.org.apache.avro=error",)
        # It keeps each pair of schemas that it has resolved.
        run = command(str(PROGRAM), jars=SCHEMAS, options=quiet, memory="1g")
        self._process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, **request):
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline(), parse_constant=str)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(60) == 0


@pytest.fixture(scope="module")
def java(schema_classes):
    running = Java()
    yield running
    running.close()


class Writer:
    """A source that has one writer's schema."""

    def __init__(self, schema):
        self._schema = schema

    def by_id(self, number, subject):
        return self._schema


def plain(array):
    """Rows, in the shape in which Java shows them."""
    kind = array.type
    if pa.types.is_struct(kind):
        columns = [plain(array.field(at)) for at in range(kind.num_fields)]
        rows = [dict(zip(kind.names, row, strict=True)) for row in zip(*columns, strict=True)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        edges = array.offsets.to_pylist()
        items = pairs(array) if pa.types.is_map(kind) else plain(array.values)
        rows = [items[begin:end] for begin, end in pairwise(edges)]
        rows = [dict(row) for row in rows] if pa.types.is_map(kind) else rows
    elif pa.types.is_decimal(kind):
        rows = [None if value is None else int(value.scaleb(kind.scale, EXACT)) for value in array.to_pylist()]
    elif pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        rows = [None if value is None else value.hex() for value in array.to_pylist()]
    elif pa.types.is_floating(kind):
        rows = array.view(pa.int32() if kind == pa.float32() else pa.int64()).to_pylist()
    elif pa.types.is_temporal(kind):
        rows = array.view(pa.int32() if kind == pa.date32() else pa.int64()).to_pylist()
    else:
        rows = array.to_pylist()
    return [row if is_valid else None for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def pairs(array):
    """The keys and items of a column of maps; a key as JSON has it."""
    keys = [key if isinstance(key, str) else json.dumps(key) for key in plain(array.keys)]
    return list(zip(keys, plain(array.items), strict=True))


def difference(ours, javas, place=""):
    """Where two rows differ first, and how; "": nowhere."""
    if isinstance(ours, dict) and isinstance(javas, dict) and ours.keys() == javas.keys():
        inner = (difference(ours[name], javas[name], f"{place}.{name}") for name in ours)
    elif isinstance(ours, list) and isinstance(javas, list) and len(ours) == len(javas):
        inner = (difference(*pair, f"{place}[{at}]") for at, pair in enumerate(zip(ours, javas, strict=True)))
    else:
        return "" if ours == javas else f"{place}: {ours!r:.300} and of Java {javas!r:.300}"
    return next(filter(None, inner), "")


def decoded(schema, values, framing="none", writer=None):
    """Values as columns, and the numbers of those that are none, with why."""
    source = GivenSchema(schema) if writer is None else Writer(writer)
    typed = TypedValues(ValueFormat("value", "t-value", framing, schema, source))
    array, bad = typed.decode(pa.array(values, pa.binary()))
    array.validate(full=True)
    return array, {problem.row: problem.reason for problem in bad}


def encoded(schema, array):
    """Columns as values, in hexadecimal digits."""
    writer = WriteFormat("value", schema, b"").writer(array.type)
    return [value.hex() for value in writer.encode(array, b"").to_pylist()]


def both_ways(java, schema, drawn, begin=b"", framing="none", **request):
    """Checks that what Java has drawn is decoded to its values, and that what is encoded of these is read by it."""
    expected = [value["shown"] for value in drawn["values"]]
    array, bad = decoded(schema, [begin + bytes.fromhex(value["bytes"]) for value in drawn["values"]], framing)
    assert (bad, difference(plain(array), expected)) == ({}, ""), request
    read = java.ask(**request, bytes=encoded(schema, array))["values"]
    assert difference(expected, [value.get("shown", value) for value in read]) == "", request


def test_values_of_avro_are_javas_both_ways(java):
    """As single objects, whose fingerprint is Java's, too."""
    for number in range(150 * TIMES):
        text = json.dumps(AvroDraws(random.Random(SEED << 20 | number)).schema())
        drawn = java.ask(writer=text, seed=number, count=VALUES)
        begin = single_object_prefix(bytes.fromhex(drawn["fingerprint"]))
        both_ways(java, Schema("avro", text), drawn, begin, "single-object", writer=text)


def test_what_another_schema_reads_is_what_java_reads(java):
    """Or it is refused where Java refuses it."""
    outcomes = Counter()
    for number in range(200 * TIMES):
        draws = AvroDraws(random.Random(SEED << 21 | number), plain=True)
        schema = draws.schema()
        writer, reader = json.dumps(schema), json.dumps(draws.changed(schema))
        values = [value["bytes"] for value in java.ask(writer=writer, seed=number, count=VALUES, filled=True)["values"]]
        answers = java.ask(writer=writer, reader=reader, bytes=values)["values"]
        framed = [confluent_prefix(1) + bytes.fromhex(value) for value in values]
        array, bad = decoded(Schema("avro", reader), framed, "confluent", Schema("avro", writer))
        for row, (ours, javas) in enumerate(zip(plain(array), answers, strict=True)):
            where = f"{bad.get(row)}, and Java {javas}; {writer} read as {reader}"
            assert (row in bad) == ("refused" in javas), where
            assert difference(ours, javas.get("shown")) == "", where
            outcomes[row in bad] += 1
    assert min(outcomes.values()) > 200


def test_values_of_protobuf_are_javas_both_ways(java):
    for number in range(150 * TIMES):
        text = as_text(ProtoDraws(random.Random(SEED << 22 | number)).file())
        files = {"files": [*imported(), text], "message": "Root"}
        drawn = java.ask(**files, seed=number, count=VALUES)
        both_ways(java, Schema("protobuf", text), drawn, **files)
