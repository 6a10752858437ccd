"""Values in Avro, by schemas in a folder. Needs fastavro (the extra `avro`)."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from typing import Any

from pyspark_log.storage.fs import files
from pyspark_log.ui.bounds import SCHEMA_BYTES

# Confluent's registry has a zero byte and the number of the schema before a value.
_PREFIX = 5
_NUMBER = slice(1, _PREFIX)


class NotAvroError(Exception):
    """It cannot be shown as Avro; the message says why."""


class Schemas:
    """The schemas in a folder: `TOPIC-value.avsc`, `TOPIC-key.avsc`, and `NUMBER.avsc` for what has Confluent's prefix.

    Files are read when a value is shown, so a new one needs no restart.
    """

    def __init__(self, folder: str | None) -> None:
        """`folder`: where they are; None: there are none."""
        self._folder = folder

    def decoded(self, subject: str, data: bytes) -> object:
        """The value of some bytes; `subject`: the name of a file, without its ending. NotAvroError."""
        if self._folder is None:
            raise NotAvroError("Avro needs schemas: name their folder by --schemas")
        if find_spec("fastavro") is None:
            raise NotAvroError("Avro needs fastavro: pip install 'pyspark-log[avro]'")
        has_prefix = len(data) > _PREFIX and data[0] == 0
        number = int.from_bytes(data[_NUMBER], "big")
        if has_prefix and (schema := self._schema(str(number))) is not None:
            return _value(schema, data[_PREFIX:])
        schema = self._schema(subject)
        if schema is None:
            wanted = f"{subject}.avsc" + (f" or {number}.avsc" if has_prefix else "")
            raise NotAvroError(f"there is no schema: {self._folder} has no {wanted}")
        try:
            return _value(schema, data)
        except NotAvroError:
            if not has_prefix:
                raise
            return _value(schema, data[_PREFIX:])

    def _schema(self, name: str) -> Any:  # noqa: ANN401  (fastavro has it as anything)
        import fastavro  # noqa: PLC0415  (it is optional)

        path = f"{self._folder}/{name}.avsc"
        try:
            text = files.read_whole(path, SCHEMA_BYTES)
            schema = fastavro.parse_schema(json.loads(text))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NotAvroError(f"{path}: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001  (fastavro raises what it meets in a schema that is none)
            raise NotAvroError(f"{path} is no schema: {error}") from None
        if _has_items_without_bytes(schema):
            raise NotAvroError(f"{path}: an array's items take no bytes, so that a short value could have any number")
        return schema


def _value(schema: Any, data: bytes) -> object:  # noqa: ANN401
    import fastavro  # noqa: PLC0415

    stream = io.BytesIO(data)
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:  # noqa: BLE001  (fastavro raises what it meets in bytes of another schema)
        raise NotAvroError(f"the schema does not fit: {error or type(error).__name__}") from None
    if left := len(stream.read()):
        raise NotAvroError(f"the schema does not fit: {left} bytes are left")
    return value


def _has_items_without_bytes(schema: object) -> bool:
    if isinstance(schema, list):
        return any(_has_items_without_bytes(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "array" and _takes_no_bytes(schema["items"]):
        return True
    parts = [*schema.get("fields", ()), *(schema[name] for name in ("type", "items", "values") if name in schema)]
    return any(_has_items_without_bytes(one) for one in parts)


def _takes_no_bytes(schema: object) -> bool:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "record":
            return all(_takes_no_bytes(one["type"]) for one in schema["fields"])
        return kind == "null" or (kind == "fixed" and not schema["size"])
    return schema == "null"
