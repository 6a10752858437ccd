"""Schemas in a folder: a file `SUBJECT.avsc`, `.proto` or `.json` for a subject, `NUMBER.avsc` and so on for an id."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.schema import Kind, Schema
from pyspark_log.storage.fs import files

#: The endings of files, by what is in them.
ENDINGS: dict[str, Kind] = {".avsc": "avro", ".proto": "protobuf", ".json": "json"}
#: A larger file is no schema.
MOST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class SchemaFolder:
    """A folder of schemas. Files are read when they are asked for, so a new one needs no restart.

    Attributes:
        path: the folder.
    """

    path: str

    def latest(self, subject: str) -> Schema:
        """The schema in the file of a subject. SchemaError: there is no such file, or it cannot be read."""
        schema = self._file(subject, None)
        if schema is None:
            names = " or ".join(f"{subject}{ending}" for ending in ENDINGS)
            lack = f"{self.path} has no {names}" if files.is_folder(self.path) else f"there is no folder {self.path}"
            raise SchemaError(f"there is no schema of {subject}: {lack}")
        return schema

    def by_id(self, number: int, subject: str) -> Schema:
        """The schema in the file of a number; without one the subject's, which may be the only file. SchemaError."""
        return self._file(str(number), number) or self.latest(subject)

    def versions(self, subject: str) -> list[Schema]:
        """The subject's one schema. SchemaError."""
        return [self.latest(subject)]

    def _file(self, name: str, number: int | None) -> Schema | None:
        if "/" in name or name.startswith("."):
            raise SchemaError(f"{name!r} is no name of a file in the folder of schemas {self.path}")
        for ending, kind in ENDINGS.items():
            path = f"{self.path}/{name}{ending}"
            try:
                return Schema(kind, files.read_whole(path, MOST_BYTES).decode(), number)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SchemaError(f"{path}: {error.strerror or error}") from None
            except ValueError as error:
                raise SchemaError(f"{path} is no schema: {error}") from None
        return None


@dataclass(frozen=True)
class GivenSchema:
    """One schema, which is that of all values.

    Attributes:
        schema: it.
    """

    schema: Schema

    def latest(self, subject: str) -> Schema:
        """The schema."""
        return self.schema

    def by_id(self, number: int, subject: str) -> Schema:
        """The schema."""
        return self.schema

    def versions(self, subject: str) -> list[Schema]:
        """The schema."""
        return [self.schema]
