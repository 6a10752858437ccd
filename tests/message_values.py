"""Values of Kafka's messages by chance, and as the JSON that Kafka's own classes read."""

import base64
import random

from pyspark_log.kafka.schemas import message
from pyspark_log.kafka.schemas.message import _record_schemas, _schemas, versions_of

_TEXTS = ("", "a", "orders", "größe", "多" * 40, "x" * 300)


def all_versions():
    """Each version of each message that is stored: pairs of a name and a version."""
    return _versions(_schemas())


def all_records():
    """The same of the records of a cluster's metadata."""
    return _versions(_record_schemas())


def _versions(schemas):
    return [(name, version) for name in schemas for version in message(name).versions]


class Values:
    """Makes values of one version of a message.

    Attributes:
        message: whose.
        version: in which.
        fields: what the schema says of its fields.
    """

    def __init__(self, name, version, seed=0, *, small=False):
        """`small`: numbers that have a meaning in all fields, such as error codes."""
        self._small = small
        self.message, self.version = message(name), version
        self._chance = random.Random(f"{name} {version} {seed}")
        self._schema = (_schemas() | _record_schemas())[name]
        self.fields = self._schema["fields"]
        self._inner = {one["name"]: one["fields"] for one in self._schema.get("commonStructs", ())}

    def default(self):
        """The message with its defaults."""
        return self.message.struct()

    def any(self):
        """A value by chance: fields that the version lacks have their defaults."""
        return self._struct(self.message.struct, self._schema["fields"])

    def json(self, value):
        """A value as the JSON that Kafka's class of the message reads."""
        return self._json_of_struct(value, self._schema["fields"])

    # ---- by chance

    def _struct(self, struct, fields):
        made = [
            self._field(field) if self._has(field) else default for field, default in zip(fields, struct(), strict=True)
        ]
        return struct(*made)

    def _has(self, field):
        return self.version in versions_of(field["versions"])

    def _may_be_null(self, field):
        return self.version in versions_of(field.get("nullableVersions", "none"))

    def _field(self, field):
        if self._may_be_null(field) and self._chance.random() < 0.25:
            return None
        kind = field["type"]
        if kind.startswith("[]"):
            count = self._chance.choice((0, 1, 1, 2, 3, 150 if "fields" not in field else 3))
            return tuple(self._value(kind[2:], field) for _ in range(count))
        return self._value(kind, field)

    def _value(self, kind, field):
        chance = self._chance
        if kind.startswith(("int", "uint")):
            if self._small:
                return chance.randint(0, 5)
            high = (1 << int(kind.lstrip("uint")) - (not kind.startswith("u"))) - 1
            return chance.choice((0 if kind.startswith("u") else -1 - high, 0, 1, high, chance.randint(0, high)))
        made = {
            "bool": lambda: chance.random() < 0.5,
            "float64": lambda: chance.choice((0.0, -1.5, chance.random(), 1e300)),
            "uuid": lambda: chance.choice((bytes(16), chance.randbytes(16))),
            "string": lambda: chance.choice(_TEXTS),
            "bytes": lambda: chance.randbytes(chance.choice((0, 1, 127, 128, 5000))),
            "records": lambda: chance.randbytes(chance.choice((0, 1, 127, 128, 5000))),
        }.get(kind)
        return made() if made else self._struct(getattr(self.message.struct, kind), self._fields_of(kind, field))

    def _fields_of(self, kind, field):
        return field["fields"] if "fields" in field else self._inner[kind]

    # ---- as JSON

    def _json_of_struct(self, value, fields):
        return {
            _camel_case(field["name"]): self._json_of_field(one, field)
            for one, field in zip(value, fields, strict=True)
            if self._has(field)
        }

    def _json_of_field(self, value, field):
        kind = field["type"]
        if value is None:
            return None
        if kind.startswith("[]"):
            return [self._json_of(one, kind[2:], field) for one in value]
        return self._json_of(value, kind, field)

    def _json_of(self, value, kind, field):
        if kind == "uuid":
            return base64.urlsafe_b64encode(value).decode().rstrip("=")
        if kind in ("bytes", "records"):
            return base64.b64encode(value).decode()
        if isinstance(value, tuple):
            return self._json_of_struct(value, self._fields_of(kind, field))
        return value


def _camel_case(name):
    return name[0].lower() + name[1:]


def joined(chunks):
    """The bytes of a frame without its length."""
    frame = b"".join(bytes(chunk) for chunk in chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]
