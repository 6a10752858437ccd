"""Schemas of keys and values: where they come from, and their values as Arrow columns."""

from pyspark_log.schemas.folder import GivenSchema, SchemaFolder
from pyspark_log.schemas.given import SchemaSerializer
from pyspark_log.schemas.registry import Login, Registry
from pyspark_log.schemas.schema import Schema, SchemaSource, subject_of
from pyspark_log.schemas.settings import format_of, source_of
from pyspark_log.schemas.shown import SchemaDeserializer
from pyspark_log.schemas.values import BadValue, TypedValues, ValueFormat

__all__ = [
    "BadValue",
    "GivenSchema",
    "Login",
    "Registry",
    "Schema",
    "SchemaDeserializer",
    "SchemaFolder",
    "SchemaSerializer",
    "SchemaSource",
    "TypedValues",
    "ValueFormat",
    "format_of",
    "source_of",
    "subject_of",
]
