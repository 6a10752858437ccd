"""Kafka's message schemas from the jar of kafka-clients, as the package stores them.

`python -m tests.kafka.schemas_of_jar` writes them: messages.json with their facts, messages.pyi with their types, and
the jar's LICENSE and NOTICE.
"""

import json
import re
import zipfile

from pyspark_log.kafka.schemas.message import snake_case
from tests.kafka.kafka_tools import FOLDER
from tests.paths import ROOT

#: The keys of the APIs whose messages are stored.
KEYS = {
    *range(4), *range(8, 38), 42, *range(44, 52), 60, 61, 65, 66, 68, 69, 74, 75,
}  # fmt: skip
#: Messages that belong to no API.
OTHERS = ("RequestHeader", "ResponseHeader", "ConsumerProtocolAssignment", "ConsumerProtocolSubscription")

_PACKAGE = ROOT / "pyspark_log" / "kafka"
_FOLDER = "common/message/"
_OF_A_MESSAGE = ("apiKey", "type", "validVersions", "flexibleVersions")
_OF_A_FIELD = (
    "name", "type", "versions", "nullableVersions", "taggedVersions", "flexibleVersions", "tag", "default", "ignorable",
)  # fmt: skip
_TYPES = {"bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes", "records": "Records"}


def files():
    """What is stored: contents by path."""
    jar = next((FOLDER / "jars").glob("kafka-clients-*.jar"))
    with zipfile.ZipFile(jar) as opened:
        names = [name for name in opened.namelist() if name.startswith(_FOLDER) and name.endswith(".json")]
        given = [json.loads(re.sub(r"^\s*//.*$", "", opened.read(name).decode(), flags=re.M)) for name in names]
        licences = {name: opened.read(name).decode() for name in ("LICENSE", "NOTICE")}
    stored = {one["name"]: _facts(one) for one in given if one.get("apiKey") in KEYS or one["name"] in OTHERS}
    lines = ",\n".join(f'"{name}":{json.dumps(stored[name], separators=(",", ":"))}' for name in sorted(stored))
    return {
        _PACKAGE / "schemas" / "messages.json": "{\n" + lines + "\n}\n",
        _PACKAGE / "messages.pyi": _stub(stored),
        **{_PACKAGE / "schemas" / name: text for name, text in licences.items()},
    }


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
    return [f"class {name}(NamedTuple):", *([f"    {_line(field, message)}" for field in fields] or ["    ..."])]


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
    shown = _TYPES.get(kind) or ("int" if "int" in kind else f"{message}.{kind}")
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
