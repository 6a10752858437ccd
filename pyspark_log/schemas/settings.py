"""Where schemas are and how values are framed, by settings in text: the options of Spark, the arguments of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from pyspark_log.config import VALUE_FORMATS
from pyspark_log.errors import InvalidConfigError, SchemaError
from pyspark_log.schemas.folder import GivenSchema, SchemaFolder
from pyspark_log.schemas.framing import FRAMINGS, Framing
from pyspark_log.schemas.registry import Login, Registry
from pyspark_log.schemas.schema import KINDS, Kind, Part, Schema, SchemaSource, subject_of
from pyspark_log.schemas.values import ValueFormat

_URLS = ("http://", "https://")
_OF_REGISTRY = "schemaregistry."
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
        InvalidConfigError: there is no such setting of a registry.
        RegistryError: it is a URL that cannot be one of a registry.
    """
    place = settings.get("schemaregistry", "").strip()
    for name in settings:
        is_known = name.removeprefix(_OF_REGISTRY) in (*LOGIN, "cache")
        if name.startswith(_OF_REGISTRY) and not is_known:
            raise InvalidConfigError(f"there is no setting {name}; there are {', '.join((*LOGIN, 'cache'))}")
    if not place:
        return None
    if not place.startswith(_URLS):
        return SchemaFolder(place)
    login = Login(**{name: settings.get(f"{_OF_REGISTRY}{setting}", "") for setting, name in LOGIN.items()})
    urls = tuple(url.strip() for url in place.split(",") if url.strip())
    return Registry(urls, login, settings.get(f"{_OF_REGISTRY}cache", ""))


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
    word = settings.get(f"{part}format", "").strip().lower()
    if word in ("", "bytes"):
        return None
    if word not in VALUE_FORMATS:
        raise InvalidConfigError(f"{part}Format must be one of {', '.join(VALUE_FORMATS)}, got {word!r:.80}")
    source, framing = source_of(settings), _framing(settings, part, word)
    subject = settings.get(f"{part}subject") or (subject_of(topic, part) if topic else "")
    text, message = settings.get(f"{part}schema"), settings.get(f"{part}message", "")
    if text is None and source is None:
        raise InvalidConfigError(
            f"{part}Format={word}, or the topic's {part}.format, needs {part}Schema, or schemaRegistry: URL or folder"
        )
    if text is None and not subject:
        raise InvalidConfigError(f"a read of several topics needs {part}Subject or {part}Schema: they have one schema")
    kind: Kind = next((kind for kind in KINDS if kind == word), "avro")
    if text is not None:
        reader = Schema(kind, text)
        return ValueFormat(part, subject, framing, reader, source or GivenSchema(reader), message)
    assert source is not None
    reader = source.latest(subject)
    if word in KINDS and reader.kind != word:
        raise SchemaError(f"{part}Format is {word}, but the schema of {subject} is {reader.kind}")
    return ValueFormat(part, subject, framing, reader, source, message)


def _framing(settings: Mapping[str, str], part: Part, word: str) -> Framing:
    at_url = settings.get("schemaregistry", "").strip().startswith(_URLS)
    default = "confluent" if word == "confluent" or at_url else "none"
    framing = settings.get(f"{part}framing", default).strip().lower()
    if framing not in FRAMINGS:
        raise InvalidConfigError(f"{part}Framing must be one of {', '.join(get_args(Framing))}, got {framing!r:.80}")
    if word == "confluent" and framing != "confluent":
        raise InvalidConfigError(f"{part}Format=confluent has Confluent's five bytes, and {part}Framing is {framing}")
    if framing == "single-object" and word != "avro":
        raise InvalidConfigError(f"{part}Framing=single-object is Avro's, and {part}Format is {word}")
    return framing
