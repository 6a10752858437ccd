"""Files of Protobuf by chance, as descriptors."""

import base64
import itertools

from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2, wrappers_pb2

Field = descriptor_pb2.FieldDescriptorProto
#: What a drawn file imports.
IMPORTED = (timestamp_pb2, duration_pb2, wrappers_pb2, any_pb2, field_mask_pb2)
SCALARS = tuple(
    number for name, number in Field.Type.items() if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
)
WELL_KNOWN = tuple(
    f".google.protobuf.{message}" for module in IMPORTED for message in module.DESCRIPTOR.message_types_by_name
)
_KEYS = tuple(number for number in SCALARS if number not in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT, Field.TYPE_BYTES))
_LAST_NUMBER = 59_000


class ProtoDraws:
    """A file with a message `drawn.Root`, in the older language or the newer one."""

    def __init__(self, pick):
        """`pick`: a random.Random."""
        self._pick = pick
        self._is_proto3 = pick.random() < 0.6
        self._numbers = itertools.count()

    def file(self):
        file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="drawn")
        file.syntax = "proto3" if self._is_proto3 else "proto2"
        file.dependency.extend(module.DESCRIPTOR.name for module in IMPORTED)
        colour = file.enum_type.add(name="Colour")
        colour.options.allow_alias = True
        for name, number in (("RED", 0), ("GREEN", 1), ("BLUE", -5), ("AZURE", -5), ("LAST", 2**31 - 1)):
            colour.value.add(name=name, number=number)
        self._fill(file.message_type.add(name="Root"), ".drawn.Root", 3)
        return file

    def _fill(self, message, scope, depth):
        """Adds fields, and the messages within it that these have."""
        numbers = self._pick.sample(range(1, 60), 8)
        if self._pick.random() < 0.3:
            numbers[0] = self._pick.randint(100, _LAST_NUMBER)
        if self._pick.random() < 0.4:
            message.oneof_decl.add(name="choice")
        for number in numbers[: self._pick.randint(1, 8)]:
            field = message.field.add(name=f"f{number}", number=number, label=Field.LABEL_OPTIONAL)
            self._set_type(field, message, scope, depth)
            self._set_shape(field, message, scope)
        if message.oneof_decl and not any(field.HasField("oneof_index") for field in message.field):
            del message.oneof_decl[:]
        for field in message.field:
            if self._is_proto3 and field.label == Field.LABEL_OPTIONAL and not field.HasField("oneof_index"):
                self._set_presence(field, message)

    def _set_type(self, field, message, scope, depth):
        kind = self._pick.choice(["scalar"] * 4 + ["enum", "well known"] + ["message"] * 3 * (depth > 0))
        if kind == "scalar":
            field.type = self._pick.choice(SCALARS)
        elif kind == "enum":
            field.type, field.type_name = Field.TYPE_ENUM, ".drawn.Colour"
        elif kind == "well known":
            field.type, field.type_name = Field.TYPE_MESSAGE, self._pick.choice(WELL_KNOWN)
        else:
            inner = message.nested_type.add(name=f"M{next(self._numbers)}")
            field.type, field.type_name = Field.TYPE_MESSAGE, f"{scope}.{inner.name}"
            self._fill(inner, field.type_name, depth - 1)

    def _set_shape(self, field, message, scope):
        shape = self._pick.choice(["single", "single", "repeated", "oneof", "map", "required"])
        is_packable = field.type not in (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE)
        if shape == "repeated":
            field.label = Field.LABEL_REPEATED
            if is_packable and self._pick.random() < 0.5:
                field.options.packed = self._pick.random() < 0.5
        elif shape == "oneof" and message.oneof_decl:
            field.oneof_index = 0
        elif shape == "map":
            self._set_map(field, message, scope)
        elif shape == "required" and not self._is_proto3:
            field.label = Field.LABEL_REQUIRED
        elif not self._is_proto3 and field.type == Field.TYPE_INT32:
            field.default_value = "7"

    def _set_map(self, field, message, scope):
        entry = message.nested_type.add(name=f"F{field.number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL, type=self._pick.choice(_KEYS))
        value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL, type=field.type)
        if field.type_name:
            value.type_name = field.type_name
        field.type, field.type_name, field.label = Field.TYPE_MESSAGE, f"{scope}.{entry.name}", Field.LABEL_REPEATED

    def _set_presence(self, field, message):
        if self._pick.random() < 0.4:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def as_text(file):
    """A descriptor as a registry may have it, in base64."""
    return base64.b64encode(file.SerializeToString()).decode()


def imported():
    """What a drawn file imports, likewise."""
    return [base64.b64encode(module.DESCRIPTOR.serialized_pb).decode() for module in IMPORTED]
