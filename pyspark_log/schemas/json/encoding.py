"""Columns as values that are JSON objects of one schema."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa

from pyspark_log.errors import IncompatibleSchemaError, InvalidRecordError
from pyspark_log.schemas.json.decoder import JsonDecoder
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.slots import cast_columns


class JsonValuesWriter:
    """Encodes columns as JSON objects; a field that is null is left out.

    Attributes:
        type: the Arrow type that the columns are cast to.
    """

    def __init__(self, schema: Schema, columns: pa.DataType) -> None:
        """`columns`: the type of what is written. SchemaError; IncompatibleSchemaError: a column has no field."""
        self.type = JsonDecoder(schema).type
        if not pa.types.is_struct(columns):
            raise IncompatibleSchemaError(f"the JSON Schema is of an object, the column is {columns}")
        fields = {self.type.field(at).name for at in range(self.type.num_fields)}
        extra = [columns.field(at).name for at in range(columns.num_fields) if columns.field(at).name not in fields]
        if extra:
            raise IncompatibleSchemaError(f"{extra[0]}: the schema has no such field, so it would be lost")
        self._required = json.loads(schema.text).get("required") or []

    def encode(self, values: pa.Array, prefix: bytes) -> pa.Array:
        """Encodes values, after a prefix; a null is null. InvalidRecordError: a value does not fit the schema."""
        try:
            rows = cast_columns(values, self.type).to_pylist()
            return pa.array([None if row is None else prefix + self._text(row) for row in rows], pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise InvalidRecordError(f"values do not fit their schema: {error}") from None

    def _text(self, row: dict[str, Any]) -> bytes:
        missing = next((name for name in self._required if row.get(name) is None), None)
        if missing is not None:
            raise ValueError(f"{missing}: it is null, which the schema does not allow")
        return json.dumps(_without_nulls(row), default=_plain, ensure_ascii=False, allow_nan=False).encode()


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  (what JSON has)
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _plain(value: object) -> object:
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise ValueError(f"JSON has no {type(value).__name__}")
