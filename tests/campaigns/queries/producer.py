"""Appends numbered records to the source topic until SIGTERM: `python -m ...producer STORE RATE SEED`.

A record's value begins with its number, which rises within a key as it does over all; each key is in one partition.
The rest of the value is padding, so that a backlog is staged in files. At the end it prints how many there are.
"""

import random
import sys
import time

import pyarrow as pa

from pyspark_log import Store
from tests.campaigns.clients import Ending

KEYS = 200


def record_batch(chance, first, count):
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "key": [b"key %d" % chance.randrange(KEYS) for _ in numbers],
            "value": [b"%d %s" % (number, b"x" * chance.randrange(50, 900)) for number in numbers],
        }
    )


def main(store, rate, seed):
    ended = Ending()
    store, chance, number, begin = Store.open(store), random.Random(int(seed)), 0, time.monotonic()
    while not ended:
        behind = int((time.monotonic() - begin) * float(rate)) - number
        if behind > 0:
            count = min(behind, chance.randrange(1, 200))
            store.append("events", record_batch(chance, number, count))
            number += count
        time.sleep(chance.uniform(0, 0.2))
    print(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
