"""What is wrong with a line of JSON that is no record: for the error, after Arrow has refused it."""

from __future__ import annotations

import json

import pyarrow as pa

from pyspark_log.near_names import did_you_mean

_OBJECT = 'an object such as {"key": "k", "value": "v"}'
_HEADERS = 'a list such as [{"key": "k", "value": "v"}]'
_KINDS = {
    bool: "true or false", int: "a number", float: "a fraction", str: "a text", list: "a list", dict: "an object",
    type(None): "null",
}  # fmt: skip


def what_is_wrong(line: bytes, schema: pa.Schema) -> str | None:
    """What a line has, in words that follow its number, that a record cannot have; None: nothing is found."""
    try:
        found = json.loads(line.decode("utf-8-sig", "replace"))
    except json.JSONDecodeError as error:
        return f"is not JSON: {error.msg} at character {error.pos + 1}"
    except (RecursionError, ValueError):
        return f"is nested too deeply, or has a number that is too long; expected {_OBJECT}"
    if not isinstance(found, dict):
        return f"is {_KINDS[type(found)]}, expected {_OBJECT}"
    return _wrong_fields(found, schema, "its {}")


def _wrong_fields(found: dict[str, object], fields: pa.Schema | pa.StructType, place: str) -> str | None:
    """The same of the fields of an object; `place` says what a field of it is."""
    for name, value in found.items():
        if name not in fields.names:
            return f"has a field {name!r}{did_you_mean(name, fields.names) or '; expected ' + ', '.join(fields.names)}"
        if value is not None and (wrong := _wrong_value(value, name, fields.field(name).type, place)):
            return wrong
    return None


def _wrong_value(value: object, name: str, kind: pa.DataType, place: str) -> str | None:
    what = f"has {_KINDS[type(value)]} as {place.format(name)}, expected"
    if pa.types.is_string(kind):
        return None if isinstance(value, str) else f'{what} a text, as in "{name}": "..."'
    if pa.types.is_integer(kind):
        if type(value) is not int:
            return f"{what} a whole number"
        return f"has the {name} {value}, which is too large" if value.bit_length() >= kind.bit_width else None
    return _wrong_headers(value, kind.value_type) if isinstance(value, list) else f"{what} {_HEADERS}"


def _wrong_headers(headers: list[object], kind: pa.StructType) -> str | None:
    for header in headers:
        if not isinstance(header, dict):
            return f"has {_KINDS[type(header)]} as a header, expected {_OBJECT}"
        if wrong := _wrong_fields(header, kind, "the {} of a header"):
            return wrong
    return None
