"""The data source `pylog`, the class that Spark loads.

Spark starts a process to find it, one to create it, and one for each operation on it. Only those that read or write
load the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_log.spark_connector.abilities import HAS_ADMISSION
from pyspark_log.spark_connector.columns import check_names, columns_of, row_schema
from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown, option_error
from pyspark_log.spark_connector.options import (
    TYPED_OPTIONS,
    ReadOptions,
    StorePlace,
    lower_names,
    split_storage,
    store_path,
    without_effect,
)
from pyspark_log.spark_connector.planning.subscription import only_topic
from pyspark_log.spark_connector.topic_formats import with_topic_formats
from pyspark_log.spark_connector.worker_process import hide_traceback, is_spark_process, outlive_interrupt
from pyspark_log.storage.catalog import location

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pyspark_log.spark_connector.reading.batch_reader import PylogBatchReader
    from pyspark_log.spark_connector.reading.stream_reader import StreamReader
    from pyspark_log.spark_connector.reading.transform import Transform
    from pyspark_log.spark_connector.typed_columns import TypedColumns
    from pyspark_log.spark_connector.writing.writer import PylogBatchWriter, PylogStreamWriter


class RefusedStream(DataSourceStreamReader):
    """Raises the error for which a stream is refused, once Spark asks for its offsets.

    If `streamReader` raises an error, Spark's process shows another one, about a variable of its own.
    """

    def __init__(self, error: ConnectorError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        hide_traceback()
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815


class PylogDataSource(DataSource):
    """Reads and writes the topics of a store, with the options of Spark's Kafka connector.

    The option `path`, or the argument of `load` and `start`, replaces `kafka.bootstrap.servers`. It is made absolute
    here, on the driver, so that a relative path means the same to every task.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "pylog"

    def __init__(self, options: Mapping[str, str]) -> None:
        with conditions_shown():
            of_store, self.options = split_storage(lower_names(options))
            self._place = StorePlace(location(store_path(self.options)), of_store)

    def schema(self) -> StructType:
        """The schema of a read. Options are checked here, so that errors appear at `load()`."""
        with conditions_shown():
            options = ReadOptions.parse(self.options)
            typed = self._typed(options)
            schema = row_schema(options.include_headers) if typed is None else typed.schema(options.include_headers)
        # Here, as Spark calls this once for a load().
        for message in without_effect(self.options):
            log.warning("%s", message)
        return schema

    def reader(self, schema: StructType) -> PylogBatchReader:
        """For spark.read."""
        from pyspark_log.spark_connector.reading.batch_reader import PylogBatchReader  # noqa: PLC0415  (see above)

        with conditions_shown():
            if self.options.get("deadlettertopic"):
                raise option_error(
                    "onBadRecord=topic is for streaming queries: each action of a batch read would write the bad "
                    "records again. Read with onBadRecord=null, and write the rows whose value_bytes is not null"
                )
            return PylogBatchReader(self._place, *self._read_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For spark.readStream."""
        outlive_interrupt()
        try:
            return self._stream_reader(schema)
        except ConnectorError as error:
            if not is_spark_process():
                raise
            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> StreamReader:
        with conditions_shown():
            arguments = self._read_options(schema)
            if HAS_ADMISSION:
                from pyspark_log.spark_connector.reading.admission import PylogStreamReader  # noqa: PLC0415

                return PylogStreamReader(self._place, *arguments)
            from pyspark_log.spark_connector.reading.positioned import PositionedStreamReader  # noqa: PLC0415

            return PositionedStreamReader(self._place, *arguments)

    def writer(self, schema: StructType, overwrite: bool) -> PylogBatchWriter:
        """For DataFrame.write."""
        with conditions_shown():
            if overwrite:
                raise option_error(
                    "Write with mode('append'): mode overwrite would delete records, and a write only appends, "
                    "whatever Spark's own message advises. To delete what a topic holds, first call "
                    "Store.delete_records, or run pylog topics delete-records"
                )
            from pyspark_log.spark_connector.writing.writer import PylogBatchWriter  # noqa: PLC0415

            return PylogBatchWriter(self._place, self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PylogStreamWriter:  # noqa: N802
        """For DataFrame.writeStream. Complete mode appends every result, as in the Kafka connector."""
        from pyspark_log.spark_connector.writing.writer import PylogStreamWriter  # noqa: PLC0415

        with conditions_shown():
            return PylogStreamWriter(self._place, self.options, schema)

    def _read_options(
        self, schema: StructType
    ) -> tuple[ReadOptions, tuple[str, ...], Transform | None, TypedColumns | None]:
        options = ReadOptions.parse(self.options)
        typed = self._typed(options)
        if options.transform is None:
            if typed is None:
                return options, columns_of(schema, options.include_headers), None, None
            from pyspark_log.spark_connector.typed_columns import fixed  # noqa: PLC0415

            typed, columns = fixed(typed, schema, options.include_headers)
            return options, columns, None, typed
        from pyspark_log.spark_connector.reading.transform import Transform  # noqa: PLC0415  (see above)

        every = row_schema if typed is None else typed.schema
        columns = options.transformed or tuple(every(options.include_headers).names)
        return options, check_names(columns, every(True)), Transform.into(schema, options.transform), typed

    def _typed(self, options: ReadOptions) -> TypedColumns | None:
        settings, topic = self.options, only_topic(options.subscription)
        if topic is not None and not {"keyformat", "valueformat"} <= settings.keys():
            settings = with_topic_formats(self._place, settings, topic)
        if not settings.keys() & TYPED_OPTIONS:
            return None
        from pyspark_log.spark_connector.typed_columns import typed_columns  # noqa: PLC0415  (it loads Arrow)

        return typed_columns(settings, options.subscription)
