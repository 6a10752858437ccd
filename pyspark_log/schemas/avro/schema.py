"""Avro's schemas: from JSON to types, whose names are resolved, and the fingerprint of one.

Apache Avro specification 1.12: "Schema Declaration", "Parsing Canonical Form for Schemas", "Schema Fingerprints".
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from pyspark_log.errors import SchemaError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# A schema with more types within each other than this is refused; Python's own stack would end a little later.
_MOST_DEPTH = 200
_MOST_BYTES = 2**31 - 1
_MISSING = object()


@dataclass(eq=False)
class AvroField:
    """A field of a record: its name, type, other names, and its default, if it has one."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = _MISSING

    @property
    def has_default(self) -> bool:
        """Whether there is a default."""
        return self.default is not _MISSING


@dataclass(eq=False)
class AvroType:
    """A type. A type with a name is one object wherever it is named, so a type can hold itself.

    Attributes:
        kind: one of Avro's primitive types, record, enum, fixed, array, map or union.
        name: the full name of a record, enum or fixed.
        aliases: its other full names.
        fields: of a record.
        symbols, default: of an enum.
        size: bytes of a fixed.
        parts: the items of an array, the values of a map, the branches of a union.
        logical: the logical type, or "".
        precision, scale: of a decimal.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    parts: list[AvroType] = field(default_factory=list)
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


def parse_avro(text: str, references: tuple[str, ...] = ()) -> AvroType:
    """The type of a schema.

    Args:
        text: JSON; the name of a primitive type may be without quotes.
        references: the schemas whose names it uses, each after those that it uses itself.

    Raises:
        SchemaError: it is no Avro schema.
    """
    parser = _Parser()
    for schema in (*references, text):
        kind = parser.parsed(schema)
    return kind


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._depth = 0

    def parsed(self, text: str) -> AvroType:
        try:
            document = text if text in PRIMITIVES else json.loads(text)
            # No name may have half of a character.
            json.dumps(document, ensure_ascii=False).encode()
            return self._type(document, "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from None

    def _type(self, document: Any, namespace: str) -> AvroType:  # noqa: ANN401, PLR0911  (one for each kind)
        if isinstance(document, str):
            return self._by_name(document, namespace)
        if isinstance(document, list):
            if not document:
                raise ValueError("a union has no branch")
            return AvroType("union", parts=[self._nested(branch, namespace) for branch in document])
        kind = document["type"]
        if not isinstance(kind, str):
            return self._nested(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._with_name(document, kind, namespace)
        if kind == "array":
            return AvroType(kind, parts=[self._nested(document["items"], namespace)])
        if kind == "map":
            return AvroType(kind, parts=[self._nested(document["values"], namespace)])
        if kind not in PRIMITIVES:
            return self._by_name(kind, namespace)
        return _with_logical(AvroType(kind), document)

    def _nested(self, document: Any, namespace: str) -> AvroType:  # noqa: ANN401
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ValueError(f"more than {_MOST_DEPTH} types within each other")
        kind = self._type(document, namespace)
        self._depth -= 1
        return kind

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = _full(name, namespace)
        named = self._named.get(full) or self._named.get(name)
        if named is None:
            raise ValueError(f"there is no type {full!r}")
        return named

    def _with_name(self, document: dict[str, Any], kind: str, namespace: str) -> AvroType:
        name = _full(document["name"], document.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        if name in self._named:
            raise ValueError(f"the type {name!r} is there twice")
        named = AvroType("record" if kind == "error" else kind, name)
        named.aliases = tuple(_full(part, inner) for part in document.get("aliases", ()))
        self._named[name] = named
        if kind == "enum":
            named.symbols, named.default = tuple(str(part) for part in document["symbols"]), document.get("default")
        elif kind == "fixed":
            named.size = int(document["size"])
            if not 0 <= named.size <= _MOST_BYTES:
                raise ValueError(f"the fixed {name!r} has the size {named.size}")
            _with_logical(named, document)
        else:
            named.fields = [self._field(part, inner) for part in document["fields"]]
            names = [part.name for part in named.fields]
            if len(set(names)) < len(names):
                raise ValueError(f"a field of {name!r} is there twice")
        return named

    def _field(self, document: dict[str, Any], namespace: str) -> AvroField:
        kind = self._nested(document["type"], namespace)
        return AvroField(
            str(document["name"]), kind, tuple(document.get("aliases", ())), document.get("default", _MISSING)
        )


def _full(name: str, namespace: str | None) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is no name")
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logical(kind: AvroType, document: dict[str, Any]) -> AvroType:
    """Adds the logical type; one that does not fit is none, as the specification has it."""
    logical = document.get("logicalType", "")
    if logical == "decimal" and kind.kind in ("bytes", "fixed"):
        precision, scale = document.get("precision"), document.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision > 0:
            return kind
        if kind.kind == "fixed" and precision > (8 * kind.size - 1) * math.log10(2):
            return kind
        kind.precision, kind.scale = precision, scale
    elif logical == "decimal":
        return kind
    kind.logical = logical if isinstance(logical, str) else ""
    return kind


# ---- fingerprints

_EMPTY = 0xC15D213AA4D7A795


def _row(number: int) -> int:
    for _ in range(8):
        number = (number >> 1) ^ (_EMPTY & -(number & 1))
    return number


_TABLE = [_row(number) for number in range(256)]


def fingerprint(kind: AvroType) -> bytes:
    """The CRC-64-AVRO of a schema's canonical form, as single objects have it: eight bytes, little-endian."""
    crc = _EMPTY
    for byte in _canonical(kind, set()).encode():
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")


def _canonical(kind: AvroType, written: set[str]) -> str:  # noqa: PLR0911  (one for each kind)
    if kind.kind == "union":
        return f"[{','.join(_canonical(part, written) for part in kind.parts)}]"
    if kind.kind == "array":
        return f'{{"type":"array","items":{_canonical(kind.parts[0], written)}}}'
    if kind.kind == "map":
        return f'{{"type":"map","values":{_canonical(kind.parts[0], written)}}}'
    if not kind.name:
        return f'"{kind.kind}"'
    if kind.name in written:
        return f'"{kind.name}"'
    written.add(kind.name)
    begin = f'{{"name":"{kind.name}","type":"{kind.kind}"'
    if kind.kind == "fixed":
        return f'{begin},"size":{kind.size}}}'
    if kind.kind == "enum":
        return f'{begin},"symbols":[{",".join(json.dumps(part) for part in kind.symbols)}]}}'
    fields = [f'{{"name":"{part.name}","type":{_canonical(part.type, written)}}}' for part in kind.fields]
    return f'{begin},"fields":[{",".join(fields)}]}}'
