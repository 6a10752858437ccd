"""A look into a topic as a URL asks for it, and the URLs of the looks beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.store import Store
from pyspark_log.ui.bounds import MOST_DIGITS, MOST_RECORDS, RECORD_BYTES, USUAL_RECORDS
from pyspark_log.ui.looks.formats import FORMATS
from pyspark_log.ui.looks.found import Look, Record
from pyspark_log.ui.texts import to_time

if TYPE_CHECKING:
    from pyspark_log.ui.looks.records import Reader

_HEX = "hex:"
_REST = re.compile(rf"(\d{{1,9}})-(\d{{1,{MOST_DIGITS}}})", re.ASCII)


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
        text: what a key, value or header has in it; "": anything. Then this is a search.
        is_any_case: whether small and capital letters are the same there.
        rest: where a search continues: partitions with an offset, such as 0-500.3-200.
        columns: whether the fields of JSON are columns.
        until: the time before which records are, or for `offset` also the offset, as it was typed; "": any. Then this
            is a search.
    """

    by: str = "last"
    at: str = ""
    partition: int | None = None
    before: int | None = None
    form: str = "auto"
    most: int = USUAL_RECORDS
    is_live: bool = False
    text: str = ""
    is_any_case: bool = False
    rest: str = ""
    columns: bool = False
    until: str = ""

    @property
    def is_search(self) -> bool:
        """Whether this looks for something in steps."""
        return bool(self.text or self.until or (self.by == "key" and self.at))

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """From the query of a URL. InvalidConfigError: it has what cannot be."""
        by = query.get("by", "last")
        if by not in ("last", "offset", "time", "key"):
            raise InvalidConfigError(f"by = {by!r}: must be last, offset, time or key")
        form = query.get("format", "auto")
        if form not in FORMATS:
            raise InvalidConfigError(f"format = {form!r}: must be one of {', '.join(FORMATS)}")
        count, until = _number(query, "count") or USUAL_RECORDS, query.get("until", "").strip()
        return cls(
            by, query.get("at", ""), _number(query, "partition"), _number(query, "before"), form,
            min(count, MOST_RECORDS), query.get("live") == "1" and by == "last" and not (until or query.get("rest")),
            query.get("text", ""), query.get("case") == "any", query.get("rest", ""), query.get("columns") == "1",
            until,
        )  # fmt: skip

    def url(self, topic: str, **changes: Any) -> str:  # noqa: ANN401  (the values of fields)
        """The URL of this look, or of one that differs in some fields."""
        one, usual = self._replace(**changes), Wanted()
        values = {
            "by": one.by, "at": one.at, "partition": one.partition, "before": one.before, "format": one.form,
            "count": one.most, "live": int(one.is_live), "text": one.text, "case": one.is_any_case and "any",
            "rest": one.rest, "columns": int(one.columns), "until": one.until,
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
    from pyspark_log.ui.looks.records import Reader  # noqa: PLC0415  (Arrow, which is loaded with the first look)

    reader = Reader(store, topic)
    wanted = wanted if reader.partitions > 1 else wanted._replace(partition=wanted.partition or 0)
    if wanted.by != "last" and not wanted.at:
        return Look(notes=[f"Type {_EXAMPLES[wanted.by]}."]), wanted, reader.partitions
    if wanted.by == "offset":
        wanted = wanted._replace(partition=wanted.partition or 0)
    elif wanted.by == "key" and wanted.partition is None:
        wanted = wanted._replace(partition=reader.partition_of(_bytes(wanted.at, "key")))
    look = _searched(reader, wanted, now) if wanted.is_search else _read(reader, wanted, now)
    return look, wanted, reader.partitions


def _read(reader: Reader, wanted: Wanted, now: int) -> Look:
    if wanted.by == "time":
        numbers = reader.written() if wanted.partition is None else [wanted.partition]
        return reader.from_time(numbers, wanted.most, _time(wanted.at, now))
    if wanted.partition is None:
        return reader.last_of_all(wanted.most)
    if wanted.by == "offset":
        return reader.from_offset(wanted.partition, wanted.most, _offset(wanted.at))
    return reader.last(wanted.partition, wanted.most, wanted.before)


def _searched(reader: Reader, wanted: Wanted, now: int) -> Look:
    from pyspark_log.ui.looks.records import NONE_SINCE  # noqa: PLC0415
    from pyspark_log.ui.looks.search import Match, search  # noqa: PLC0415

    key = _bytes(wanted.at, "key") if wanted.by == "key" else None
    is_any_case = wanted.is_any_case and not wanted.text.startswith(_HEX)
    match = Match(key, _bytes(wanted.text, "text"), is_any_case)
    numbers = reader.written() if wanted.partition is None else [wanted.partition]
    starts: Mapping[int, int | None]
    if wanted.rest:
        starts = _places(wanted.rest)
    elif wanted.by == "time":
        time = _time(wanted.at, now)
        starts = {number: reader.offset_of(number, time) for number in numbers}
    elif wanted.by == "offset":
        starts = dict.fromkeys(numbers, _offset(wanted.at))
    else:
        starts = {number: reader.range(number)[1] if wanted.before is None else wanted.before for number in numbers}
    present = {number: start for number, start in starts.items() if start is not None}
    if starts and not present:
        return Look(notes=[NONE_SINCE])
    is_forward, ends = wanted.by in ("time", "offset"), _ends(reader, wanted, present, now)
    return search(reader, match, wanted.most, present, is_forward=is_forward, ends=ends)


def _ends(reader: Reader, query: Wanted, partitions: Iterable[int], now: int) -> dict[int, int]:
    """Where a search ends in partitions in which it does before the log's end."""
    if not query.until:
        return {}
    if query.by == "offset" and _is_offset(query.until):
        return dict.fromkeys(partitions, _offset(query.until))
    time = _time(query.until, now)
    ends = {number: reader.offset_of(number, time) for number in partitions}
    return {number: end for number, end in ends.items() if end is not None}


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
    from pyspark_log.ui.looks.records import Reader  # noqa: PLC0415

    reader = Reader(store, topic, RECORD_BYTES)
    look = reader.from_offset(int(partition), 1, int(offset))
    first, end = reader.range(int(partition))
    return OneRecord(look.records[0] if look.records else None, first, end, look.notes)


def _is_offset(text: str) -> bool:
    return text.strip().isdecimal() and len(text.strip()) <= MOST_DIGITS


def _offset(text: str) -> int:
    if not _is_offset(text):
        raise InvalidConfigError(f"offset {text[:40]!r}: must be a whole number, 0 or more")
    return int(text)


def _time(text: str, now: int) -> int:
    try:
        return to_time(text, now)
    except ValueError as error:
        raise InvalidConfigError(f"time: {error}; or so long ago: 10m, 2h, 1d") from None


def rest_of(places: Mapping[int, int]) -> str:
    """Where a search continues, as an address has it."""
    return ".".join(f"{partition}-{offset}" for partition, offset in places.items())


def _places(text: str) -> dict[int, int]:
    pairs = _REST.findall(text)
    if text != ".".join("-".join(pair) for pair in pairs):
        raise InvalidConfigError(f"rest = {text[:40]!r}: expected partitions with offsets, such as 0-500.3-200")
    return {int(partition): int(offset) for partition, offset in pairs}


def _bytes(text: str, what: str) -> bytes:
    if text.startswith(_HEX):
        try:
            return bytes.fromhex(text.removeprefix(_HEX))
        except ValueError:
            raise InvalidConfigError(f"{what} {text[:40]!r}: after hex: there are pairs of 0-9 and a-f") from None
    return text.encode()


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise InvalidConfigError(f"{name} = {text[:40]!r}: must be a whole number, 0 or more")
    return int(text)
