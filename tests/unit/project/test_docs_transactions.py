"""The program in docs/concepts/transactions.md does what the page says."""

import re

import pyarrow as pa

from pyspark_log import OffsetsLog, Store
from tests.paths import ROOT

PAGE = ROOT / "docs/concepts/transactions.md"


def program():
    """The functions of the page's first program."""
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], names)
    return names


def values(store, topic):
    partitions = range(store.describe_topic(topic).partitions)
    return sorted(v for p in partitions for batch in store.read(topic, p) for v in batch["value"].to_pylist())


def test_it_copies_each_record_once_however_often_it_runs(tmp_path):
    store = Store.create(tmp_path / "store")
    store.create_topic("words", 3)
    store.create_topic("loud", 2)
    shout, wanted = program()["shout"], []
    for round_ in range(3):
        words = [b"word %d of %d" % (number, round_) for number in range(20)]
        for word in words:
            store.append("words", pa.record_batch({"key": [word], "value": [word]}))
        shout(store.path, "words", "loud", "shouters", batch_bytes=1)
        wanted += [word.upper() for word in words]
        assert values(Store.open(store.path), "loud") == sorted(wanted)
    ends = {at: store.latest_offset(at.topic, at.partition) for at in OffsetsLog(store).fetch("shouters")}
    assert ends == {at: kept.offset for at, kept in OffsetsLog(store).fetch("shouters").items()}
    assert sum(ends.values()) == 60
