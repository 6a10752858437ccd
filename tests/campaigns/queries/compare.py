"""Compares what the killed queries wrote with what undisturbed ones wrote."""

import collections
import hashlib
from dataclasses import dataclass, field

import pyarrow.compute as pc


@dataclass
class Sequence:
    """What a topic holds of a key, in its order: the number of each record, and a digest over the values."""

    numbers: list = field(default_factory=list)
    digest: object = field(default_factory=hashlib.blake2b)


def sequences(store, topic):
    """The sequence of each key."""
    found = collections.defaultdict(Sequence)
    for partition in range(store.describe_topic(topic).partitions):
        for batch in store.read(topic, partition):
            numbers = pc.list_element(pc.split_pattern(batch["value"].cast("string"), " ", max_splits=1), 0)
            for key, value, number in zip(
                batch["key"].to_pylist(), batch["value"].to_pylist(), numbers.to_pylist(), strict=True
            ):
                sequence = found[key]
                sequence.numbers.append(int(number.rstrip("!")))
                sequence.digest.update(b"%d " % len(value) + value)
    return found


def differences(wanted, found):
    """What is wrong with `found`, a line for each key; none if nothing is."""
    lines = []
    for key in sorted(wanted.keys() | found.keys()):
        right, got = wanted.get(key, Sequence()), found.get(key, Sequence())
        if right.numbers == got.numbers and right.digest.digest() == got.digest.digest():
            continue
        counts = collections.Counter(got.numbers)
        lost = [number for number in right.numbers if number not in counts]
        doubled = [number for number, count in counts.items() if count > 1]
        strange = sorted(counts.keys() - set(right.numbers))
        disorder = [b for a, b in zip(got.numbers, got.numbers[1:], strict=False) if b < a]
        lines.append(
            f"{key}: {len(right.numbers)} wanted, {len(got.numbers)} found; lost {lost[:20]}, doubled {doubled[:20]}, "
            f"strange {strange[:20]}, out of order at {disorder[:20]}"
            + ("" if lost or doubled or strange or disorder else "; the values differ")
        )
    return lines
