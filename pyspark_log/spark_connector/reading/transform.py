"""A function of the user's over the Arrow batches of a read, which runs in the reading task, before rows go to the JVM.

The options `arrowTransform` and `arrowColumns` carry it; `pyspark_log.spark.read` sets them.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from pyspark_log.spark_connector.abilities import arrow_schema_of
from pyspark_log.spark_connector.errors import ConnectorError

#: Gets the records of a read, batch by batch, and returns rows of any number.
ArrowFunction = Callable[[pa.RecordBatch], "pa.RecordBatch | Iterable[pa.RecordBatch]"]


def encode(function: ArrowFunction) -> str:
    """The function as the text of an option; by value where it cannot be imported, as Spark sends functions."""
    return base64.b64encode(cloudpickle.dumps(function)).decode()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Transform:
    """The function, and the rows that it must return.

    Attributes:
        function: as `encode` returns it; decoded in the task only.
        schema: the columns of its rows.
    """

    function: str
    schema: pa.Schema

    @classmethod
    def into(cls, schema: StructType, function: str) -> Transform:
        """A function whose rows have a schema of Spark's."""
        return cls(function, arrow_schema_of(schema))

    def apply(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the function makes of the batches.

        Raises:
            ConnectorError: PYLOG_INVALID_TRANSFORM, it returns other columns, or values of other types.
            Exception: whatever the function raises.
        """
        function = cast("ArrowFunction", pickle.loads(base64.b64decode(self.function)))
        for batch in batches:
            made = function(batch)
            for rows in [made] if isinstance(made, (pa.RecordBatch, pa.Table)) else made:
                yield from self._fitting(rows)

    def _fitting(self, rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        try:
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            yield from table.select(self.schema.names).cast(self.schema).to_batches()
        except (KeyError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            wanted, got = (
                ", ".join(f"{one.name} {one.type}" for one in schema) for schema in (self.schema, rows.schema)
            )
            raise ConnectorError(
                "PYLOG_INVALID_TRANSFORM", f"the transform must return the columns {wanted}, got {got}: {error}"
            ) from error
