"""A message of the protocol: its versions, its struct, and its plan in each version."""

from __future__ import annotations

import functools
import json
import os
import re
from collections import namedtuple
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from pyspark_log.kafka.wire import KINDS, Plan

#: A message or an inner struct of one: a named tuple.
Struct: TypeAlias = Any

_Json = Mapping[str, Any]
# More versions than any message has.
_OPEN_END = 1 << 15
_ERROR_CODE = "ErrorCode"
# What schemas say of records of a cluster's metadata, whose names end alike. Their `apiKey` is a number of its own.
_METADATA, _RECORD = "metadata", "Record"


class _Codes(NamedTuple):
    """Where the error codes of a struct are: the index of the field, -1: none, and of arrays of structs with some."""

    field: int
    arrays: tuple[tuple[int, _Codes], ...]


class Message:
    """A message, such as ProduceRequest.

    Attributes:
        name: Kafka's name.
        api_key: None: it belongs to no API.
        record_type: the number of a record of a cluster's metadata; None: it is none.
        versions: those that the schema knows.
        flexible: those with compact lengths and tagged fields.
        struct: the class of its values, a named tuple. Those of inner structs are its attributes.
    """

    def __init__(self, name: str, schema: _Json) -> None:
        self.name = name
        is_record = schema["type"] == _METADATA
        self.api_key: int | None = None if is_record else schema.get("apiKey")
        self.record_type: int | None = schema["apiKey"] if is_record else None
        self.versions, self.flexible = versions_of(schema["validVersions"]), versions_of(schema["flexibleVersions"])
        self._structs = {one["name"]: _Struct(one["name"], one["fields"]) for one in schema.get("commonStructs", ())}
        self._root = _Struct(name, schema["fields"])
        for struct in [self._root, *self._structs.values()]:
            _find_structs(struct.fields, self._structs)
        self._plans: dict[int, Plan] = {}
        self._codes: _Codes | None = None
        self.struct: type[Struct] = self._root.make(self._structs)
        for inner in self._structs.values():
            setattr(self.struct, inner.name, inner.make(self._structs))

    def __repr__(self) -> str:
        return f"Message({self.name})"

    def plan(self, version: int) -> Plan:
        """Its plan in a version that it has."""
        found = self._plans.get(version)
        if found is None:
            if version not in self.versions:
                raise ValueError(f"{self.name} has no version {version}")
            found = self._plans[version] = self._plan_of(self._root, version)
        return found

    def errors_in(self, value: Struct) -> list[int]:
        """The error codes in a message, at any depth, but for 0, which says that there is none."""
        if self._codes is None:
            self._codes = self._codes_of(self._root)
        field, arrays = self._codes
        found = [value[field]] if field >= 0 and value[field] else []
        if arrays:
            _collect(value, arrays, found)
        return found

    def _codes_of(self, struct: _Struct) -> _Codes:
        code, arrays = -1, []
        for index, field in enumerate(struct.fields):
            kind, is_array = _kind_of(field["type"])
            if field["name"] == _ERROR_CODE:
                code = index
            elif is_array and kind in self._structs:
                inner = self._codes_of(self._structs[kind])
                if inner.field >= 0 or inner.arrays:
                    arrays.append((index, inner))
        return _Codes(code, tuple(arrays))

    def _plan_of(self, struct: _Struct, version: int) -> Plan:
        inline, tagged, refused = [], [], []
        for index, field in enumerate(struct.fields):
            if version not in versions_of(field["versions"]):
                if not field.get("ignorable"):
                    refused.append(index)
                continue
            kind, is_array = _kind_of(field["type"])
            compact = version in versions_of(field.get("flexibleVersions"), self.flexible)
            nullable = version in versions_of(field.get("nullableVersions", "none"))
            inner = None if kind in KINDS else self._plan_of(self._structs[kind], version)
            described = (index, KINDS["struct" if inner else kind], is_array, nullable, compact, inner)
            if version in versions_of(field.get("taggedVersions", "none")):
                tagged.append((field["tag"], *described))
            else:
                inline.append(described)
        return Plan(struct.make(self._structs), inline, sorted(tagged), refused, version in self.flexible)


