"""Keys and values of a schema: Avro, Protobuf and JSON, and the schemas themselves.

Inputs are good values, cut, changed, and with lengths that lie, each between two good ones. In some the writer's or the
reader's schema is changed, so that it refers to itself, has other types, or is none. A value is in its column, or null
and named with a reason; in any case the values around it are as they were. What was read can be written and read again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from family import Family
from google.protobuf import descriptor_pb2
from mutations import changed, changed_json, noise

from pyspark_log.errors import InvalidRecordError, PylogError, SchemaError
from pyspark_log.schemas import GivenSchema, Schema, TypedValues, ValueFormat
from pyspark_log.schemas.framing import confluent_prefix
from pyspark_log.schemas.schema import Kind
from pyspark_log.schemas.writing import WriteFormat

# Lengths and numbers of items, beyond any value's end.
_LIES = (2**7, 2**14, 2**28, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
# What a value may take in columns: much less than what one takes in which a length was believed.
_MOST_BYTES = 1 << 16
_MOST_BYTES_A_BYTE = 200


@dataclass(frozen=True)
class _Writer:
    """A source that has one writer's schema."""

    schema: Schema

    def by_id(self, number: int, subject: str) -> Schema:
        return self.schema

    def latest(self, subject: str) -> Schema:
        return self.schema

    def versions(self, subject: str) -> list[Schema]:
        return [self.schema]


@dataclass(frozen=True)
class Input:
    """How values are read, the bytes of one, and whether its schemas are as they were, and what was read is written."""

    form: ValueFormat
    value: bytes
    is_known: bool
    is_written: bool


class Values(Family):
    """Values of one language."""

    kind: Kind
    # Schemas, and good rows of each.
    good: tuple[tuple[Any, list[Any]], ...]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._typed: dict[ValueFormat, TypedValues] = {}
        self._values: dict[str, list[bytes]] = {}
        for schema, rows in self.good:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            for is_framed in (False, True):
                form = self._form(text, text, is_framed)
                self._typed[form] = TypedValues(form)
            array = pa.array(rows, self._typed[form].type)
            self._values[text] = (
                WriteFormat("value", form.reader, b"").writer(array.type).encode(array, b"").to_pylist()
            )

    def _form(self, reader: str, writer: str, is_framed: bool) -> ValueFormat:
        source = _Writer(Schema(self.kind, writer)) if is_framed else GivenSchema(Schema(self.kind, reader))
        return ValueFormat("value", "s", "confluent" if is_framed else "none", Schema(self.kind, reader), source)

    def framed(self, form: ValueFormat, value: bytes) -> bytes:
        """A value after what its framing has before it."""
        place = b"\0" if self.kind == "protobuf" else b""
        return confluent_prefix(1) + place + value if form.framing == "confluent" else value

    def changed_schema(self, pick: random.Random, text: str) -> str:
        raise NotImplementedError

    def input(self, pick: random.Random) -> Input:
        form = pick.choice(list(self._typed))
        text = form.reader.text
        value = self.damaged(pick, pick.choice(self._values[text]))
        data = self.framed(form, value) if pick.random() < 0.95 else value
        if pick.random() < 0.95:
            return Input(form, data, is_known=True, is_written=pick.random() < 0.1)
        other = self.changed_schema(pick, text)
        form = self._form(*((other, text) if pick.random() < 0.5 else (text, other)), form.framing == "confluent")
        return Input(form, data, is_known=False, is_written=pick.random() < 0.5)

    def damaged(self, pick: random.Random, value: bytes) -> bytes:
        kind = pick.randrange(10)
        if kind == 0:
            return noise(pick)
        if kind < 4:
            at = pick.randint(0, len(value))
            return value[:at] + _varint(pick.choice(_LIES) >> pick.randrange(2)) + value[at + pick.randrange(3) :]
        damaged = changed(pick, value, 4)
        return damaged[: pick.randint(0, len(damaged))] if kind < 6 else damaged

    # ---- feeding

    def feed(self, data: Input, counts: Counter[str]) -> None:
        try:
            typed = self._typed[data.form] if data.is_known else TypedValues(data.form)
        except PylogError:
            counts["schema: refused"] += 1
            return
        good = self._values.get(data.form.reader.text, next(iter(self._values.values())))
        around = self.framed(data.form, good[0])
        array, bad = typed.decode(pa.array([around, data.value, around], pa.binary()))
        array.validate(full=True)
        assert len(array) == 3
        assert array.nbytes <= _MOST_BYTES + _MOST_BYTES_A_BYTE * (len(data.value) + len(around)), array.nbytes
        refused = {problem.row for problem in bad}
        assert all(problem.reason for problem in bad)
        if data.is_known:
            assert refused <= {1}
            assert array[0].equals(array[2])
        assert all(not array[row].is_valid for row in refused)
        self.check(data, array, refused)
        if data.is_written:
            self._write(data.form, array)
        counts[f"{'value' if data.is_known else 'schema'}: {'refused' if 1 in refused else 'read'}"] += 1

    def check(self, data: Input, array: pa.Array, refused: set[int]) -> None:
        """Whatever else must be of the value, which is in the middle."""
        # Another schema may have nulls.
        assert array[1].is_valid or 1 in refused or not data.is_known

    def _write(self, form: ValueFormat, array: pa.Array) -> None:
        """What was read is written, and what is read of that is written as the same bytes; or it does not fit."""
        try:
            reader = TypedValues(replace(form, framing="none"))
            writer = WriteFormat("value", form.reader, b"").writer(array.type)
            written = writer.encode(array, b"")
        except (InvalidRecordError, SchemaError):
            return
        again, bad = reader.decode(written)
        assert bad == []
        assert writer.encode(again, b"").equals(written)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _with_other_words(pick: random.Random, text: str, words: tuple[str, ...]) -> str:
    """A text in which up to three of some words are another one of them."""
    for _ in range(pick.randint(1, 3)):
        at = pick.choice(list(re.finditer(rf"(?<![\w.])(?:{'|'.join(words)})(?![\w.])", text)))
        text = text[: at.start()] + pick.choice(words) + text[at.end() :]
    return text


