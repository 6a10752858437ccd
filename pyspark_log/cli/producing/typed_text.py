"""Keys and values that have a schema, as JSON: the options of `consume` and `produce` for that."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from pyspark_log.cli.producing.input import BadLineError, Columns
from pyspark_log.cli.support import named_values, with_options
from pyspark_log.config import with_formats
from pyspark_log.errors import BadValueError, InvalidConfigError, InvalidRecordError
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.schemas.given import GivenValues


def with_schemas(meaning: str) -> Callable[[Any], Any]:
    """The options of a command, which gets `schemas`; `meaning`: what `--value-format` does there."""
    add = with_options([
        click.option(
            "--value-format", metavar="FORMAT",
            help=f"{meaning} avro, protobuf, json, or confluent (five bytes first); bytes: as they are. By default what"
            " the topic's value.format says.",
        ),
        click.option("--key-format", metavar="FORMAT", help="The same for keys."),
        click.option(
            "--schema-registry", metavar="PLACE", help="Where schemas are: the URL of a schema registry, or a folder."
        ),
        click.option(
            "--schema-option", "schema_options", multiple=True, metavar="NAME=VALUE", callback=named_values,
            help="A further option of typed topics, as valueSubject=orders or schemaRegistry.user=anna; several times.",
        ),
    ])  # fmt: skip

    def with_them(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def converted(
            *args: object,
            value_format: str | None,
            key_format: str | None,
            schema_registry: str | None,
            schema_options: Mapping[str, str] | None,  # None: another command invokes it
            **others: object,
        ) -> Any:  # noqa: ANN401  (what the command returns)
            named = {"valueformat": value_format, "keyformat": key_format, "schemaregistry": schema_registry}
            schemas = {name: value for name, value in named.items() if value is not None}
            schemas |= {name.lower(): value for name, value in (schema_options or {}).items()}
            return command(*args, schemas=schemas, **others)

        return add(converted)

    return with_them


Decoded = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Encoded = Callable[[Columns], Columns]


def typed_settings(store: Store, topic: str, schemas: Mapping[str, str]) -> dict[str, str] | None:
    """The settings of typed topics, by the options, or else the topic's configs; None: no format is among them.

    click.UsageError: an option is given without a format.
    """
    merged = with_formats(schemas, {**store.configs, **store.describe_topic(topic).configs})
    if not merged.keys() & {"valueformat", "keyformat"}:
        if schemas:
            raise click.UsageError("--schema-registry and --schema-option need --value-format or --key-format.")
        return None
    return merged


def typed_text(topic: str, settings: dict[str, str] | None) -> Decoded:
    """What makes JSON of the keys and values of a topic's records; without settings they stay as they are.

    Raises:
        click.UsageError: a setting is refused.
        SchemaError, RegistryError: there is no schema, or no answer.
    """
    return (lambda batches: batches) if settings is None else _decoder(topic, settings)


def _decoder(topic: str, settings: dict[str, str]) -> Decoded:
    from pyspark_log.schemas import TypedValues, format_of  # noqa: PLC0415  (it loads Arrow's JSON reader, and TLS)
    from pyspark_log.schemas.shown import as_json  # noqa: PLC0415

    try:
        both = (format_of(settings, "key", topic), format_of(settings, "value", topic))
    except InvalidConfigError as error:
        raise click.UsageError(str(error)) from None
    forms = [(form.part, TypedValues(form)) for form in both if form is not None]

    def decode(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        decoded = batch
        for part, values in forms:
            place = decoded.schema.get_field_index(part)
            array, bad = values.decode(decoded.column(place))
            if bad:
                yield from decode(batch.slice(0, bad[0].row))  # What is before it is shown.
                partition, offset = (batch.column(name)[bad[0].row].as_py() for name in ("partition", "offset"))
                raise BadValueError(bad[0].reason, part, topic, partition, offset, bad[0].schema_id)
            decoded = decoded.set_column(place, decoded.schema.field(place), as_json(array))
        yield decoded

    return lambda batches: (decoded for batch in batches for decoded in decode(batch))


def typed_records(topic: str, settings: dict[str, str] | None) -> Encoded:
    """What encodes keys and values that are JSON, as `typed_text` makes it; without settings they stay as they are.

    It raises BadLineError, with the number of the record.

    Raises:
        click.UsageError: a setting is refused.
        SchemaError, RegistryError: there is no schema, or no answer.
    """
    if settings is None:
        return lambda columns: columns
    from pyspark_log.schemas.given import GivenValues  # noqa: PLC0415  (as above)
    from pyspark_log.schemas.writing import write_format_of  # noqa: PLC0415

    try:
        both = (write_format_of(settings, "key", topic), write_format_of(settings, "value", topic))
    except InvalidConfigError as error:
        raise click.UsageError(str(error)) from None
    forms = [(form.part, GivenValues(form)) for form in both if form is not None]

    def encode(columns: Columns) -> Columns:
        return columns | {part: _encoded(part, values, columns[part]) for part, values in forms if part in columns}

    return encode


def _encoded(part: str, values: GivenValues, texts: pa.Array) -> pa.Array:
    objects = list[object]()
    for row, text in enumerate(texts.to_pylist()):
        try:
            objects.append(None if text is None else json.loads(text))
        except ValueError as error:
            raise BadLineError(f"has a {part} that is no JSON: {error}", row) from None
    try:
        return values.encode(objects)
    except InvalidRecordError as error:
        (row,) = error.records
        raise BadLineError(f"has a {part} that cannot be encoded: {error}", row) from None
