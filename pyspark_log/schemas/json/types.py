"""Which Arrow columns a JSON Schema has (json-schema.org), of an object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyspark_log.errors import SchemaError

_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
# A schema with more within each other, as by a reference to itself, is refused.
_MOST_DEPTH = 50
_NULL = {"type": "null"}


def arrow_schema(document: Any) -> pa.Schema:  # noqa: ANN401  (what JSON has)
    """The columns of a JSON Schema of an object.

    Raises:
        SchemaError: it has what columns have not: parts of any type, maps, or itself.
    """
    try:
        kind = _Reader(document).type("", document, 0)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a JSON Schema: {type(error).__name__}: {error}") from None
    if not pa.types.is_struct(kind):
        raise SchemaError("the JSON Schema is not that of an object")
    return pa.schema(list(kind))


class _Reader:
    def __init__(self, document: Any) -> None:  # noqa: ANN401
        self._document = document

    def type(self, name: str, schema: Any, depth: int) -> pa.DataType:  # noqa: ANN401
        schema = self._resolved(name, schema, depth)
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = next((field for field in kind if field != "null"), None) if len(set(kind) - {"null"}) == 1 else None
        if (
            kind is None
            and schema.get("enum")
            and all(isinstance(field, str) or field is None for field in schema["enum"])
        ):
            kind = "string"
        if kind == "object" and schema.get("properties"):
            fields = schema["properties"].items()
            return pa.struct([pa.field(field, self.type(field, of, depth + 1)) for field, of in fields])
        if kind == "array" and "items" in schema:
            return pa.list_(self.type(name, schema["items"], depth + 1))
        if kind == "string" and schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        if kind not in _TYPES:
            raise SchemaError(f"no column type fits {name!r}: {json.dumps(schema):.200}")
        return _TYPES[kind]

    def _resolved(self, name: str, schema: Any, depth: int) -> Mapping[str, Any]:  # noqa: ANN401
        """A schema without references, and without a choice between null and one other."""
        for _ in range(_MOST_DEPTH - depth):
            if not isinstance(schema, dict):
                break
            choices = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf") or []
            others = [choice for choice in choices if choice != _NULL]
            if "$ref" in schema:
                schema = self._referred(name, schema["$ref"])
            elif len(others) == 1 and "properties" not in schema:
                schema = others[0]
            else:
                return schema
        raise SchemaError(f"no column type fits {name!r}: {json.dumps(schema):.200}")

    def _referred(self, name: str, place: str) -> Any:  # noqa: ANN401
        part_of_it: Any = self._document
        begin, *parts = place.split("/")
        try:
            for part in parts if begin == "#" else [begin]:
                part_of_it = part_of_it[part.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise SchemaError(f"{name}: {place} names no part of the JSON Schema") from None
        return part_of_it
