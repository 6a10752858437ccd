"""What a look into a topic has found. Without Arrow, which is loaded with the first look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Record(NamedTuple):
    """A record, as far as it is shown.

    Attributes:
        partition, offset: where it is.
        time: in ms since 1970; None: it has none.
        is_append_time: whether that is when it was appended, and not what its producer has said.
        key, value: the first bytes; None: null.
        key_size, value_size: all of their bytes.
        headers: the first ones.
        header_count: how many there are.
        state: "aborted" or "open", as its transaction is; "": it is committed, or in none.
    """

    partition: int
    offset: int
    time: int | None
    is_append_time: bool
    key: bytes | None
    key_size: int
    value: bytes | None
    value_size: int
    headers: Sequence[tuple[str, bytes | None]]
    header_count: int
    state: str = ""


class Gap(NamedTuple):
    """Offsets without a record, from `first` to `last`.

    Attributes:
        marker: "commit" or "abort", if it is the marker of a transaction; "": compaction has removed what was there.
        producer: the id of the producer whose transaction the marker ends.
    """

    first: int
    last: int
    marker: str = ""
    producer: int = -1


@dataclass
class Look:
    """What a look has found.

    Attributes:
        rows: in the order in which they are shown.
        notes: what the reader of the page should know.
        older, newer: the offset before which, or from which, the next page would look; None: there is nothing.
        read: about how many bytes of record batches were looked at.
        rest: of a search: the offset of each partition at which the next step begins; empty: it has seen all.
    """

    rows: list[Record | Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    read: int = 0
    rest: dict[int, int] = field(default_factory=dict)

    @property
    def records(self) -> list[Record]:
        """The records among the rows."""
        return [row for row in self.rows if isinstance(row, Record)]
