"""The calls of a program, as one process makes them.

An actor keeps one open store until the test asks for another one. So what it knows of a log can be as old as the
program: other actors continue meanwhile.
"""

# ruff: noqa: E402  (the tools of the unit tests are found by their path, as pytest finds them)
from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import pyarrow as pa

sys.path[:0] = [str(Path(__file__).parents[1] / "unit")]

from producer_tools import ending, ready

from pyspark_log.errors import PylogError
from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.store import Store
from tests.store_tools import publish, stage


class Actor:
    """Makes calls by their names. A result is plain data; a refused call gives the name of its error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.reopen()

    def call(self, name: str, *arguments):
        try:
            return getattr(self, name)(*arguments)
        except PylogError as error:
            return type(error).__name__

    def reopen(self):
        self.store = Store.open(self._path)

    def end(self):
        """Nothing is to be ended in this process."""

    # ---- topics

    def create(self, topic, partitions, configs):
        self.store.create_topic(topic, partitions, configs)

    def delete(self, topic):
        self.store.delete_topic(topic)

    # ---- writing

    def append(self, topic, partition, records):
        (result,) = self.store.append(topic, _rows(records), partition=partition)
        return result.base_offset, result.next_offset

    def produce(self, topic, partition, producer, epoch, sequence, values, time, transactional):
        batch = ready(sequence, *values, producer=producer, epoch=epoch, timestamp=time, transactional=transactional)
        result = self.store.append_batch(topic, partition, batch)
        return result.base_offset, result.next_offset, result.duplicate

    def end_transaction(self, topic, partition, producer, epoch, commit, time):
        marker = ending(commit, producer=producer, epoch=epoch, timestamp=time)
        with self.store.logs.writer(topic, partition).hold() as writer:
            return writer.append(bytearray(marker), sync=False).base_offset

    def publish(self, publisher, number, topic, records):
        """`records`: (partition, record) each."""
        partitions = pa.array([partition for partition, _ in records], pa.int32())
        data = _rows([record for _, record in records]).append_column("partition", partitions)
        return publish(self.store.decisions, publisher, number, stage(self.store, data, topic)).replayed

    def commit(self, group, offsets, expected):
        OffsetsLog(self.store).commit(group, offsets, expected=expected)

    # ---- deleting

    def delete_records(self, topic, partition, before):
        return self.store.delete_records(topic, partition, before)

    def roll(self, topic, partition):
        with self.store.logs.writer(topic, partition).hold() as writer:
            writer.log.roll()

    def clean(self):
        self.store.clean()

    def compact(self, topic):
        return [outcome.problem for outcome in compact(self.store.logs, topic)]

    def flush(self):
        self.store.flush()

    # ---- reading

    def read(self, topic, partition, start, end, level):
        found = []
        for batch in self.store.read(topic, partition, start, end, isolation_level=level):
            columns = [batch["offset"], batch["key"], batch["value"], batch["timestamp"].cast(pa.int64())]
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            found += [(offset, key, value, time // 1000) for offset, key, value, time in rows]
        return found

    def offsets(self, topic, partition):
        return (
            self.store.earliest_offset(topic, partition),
            self.store.latest_offset(topic, partition),
            self.store.latest_offset(topic, partition, isolation_level="read_committed"),
        )

    def find_time(self, topic, partition, time):
        found = self.store.offset_for_timestamp(topic, partition, time)
        return None if found is None else found.offset

    def fetch(self, group):
        return {str(at): position.offset for at, position in OffsetsLog(self.store).fetch(group).items()}


def _rows(records):
    keys, values, times = zip(*records, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
        }
    )


class Process:
    """An actor in a process of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def _begin(self):
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(self._path, theirs), daemon=True)
        self._process.start()

    def call(self, name, *arguments):
        self._pipe.send((name, arguments))
        failed, result = self._pipe.recv()
        if failed:
            raise AssertionError(result)
        return result

    def reopen(self):
        """Another process takes its place; it is killed."""
        self.end()
        self._begin()

    def end(self):
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(path, pipe):
    actor = Actor(path)
    while True:
        name, arguments = pipe.recv()
        try:
            pipe.send((False, actor.call(name, *arguments)))
        except Exception as error:  # noqa: BLE001  (the caller raises it)
            pipe.send((True, f"{type(error).__name__}: {error}"))
