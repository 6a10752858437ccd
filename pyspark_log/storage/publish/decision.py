"""A decision to publish, and its encoding as a record of the decision log: JSON, described in docs/internals/format.md.

Version 2 of the records added the publisher's holder, the plan, and set-aside decisions; version 1 is read as well.
"""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import CorruptRecordError, InvalidTopicError
from pyspark_log.storage.catalog import PUBLISH_TOPIC, check_name
from pyspark_log.storage.catalog.topics import check_id
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.fs.json_fields import Fields, text, whole

VERSION = 2
#: The number of a publisher that has published nothing yet.
NO_NUMBER = -1
# How many replaced runs a publisher's record remembers.
_REPLACED_RUNS = 16
# The name of a manifest, which cannot lead out of the staging folder; "": nothing was staged.
_MANIFEST = re.compile(r"([0-9a-f]{32}\.manifest)?")


class TopicIdPartition(NamedTuple):
    """A partition of a topic identified by its id: a recreated topic has another id."""

    topic: str
    topic_id: str
    partition: int


def place_of(fields: object) -> TopicIdPartition:
    """The partition that a JSON list of topic, topic id and partition names. ValueError."""
    if not isinstance(fields, list) or len(fields) != 3:
        raise ValueError("a place that is not a list of topic, topic id and partition")
    topic, topic_id = text(fields[0], "topic"), text(fields[1], "topic_id")
    place = TopicIdPartition(topic, topic_id, whole(fields[2], "partition", 0, INT_MAX))
    try:
        check_name(place.topic)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from None
    check_id(place.topic_id)
    return place


class Origin(NamedTuple):
    """Which process did something, on which host, and when (ms)."""

    host: str
    process: int
    time: int

    @classmethod
    def here(cls, now: int) -> Origin:
        """This process, at the time `now` (ms)."""
        return cls(socket.gethostname(), os.getpid(), now)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, {format_time(self.time)}"


#: An unknown origin.
NO_ORIGIN = Origin("", 0, 0)


