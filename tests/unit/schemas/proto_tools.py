"""Protobuf messages drawn by chance, made by Google's library, and what it has of them in the shape of Arrow's rows."""

import base64
import itertools
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from pyspark_log.schemas.protobuf.decoder import ProtobufDecoder
from pyspark_log.schemas.schema import Schema

Field = descriptor_pb2.FieldDescriptorProto
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_numbers = itertools.count()
SCALARS = {
    "TYPE_BOOL": st.booleans(),
    "TYPE_INT32": st.integers(-(2**31), 2**31 - 1),
    "TYPE_SINT32": st.integers(-(2**31), 2**31 - 1),
    "TYPE_SFIXED32": st.integers(-(2**31), 2**31 - 1),
    "TYPE_UINT32": st.integers(0, 2**32 - 1),
    "TYPE_FIXED32": st.integers(0, 2**32 - 1),
    "TYPE_INT64": st.integers(-(2**63), 2**63 - 1),
    "TYPE_SINT64": st.integers(-(2**63), 2**63 - 1),
    "TYPE_SFIXED64": st.integers(-(2**63), 2**63 - 1),
    "TYPE_UINT64": st.integers(0, 2**64 - 1),
    "TYPE_FIXED64": st.integers(0, 2**64 - 1),
    "TYPE_FLOAT": st.floats(width=32, allow_nan=False),
    "TYPE_DOUBLE": st.floats(allow_nan=False),
    "TYPE_STRING": st.text(max_size=12),
    "TYPE_BYTES": st.binary(max_size=12),
}
_DECIMALS = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def add_fields(draw, message, scope, depth):
    """Adds fields of all kinds to a message's descriptor."""
    oneof = None
    for number in range(draw(st.integers(1, 5))):
        field = message.field.add(name=f"f{number}", number=draw(st.integers(1, 40)) * 8 + number)
        shape = draw(st.sampled_from(["one", "optional", "repeated", "oneof", "map"]))
        kinds = [*SCALARS, "TYPE_ENUM", "timestamp", "wrapper", *(["TYPE_MESSAGE"] * 4 if depth else [])]
        set_type(draw, field, message, scope, depth, draw(st.sampled_from(kinds)))
        field.label = Field.LABEL_OPTIONAL
        if shape == "repeated":
            field.label = Field.LABEL_REPEATED
        elif shape == "map":
            as_map(draw, field, message, scope)
        elif shape == "oneof":
            if oneof is None:
                oneof = len(message.oneof_decl)
                message.oneof_decl.add(name="choice")
            field.oneof_index = oneof
    for field in message.field:
        if field.label == Field.LABEL_OPTIONAL and not field.HasField("oneof_index") and draw(st.booleans()):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def set_type(draw, field, message, scope, depth, kind):
    if kind in SCALARS:
        field.type = getattr(Field, kind)
    elif kind == "TYPE_ENUM":
        field.type, field.type_name = Field.TYPE_ENUM, ".drawn.Colour"
    elif kind in ("timestamp", "wrapper"):
        field.type = Field.TYPE_MESSAGE
        field.type_name = ".google.protobuf.Timestamp" if kind == "timestamp" else ".google.protobuf.Int64Value"
    else:
        name = f"M{len(message.nested_type)}"
        inner = message.nested_type.add(name=name)
        add_fields(draw, inner, f"{scope}.{name}", depth - 1)
        field.type, field.type_name = Field.TYPE_MESSAGE, f"{scope}.{name}"


def as_map(draw, field, message, scope):
    name = f"F{field.name[1:]}Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=draw(st.sampled_from([Field.TYPE_STRING, Field.TYPE_INT32])))
    value = entry.field.add(name="value", number=2, label=1, type=field.type)
    if field.type_name:
        value.type_name = field.type_name
    field.type, field.type_name, field.label = Field.TYPE_MESSAGE, f"{scope}.{name}", Field.LABEL_REPEATED


@st.composite
def files(draw):
    """A file with a message `drawn.Root`."""
    file = descriptor_pb2.FileDescriptorProto(name=f"drawn{next(_numbers)}.proto", package="drawn", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    colour = file.enum_type.add(name="Colour")
    for number, name in ((0, "RED"), (1, "GREEN"), (-5, "BLUE")):
        colour.value.add(name=name, number=number)
    add_fields(draw, file.message_type.add(name="Root"), ".drawn.Root", 2)
    return file


def message_class(file):
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("drawn.Root"))


def fill(draw, message):
    """Gives a message values."""
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()):
            continue
        if is_map(field):
            key, value = field.message_type.fields
            for _ in range(draw(st.integers(0, 3))):
                into, at = getattr(message, field.name), draw(scalars(key))
                if value.message_type is None:
                    into[at] = draw(scalars(value))
                else:
                    fill_message(draw, into[at])
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.message_type is None:
                    getattr(message, field.name).append(draw(scalars(field)))
                else:
                    fill_message(draw, getattr(message, field.name).add())
        elif field.message_type is None:
            setattr(message, field.name, draw(scalars(field)))
        else:
            getattr(message, field.name).SetInParent()
            fill_message(draw, getattr(message, field.name))


def fill_message(draw, message):
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        message.FromMicroseconds(draw(st.integers(-(2**50), 2**51)))
    else:
        fill(draw, message)


def scalars(field):
    if field.enum_type is not None:
        return st.sampled_from([0, 1, -5])
    names = {getattr(FieldDescriptor, name): values for name, values in SCALARS.items()}
    return names[field.type]


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def shaped(message):
    """A message as Arrow's rows have it."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return EPOCH + timedelta(microseconds=message.ToMicroseconds())
    return {field.name: shaped_field(message, field) for field in message.DESCRIPTOR.fields}


def shaped_field(message, field):
    value = getattr(message, field.name)
    if is_map(field):
        key, of = field.message_type.fields
        return {shaped_value(key, at): shaped_value(of, value[at]) for at in value}
    if field.is_repeated:
        return [shaped_value(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return shaped_value(field, value)


def shaped_value(field, value):
    if field.message_type is not None:
        return shaped(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    return Decimal(value) if field.type in _DECIMALS else value


def with_dicts(value, kind):
    """A row whose maps are dicts: their order is of no account."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: with_dicts(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: with_dicts(of, kind.item_type) for key, of in value}
    if pa.types.is_list(kind):
        return [with_dicts(one, kind.value_type) for one in value]
    return value


def schema_of(file):
    return Schema("protobuf", base64.b64encode(file.SerializeToString()).decode())


def decoder_of(file):
    return ProtobufDecoder(schema_of(file))


def decoded(file, values):
    """The rows of some bytes, and which are none."""
    decoder = decoder_of(file)
    array, bad = decoder.decode(pa.array(values, pa.binary()), 0, None)
    array.validate(full=True)
    return [with_dicts(row, decoder.type) for row in array.to_pylist()], bad


def comparable(value):
    """A row in which what is no number is equal to itself."""
    if isinstance(value, dict):
        return {comparable(key): comparable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
