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
    def parse(self, values: pa.Array) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """Parses values into structs of the fields; what is none is null, with its row and the reason."""

    def added(self, rows: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`rows`, and the columns of the values in `batch`, which has the same records. JobError: a value is bad."""
        parsed, bad = self.parse(batch.column("value"))
        if bad and not self.bad_as_null:
            row, reason = bad[0]
            raise JobError(
                f"the value at offset {batch.column('offset')[row]} does not fit the schema: {reason}; "
                "--bad-values null makes its columns null",
                "PYLOG_BAD_VALUE",
            )
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *parsed.flatten()], schema=pa.schema([*rows.schema, *self.schema])
        )