class About(NamedTuple):
    """A streaming query, as far as it is known. It is for people: nothing is decided by it.

    Attributes:
        query: its name; "" if it has none.
        checkpoint: its checkpoint's location; "" if it is not known.
        reads: the topics that it reads.
        writes: the topics of its last publish that had records.
    """

    query: str = ""
    checkpoint: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def after(self, last: About) -> About:
        """The same, with what was known before where this has nothing."""
        return About(
            self.query or last.query,
            self.checkpoint or last.checkpoint,
            self.reads or last.reads,
            self.writes or last.writes,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON; empty if nothing is known."""
        return {"about": self._asdict()} if any(self) else {}

    @classmethod
    def from_json(cls, content: Fields) -> About:
        """From a document that may have it. ValueError."""
        if not content.has("about"):
            return UNKNOWN
        about = Fields(content.value("about"))
        reads, writes = (tuple(text(one, name) for one in about.list(name)) for name in ("reads", "writes"))
        return cls(about.text("query"), about.text("checkpoint"), reads, writes)


#: Nothing is known.
UNKNOWN = About()


@dataclass(frozen=True, slots=True)
class SetAside:
    """A decision that could not be applied everywhere, and that an administrator has set aside.

    Attributes:
        decision, number: the decision's own number, and the publisher's.
        origin: which process did it, and when.
        places: the partitions in which it was not applied, and never will be.
    """

    decision: int
    number: int
    origin: Origin
    places: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of a publisher: its last decision.

    Attributes:
        publisher: its id.
        number: the last decided number; NO_NUMBER if there is none.
        offset: the decision's own number: the offset of its record.
        done: whether it is applied everywhere, for certain.
        run: the run of the publisher that decided it, or took it over; "" if the publisher has no runs.
        replaced: earlier runs, newest last; they are fenced.
        location: the checkpoint from which the number was published; "" if it is not known.
        plan: identifies the output that was planned under the number; "" if it is not known.
        records: how many records it publishes.
        places: the partitions that it adds records to.
        manifest, manifest_crc: the manifest's name and the CRC-32C of its description.
        host, process, time: which process decided, and when (ms).
        holder: where the publisher's newest run is, and since when it holds the publisher.
        set_aside: the last decision of the publisher that was set aside, if there is one.
        one_off: the publisher has this one publish only.
        about: what people want to know of it.
    """

    publisher: str
    number: int
    offset: int = -1
    done: bool = False
    run: str = ""
    replaced: tuple[str, ...] = ()
    location: str = ""
    plan: str = ""
    records: int = 0
    places: tuple[TopicIdPartition, ...] = ()
    manifest: str = ""
    manifest_crc: int = 0
    host: str = ""
    process: int = 0
    time: int = 0
    holder: Origin = NO_ORIGIN
    set_aside: SetAside | None = None
    one_off: bool = False
    about: About = UNKNOWN

    @property
    def is_revoked(self) -> bool:
        """Whether the number's decision was set aside before it was applied in any partition."""
        return self.set_aside is not None and self.set_aside.number == self.number + 1

    def may_run(self) -> bool:
        """Whether the process that has decided is on this machine, and may still run: there is one of its id."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # It is another user's.
        return True

    def fenced_by(self, run: str, origin: Origin) -> Decision:
        """The same decision, held by a newer run of its publisher at that origin."""
        replaced = (*self.replaced, self.run)[-_REPLACED_RUNS:] if self.run else self.replaced
        return replace(self, run=run, replaced=replaced, holder=origin)


def encode_decision(decision: Decision) -> bytes:
    """Encodes a decision as a record's value."""
    return json.dumps(
        {
            "version": VERSION,
            "number": decision.number,
            "decision": decision.offset,
            "status": "done" if decision.done else "decided",
            "run": decision.run,
            "replaced": list(decision.replaced),
            "location": decision.location,
            "plan": decision.plan,
            "records": decision.records,
            "places": decision.places,
            "manifest": decision.manifest,
            "manifest_crc": decision.manifest_crc,
            "host": decision.host,
            "process": decision.process,
            "time": decision.time,
            "holder": decision.holder._asdict(),
            "set_aside": None if decision.set_aside is None else _set_aside_fields(decision.set_aside),
            **({"one_off": True} if decision.one_off else {}),
            **decision.about.to_json(),
        }
    ).encode()


def _set_aside_fields(set_aside: SetAside) -> dict[str, object]:
    return {
        "decision": set_aside.decision,
        "number": set_aside.number,
        **set_aside.origin._asdict(),
        "places": set_aside.places,
    }


def decode_decision(publisher: str, value: bytes, offset: int) -> Decision:
    """Decodes a record of the log.

    Args:
        publisher: its key.
        value: its value; not null.
        offset: its offset, which is the decision's number if this record made the decision.

    Raises:
        CorruptRecordError: it is not a decision.
        StoreVersionError: a newer version wrote it.
    """
    try:
        return _from_json(publisher, Fields.parse(value), offset)
    except ValueError as error:
        raise no_decision(offset, str(error)) from None


def numbered(decision: Decision, offset: int) -> Decision:
    """The decision as `decode_decision` returns it once its record has an offset."""
    return replace(decision, offset=offset) if decision.offset < 0 else decision


def publisher_of(key: bytes | None, offset: int) -> str:
    """The publisher that a record's key names. CorruptRecordError."""
    try:
        return (key or b"").decode()
    except UnicodeDecodeError as error:
        raise no_decision(offset, f"its key is no publisher: {error}") from None


def no_decision(offset: int, reason: str) -> CorruptRecordError:
    """The error for a record of the log that is not a decision."""
    return CorruptRecordError(
        f"the record at offset {offset} is no decision: {reason}", base_offset=offset, topic=PUBLISH_TOPIC, partition=0
    )


def _from_json(publisher: str, content: Fields, offset: int) -> Decision:
    content.check_version(VERSION, f"{PUBLISH_TOPIC}-0: the decision at offset {offset}")
    decision, status, manifest = content.whole("decision", low=-1), content.text("status"), content.text("manifest")
    if decision > offset or status not in ("decided", "done"):
        raise ValueError(f"decision {decision} with status {status!r}")
    if not _MANIFEST.fullmatch(manifest):
        raise ValueError(f"{manifest!r} is no name of a manifest")
    origin, later = _origin(content), content.whole("version", low=1) >= 2
    return Decision(
        publisher=publisher,
        number=content.whole("number", low=-LONG_MAX - 1),
        # The record that makes the decision cannot name its own offset; later records of the decision name it.
        offset=decision if decision >= 0 else offset,
        done=status == "done",
        run=content.text("run"),
        replaced=tuple(text(run, "replaced") for run in content.list("replaced")),
        location=content.text("location"),
        plan=content.text("plan") if later else "",
        records=content.whole("records"),
        places=tuple(place_of(place) for place in content.list("places")),
        manifest=manifest,
        manifest_crc=content.whole("manifest_crc", high=0xFFFFFFFF),
        host=origin.host,
        process=origin.process,
        time=origin.time,
        holder=_origin(Fields(content.value("holder"))) if later else origin,
        set_aside=_set_aside(content.value("set_aside")) if later else None,
        one_off=content.has("one_off") and content.value("one_off") is True,
        about=About.from_json(content),
    )


def _origin(content: Fields) -> Origin:
    return Origin(content.text("host"), content.whole("process"), content.whole("time"))


def _set_aside(value: object) -> SetAside | None:
    if value is None:
        return None
    content = Fields(value)
    return SetAside(
        content.whole("decision"),
        content.whole("number", low=-LONG_MAX - 1),
        _origin(content),
        tuple(place_of(place) for place in content.list("places")),
    )
