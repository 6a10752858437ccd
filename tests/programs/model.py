"""What a store must hold after a program's calls, in plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field

REMEMBERED = 5


@dataclass
class Producer:
    """What is known of a producer in a partition: its epoch, and of each batch (first sequence, last one, offset)."""

    epoch: int
    batches: list = field(default_factory=list)

    @property
    def next_sequence(self):
        return self.batches[-1][1] + 1 if self.batches else 0


class Partition:
    """One partition: every record that ever had an offset, and what is known of producers."""

    def __init__(self):
        self.records = {}  # offset -> (key, value, time)
        self.start = self.end = 0
        self.producers = {}
        self.open = {}  # producer -> first offset of its transaction
        self.in_transaction = {}  # offset -> producer, of records of open transactions
        self.aborted = set()

    @property
    def stable(self):
        return min([*self.open.values(), self.end]) if self.open else self.end

    def append(self, records):
        base = self.end
        for record in records:
            self.records[self.end] = record
            self.end += 1
        return base, self.end

    def delete(self, before):
        self.start = max(self.start, before)
        self.records = {offset: record for offset, record in self.records.items() if offset >= self.start}

    def visible(self, start, end, *, committed):
        return [
            (offset, *record)
            for offset, record in self.records.items()
            if max(start, self.start) <= offset < end and not (committed and offset in self.aborted)
        ]

    # ---- producers

    def judge(self, producer, epoch, sequence, count):
        """What a batch must lead to: "append", the offset of the first time, or the names of the right errors."""
        known = self.producers.get(producer)
        if known is None:
            return "append"
        if epoch < known.epoch:
            return {"InvalidProducerEpochError"}
        last = sequence + count - 1
        if epoch == known.epoch:
            for number, (first, end, offset) in enumerate(reversed(known.batches)):
                if (first, end) == (sequence, last) and number < REMEMBERED:
                    # A process that came later may know of the last batch alone.
                    return offset if number == 0 else (offset, {"OutOfOrderSequenceError"})
        expected = known.next_sequence if epoch == known.epoch else 0
        return "append" if sequence == expected else {"OutOfOrderSequenceError"}

    def produce(self, producer, epoch, sequence, records, *, transactional):
        base, end = self.append(records)
        known = self.producers.get(producer)
        if known is None or known.epoch != epoch:
            known = self.producers[producer] = Producer(epoch)
        known.batches.append((sequence, sequence + len(records) - 1, base))
        if transactional:
            self.open.setdefault(producer, base)
            self.in_transaction |= dict.fromkeys(range(base, end), producer)
        return base, end

    def end_transaction(self, producer, *, commit):
        self.end += 1
        self.open.pop(producer, None)
        mine = {offset for offset, one in self.in_transaction.items() if one == producer}
        if not commit:
            self.aborted |= mine
        for offset in mine:
            del self.in_transaction[offset]


class Model:
    """All that a store holds."""

    def __init__(self):
        self.topics = {}  # name -> list of partitions
        self.compacted = set()
        self.groups = {}
        self.publishers = {}
