"""Where schemas are and how values are framed, by settings in text: the options of Spark, the arguments of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from pyspark_log.errors import InvalidConfigError, SchemaError
from pyspark_log.schemas.folder import GivenSchema, SchemaFolder
from pyspark_log.schemas.framing import FRAMINGS, Framing
from pyspark_log.schemas.registry import Login, Registry
from pyspark_log.schemas.schema import KINDS, Kind, Part, Schema, SchemaSource, subject_of
from pyspark_log.schemas.values import ValueFormat

#: What `valueFormat` and `keyFormat` may be; confluent: five bytes, then what the schema's kind says.
FORMATS = ("avro", "protobuf", "json", "confluent")
_URLS = ("http://", "https://")
#: The settings of a registry, after `schemaRegistry.`, and the attributes of Login that they set.
LOGIN = {
    "user": "user",
    "password": "password",
    "token": "token",
    "cafile": "ca_file",
    "certfile": "cert_file",
    "keyfile": "key_file",
}


def source_of(settings: Mapping[str, str]) -> SchemaSource | None:
    """Where schemas are: the setting `schemaregistry`, URLs or a folder; None: it is not set.

    Args:
        settings: by their names in lower case.

    Raises:
        RegistryError: it is a URL that cannot be one of a registry.
    """
    place = settings.get("schemaregistry", "").strip()
    if not place:
        return None
    if not place.startswith(_URLS):
        return SchemaFolder(place)
    login = Login(**{name: settings.get(f"schemaregistry.{given}", "") for given, name in LOGIN.items()})
    urls = tuple(one.strip() for one in place.split(",") if one.strip())
    return Registry(urls, login, settings.get("schemaregistry.cache", ""))


def format_of(settings: Mapping[str, str], part: Part, topic: str | None) -> ValueFormat | None:
    """How keys or values are decoded; None: they stay bytes.

    Args:
        settings: by their names in lower case.
        part: which of both.
        topic: the topic; None: there are several, or it is not known.

    Raises:
        InvalidConfigError: a setting is missing, or they contradict each other.
        SchemaError, RegistryError: there is no schema, or no answer.
    """
    given = settings.get(f"{part}format", "").strip().lower()
    if not given:
        return None
    if given not in FORMATS:
        raise InvalidConfigError(f"{part}Format must be one of {', '.join(FORMATS)}, got {given!r:.80}")
    source, framing = source_of(settings), _framing(settings, part, given)
    subject = settings.get(f"{part}subject") or (subject_of(topic, part) if topic else "")
    text = settings.get(f"{part}schema")
    if text is None and source is None:
        raise InvalidConfigError(f"{part}Format={given} needs {part}Schema, or schemaRegistry: a URL or a folder")
    if text is None and not subject:
        raise InvalidConfigError(f"a read of several topics needs {part}Subject or {part}Schema: they have one schema")
    kind = cast("Kind", "avro" if given == "confluent" else given)
    if text is not None:
        reader = Schema(kind, text)
        return ValueFormat(part, subject, framing, reader, source or GivenSchema(reader))
    assert source is not None
    reader = source.latest(subject)
    if given in KINDS and reader.kind != given:
        raise SchemaError(f"{part}Format is {given}, but the schema of {subject} is {reader.kind}")
    return ValueFormat(part, subject, framing, reader, source)


def _framing(settings: Mapping[str, str], part: Part, given: str) -> Framing:
    at_url = settings.get("schemaregistry", "").strip().startswith(_URLS)
    default = "confluent" if given == "confluent" or at_url else "none"
    framing = settings.get(f"{part}framing", default).strip().lower()
    if framing not in FRAMINGS:
        raise InvalidConfigError(f"{part}Framing must be one of {', '.join(get_args(Framing))}, got {framing!r:.80}")
    if given == "confluent" and framing != "confluent":
        raise InvalidConfigError(f"{part}Format=confluent has Confluent's five bytes, and {part}Framing is {framing}")
    if framing == "single-object" and given != "avro":
        raise InvalidConfigError(f"{part}Framing=single-object is Avro's, and {part}Format is {given}")
    return framing
