"""What the PySpark at hand can: asked here, once, by what it has and not by its version.

Without Arrow's writer for streams (before 4.1) a writer of streams is one of batches as well, which gets Arrow, too.
Without admission control (before 4.2) Spark asks a stream for its end alone, not for how much of it.
"""

from __future__ import annotations

from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Whether Spark says where a micro-batch begins, and asks for its limits.
HAS_ADMISSION = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    StreamArrowWriter = DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """Spark gives Arrow to what is a DataSourceArrowWriter, of a stream as well."""


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """A schema of Spark's as one of Arrow's, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  (it loads Arrow)

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2: always in UTC
