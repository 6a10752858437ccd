"""Ctrl-C ends a call of the API, at whatever moment it is struck, and the next call works."""

import itertools
import os
import random
import select
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from pyspark_log.storage.maintenance.verify import verify
from pyspark_log.storage.store import Store
from tests.amounts import few_or_many
from tests.seeds import new_seed
from tests.store_tools import new_store

# After how many seconds an interrupt counts as lost.
PATIENCE = 120

# Works once, as Python may lose an interrupt that comes while it imports a module. Then it says that it begins, and
# works for ever; it says so again when an interrupt has ended that.
PROGRAM = """
import faulthandler, os, signal, sys, time
import pyarrow as pa
from pyspark_log import Store

faulthandler.register(signal.SIGUSR1)
store = Store.open(sys.argv[1])
# Made beforehand: PyArrow may swallow an interrupt.
rows = [pa.record_batch({"value": [b"%d" % number]}) for number in range(50_000)]
number = 0
first = True
while True:
    try:
        if not first:
            os.write(1, b"x")
        while True:
            {}
            if first:
                first = False
                break
    except KeyboardInterrupt:
        pass
"""
# Reads to the end or not.
READ = """
            for batch in store.read("t", 0, max_bytes=2000):
                pass
            for batch in store.read("t", 0, 500):
                break
"""
# Reports the numbers that it has appended.
APPEND = """
            while number + 1 == len(rows):
                # Interrupts come slowly, as the machine has other things to do. A loop that never gives up Python's
                # lock may not see one at all: the system may give it to a thread of PyArrow's, and Python 3.11 has the
                # main thread look for it only when it takes the lock the next time, as each call of the store does.
                time.sleep(0.001)
            number += 1
            store.append("t", rows[number], partition=0)
            os.write(2, b"%d " % number)
"""


def interrupt(path, work, signals, said, enough=lambda: True):
    """Runs the work on a store, and interrupts it.

    Args:
        signals: how often, and from then on until there is `enough`, however slow the machine is.
        said: the file to which the work writes.
    """
    seed = new_seed()
    moments = random.Random(seed)
    program = PROGRAM.replace("{}", work.strip())
    with (
        open(said, "wb") as errors,
        subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, stderr=errors) as run,
    ):
        try:
            for number in itertools.count():
                if number >= signals and enough():
                    break
                begun = select.select([run.stdout], [], [], PATIENCE)[0]
                if not begun:
                    run.send_signal(signal.SIGUSR1)
                    time.sleep(1)
                    where = said.read_text()[-2000:]
                    pytest.fail(f"interrupt {number} was lost, or the call after it hangs (seed {seed}): {where}")
                assert os.read(run.stdout.fileno(), 1) == b"x", said.read_text()
                time.sleep(moments.uniform(0, 0.002))
                run.send_signal(signal.SIGINT)
        finally:
            run.kill()


@pytest.mark.parametrize("signals", few_or_many(300, 1500))
def test_no_interrupt_of_a_long_read_is_lost(tmp_path, signals):
    store = Store.create(tmp_path / "store")
    # Many small segments: files are opened and closed all the time.
    store.create_topic("t", 1, {"segment.bytes": "3000"})
    for _ in range(40):
        store.append("t", pa.record_batch({"value": [b"x" * 100] * 20}))
    said = tmp_path / "said"
    interrupt(store.path, READ, signals, said)
    assert said.read_bytes() == b""


@pytest.mark.parametrize("signals", few_or_many(300, 1500))
def test_what_was_appended_before_an_interrupt_stays(tmp_path, signals):
    store = new_store(tmp_path, {"segment.bytes": "1500"})
    said = tmp_path / "said"
    interrupt(store.path, APPEND, signals, said, lambda: len(said.read_text().split()) > signals / 10)
    acknowledged = [int(number) for number in said.read_text().split()]
    values = [int(value) for batch in store.read("t", 0) for value in batch["value"].to_pylist()]
    assert set(acknowledged) <= set(values)
    assert values == sorted(set(values)), "one was appended twice"
    assert not verify(store.path).damaged
