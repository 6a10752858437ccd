"""Values in Avro, decoded into columns a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import click
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.errors import SchemaError
from pyspark_log.jobs.export.parsed_values import ParsedValues
from pyspark_log.schemas import Schema
from pyspark_log.schemas.avro.decoder import AvroDecoder
from pyspark_log.schemas.framing import confluent_prefix


@dataclass(frozen=True)
class AvroValues(ParsedValues):
    """How values in Avro are decoded.

    Attributes:
        avro_schema: the schema of the values, a record, in JSON.
        registry_id: the number of that schema in a registry of Confluent's, which each value begins with; None: values
            are bare.
    """

    avro_schema: str = ""
    registry_id: int | None = None

    def parse(self, values: pa.Array) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """Decodes values into structs of the fields; what is none is null, with its row and the reason."""
        if self.registry_id is None:
            return _decoder(self.avro_schema).decode(values, 0, None)
        prefix = confluent_prefix(self.registry_id)
        others = pc.indices_nonzero(pc.invert(pc.starts_with(values, prefix))).to_pylist()
        which = pc.if_else(pc.starts_with(values, prefix), 0, -1).cast(pa.int32()).fill_null(-1)
        array, bad = _decoder(self.avro_schema).decode(values, len(prefix), which)
        for row in others:
            begin = values[row].as_py()[: len(prefix)]
            bad.append((row, f"it begins with {begin!r}, not with the schema id {self.registry_id}"))
        return array, sorted(bad)


@lru_cache(maxsize=4)
def _decoder(text: str) -> AvroDecoder:
    schema = Schema("avro", text)
    decoder = AvroDecoder(schema)
    decoder.writer(schema)
    return decoder


def avro_values(text: str, registry_id: int | None, *, bad_as_null: bool) -> AvroValues:
    """How values of an Avro schema, a record, are decoded. click.UsageError: it is none, or no columns fit."""
    try:
        fields = pa.schema(list(_decoder(text).type))
    except SchemaError as error:
        raise click.UsageError(f"--schema: {error}") from None
    return AvroValues(fields, bad_as_null, text, registry_id)
