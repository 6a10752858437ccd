"""Kafka's message schemas from its jars, as the package stores them.

`python -m tests.kafka.schemas_of_jar` writes them: messages.json with their facts, records.json with those of the
records of a cluster's metadata, messages.pyi with the types of both, and the LICENSE and NOTICE of kafka-clients.
"""

import json
import re
import zipfile

from pyspark_log.kafka.schemas.message import snake_case
from tests.kafka.kafka_tools import FOLDER
from tests.paths import ROOT

#: The keys of the APIs whose messages are stored.
KEYS = {
    *range(4), *range(8, 38), 42, 43, *range(44, 52), *range(55, 70), 73, 74, 75,
}  # fmt: skip
#: Messages that belong to no API.
OTHERS = ("RequestHeader", "ResponseHeader", "ConsumerProtocolAssignment", "ConsumerProtocolSubscription")

_PACKAGE = ROOT / "pyspark_log" / "kafka"
_CLIENTS, _METADATA = ("kafka-clients", "common/message/"), ("kafka-metadata", "common/metadata/")
_OF_A_MESSAGE = ("apiKey", "type", "validVersions", "flexibleVersions")
_OF_A_FIELD = (
    "name", "type", "versions", "nullableVersions", "taggedVersions", "flexibleVersions", "tag", "default", "ignorable",
)  # fmt: skip
_TYPES = {"bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes", "records": "Records"}
_INTEGER = re.compile(r"u?int\d+")


def files():
    """What is stored: contents by path."""
    given = [one for one in _given(*_CLIENTS) if one.get("apiKey") in KEYS or one["name"] in OTHERS]
    stored = {one["name"]: _facts(one) for one in given}
    records = {one["name"]: _facts(one) for one in _given(*_METADATA)}
    with _jar(_CLIENTS[0]) as opened:
        licences = {name: opened.read(name).decode() for name in ("LICENSE", "NOTICE")}
    return {
        _PACKAGE / "schemas" / "messages.json": _lines(stored),
        _PACKAGE / "schemas" / "records.json": _lines(records),
        _PACKAGE / "messages.pyi": _stub(stored | records),
        **{_PACKAGE / "schemas" / name: text for name, text in licences.items()},
    }


def _given(jar, folder):
    with _jar(jar) as opened:
        for name in opened.namelist():
            if name.startswith(folder) and name.endswith(".json"):
                yield json.loads(re.sub(r"^\s*//.*$", "", opened.read(name).decode(), flags=re.M))


def _jar(name):
    return zipfile.ZipFile(next((FOLDER / "jars").glob(f"{name}-[0-9]*.jar")))


def _lines(schemas):
    lines = ",\n".join(f'"{name}":{json.dumps(schemas[name], separators=(",", ":"))}' for name in sorted(schemas))
    return "{\n" + lines + "\n}\n"


def _facts(schema):
    facts = {key: schema[key] for key in _OF_A_MESSAGE if key in schema} | {"fields": _fields(schema["fields"])}
    if "commonStructs" in schema:
        facts["commonStructs"] = [
            {"name": one["name"], "fields": _fields(one["fields"])} for one in schema["commonStructs"]
        ]
    return facts


def _fields(given):
    fields = []
    for one in given:
        field = {key: one[key] for key in _OF_A_FIELD if one.get(key, False) is not False}
        if "fields" in one:
            field["fields"] = _fields(one["fields"])
        fields.append(field)
    return fields


# ---- the stub


def _stub(stored):
    lines = [
        "# Written by tests/kafka/schemas_of_jar.py.",
        "from collections.abc import Sequence",
        "from typing import NamedTuple, TypeAlias",
        "",
        "from pyspark_log.kafka.wire import FileRange",
        "",
        "Records: TypeAlias = bytes | bytearray | memoryview | FileRange",
    ]
    for name in sorted(stored):
        lines += ["", *_message(name, stored[name]["fields"], stored[name].get("commonStructs", []))]
    return "\n".join(lines) + "\n"


def _message(name, fields, common):
    """The lines of a message: a class of its fields and, if it has inner structs, one with these."""
    inner = _structs(fields, {one["name"]: one["fields"] for one in common})
    if not inner:
        return _class(name, name, fields)
    lines = [*_class(f"_{name}", name, fields), "", f"class {name}(_{name}):"]
    for struct, its_fields in inner.items():
        lines += [*(f"    {line}" for line in _class(struct, name, its_fields)), ""]
    return lines[:-1]


def _class(name, message, fields):
    if not fields:
        return [f"class {name}(NamedTuple): ..."]
    return [f"class {name}(NamedTuple):", *(f"    {_line(field, message)}" for field in fields)]


def _structs(fields, common):
    """The fields of inner structs by name; a struct comes after those that it has."""
    found = {}
    for field in fields:
        name = field["type"].removeprefix("[]")
        inner = field.get("fields") or common.get(name)
        if inner:
            found |= _structs(inner, common) | {name: inner}
    return found


def _line(field, message):
    kind = field["type"].removeprefix("[]")
    shown = _TYPES.get(kind) or ("int" if _INTEGER.fullmatch(kind) else f"{message}.{kind}")
    if field["type"].startswith("[]"):
        shown = f"Sequence[{shown}]"
    if "nullableVersions" in field or field.get("default") == "null":
        shown += " | None"
    name = snake_case(field["name"])
    ignored = "  # type: ignore[assignment]" if name in ("index", "count") else ""
    return f"{name}: {shown} = ...{ignored}"


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content)
