"""A schema as a registry or a folder has it, and what may give schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["avro", "protobuf", "json"]
KINDS: tuple[Kind, ...] = ("avro", "protobuf", "json")
Part = Literal["key", "value"]


@dataclass(frozen=True)
class Schema:
    """A schema.

    Attributes:
        kind: its language.
        text: itself: JSON, a file of Protobuf's language, or a FileDescriptorProto in base64.
        id: its number in a registry; None: it has none.
        references: pairs of a name and a text: the schemas that it uses, each after those that it uses itself.
    """

    kind: Kind
    text: str
    id: int | None = None
    references: tuple[tuple[str, str], ...] = ()


class SchemaSource(Protocol):
    """Where schemas come from. It can be sent to another process."""

    def latest(self, subject: str) -> Schema:
        """The newest schema of a subject. SchemaError: there is none; RegistryError: no answer."""

    def by_id(self, number: int, subject: str) -> Schema:
        """The schema of that number, which a value of the subject names. SchemaError, RegistryError: as above."""

    def versions(self, subject: str) -> list[Schema]:
        """All schemas of a subject, from the oldest. SchemaError, RegistryError: as above."""


def subject_of(topic: str, part: Part) -> str:
    """The subject of a topic's keys or values, as the clients' TopicNameStrategy has it."""
    return f"{topic}-{part}"