# ---- the languages

_INNER = {"type": "record", "name": "Inner", "fields": [
    {"name": "x", "type": ["null", "string"]}, {"name": "y", "type": {"type": "fixed", "name": "F", "size": 3}},
    {"name": "z", "type": {"type": "map", "values": "double"}}]}  # fmt: skip
_INNER_ROW = {"x": "text", "y": b"abc", "z": {"k": 0.5}}


class AvroValues(Values):
    """Values in Avro."""

    kind = "avro"
    _WORDS = (
        "null", "boolean", "int", "long", "float", "double", "bytes", "string", "Root", "Inner", "array", "map",
        "record", "fixed", "enum", "decimal", "date", "timestamp-micros", "F", "E",
    )  # fmt: skip
    good = (
        ({"type": "record", "name": "Root", "fields": [
            {"name": "a", "type": "long"}, {"name": "b", "type": "string"}, {"name": "c", "type": "boolean"},
            {"name": "d", "type": {"type": "array", "items": ["null", "double", "string", _INNER]}},
            {"name": "e", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "f", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "A"},
            {"name": "g", "type": "float"}, {"name": "h", "type": ["int", "null"], "default": 1}]},
         [{"a": 2**50, "b": "text é", "c": True, "d": [None, {"member0": 0.5}, {"member1": "x"},
           {"member2": _INNER_ROW}], "e": Decimal("1.25"), "f": "B", "g": 0.5, "h": None},
          {"a": 0, "b": "", "c": False, "d": [], "e": Decimal(-1), "f": "A", "g": 0.0, "h": 5}]),
        ({"type": "map", "values": {"type": "array", "items": {"type": "array", "items": "bytes"}}},
         [{"k": [[b"a", b""], []], "l": []}]),
        ({"type": "record", "name": "Root", "fields": [
            {"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "b", "type": {"type": "int", "logicalType": "date"}}, {"name": "c", "type": _INNER}]},
         [{"a": datetime(2023, 1, 2, tzinfo=UTC), "b": date(2024, 5, 6), "c": _INNER_ROW}]),
    )  # fmt: skip

    def changed_schema(self, pick: random.Random, text: str) -> str:
        if pick.random() < 0.6:
            return _with_other_words(pick, text, self._WORDS)
        return changed_json(pick, json.loads(text)).decode(errors="replace")


class JsonValues(Values):
    """Values in JSON."""

    kind = "json"
    _TEXTS = (
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        "\n",
        "null",
        "1e999",
        '"a":',
        '{"a":1}',
        '},"x":{',
        "\0",
        "\u2028",
    )
    good = (
        ({"type": "object", "properties": {
            "a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": ["null", "boolean"]},
            "d": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "e": {"type": "string", "format": "date"}, "f": {"type": "string", "format": "date-time"},
            "g": {"$ref": "#/definitions/g"}},
          "definitions": {"g": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]}}},
         [{"a": 2**50, "b": "text é", "c": True, "d": [{"x": 0.5}, {"x": None}], "e": date(2024, 5, 6),
           "f": datetime(2023, 1, 2, tzinfo=UTC), "g": ["a", "b"]}, {"a": 5}]),
    )  # fmt: skip

    def changed_schema(self, pick: random.Random, text: str) -> str:
        if pick.random() < 0.5:
            words = ("integer", "string", "boolean", "array", "object", "number", "date", "null", "a", "definitions")
            return _with_other_words(pick, text, words)
        if pick.random() < 0.5:
            return text.replace(
                '{"type": "integer"}', pick.choice(('{"$ref": "#"}', '{"$ref": "#/definitions/g"}', "{}"))
            )
        return changed_json(pick, json.loads(text)).decode(errors="replace")

    def damaged(self, pick: random.Random, value: bytes) -> bytes:
        if pick.random() < 0.5:
            return super().damaged(pick, value)
        for _ in range(pick.randint(1, 3)):
            at = pick.randint(0, len(value))
            more = pick.choice(self._TEXTS) * pick.choice((1, 1, 1, 1, 2000))
            value = value[:at] + more.encode() + value[at + pick.randrange(4) :]
        return value

    def check(self, data: Input, array: pa.Array, refused: set[int]) -> None:
        if array[1].is_valid:
            text = data.value.removeprefix(confluent_prefix(1)).decode()
            with contextlib.suppress(RecursionError):
                assert isinstance(json.loads(text), dict)


_PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
message Root { int64 a = 1; string b = 2; repeated sint32 c = 3; map<string, Inner> d = 4; Kind e = 5;
  oneof how { bytes f = 6; fixed64 g = 7; Inner h = 8; } google.protobuf.Timestamp i = 9; repeated Inner j = 1000;
  optional float k = 11; google.protobuf.Duration l = 12; repeated bool m = 13; repeated string n = 14; uint64 o = 15;
  enum Kind { PLAIN = 0; LARGE = 2; BELOW = -1; }
  message Inner { uint32 x = 1; repeated double y = 2; repeated Deep z = 3; message Deep { bytes b = 1; } } }"""


class ProtobufValues(Values):
    """Values in Protobuf."""

    kind = "protobuf"
    good = (
        (_PROTO, [
            {"a": -5, "b": "text é", "c": [1, -2], "d": [("k", {"x": 1, "y": [0.5]})], "e": "LARGE", "f": b"ab",
             "i": datetime(2023, 1, 2, tzinfo=UTC), "j": [{"x": 5, "z": [{"b": b"x"}, {}]}, {}], "k": 0.0,
             "l": timedelta(seconds=-5), "m": [True, False], "n": ["", "x"], "o": Decimal(2**64 - 1)},
            {"h": {"x": 2**32 - 1}},
        ]),
    )  # fmt: skip
    _WORDS = (
        "int64", "string", "sint32", "Inner", "Kind", "bytes", "fixed64", "float", "bool", "uint64", "uint32", "double",
        "Deep", "Root", "repeated", "optional", "map", "oneof", "message", "enum", "google.protobuf.Timestamp",
        "google.protobuf.Struct", "google.protobuf.Any", "a", "b", "1", "2", "1000", "proto3", "proto2",
    )  # fmt: skip

    def changed_schema(self, pick: random.Random, text: str) -> str:
        if pick.random() < 0.8:
            return _with_other_words(pick, text, self._WORDS)
        file = descriptor_pb2.DESCRIPTOR.serialized_pb
        data = changed(pick, file if pick.random() < 0.3 else text.encode(), 3)
        return base64.b64encode(data).decode() if pick.random() < 0.5 else data.decode(errors="replace")
