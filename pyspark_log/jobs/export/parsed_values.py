"""Values that become columns, parsed a batch at a time."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.jobs.support import JobError


@dataclass(frozen=True)
class ParsedValues:
    """How values are parsed.

    Attributes:
        schema: the fields that become columns.
        bad_as_null: whether a value that does not fit becomes null in all columns; if not, it is an error.
    """

    schema: pa.Schema
    bad_as_null: bool = False

    @abstractmethod
    def parse(self, values: pa.Array) -> pa.StructArray:
        """Parses values into structs of the fields; a null has nulls. ArrowInvalid: one of them does not fit."""

    def added(self, rows: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`rows`, and the columns of the values in `batch`, which has the same records. JobError: a value is bad."""
        parsed = self._parse(batch.column("value"), batch.column("offset"))
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *parsed.flatten()], schema=pa.schema([*rows.schema, *self.schema])
        )

    def _parse(self, values: pa.Array, offsets: pa.Array) -> pa.StructArray:
        try:
            return self.parse(values)
        except pa.ArrowInvalid as error:
            if len(values) > 1:
                # The bad values are found by halves; those around them are parsed together.
                half = len(values) // 2
                parts = (slice(None, half), slice(half, None))
                return pa.concat_arrays([self._parse(values[part], offsets[part]) for part in parts])
            if self.bad_as_null:
                return pa.nulls(1, pa.struct(list(self.schema)))
            raise JobError(
                f"the value at offset {offsets[0]} does not fit the schema: {error}; --bad-values null makes its "
                "columns null",
                "PYLOG_BAD_VALUE",
            ) from error
