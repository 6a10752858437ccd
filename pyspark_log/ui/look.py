"""A look into a topic as a URL asks for it, and the URLs of the looks beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.store import Store
from pyspark_log.ui.bounds import MOST_DIGITS, MOST_RECORDS, RECORD_BYTES, USUAL_RECORDS
from pyspark_log.ui.formats import FORMATS
from pyspark_log.ui.found import Look, Record
from pyspark_log.ui.texts import to_time

_HEX = "hex:"


class Wanted(NamedTuple):
    """What is looked for.

    Attributes:
        by: last, offset, time or key.
        at: the offset, time or key, as it was typed.
        partition: the number; None: all.
        before: for the last records, and those with a key: only those before this offset.
        form: one of FORMATS.
        most: how many records.
        is_live: whether the page looks again each second.
    """

    by: str = "last"
    at: str = ""
    partition: int | None = None
    before: int | None = None
    form: str = "auto"
    most: int = USUAL_RECORDS
    is_live: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """From the query of a URL. InvalidConfigError: it has what cannot be."""
        by = query.get("by", "last")
        if by not in ("last", "offset", "time", "key"):
            raise InvalidConfigError(f"by = {by!r}: must be last, offset, time or key")
        form = query.get("format", "auto")
        if form not in FORMATS:
            raise InvalidConfigError(f"format = {form!r}: must be one of {', '.join(FORMATS)}")
        count = _number(query, "count") or USUAL_RECORDS
        return cls(
            by, query.get("at", ""), _number(query, "partition"), _number(query, "before"), form,
            min(count, MOST_RECORDS), query.get("live") == "1" and by == "last",
        )  # fmt: skip

    def url(self, topic: str, **changes: Any) -> str:  # noqa: ANN401  (the values of fields)
        """The URL of this look, or of one that differs in some fields."""
        one, usual = self._replace(**changes), Wanted()
        values = {
            "by": one.by, "at": one.at, "partition": one.partition, "before": one.before, "format": one.form,
            "count": one.most, "live": int(one.is_live),
        }  # fmt: skip
        fields = zip(values.items(), usual, strict=True)
        said = {name: value for (name, value), default in fields if value != default and value is not None}
        return topic_url(topic, "records") + (f"?{urlencode(said)}" if said else "")


def topic_url(topic: str, *parts: object) -> str:
    """The URL of a page of a topic."""
    return "/".join(("/topics", *(quote(str(one), safe="") for one in (topic, *parts))))


def looked(store: Store, topic: str, wanted: Wanted, now: int) -> tuple[Look, Wanted, int]:
    """Looks.

    Returns:
        What was found; what was looked for, with the partition where that was decided here; and how many partitions the
        topic has.

    Raises:
        UnknownTopicError: no such topic, or partition.
        InvalidConfigError: the offset or time is none, or an offset has no partition.
    """
    from pyspark_log.ui.records import Reader  # noqa: PLC0415  (Arrow, which is loaded with the first look)

    reader = Reader(store, topic)
    wanted = wanted if reader.partitions > 1 else wanted._replace(partition=wanted.partition or 0)
    if wanted.by == "last" or not wanted.at:
        if wanted.by != "last":
            return Look(notes=[f"Type {_EXAMPLES[wanted.by]}."]), wanted, reader.partitions
        if wanted.partition is None:
            return reader.last_of_all(wanted.most), wanted, reader.partitions
        return reader.last(wanted.partition, wanted.most, wanted.before), wanted, reader.partitions
    if wanted.by == "time":
        try:
            time = to_time(wanted.at, now)
        except ValueError as error:
            raise InvalidConfigError(f"time: {error}; or so long ago: 10m, 2h, 1d") from None
        numbers = reader.written() if wanted.partition is None else [wanted.partition]
        return reader.from_time(numbers, wanted.most, time), wanted, reader.partitions
    if wanted.by == "key":
        key = _key(wanted.at)
        wanted = wanted if wanted.partition is not None else wanted._replace(partition=reader.partition_of(key))
        assert wanted.partition is not None
        return reader.with_key(wanted.partition, wanted.most, key, wanted.before), wanted, reader.partitions
    if not wanted.at.strip().isdecimal() or len(wanted.at.strip()) > MOST_DIGITS:
        raise InvalidConfigError(f"offset {wanted.at[:40]!r}: must be a whole number, 0 or more")
    wanted = wanted._replace(partition=wanted.partition or 0)
    assert wanted.partition is not None
    return reader.from_offset(wanted.partition, wanted.most, int(wanted.at)), wanted, reader.partitions


_EXAMPLES = {
    "offset": "an offset, such as 0",
    "time": "a time: 2026-01-31T12:00:00Z, or so long ago: 10m",
    "key": "a key, as text or as hex:00ff",
}


class OneRecord(NamedTuple):
    """A record, with those beside it.

    Attributes:
        record: the one at the offset, or the first one after it; None: there is none.
        first, end: the offsets that can be read.
    """

    record: Record | None
    first: int
    end: int
    notes: list[str]


def one_record(store: Store, topic: str, partition: str, offset: str) -> OneRecord:
    """One record, with all of its bytes that are shown. UnknownTopicError, InvalidConfigError."""
    if not all(text.isdecimal() and len(text) <= MOST_DIGITS for text in (partition, offset)):
        raise InvalidConfigError(f"{partition[:20]}, {offset[:20]}: expected the numbers of a partition and an offset")
    from pyspark_log.ui.records import Reader  # noqa: PLC0415

    reader = Reader(store, topic, RECORD_BYTES)
    look = reader.from_offset(int(partition), 1, int(offset))
    first, end = reader.range(int(partition))
    return OneRecord(look.records[0] if look.records else None, first, end, look.notes)


def _key(text: str) -> bytes:
    if text.startswith(_HEX):
        try:
            return bytes.fromhex(text.removeprefix(_HEX))
        except ValueError:
            raise InvalidConfigError(f"key {text[:40]!r}: after hex: there are pairs of 0-9 and a-f") from None
    return text.encode()


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise InvalidConfigError(f"{name} = {text[:40]!r}: must be a whole number, 0 or more")
    return int(text)
