"""The processes that are killed, but for the server. SIGTERM ends each in order.

    python -m tests.campaigns.transaction_clients copy|write|read ARGUMENT ...

Kafka's TransactionalMessageCopier is one more.
"""

import contextlib
import json
import random
import re
import sys
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.campaigns.clients import Ending

# With the other one librdkafka 2.16 hangs in send_offsets_to_transaction after its only broker was gone for a moment.
_CLIENT = {
    "reconnect.backoff.max.ms": 500, "socket.timeout.ms": 10_000, "log_level": 0, "metadata.recovery.strategy": "none",
}  # fmt: skip
_OTHER_BATCH = re.compile(r"with (\d+) message.*base seq (\d+), .*MsgPossiblyPersisted, base seq (\d+)\.\.(\d+)")


def _producer(bootstrap, name):
    """A transactional producer, which has fenced the one of its name before it."""
    producer = confluent_kafka.Producer({
        **_CLIENT, "bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1,
        "transaction.timeout.ms": 60_000, "message.timeout.ms": 60_000,
    })  # fmt: skip
    _repeat(producer.init_transactions)
    return producer


def _repeat(call, *arguments):
    """Calls what may be repeated until it is done, as its error says."""
    while True:
        try:
            return call(*arguments, 30)
        except confluent_kafka.KafkaException as error:
            # Of a question for committed offsets librdkafka does not say it, where the coordinator has just moved.
            if not error.args[0].retriable() and error.args[0].code() != confluent_kafka.KafkaError.NOT_COORDINATOR:
                raise


def _ended(producer, *, commit):
    """Ends a transaction; whether it is committed. FencedError, if another has taken over."""
    try:
        if commit:
            _repeat(producer.commit_transaction)
        else:
            _repeat(producer.abort_transaction)
    except confluent_kafka.KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        _repeat(producer.abort_transaction)
        return False
    return commit


def _aborted_early(error, *, commit):
    """Whether librdkafka 2.16 has given up: it has asked to abort what the coordinator did not know yet.

    It does so while it is to ask again whether a partition may join, as the transaction before is being completed.
    """
    return not commit and error.args[0].fatal() and error.args[0].code() == confluent_kafka.KafkaError.INVALID_TXN_STATE


def _sent_another_batch(error):
    """Whether librdkafka 2.16 has, after a disconnection, sent other records in place of a batch that may be there.

    Kafka's broker takes them no more than ours does.
    """
    found = _OTHER_BATCH.search(error.args[0].str()) if error.args[0].fatal() else None
    if found is None:
        return False
    count, sequence, first, last = map(int, found.groups())
    return sequence == first and count != last - first + 1


def copy(bootstrap, partition):
    """Copies a partition of `in` to that of `out`, with its position, some at a time; now and then it aborts."""
    ending, chance = Ending(), random.Random()
    producer = _producer(bootstrap, f"copy-{partition}")
    while not ending:
        # Each transaction begins where the last one that was committed has ended.
        consumer = confluent_kafka.Consumer({
            **_CLIENT, "bootstrap.servers": bootstrap, "group.id": f"copies-{partition}", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        })  # fmt: skip
        at = TopicPartition("in", int(partition))
        try:
            [begin] = _repeat(consumer.committed, [at])
            consumer.assign([TopicPartition("in", int(partition), max(begin.offset, 0))])
            commits = True
            while commits and not ending:
                messages = [one for one in consumer.consume(chance.randrange(1, 60), 0.2) if one.error() is None]
                if not messages:
                    continue
                producer.begin_transaction()
                for message in messages:
                    producer.produce("out", message.value(), partition=int(partition))
                commits = chance.random() < 0.8
                end = TopicPartition("in", int(partition), messages[-1].offset() + 1)
                with contextlib.suppress(confluent_kafka.KafkaException):
                    _repeat(producer.send_offsets_to_transaction, [end], consumer.consumer_group_metadata())
                try:
                    commits = _ended(producer, commit=commits)
                except confluent_kafka.KafkaException as error:
                    if not (_aborted_early(error, commit=commits) or _sent_another_batch(error)):
                        raise
                    commits = False
                    producer = _producer(bootstrap, f"copy-{partition}")
        finally:
            consumer.close()


def write(bootstrap, folder, name):
    """Writes transactions of several values to several partitions, and notes how each has ended.

    A line before says what it will write, and one after how it went; without that it is not known.
    """
    ending, chance = Ending(), random.Random()
    noted = (Path(folder) / name).open("a", buffering=1)
    producer, number = _producer(bootstrap, name.partition(".")[0]), 0
    while not ending:
        values = [(chance.randrange(3), f"{name}:{number}:{one}") for one in range(chance.randrange(1, 8))]
        noted.write(json.dumps({"begins": number, "values": values}) + "\n")
        producer.begin_transaction()
        for partition, value in values:
            producer.produce("lists", value, partition=partition)
        commit = chance.random() < 0.7
        try:
            committed = _ended(producer, commit=commit)
        except confluent_kafka.KafkaException as error:
            if not (_aborted_early(error, commit=commit) or _sent_another_batch(error)):
                raise
            producer, committed = _producer(bootstrap, name.partition(".")[0]), False
        noted.write(json.dumps({"ends": number, "committed": committed}) + "\n")
        number += 1


def read(bootstrap, folder, name):
    """Reads committed values from the beginning on, and notes each with its offset."""
    ending = Ending()
    noted = (Path(folder) / name).open("a", buffering=1)
    consumer = confluent_kafka.Consumer({
        **_CLIENT, "bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition("lists", number, 0) for number in range(3)])
    while not ending:
        for one in consumer.consume(500, 0.2):
            if one.error() is None:
                noted.write(f"{one.partition()} {one.offset()} {one.value().decode()}\n")
    consumer.close()


if __name__ == "__main__":
    {"copy": copy, "write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
