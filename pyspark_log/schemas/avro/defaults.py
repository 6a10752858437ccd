"""The default of a field, which a schema has in JSON, as Avro encodes it.

Apache Avro specification 1.12, "Complex Types" (defaults) and "Binary Encoding".
"""

from __future__ import annotations

import struct
from typing import Any

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.avro.schema import AvroType
from pyspark_log.schemas.framing import encoded_long

_INTS = {"int": 32, "long": 64}


def encoded_default(kind: AvroType, value: Any, path: str) -> bytes:  # noqa: ANN401  (what JSON has)
    """The bytes of a default.

    Raises:
        SchemaError: it is no value of its type; with `path`, the place of the field.
    """
    try:
        return _encoded(kind, value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error):
        raise SchemaError(f"{path}: the default {value!r:.80} is no {kind.kind}") from None


def _encoded(kind: AvroType, value: Any) -> bytes:  # noqa: ANN401, PLR0911  (a line a type)
    if kind.kind == "union":
        return _of_union(kind, value)
    if kind.kind == "record":
        fields = (
            (part, value.get(part.name, part.default) if part.has_default else value[part.name]) for part in kind.fields
        )
        return b"".join(_encoded(part.type, inner) for part, inner in fields)
    if kind.kind == "array":
        return _block([_encoded(kind.parts[0], part) for part in _checked(value, list)])
    if kind.kind == "map":
        items = _checked(value, dict).items()
        return _block([_sized(name.encode()) + _encoded(kind.parts[0], part) for name, part in items])
    if kind.kind == "null":
        return b"" if value is None else _refuse()
    if kind.kind == "boolean":
        return bytes([_checked(value, bool)])
    if kind.kind in _INTS:
        return _number(value, _INTS[kind.kind])
    if kind.kind in ("float", "double"):
        return struct.pack("<f" if kind.kind == "float" else "<d", value)
    if kind.kind == "enum":
        return encoded_long(kind.symbols.index(value))
    # Each character of a text is a byte.
    data: bytes = value.encode("utf-8" if kind.kind == "string" else "latin-1")
    if kind.kind != "fixed":
        return _sized(data)
    return data if len(data) == kind.size else _refuse()


def _of_union(kind: AvroType, value: Any) -> bytes:  # noqa: ANN401
    for number, branch in enumerate(kind.parts):
        try:
            return encoded_long(number) + _encoded(branch, value)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, struct.error):
            continue
    return _refuse()


def _number(value: Any, bits: int) -> bytes:  # noqa: ANN401
    if isinstance(value, bool) or not -(1 << bits - 1) <= _checked(value, int) < 1 << bits - 1:
        _refuse()
    return encoded_long(value)


def _checked(value: Any, kind: type) -> Any:  # noqa: ANN401
    return value if isinstance(value, kind) else _refuse()


def _refuse() -> bytes:
    raise ValueError("it is no such value")


def _sized(data: bytes) -> bytes:
    return encoded_long(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (encoded_long(len(items)) + b"".join(items) if items else b"") + b"\0"
