"""Values that are JSON objects, parsed into columns by Arrow, a batch at a time."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa

from pyspark_log.errors import SchemaError
from pyspark_log.jobs.export.parsed_values import ParsedValues
from pyspark_log.schemas.json.decoder import check_json_type, parse_all_json
from pyspark_log.schemas.json.types import arrow_schema


class JsonValues(ParsedValues):
    """Values that are JSON objects: fields that the schema has not are left out, and missing ones are null."""

    def parse(self, values: pa.Array) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """Parses values into structs of the fields; what is none is null, with its row and the reason."""
        return parse_all_json(values, pa.struct(list(self.schema)))


def json_values(schema: pa.Schema, *, bad_as_null: bool) -> JsonValues:
    """How JSON objects with the fields of a schema are parsed. click.UsageError: Arrow does not parse one of them."""
    try:
        check_json_type(pa.struct(list(schema)))
    except SchemaError as error:
        raise click.UsageError(f"--schema: {error}") from error
    return JsonValues(schema, bad_as_null)


def of_json_schema(document: dict[str, Any]) -> pa.Schema:
    """The fields of a JSON Schema (json-schema.org) of an object. click.UsageError: it has what columns have not."""
    try:
        return arrow_schema(document)
    except SchemaError as error:
        raise click.UsageError(f"--schema: {error}") from error
