"""Keys or values of a topic, encoded from columns: which schema they get, and its number in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_log.errors import InvalidConfigError
from pyspark_log.schemas.avro.decoder import fingerprint_of
from pyspark_log.schemas.avro.derived import schema_of
from pyspark_log.schemas.avro.encoding import AvroValuesWriter
from pyspark_log.schemas.framing import confluent_prefix, single_object_prefix
from pyspark_log.schemas.json.encoding import JsonValuesWriter
from pyspark_log.schemas.protobuf.encoding import ProtobufValuesWriter
from pyspark_log.schemas.registry import Registry
from pyspark_log.schemas.schema import Part, Schema, subject_of
from pyspark_log.schemas.settings import format_of, source_of
from pyspark_log.schemas.values import ValueFormat
from pyspark_log.units import truth

ValuesWriter = AvroValuesWriter | JsonValuesWriter | ProtobufValuesWriter


@dataclass(frozen=True)
class WriteFormat:
    """How keys or values are encoded; it can be sent to another process.

    Attributes:
        part: whether they are keys or values.
        schema: theirs.
        prefix: what is before each.
        message: of Protobuf, the name of the message; "": the first one of its file.
    """

    part: Part
    schema: Schema
    prefix: bytes
    message: str = ""

    def writer(self, columns: pa.DataType) -> ValuesWriter:
        """What encodes columns of a type. SchemaError, IncompatibleSchemaError: they do not fit the schema."""
        if self.schema.kind == "protobuf":
            return ProtobufValuesWriter(self.schema, columns, self.message)
        return (AvroValuesWriter if self.schema.kind == "avro" else JsonValuesWriter)(self.schema, columns)


def write_format_of(
    settings: Mapping[str, str], part: Part, topic: str | None, columns: pa.DataType | None = None
) -> WriteFormat | None:
    """How keys or values are encoded; None: they are bytes already.

    Args:
        settings: as for `format_of`; and `registerschemas`: whether a given schema becomes the subject's newest.
        part: which of both.
        topic: the topic; None: a column names it.
        columns: the type of what is written: with `registerschemas` a subject that has no schema gets that of Avro for
            these; None: it is not known.

    Raises:
        InvalidConfigError: a setting is missing, or they contradict each other.
        IncompatibleSchemaError: the registry refuses the schema.
        SchemaError, RegistryError: there is no schema, or no answer.
    """
    registers = truth(settings.get("registerschemas", "false"))
    if registers and columns is not None:
        settings = {**settings, **_derived(settings, part, topic, columns)}
    form = format_of(settings, part, topic)
    if form is None:
        return None
    schema = form.reader
    if form.framing == "confluent":
        schema = _numbered(form, registers)
        assert schema.id is not None
        return WriteFormat(part, schema, confluent_prefix(schema.id), form.message)
    prefix = single_object_prefix(fingerprint_of(schema)) if form.framing == "single-object" else b""
    return WriteFormat(part, schema, prefix, form.message)


def _derived(settings: Mapping[str, str], part: Part, topic: str | None, columns: pa.DataType) -> dict[str, str]:
    """The setting of a schema, where none is given, and the subject has none."""
    name = settings.get(f"{part}subject") or (subject_of(topic, part) if topic else "")
    if f"{part}schema" in settings or settings.get(f"{part}format") not in ("avro", "confluent") or not name:
        return {}
    source = source_of(settings)
    if not isinstance(source, Registry) or source.has(name):
        return {}
    return {f"{part}schema": schema_of(columns, name)}


def _numbered(form: ValueFormat, registers: bool) -> Schema:
    if form.reader.id is not None:
        return form.reader
    if not isinstance(form.source, Registry) or not form.subject:
        raise InvalidConfigError(
            f"Confluent's five bytes need schemaRegistry, a URL, and a topic or {form.part}Subject"
        )
    find = form.source.register if registers else form.source.number_of
    return replace(form.reader, id=find(form.subject, form.reader))
