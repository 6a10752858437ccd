"""Writes one file in one of the formats."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from pyspark_log.jobs.export.layout import Layout
from pyspark_log.jobs.export.texts import json_of, name_of, text_of
from pyspark_log.jobs.support import JobError

#: The ends of names, by format.
ENDINGS = {"parquet": "parquet", "json": "jsonl", "csv": "csv", "text": "txt"}
#: What a file of text can be compressed with, and the end that its name gets.
TEXT_CODECS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
PARQUET_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
# Of columns with many different values a dictionary costs time, and is given up in the end.
_DIFFERENT = ("key", "value", "offset", "timestamp", "headers")


class FileWriter(Protocol):
    """An open file."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds rows. JobError: the format cannot hold one of them."""

    def close(self) -> None:
        """Completes the file."""


def ending(layout: Layout) -> str:
    """The end of the names of files."""
    return f".{ENDINGS[layout.format]}" + ("" if layout.format == "parquet" else TEXT_CODECS[layout.codec])


def open_file(path: str, layout: Layout, schema: pa.Schema) -> FileWriter:
    """Makes a file for rows of a schema. OSError."""
    if layout.format == "parquet":
        return _Parquet(path, schema, layout.codec)
    sink = pa.OSFile(path, "wb")
    if layout.codec != "none":
        sink = pa.CompressedOutputStream(sink, layout.codec)
    return _Csv(sink, schema, base64=layout.base64) if layout.format == "csv" else _Lines(sink, layout)


class _Parquet:
    def __init__(self, path: str, schema: pa.Schema, codec: str) -> None:
        repeated = [name for name in schema.names if name not in _DIFFERENT]
        self._writer = parquet.ParquetWriter(path, schema, compression=codec, use_dictionary=repeated)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def close(self) -> None:
        self._writer.close()


class _Lines:
    """JSON objects or plain values, a line each."""

    def __init__(self, sink: pa.NativeFile, layout: Layout) -> None:
        self._sink, self._layout = sink, layout

    def write(self, rows: pa.RecordBatch) -> None:
        base64 = self._layout.base64
        if self._layout.format == "json":
            texts = json_of(rows, base64=base64)
        else:
            texts = text_of(rows.column("value"), "value", base64=base64).fill_null("")
            if pc.any(pc.match_substring(texts, "\n")).as_py():
                raise JobError("a value has several lines: use --encoding base64 or another format", "PYLOG_BAD_VALUE")
        lines = pc.binary_join_element_wise(texts, "\n", "")
        self._sink.write(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0].as_buffer())

    def close(self) -> None:
        self._sink.close()


class _Csv:
    def __init__(self, sink: pa.NativeFile, schema: pa.Schema, *, base64: bool) -> None:
        self._sink, self._base64 = sink, base64
        self._schema = pa.schema(
            [
                pa.field(name_of(one.name, base64=base64), pa.string() if one.type == pa.binary() else one.type)
                for one in schema
            ]
        )
        self._writer = csv.CSVWriter(sink, self._schema)

    def write(self, rows: pa.RecordBatch) -> None:
        columns = [
            text_of(column, field.name, base64=self._base64) if field.type == pa.binary() else column
            for column, field in zip(rows.columns, rows.schema, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
        self._sink.close()
