"""Keys and values that have a schema, as JSON: the options of `consume` for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click
import pyarrow as pa

from pyspark_log.cli.support import with_options
from pyspark_log.errors import BadValueError, InvalidConfigError

with_schemas = with_options([
    click.option(
        "--value-format", metavar="FORMAT",
        help="Print values as JSON, decoded by their schema: avro, protobuf, json, or confluent (five bytes first).",
    ),
    click.option("--key-format", metavar="FORMAT", help="The same for keys."),
    click.option(
        "--schema-registry", metavar="PLACE", help="Where schemas are: the URL of a schema registry, or a folder."
    ),
    click.option(
        "--schema-option", "schema_options", multiple=True, metavar="NAME=VALUE",
        help="A further option of typed topics, as valueSubject=orders or schemaRegistry.user=anna; several times.",
    ),
])  # fmt: skip

Decoded = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def typed_text(
    topic: str, value_format: str | None, key_format: str | None, place: str | None, options: Sequence[str]
) -> Decoded:
    """What makes JSON of the keys and values of a topic's records; without a format they stay as they are.

    Raises:
        click.UsageError: an option is none.
        SchemaError, RegistryError: there is no schema, or no answer.
    """
    settings = {"valueformat": value_format, "keyformat": key_format, "schemaregistry": place}
    named = {name: value for name, value in settings.items() if value is not None}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.UsageError(f"--schema-option {option}: expected NAME=VALUE")
        named[name.lower()] = value
    if value_format is None and key_format is None:
        if named:
            raise click.UsageError("--schema-registry and --schema-option need --value-format or --key-format.")
        return lambda batches: batches
    return _decoder(topic, named)


def _decoder(topic: str, settings: dict[str, str]) -> Decoded:
    from pyspark_log.schemas import TypedValues, format_of  # noqa: PLC0415  (it loads Arrow's JSON reader, and TLS)
    from pyspark_log.schemas.shown import as_json  # noqa: PLC0415

    try:
        both = (format_of(settings, "key", topic), format_of(settings, "value", topic))
    except InvalidConfigError as error:
        raise click.UsageError(str(error)) from None
    forms = [(form.part, TypedValues(form)) for form in both if form is not None]

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            decoded = batch
            for part, values in forms:
                place = decoded.schema.get_field_index(part)
                array, bad = values.decode(decoded.column(place))
                if bad:
                    partition, offset = (batch.column(name)[bad[0].row].as_py() for name in ("partition", "offset"))
                    raise BadValueError(bad[0].reason, part, topic, partition, offset, bad[0].schema_id)
                decoded = decoded.set_column(place, decoded.schema.field(place), as_json(array))
            yield decoded

    return decode
