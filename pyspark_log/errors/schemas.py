"""Errors of schemas, and of the values that have them."""

from __future__ import annotations

from pyspark_log.errors.root import PylogError


class SchemaError(PylogError):
    """A schema is missing, is none, or has what columns cannot have."""

    condition = "PYLOG_SCHEMA"


class RegistryError(PylogError):
    """A schema registry has refused a request, or has not answered it.

    Attributes:
        status: the HTTP status; 0: there was no answer.
        code: the registry's number of the error; 0: none.
    """

    condition = "PYLOG_SCHEMA_REGISTRY"

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class IncompatibleSchemaError(SchemaError):
    """A registry's rule of compatibility refuses a schema, or a writer's schema cannot become a reader's."""

    condition = "PYLOG_INCOMPATIBLE_SCHEMA"


class BadValueError(PylogError):
    """A key or a value does not fit its schema.

    Attributes:
        reason: what is wrong with it.
        part: "key" or "value".
        topic, partition, offset: the record's; "", -1 and -1 where they are not known.
        schema_id: the number of the writer's schema in the registry; None: it has none.
    """

    condition = "PYLOG_BAD_VALUE"

    def __init__(
        self, reason: str, part: str, topic: str, partition: int, offset: int, schema_id: int | None = None
    ) -> None:
        by = "" if schema_id is None else f" (schema id {schema_id})"
        subject = f"{topic}-{partition}: the {part} at offset {offset}" if topic else f"the {part}"
        super().__init__(f"{subject}{by} does not fit its schema: {reason}")
        self.reason, self.part = reason, part
        self.topic, self.partition, self.offset, self.schema_id = topic, partition, offset, schema_id
