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


class _UnboundedError(Exception):
    """Few bytes could be a value that takes any memory or time; the message says why."""


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
            _takes_no_bytes(schema, {})
        except FileNotFoundError:
            return None
        except _UnboundedError as error:
            raise NotAvroError(f"{path}: {error}") from None
        except OSError as error:
            raise NotAvroError(f"{path}: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001  (fastavro raises what it meets in a schema that is none)
            raise NotAvroError(f"{path} is no schema: {error}") from None
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


def _takes_no_bytes(schema: Any, known: dict[str, bool | None]) -> bool:  # noqa: ANN401
    """Whether the values of a schema take no bytes. _UnboundedError.

    Args:
        schema: as fastavro has it once it is parsed: a named type is there as a whole first, then by its name.
        known: the same of the named types before it; None: the schema is a part of that type.
    """
    if isinstance(schema, list):
        for one in schema:
            _takes_no_bytes(one, known)
        return False  # the number of the branch is before the value
    if isinstance(schema, str):
        if known.get(schema, False) is None:
            # fastavro's reader in C calls itself for each level, as many as a value has: the process would crash.
            raise _UnboundedError(f"{schema} refers to itself, so that a value could be of any depth")
        return schema == "null" or bool(known.get(schema))
    kind, name = schema["type"], schema.get("name")
    if kind in ("record", "error"):
        known[name] = None
        fields = [_takes_no_bytes(one["type"], known) for one in schema["fields"]]
        known[name] = all(fields)
        return all(fields)
    if kind == "fixed":
        known[name] = not schema["size"]
        return bool(known[name])
    if kind == "array" and _takes_no_bytes(schema["items"], known):
        raise _UnboundedError("an array's items take no bytes, so that a short value could have any number")
    if kind == "map":
        _takes_no_bytes(schema["values"], known)  # its keys take some
    return bool(kind == "null")
