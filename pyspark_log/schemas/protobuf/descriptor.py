"""A FileDescriptorProto, as some clients register it, in place of a file of Protobuf's language. Needs protobuf."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.protobuf.file import SCALARS, ProtoField, ProtoFile, ProtoMessage


def add_descriptor(text: str, to: ProtoFile) -> bool:
    """Adds the messages and enums of a descriptor in base64; returns whether the text is one.

    Raises:
        SchemaError: it is one, and the package protobuf is missing.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    try:
        from google.protobuf import descriptor_pb2  # noqa: PLC0415  (files of text do without)
        from google.protobuf.message import DecodeError  # noqa: PLC0415
    except ImportError:
        problem = "a Protobuf schema in base64 needs the package protobuf: pip install 'pyspark-log[protobuf]'"
        raise SchemaError(problem) from None
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(data)
    except DecodeError:
        return False
    reader = _Reader(file, to, descriptor_pb2.FieldDescriptorProto.Type.Name)
    for number, message in enumerate(file.message_type):
        reader.message(message, file.package, (number,))
    for enum in file.enum_type:
        reader.enum(enum, file.package)
    return True


class _Reader:
    def __init__(self, file: Any, to: ProtoFile, names: Callable[[int], str]) -> None:  # noqa: ANN401  (protobuf makes its classes as it is loaded)
        self._to = to
        self._name_of_type = names
        self._is_proto3 = file.syntax == "proto3"

    def message(self, descriptor: Any, scope: str, place: tuple[int, ...]) -> None:  # noqa: ANN401
        message = ProtoMessage(f"{scope}.{descriptor.name}" if scope else descriptor.name, place=place)
        self._to.messages[message.name] = message
        entries = {
            f".{message.name}.{inner.name}": inner for inner in descriptor.nested_type if inner.options.map_entry
        }
        for number, inner in enumerate(descriptor.nested_type):
            if not inner.options.map_entry:
                self.message(inner, message.name, (*place, number))
        for enum in descriptor.enum_type:
            self.enum(enum, message.name)
        message.fields = [self._field(field, descriptor, entries.get(field.type_name)) for field in descriptor.field]

    def enum(self, descriptor: Any, scope: str) -> None:  # noqa: ANN401
        symbols = dict[int, str]()
        for value in descriptor.value:
            symbols.setdefault(value.number, value.name)
        self._to.enums[f"{scope}.{descriptor.name}" if scope else descriptor.name] = symbols

    def _field(self, field: Any, message: Any, entry: Any) -> ProtoField:  # noqa: ANN401
        oneof = ""
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneof = message.oneof_decl[field.oneof_index].name
        repeated = field.label == field.LABEL_REPEATED
        presence = not repeated and (bool(oneof) or field.proto3_optional or not self._is_proto3)
        if entry is not None:
            key, value = entry.field
            return ProtoField(field.name, field.number, self._type(value), True, False, "", self._type(key))
        return ProtoField(field.name, field.number, self._type(field), repeated, presence, oneof)

    def _type(self, field: Any) -> str:  # noqa: ANN401
        name = self._name_of_type(field.type).removeprefix("TYPE_").lower()
        if name == "group":
            raise SchemaError(f"{field.name}: it is a group, which no column is made of")
        return name if name in SCALARS else str(field.type_name)