def _collect(value: Struct, arrays: tuple[tuple[int, _Codes], ...], found: list[int]) -> None:
    for index, (field, inner) in arrays:
        rows = value[index]
        if rows:
            if field >= 0:
                found += [one[field] for one in rows if one[field]]
            if inner:
                for one in rows:
                    _collect(one, inner, found)


class _Struct:
    def __init__(self, name: str, fields: list[_Json]) -> None:
        self.name, self.fields = name, fields
        self._made: type[Struct] | None = None

    def make(self, structs: Mapping[str, _Struct]) -> type[Struct]:
        """Its class."""
        if self._made is None:
            names = [snake_case(field["name"]) for field in self.fields]
            defaults = [_default_of(field, structs) for field in self.fields]
            self._made = namedtuple(self.name, names, defaults=defaults)  # type: ignore[misc]
        return self._made


def _find_structs(fields: Iterable[_Json], found: dict[str, _Struct]) -> None:
    for field in fields:
        if "fields" in field:
            name, _ = _kind_of(field["type"])
            found[name] = _Struct(name, field["fields"])
            _find_structs(field["fields"], found)


def _kind_of(kind: str) -> tuple[str, bool]:
    """The type of a field without its brackets, and whether it is an array."""
    return kind.removeprefix("[]"), kind.startswith("[]")


def _default_of(field: _Json, structs: Mapping[str, _Struct]) -> object:
    """What a field is in the versions that lack it."""
    (kind, is_array), given = _kind_of(field["type"]), str(field.get("default", ""))
    if given == "null":
        return None
    if is_array:
        return ()
    if kind in structs:
        return structs[kind].make(structs)()
    if kind in ("bytes", "records", "uuid"):
        return bytes(16 if kind == "uuid" else 0)
    if kind in ("string", "bool"):
        return given if kind == "string" else given.lower() == "true"
    return float(given or 0) if kind == "float64" else int(given or "0", 0)


def versions_of(text: str | None, default: range = range(0)) -> range:
    """The versions that a schema writes as `none`, `3`, `3-13` or `9+`; `default` if it writes nothing."""
    if text is None:
        return default
    if text == "none":
        return range(0)
    first, dash, last = text.removesuffix("+").partition("-")
    if text.endswith("+"):
        return range(int(first), _OPEN_END)
    return range(int(first), int(last if dash else first) + 1)


def snake_case(name: str) -> str:
    """A field's name as Python writes it: `topic_id` for `TopicId`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@functools.cache
def _schemas(file_name: str = "messages.json") -> dict[str, _Json]:
    with open(f"{os.path.dirname(__file__)}/{file_name}", "rb") as file:
        found: dict[str, _Json] = json.load(file)
    return found


def _record_schemas() -> dict[str, _Json]:
    return _schemas("records.json")


@functools.cache
def message(name: str) -> Message:
    """The message of Kafka's name. KeyError: there is none."""
    return Message(name, (_record_schemas() if name.endswith(_RECORD) else _schemas())[name])


def message_of(value: Struct) -> Message:
    """The message that a value is of. TypeError: it is of none."""
    try:
        return message(type(value).__name__)
    except KeyError:
        raise TypeError(f"{type(value).__name__} is no message") from None


@functools.cache
def _apis() -> dict[int, str]:
    """The APIs, by key: their names as ProduceRequest without Request."""
    requests = {name: one for name, one in _schemas().items() if one["type"] == "request"}
    return {one["apiKey"]: name.removesuffix("Request") for name, one in requests.items()}


@functools.cache
def api(key: int) -> tuple[Message, Message]:
    """An API's request and response. KeyError: there is none of that key."""
    name = _apis()[key]
    return message(f"{name}Request"), message(f"{name}Response")


@functools.cache
def _record_names() -> dict[int, str]:
    return {one["apiKey"]: name for name, one in _record_schemas().items()}


def metadata_record(record_type: int) -> Message:
    """A record of a cluster's metadata, by the number of its type. KeyError: there is none of that type."""
    return message(_record_names()[record_type])
