"""Which columns the messages of a Protobuf schema have, and the program that fills them (protobuf_columns)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.protobuf.descriptor import add_descriptor
from pyspark_log.schemas.protobuf.file import SCALARS, WELL_KNOWN, ProtoField, ProtoFile, ProtoMessage, parse_proto
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.slots import Slot

# The numbers of the kernel, in its order.
_KINDS = (
    "bool", "int32", "sint32", "uint32", "int64", "sint64", "uint64", "enum", "fixed32", "sfixed32", "float", "fixed64",
    "sfixed64", "double", "string", "bytes", "message", "google.protobuf.Timestamp", "google.protobuf.Duration",
)  # fmt: skip
# Numbers without a sign have the next larger type with one.
_TYPES = {
    "bool": pa.bool_(), "int32": pa.int32(), "sint32": pa.int32(), "sfixed32": pa.int32(), "uint32": pa.int64(),
    "fixed32": pa.int64(), "int64": pa.int64(), "sint64": pa.int64(), "sfixed64": pa.int64(),
    "uint64": pa.decimal128(20, 0), "fixed64": pa.decimal128(20, 0), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(), "enum": pa.string(),
    "google.protobuf.Timestamp": pa.timestamp("us", tz="UTC"), "google.protobuf.Duration": pa.duration("us"),
}  # fmt: skip
_KEYS = tuple(kind for kind in _TYPES if kind in SCALARS and kind not in ("float", "double", "bytes"))
_MOST_PLACES = 8

_Field = tuple[int, int, int, int, int, bool, bool, int]


@dataclass
class Messages:
    """The arguments of ProtobufProgram."""

    messages: list[tuple[int, list[_Field]]] = dataclasses.field(default_factory=list)
    enums: list[dict[int, str]] = dataclasses.field(default_factory=list)


def message_of(schema: Schema, name: str) -> tuple[ProtoFile, ProtoMessage]:
    """The message that the values of a schema are.

    Args:
        schema: the schema.
        name: the message's, with or without its package; "": the first one of the file.

    Raises:
        SchemaError: the schema is none, or has no such message.
    """
    file = parse_proto(WELL_KNOWN)
    for _, text in schema.references:
        _add(text, file)
    # One of these may have the name of a well-known one.
    itself = ProtoFile()
    _add(schema.text, itself)
    file.messages |= itself.messages
    file.enums |= itself.enums
    own = list(itself.messages.values())
    if not own:
        raise SchemaError("the Protobuf schema has no message")
    if not name:
        return file, min(own, key=lambda message: message.place)
    for message in own:
        if message.name == name or message.name.endswith(f".{name}"):
            return file, message
    raise SchemaError(f"the Protobuf schema has no message {name}; it has {', '.join(message.name for message in own)}")


def _add(text: str, to: ProtoFile) -> None:
    if not add_descriptor(text, to):
        parse_proto(text, to)


def arrow_type(file: ProtoFile, message: ProtoMessage, inside: tuple[str, ...] = ()) -> pa.StructType:
    """The type of a column of messages.

    Raises:
        SchemaError: a message holds itself, or has no fields.
    """
    if message.name in inside:
        raise SchemaError(f"{message.name} refers to itself, and no column has values of any depth")
    if not message.fields:
        raise SchemaError(f"{message.name} is empty: it has no fields")
    if len(message.place) > _MOST_PLACES:
        raise SchemaError(f"{message.name} is within more than {_MOST_PLACES} messages")
    return pa.struct([_field_type(file, field, (*inside, message.name)) for field in message.fields])


def _field_type(file: ProtoFile, field: ProtoField, inside: tuple[str, ...]) -> pa.Field:
    kind, name = _kind(file, field.type, inside[-1])
    of = _TYPES[kind] if kind != "message" else arrow_type(file, file.messages[name], inside)
    if field.key:
        if field.key not in _KEYS:
            raise SchemaError(f"{field.name}: a map has no keys of the type {field.key}")
        return pa.field(field.name, pa.map_(_TYPES[field.key], of))
    return pa.field(field.name, pa.list_(of) if field.repeated else of)


def _kind(file: ProtoFile, written: str, scope: str) -> tuple[str, str]:
    """One of `_KINDS`, and the full name of a message or enum."""
    if written in _KINDS and "." not in written and written not in ("enum", "message"):
        return written, ""
    name = file.resolved(written, scope)
    if name in file.enums:
        return "enum", name
    return (name if name in _KINDS else "message"), name


def program_of(file: ProtoFile, message: ProtoMessage, slot: Slot) -> Messages:
    """The program for messages whose columns are `slot`, of the type that `arrow_type` returns."""
    program = Messages()
    _add_message(file, message.fields, message.name, slot, program)
    return program


def _add_message(
    file: ProtoFile, fields: Sequence[ProtoField], scope: str, slot: Slot, to: Messages, is_entry: bool = False
) -> int:
    number = len(to.messages)
    rows = list[_Field]()
    to.messages.append((slot.number, rows))
    oneofs = list(dict.fromkeys(field.oneof for field in fields if field.oneof))
    for field, child in zip(fields, slot.children, strict=True):
        kind, name = ("message", "") if field.key else _kind(file, field.type, scope)
        inner, symbols, presence = (
            -1,
            -1,
            field.presence or (kind in _KINDS[-3:] and not field.repeated and not is_entry),
        )
        if field.key:
            entry = [ProtoField("key", 1, field.key), ProtoField("value", 2, field.type)]
            inner = _add_message(file, entry, scope, child.children[0], to, is_entry=True)
        elif kind == "message":
            item = child.children[0] if field.repeated else child
            inner = _add_message(file, file.messages[name].fields, name, item, to)
        elif kind == "enum":
            symbols = len(to.enums)
            to.enums.append(file.enums[name])
        oneof = oneofs.index(field.oneof) if field.oneof else -1
        rows.append((field.number, _KINDS.index(kind), child.number, inner, oneof, field.repeated, presence, symbols))
    return number
