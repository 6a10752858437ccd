"""The small text files that Kafka keeps beside its logs: checkpoints, `partition.metadata`, `meta.properties`.

A checkpoint (Kafka's CheckpointFile) has the version (0) in its first line, the number of entries in the
second, and an entry in each further one, its fields separated by one space; an empty file has no entries.
Every file is replaced atomically, so a malformed one was written by another program.
"""

from __future__ import annotations

import re
import string
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import SideFileError, shortened
from pyspark_log.storage.fs import files
from pyspark_log.types import TopicPartition

#: The checkpoints of a log dir, each with an offset for every partition that has one.
RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
#: The file beside them that identifies the log dir.
META_PROPERTIES = "meta.properties"
#: The file beside them that says that their broker, or node, has ended in order (Kafka's CleanShutdownFileHandler).
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
#: The file in a partition's folder that names its topic.
PARTITION_METADATA = "partition.metadata"

# Enough for some 200,000 partitions with the longest names.
_MAX_BYTES = 64 * 1024 * 1024
_VERSION = 0
_NUMBER = re.compile(r"[0-9]{1,19}")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_NO_UUID = "A" * 22


def _read(path: str) -> bytes | None:
    try:
        return files.read_whole(path, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SideFileError(f"{path}: {error}") from None


def _wrong(path: str, line: int, reason: str) -> SideFileError:
    return SideFileError(f"{path}, line {line}: {reason}")


def _lines(data: bytes, path: str) -> list[str]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise _wrong(path, data.count(b"\n", 0, error.start) + 1, "is not UTF-8") from None
    return lines if lines[-1] else lines[:-1]


def _whole(text: str, high: int, path: str, line: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > high:
        raise _wrong(path, line, f"{shortened(text)!r} where a number from 0 to {high} should be")
    return int(text)


# ---- checkpoints


def encode_checkpoint(rows: Collection[Sequence[object]]) -> bytes:
    """Encodes a checkpoint with those entries."""
    lines = [str(_VERSION), str(len(rows)), *(" ".join(map(str, row)) for row in rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Decodes the entries `topic partition offset` of a checkpoint. SideFileError names `path` and the line."""
    found: dict[TopicPartition, int] = {}
    for line, (topic, partition, offset) in _entries(data, 3, path):
        key = TopicPartition(topic, _whole(partition, INT_MAX, path, line))
        if not topic or key in found:
            raise _wrong(path, line, f"a second entry for {key}, or one without a name")
        found[key] = _whole(offset, LONG_MAX, path, line)
    return found


def decode_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Decodes the entries `epoch start-offset` of a checkpoint. SideFileError names `path` and the line."""
    return [
        (_whole(epoch, INT_MAX, path, line), _whole(start, LONG_MAX, path, line))
        for line, (epoch, start) in _entries(data, 2, path)
    ]


def _entries(data: bytes, width: int, path: str) -> Iterable[tuple[int, list[str]]]:
    """The fields of each entry, with the number of its line."""
    lines = _lines(data, path)
    if lines and _whole(lines[0], INT_MAX, path, 1) != _VERSION:
        raise _wrong(path, 1, f"version {lines[0]} of the checkpoint format; this program reads version {_VERSION}")
    if len(lines) < 2:
        return  # Kafka, too, reads a file that ends here as one without entries
    count = _whole(lines[1], INT_MAX, path, 2)
    if count != len(lines) - 2:
        raise _wrong(path, 2, f"{count} entries should follow and {len(lines) - 2} do")
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split(" ")
        if len(fields) != width:
            raise _wrong(path, number, f"{line!r} has {len(fields)} fields and should have {width}")
        yield number, fields


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Reads the offsets in a checkpoint; none if there is no file. SideFileError names the file and the line."""
    return decode_offsets(_read(path) or b"", path)


def write_offsets(path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces a checkpoint of offsets. The caller holds the lock of its log dir."""
    rows = [(key.topic, key.partition, offset) for key, offset in sorted(offsets.items())]
    files.replace_whole(path, encode_checkpoint(rows))


def read_epochs(path: str) -> list[tuple[int, int]]:
    """Reads epochs and their start offsets from a checkpoint; none if there is no file. SideFileError as above."""
    return decode_epochs(_read(path) or b"", path)


def write_epochs(path: str, epochs: Collection[tuple[int, int]]) -> None:
    """Replaces a checkpoint of epochs and their start offsets."""
    files.replace_whole(path, encode_checkpoint(epochs))


# ---- partition.metadata


def encode_partition_metadata(topic_id: str) -> bytes:
    """Encodes a `partition.metadata` file; `topic_id` is 22 characters of URL-safe base64."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()


def decode_partition_metadata(data: bytes, path: str) -> str:
    """Decodes the topic id in a `partition.metadata` file. SideFileError names `path` and the line."""
    lines = _lines(data, path)
    if not lines or lines[0] != f"version: {_VERSION}":
        raise _wrong(path, 1, f"should be 'version: {_VERSION}'")
    name, _, topic_id = lines[1].partition(": ") if len(lines) == 2 else ("", "", "")
    if name != "topic_id" or not _UUID.fullmatch(topic_id) or topic_id == _NO_UUID:
        raise _wrong(path, 2, "should be 'topic_id: ' and 22 characters of URL-safe base64, and the last line")
    return topic_id


def read_partition_metadata(path: str) -> str | None:
    """Reads the topic id in a `partition.metadata` file; None if there is no file. SideFileError as above."""
    data = _read(path)
    return None if data is None else decode_partition_metadata(data, path)


def write_partition_metadata(path: str, topic_id: str) -> None:
    """Replaces a `partition.metadata` file."""
    files.replace_whole(path, encode_partition_metadata(topic_id))


# ---- meta.properties


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner and identity of a log dir (Kafka's MetaProperties).

    Attributes:
        cluster_id: of the Kafka cluster; None only in version 0.
        node_id: of the broker; None only in version 0.
        directory_id: of this log dir, 22 characters of URL-safe base64; None: it has none.
    """

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None = None


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Decodes a `meta.properties` file of version 0 or 1. SideFileError names `path` and the line."""
    found = _properties(data, path)
    version, line = found.get("version", ("0", 0))
    if version not in ("0", "1"):
        raise _wrong(path, line, f"version {version}; this program reads 0 and 1")
    node_key = "node.id" if version == "1" else "broker.id"
    cluster, node, directory = (found.get(key) for key in ("cluster.id", node_key, "directory.id"))
    if version == "1" and (cluster is None or node is None):
        raise _wrong(path, line, "version 1 should have a cluster.id and a node.id, and one is missing")
    if directory is not None and not _UUID.fullmatch(directory[0]):
        raise _wrong(path, directory[1], "directory.id should be 22 characters of URL-safe base64")
    return MetaProperties(
        cluster and cluster[0], node and _whole(node[0], INT_MAX, path, node[1]), directory and directory[0]
    )


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Encodes a `meta.properties` file, version 1. ValueError without a cluster id and a node id."""
    if properties.cluster_id is None or properties.node_id is None:
        raise ValueError("meta.properties of version 1 needs a cluster id and a node id")
    lines = ["version=1", f"cluster.id={_escaped(properties.cluster_id)}", f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={properties.directory_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def read_meta_properties(path: str) -> MetaProperties | None:
    """Reads a `meta.properties` file; None if there is no file. SideFileError as above."""
    data = _read(path)
    return None if data is None else decode_meta_properties(data, path)


# Java's Properties format, without what Kafka never writes: continued lines, and keys with escapes. Unknown keys are
# skipped, as Kafka skips them.
_PROPERTY = re.compile(r"[ \t\f]*([^ \t\f=:#!\\][^ \t\f=:\\]*)[ \t\f]*[=: \t\f]?[ \t\f]*(.*)")
_COMMENT = re.compile(r"[ \t\f]*([#!].*)?")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.?))")
_PLAIN = frozenset(string.ascii_letters + string.digits + "-_.")
_LETTER_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _properties(data: bytes, path: str) -> dict[str, tuple[str, int]]:
    """Each key's value and the number of its line; the last line of a key counts."""
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(re.split("\r\n|\r|\n", data.decode("latin-1")), start=1):
        if _COMMENT.fullmatch(line):
            continue
        match = _PROPERTY.fullmatch(line)
        if match is None:
            raise _wrong(path, number, f"{line!r} is no property")
        found[match.group(1)] = (_unescaped(match.group(2), path, number), number)
    return found


def _unescaped(text: str, path: str, line: int) -> str:
    def plain(match: re.Match[str]) -> str:
        code, character = match.groups()
        if code:
            return chr(int(code, 16))
        if character in ("", "u"):
            raise _wrong(path, line, "an escape that is not whole")
        return _LETTER_ESCAPES.get(character, character)

    units = _ESCAPE.sub(plain, text)
    try:
        # Java escapes UTF-16: two escapes may be one character.
        return units.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _wrong(path, line, "half of a character") from None


def _escaped(text: str) -> str:
    """Escapes every character of `text` but letters, digits and -_.; Java reads that back everywhere."""
    units = struct.iter_unpack(">H", text.encode("utf-16-be"))
    return "".join(chr(unit) if chr(unit) in _PLAIN else f"\\u{unit:04x}" for (unit,) in units)
