"""What is written to and read from, and the clients that do so."""

from __future__ import annotations

import threading

from pyspark_log.types import TopicPartition
from tests.campaigns.members import PARTITIONS

CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1", "segment.bytes": str(2**20)}
TOPICS = {"t": CONFIGS, "u": CONFIGS}
ALL = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]


class Client:
    """What runs in a thread of its own, in a `with` block.

    Attributes:
        name: what it is.
        faults: what must not be.
    """

    def __init__(self, name):
        self.name, self.faults = name, []
        self._ending, self._thread = threading.Event(), threading.Thread(target=self._run_all, name=name)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join()

    def _run_all(self):
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001  (a fault of this program ends the campaign)
            self.faults.append(f"the {self.name} has failed: {error!r}")
