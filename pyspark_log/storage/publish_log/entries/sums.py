"""Sums: the heads of 16 entries in one object, for processes that have many to read.

A sum holds the heads of the entries of its block, back to back, each as it is in its own object. So any process that
writes it writes the same. It is a shortcut: where it is missing, the entries are read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_log.errors import CorruptRecordError, PylogError
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log.entries.entry import Entry, decode, size_of_head

_log = logging.getLogger(__name__)

#: The entries of a block.
BLOCK = 16


def name_of(number: int) -> str:
    """The name of the sum that has an entry."""
    return f"sum/{number - number % BLOCK:020}"


def write(objects: Objects, number: int, heads: Sequence[bytes]) -> None:
    """Writes the sum that has an entry; best effort."""
    try:
        objects.put(name_of(number), b"".join(heads))
    except (PylogError, OSError) as error:
        _log.warning("%s: a sum of entries could not be written: %s", objects.address, error)


def read_from(objects: Objects, number: int) -> list[tuple[Entry, bytes]]:
    """The entries from a number up to the end of its block, with their heads; [] if there is no such sum, or a bad one.

    Raises: ObjectStoreError.
    """
    stored = objects.get(name_of(number))
    if stored is None:
        return []
    data, entries = stored.data, list[tuple[Entry, bytes]]()
    try:
        for each in range(number - number % BLOCK, number - number % BLOCK + BLOCK):
            size = size_of_head(data)
            entries.append((decode(each, data), bytes(data[:size])))
            data = data[size:]
    except CorruptRecordError as error:
        _log.warning("%s/%s: %s; the entries are read instead", objects.address, name_of(number), error)
        return []
    return entries[number % BLOCK :]
