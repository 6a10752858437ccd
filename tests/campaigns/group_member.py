"""A member of the group: it writes all that it does into a journal, a line each, before it does the next.

    python -m tests.campaigns.group_member STORE JOURNAL ASSIGNOR INSTANCE AUTOMATIC

A line is a time (CLOCK_MONOTONIC, in ns), a word, a partition, and an offset or nothing.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable, Set

from pyspark_log import Consumer, Store, TopicPartition
from pyspark_log.clients.consuming.subscriptions import ConsumerRebalanceListener
from pyspark_log.errors import FencedMemberError
from tests.campaigns.clients import Ending

GROUP, TOPIC = "g", "events"
#: How long a member may be silent, in ms.
MOST_SILENT = 2000


class Journal(ConsumerRebalanceListener):
    """What the member does."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.commits: Consumer | None = None  # by hand

    def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits what was processed; an answer is noted, too."""
        if self.commits is None:
            return
        positions = {at: self.commits.position(at) for at in partitions}
        try:
            self.commits.commit(positions)
        except FencedMemberError:
            self.note("fenced")
            return
        for at, offset in positions.items():
            self.note("commit", at.partition, offset)

    def note(self, *words: object) -> None:
        """Writes a line, at once."""
        os.write(self._fd, f"{time.monotonic_ns()} {' '.join(map(str, words))}\n".encode())

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        for at in assigned:
            self.note("take", at.partition)

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        self.commit(revoked)
        for at in revoked:
            self.note("give", at.partition)

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        for at in lost:
            self.note("lost", at.partition)


def main(path: str, journal_path: str, assignor: str, instance: str, automatic: str) -> None:
    """Reads until SIGTERM."""
    # It is ended as soon as there is a journal.
    chance, ends = random.Random(os.getpid()), Ending()
    journal = Journal(journal_path)
    is_automatic = automatic == "automatic"
    consumer = Consumer(
        Store.open(path), group_id=GROUP, group_instance_id=instance or None, partition_assignment_strategy=assignor,
        max_poll_interval_ms=MOST_SILENT, session_timeout_ms=1500, auto_offset_reset="earliest",
        enable_auto_commit=is_automatic, auto_commit_interval_ms=300, max_poll_records=20,
    )  # fmt: skip
    journal.commits = None if is_automatic else consumer
    consumer.subscribe([TOPIC], listener=journal)
    journal.note("begin")
    while not ends:
        found = consumer.poll(100)
        for at, records in found.items():
            for record in records:
                assert record.value == f"{at.partition} {record.offset}".encode()
                journal.note("record", at.partition, record.offset)
        if found and chance.random() < 0.7:
            journal.commit(found)
    consumer.close()
    journal.note("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
